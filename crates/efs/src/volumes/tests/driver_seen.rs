//! What SharedVolumes say of the driver, and what they do while it goes.

use super::*;

fn component(sim: &Sim<Volumes>, desired: &str, status: &Value) {
    sim.model.put(
        &COMPONENT,
        json!({"metadata": {"name": driver::COMPONENT}, "spec": {"desired": desired}, "status": status}),
    );
}

fn ready_condition(status: &str, reason: &str) -> Value {
    json!({"type": "Ready", "status": status, "reason": reason,
        "message": "still needed by SharedVolume other-team/secret-project"})
}

fn nodes_condition(status: &str, reason: &str) -> Value {
    json!({"type": "NodesReady", "status": status, "reason": reason, "message": "in the driver's words"})
}

fn said(sim: &Sim<Volumes>) -> (String, String, String) {
    let object = sim.model.object(&shared()).expect("the SharedVolume");
    let found = object.condition("DriverReady").cloned().unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

#[tokio::test]
async fn the_driver_is_ready_only_where_the_node_plugin_serves_and_the_message_says_on_how_many_nodes() {
    let installed = || ready_condition("True", "Installed");
    let counted = |wanted: i64, ready: i64| {
        json!({"conditions": [installed(), nodes_condition("False", "NotRunning")],
            "nodes": {"wanted": wanted, "ready": ready}})
    };
    let uncounted =
        |status: &str, reason: &str| json!({"conditions": [installed(), nodes_condition(status, reason)]});
    let only = |status: &str, reason: &str| json!({"conditions": [ready_condition(status, reason)]});
    let table = [
        (counted(3, 3), "True", "DriverRunning", "serves on all 3 nodes"),
        (
            counted(3, 2),
            "True",
            "DriverPartlyRunning",
            "serves on 2 of 3 nodes; pods on the other nodes wait",
        ),
        (counted(3, 0), "False", "DriverNotReady", "serves on 0 of 3 nodes"),
        (counted(0, 0), "False", "DriverNotReady", "meant for no node"),
        (counted(240, 216), "True", "DriverPartlyRunning", "about 90 % of about 240 nodes"),
        (uncounted("True", "Running"), "True", "DriverRunning", "all nodes that it is meant for"),
        (uncounted("False", "NotRunning"), "False", "DriverNotReady", "does not serve on all nodes"),
        (uncounted("Unknown", "NoNodes"), "False", "DriverNotReady", "meant for no node"),
        (uncounted("Unknown", "NotInstalled"), "Unknown", "DriverUnknown", "has not reported"),
        (only("True", "Installed"), "Unknown", "DriverUnknown", "has not reported"),
        (only("False", "Installing"), "False", "DriverNotReady", "is being installed"),
        (only("False", "Conflict"), "False", "DriverNotReady", "ask an administrator"),
        (only("False", "Removing"), "False", "DriverNotReady", "is being removed"),
        (only("False", "Removed"), "False", "DriverNotReady", "has been removed"),
        (only("False", "AccessDenied"), "False", "DriverNotReady", "is not installed"),
        (only("Unknown", "External"), "Unknown", "DriverExternal", "another owner"),
        (json!({}), "Unknown", "DriverUnknown", "has not reported"),
    ];
    for (status, state, reason, words) in table {
        let sim = start();
        component(&sim, "Installed", &status);
        put(&sim, AP);
        settle(&sim).await;
        let (is_state, is_reason, message) = said(&sim);
        assert_eq!((is_state.as_str(), is_reason.as_str()), (state, reason), "{status}");
        assert!(message.contains(words), "{status}: {message}");
        let whole = sim.model.object(&shared()).unwrap().0.to_string();
        assert!(!whole.contains("secret-project"), "it names objects of another tenant: {whole}");
    }
}

#[tokio::test]
async fn no_status_changes_when_the_driver_waits_for_others_or_one_node_of_many_comes_and_goes() {
    let sim = ready().await;
    let status = |ready: i64, message: &str| {
        let mut condition = ready_condition("True", "Installed");
        condition["message"] = json!(message);
        json!({"conditions": [condition], "nodes": {"wanted": 240, "ready": ready}})
    };
    component(&sim, "Installed", &status(240, "one"));
    settle(&sim).await;
    assert_eq!(said(&sim).1, "DriverRunning");
    component(&sim, "Installed", &status(239, "another"));
    assert_eq!(sim.settle().await.writes, 0);
}

#[tokio::test]
async fn while_the_driver_goes_a_new_one_says_so_and_holds_nothing_and_an_old_one_goes_on() {
    let sim = ready().await;
    component(&sim, "Removed", &json!({"conditions": [ready_condition("False", "Removing")]}));
    sim.model.put(
        &SHARED_VOLUME,
        json!({"metadata": {"namespace": "team", "name": "late"}, "spec": {"fileSystemID": FS, "accessPointID": OTHER}}),
    );
    settle(&sim).await;
    assert_eq!(reason(&sim), "Bound", "the old one goes on");
    let late = SHARED_VOLUME.at("team", "late");
    let now = sim.model.object(&late).unwrap();
    let ready = now.condition("Ready").cloned().unwrap_or_default();
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("DriverRemoved")));
    assert!(ready["message"].as_str().unwrap_or_default().contains("ask an administrator"), "{ready}");
    assert_eq!((now.text("/status/phase"), now.finalizers().len()), ("Failed", 0));
    assert_eq!(sim.model.objects(&VOLUME).len(), 1);
    assert_eq!(sim.settle().await.writes, 0);

    sim.model.delete(&late);
    assert!(sim.model.object(&late).is_none(), "nothing holds it");
    sim.model.delete(&shared());
    settle(&sim).await;
    assert!(sim.model.object(&shared()).is_none() && sim.model.objects(&VOLUME).is_empty());

    put(&sim, AP);
    settle(&sim).await;
    assert_eq!(reason(&sim), "DriverRemoved");
    component(&sim, "Installed", &json!({}));
    settle(&sim).await;
    assert_eq!(reason(&sim), "Bound", "it goes on by itself");
}
