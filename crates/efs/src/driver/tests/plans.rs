//! Single decisions of the driver: the order of what is done, and what the status says meanwhile.

use aquifer_api::component::ComponentReason;
use aquifer_engine::{Report, State, Urgency};

use super::*;

/// The status that would be decided now.
async fn decided(sim: &Sim<Driver>) -> Report {
    sim.plan(&key()).await.unwrap().status.unwrap()
}

fn hold(sim: &Sim<Driver>, target: &ObjectRef) {
    sim.model.edit(target, |doc| doc["metadata"]["finalizers"] = json!(["example.com/theirs"]));
}

#[tokio::test]
async fn each_kind_is_gone_before_the_next_goes_those_that_users_see_first() {
    let order = [STORAGE_CLASS, CSI_DRIVER, DAEMON_SET];
    for (at, held) in order.iter().enumerate() {
        let sim = installed().await;
        hold(&sim, &target(held));
        mark_removed(&sim);
        settled(&sim).await;
        let going = |kind: &Kind| sim.model.object(&target(kind)).map(|object| object.deleting());
        let seen: Vec<_> = order.iter().map(going).collect();
        let mut wanted = vec![None; at];
        wanted.push(Some(true));
        wanted.resize(order.len(), Some(false));
        assert_eq!(seen, wanted, "while {held} is held");
    }
}

#[tokio::test]
async fn that_the_driver_is_being_installed_can_wait_and_every_result_is_reported_at_once() {
    use ComponentReason::{Conflict, Installed, Installing};
    let said = async |sim: &Sim<Driver>| {
        let report = decided(sim).await;
        (report.get("Ready").unwrap().reason::<ComponentReason>().unwrap(), report.urgency)
    };
    let sim = start();
    assert_eq!(said(&sim).await, (Installing, Urgency::Soon), "nothing is there");
    stranger(&sim, &STORAGE_CLASS);
    assert_eq!(said(&sim).await, (Conflict, Urgency::Now), "something is in the way");
    let sim = installed().await;
    assert_eq!(said(&sim).await, (Installed, Urgency::Now));
    hold(&sim, &target(&STORAGE_CLASS));
    sim.model.delete(&target(&STORAGE_CLASS));
    assert_eq!(said(&sim).await, (Installing, Urgency::Soon), "one is going");
}

#[tokio::test]
async fn the_nodes_are_ready_when_the_plugin_is_ready_on_all_that_it_should_run_on() {
    let sim = installed().await;
    let table = [
        (0, 0, State::Unknown),
        (3, 0, State::False),
        (3, 2, State::False),
        (3, 3, State::True),
        (3, 4, State::True),
    ];
    for (wanted, ready, state) in table {
        sim.model.edit(&target(&DAEMON_SET), |doc| {
            doc["status"] = json!({"desiredNumberScheduled": wanted, "numberReady": ready});
        });
        assert_eq!(decided(&sim).await.get("NodesReady").unwrap().state, state, "{ready} of {wanted}");
    }
}

#[tokio::test]
async fn a_namespace_that_may_refuse_the_node_plugin_gets_advice() {
    let sim = start();
    let advice = async |sim: &Sim<Driver>| {
        settled(sim).await;
        let component = sim.model.object(&component()).unwrap();
        component.text("/status/objects/0/message").contains("may be refused")
    };
    assert!(!advice(&sim).await);
    sim.model.edit(&namespace(), |doc| {
        doc["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = json!("restricted");
    });
    assert!(advice(&sim).await);
    assert_eq!(reason(&sim), "Installed");
}
