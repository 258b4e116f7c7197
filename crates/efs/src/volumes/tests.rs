//! SharedVolumes in the model: tables of situations, and a crash at every write point.

use std::sync::Arc;

use crate::names::{driver, labels};
use aquifer_engine::intent::{OWNER, OWNER_UID};
use aquifer_engine::model::{Model, Sim, walk};
use aquifer_engine::{Key, Object, ObjectRef};
use serde_json::{Value, json};

use super::{Volumes, claim_name, volume_name};
use crate::binder::binder;
use crate::kinds::{CLAIM, NAMESPACE, POD, SHARED_VOLUME, VOLUME};

const FS: &str = "fs-0123456789abcdef0";
const AP: &str = "fsap-0123456789abcdef0";
const OTHER: &str = "fsap-0fedcba9876543210";

fn key() -> Key {
    Key::namespaced("team", "data")
}

fn shared() -> ObjectRef {
    SHARED_VOLUME.key(&key())
}

fn volume() -> ObjectRef {
    VOLUME.at("", &volume_name(&key()))
}

fn claim() -> ObjectRef {
    CLAIM.at("team", &claim_name(&key()))
}

fn start() -> Sim<Volumes> {
    let model = Arc::new(Model::default());
    model.put(&NAMESPACE, json!({"metadata": {"name": "team"}}));
    Sim::new(Volumes, model)
}

fn put(sim: &Sim<Volumes>, access_point: &str) {
    sim.model.put(
        &SHARED_VOLUME,
        json!({"metadata": {"namespace": "team", "name": "data"},
            "spec": {"fileSystemID": FS, "accessPointID": access_point}}),
    );
}

/// Operator and binder in turns until both rest.
async fn settle(sim: &Sim<Volumes>) {
    for _ in 0..30 {
        let before = sim.model.picture();
        let settled = sim.settle().await;
        let bugs: Vec<_> = settled.faults.iter().filter(|f| f.class == aquifer_engine::Class::Bug).collect();
        assert!(bugs.is_empty(), "{bugs:?}");
        binder(&sim.model);
        if sim.model.picture() == before {
            return;
        }
    }
    panic!("operator and binder never rest: {:?}", sim.model.log());
}

fn reason(sim: &Sim<Volumes>) -> String {
    let object = sim.model.object(&shared()).expect("the SharedVolume");
    object.condition("Ready").map(|c| c["reason"].as_str().unwrap_or_default().to_owned()).unwrap_or_default()
}

fn handle(sim: &Sim<Volumes>) -> String {
    sim.model.object(&volume()).map(|v| v.text("/spec/csi/volumeHandle").to_owned()).unwrap_or_default()
}

fn uid(sim: &Sim<Volumes>, target: &ObjectRef) -> String {
    sim.model.object(target).map(|o| o.uid().to_owned()).unwrap_or_default()
}

async fn ready() -> Sim<Volumes> {
    let sim = start();
    put(&sim, AP);
    settle(&sim).await;
    assert_eq!(reason(&sim), "Bound", "{:#?}", sim.model.picture());
    sim
}

#[tokio::test]
async fn create_makes_a_bound_pair_in_five_writes_and_then_rests() {
    let sim = ready().await;
    assert_eq!(handle(&sim), format!("{FS}::{AP}"));
    let log = sim.model.log();
    let objects = log.iter().filter(|line| line.starts_with("apply")).count();
    assert_eq!((objects, log.len()), (3, 5), "{log:?}");
    assert_eq!(sim.settle().await.writes, 0);
}

#[tokio::test]
async fn the_plan_is_constant_when_nothing_changes() {
    let sim = ready().await;
    let first = sim.plan(&key()).await;
    sim.advance(1000);
    assert_eq!(first, sim.plan(&key()).await);
    assert!(first.is_some());
}

#[tokio::test]
async fn every_crash_point_of_create_change_and_delete_ends_in_the_same_state() {
    let script = async |sim: &Sim<Volumes>| {
        put(sim, AP);
        settle(sim).await;
        sim.model.edit(&shared(), |doc| doc["spec"]["accessPointID"] = json!(OTHER));
        settle(sim).await;
        assert_eq!(handle(sim), format!("{FS}::{OTHER}"));
        sim.model.delete(&shared());
        settle(sim).await;
    };
    let report = walk(start, script, |sim| json!(sim.model.object(&shared()).is_none())).await;
    println!("{} write points, {} runs", report.points, report.runs);
    assert!(report.points >= 10, "{report:?}");
    assert!(report.divergent.is_empty(), "{:#?}", report.divergent);
}

#[tokio::test]
async fn a_change_replaces_both_and_waits_for_pods() {
    let sim = ready().await;
    let pod = json!({"metadata": {"namespace": "team", "name": "writer"},
        "spec": {"nodeName": "worker", "volumes": [{"persistentVolumeClaim": {"claimName": "pvc-data"}}]}});
    sim.model.put(&POD, pod);
    let old = uid(&sim, &claim());
    sim.model.edit(&shared(), |doc| doc["spec"]["accessPointID"] = json!(OTHER));
    settle(&sim).await;
    assert_eq!(reason(&sim), "InUse");
    let object = sim.model.object(&shared()).unwrap();
    assert!(object.text("/status/message").contains("writer"), "{object:?}");
    // A revert does not bring back what is already going.
    sim.model.edit(&shared(), |doc| doc["spec"]["accessPointID"] = json!(AP));
    settle(&sim).await;
    assert_eq!(reason(&sim), "InUse");
    sim.model.delete(&POD.at("team", "writer"));
    settle(&sim).await;
    assert_eq!((reason(&sim).as_str(), handle(&sim)), ("Bound", format!("{FS}::{AP}")));
    assert_ne!(uid(&sim, &claim()), old);
}

#[tokio::test]
async fn when_one_half_is_deleted_the_pair_is_rebuilt() {
    for victim in [claim(), volume()] {
        let sim = ready().await;
        let before = (uid(&sim, &claim()), uid(&sim, &volume()));
        sim.model.delete(&victim);
        settle(&sim).await;
        assert_eq!(reason(&sim), "Bound", "after {victim}: {:?}", sim.model.log());
        assert_ne!(uid(&sim, &claim()), before.0);
        assert_ne!(uid(&sim, &volume()), before.1);
    }
}

#[tokio::test]
async fn a_pair_that_only_a_stale_cache_shows_as_broken_is_not_torn_down() {
    for stale in [VOLUME, CLAIM] {
        let sim = start();
        put(&sim, AP);
        sim.settle().await;
        sim.freeze(&stale); // it knows the halves, but not that they are bound
        binder(&sim.model);
        sim.settle().await;
        let log = sim.model.log();
        assert!(!log.iter().any(|line| line.starts_with("delete")), "stale {stale}: {log:?}");
        sim.thaw();
        settle(&sim).await;
        assert_eq!(reason(&sim), "Bound");
    }
}

#[tokio::test]
async fn damaged_marks_are_repaired_and_never_mistaken_for_a_deletion() {
    let damages: [fn(&mut Value); 4] = [
        |doc| doc["metadata"]["labels"] = json!({}),
        |doc| {
            doc["metadata"]["labels"] = json!({});
            doc["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
        },
        |doc| doc["metadata"]["labels"][labels::OWNER_NAME] = json!("other"),
        |doc| doc["metadata"]["annotations"][OWNER] = json!("other/name"),
    ];
    for damage in damages {
        for target in [claim(), volume()] {
            let sim = ready().await;
            let before = uid(&sim, &target);
            let good = sim.model.object(&target).unwrap();
            sim.model.edit(&target, damage);
            settle(&sim).await;
            let after = sim.model.object(&target).unwrap();
            assert_eq!(after.uid(), before, "{target} was replaced");
            assert_eq!(after.at("/metadata/labels"), good.at("/metadata/labels"), "{target}");
            assert_eq!(after.annotation(OWNER), good.annotation(OWNER));
        }
    }
}

#[tokio::test]
async fn what_somebody_else_owns_is_left_alone_and_named() {
    let foreign = |target: &ObjectRef| {
        json!({"metadata": {"namespace": target.key.namespace, "name": target.key.name},
            "spec": {"claimRef": {"namespace": "elsewhere", "name": "x"}}})
    };
    for target in [claim(), volume()] {
        let sim = start();
        let theirs = sim.model.put(&target.kind, foreign(&target));
        put(&sim, AP);
        settle(&sim).await;
        assert_eq!(reason(&sim), "Conflict");
        let object = sim.model.object(&shared()).unwrap();
        assert!(object.text("/status/message").contains(&*target.key.name), "{object:?}");
        assert_eq!(sim.model.object(&target).map(|o| o.uid().to_owned()), Some(theirs.uid().to_owned()));
        sim.model.delete(&target);
        settle(&sim).await;
        assert_eq!(reason(&sim), "Bound", "{:#?}", sim.model.picture());
    }
}

#[tokio::test]
async fn a_pair_of_the_old_operator_is_taken_over_as_it_is() {
    let upstream =
        json!({labels::OWNED: "true", labels::OWNER_NAMESPACE: "team", labels::OWNER_NAME: "data"});
    let styles =
        [(format!("{FS}::{AP}"), json!([])), (FS.to_owned(), json!(["tls", format!("accesspoint={AP}")]))];
    for (handle, options) in styles {
        let sim = start();
        let old = sim.model.put(
            &VOLUME,
            json!({"metadata": {"name": "pv-team-data", "labels": upstream}, "spec": {
                "csi": {"driver": driver::DRIVER_NAME, "volumeHandle": handle}, "mountOptions": options}}),
        );
        let old_claim = sim.model.put(
            &CLAIM,
            json!({"metadata": {"namespace": "team", "name": "pvc-data", "labels": upstream},
                "spec": {"volumeName": "pv-team-data"}}),
        );
        binder(&sim.model);
        put(&sim, AP);
        sim.model.edit(&shared(), |doc| doc["metadata"]["finalizers"] = json!([labels::UPSTREAM_FINALIZER]));
        settle(&sim).await;
        assert_eq!(reason(&sim), "Bound", "{:?}", sim.model.log());
        assert_eq!(uid(&sim, &volume()), old.uid());
        assert_eq!(uid(&sim, &claim()), old_claim.uid());
        let adopted = sim.model.object(&volume()).unwrap();
        assert_eq!(adopted.label(OWNER_UID), Some(uid(&sim, &shared()).as_str()));
        sim.model.delete(&shared());
        settle(&sim).await;
        assert!(sim.model.object(&shared()).is_none(), "both finalizers come off");
        assert!(sim.model.object(&volume()).is_none());
    }
}

#[tokio::test]
async fn a_recreated_one_never_gets_its_predecessors_data() {
    let sim = ready().await;
    // The finalizer is stripped while nobody looks: an orphan pair, and a new SharedVolume of the same name.
    sim.model.edit(&shared(), |doc| doc["metadata"]["finalizers"] = json!([]));
    sim.model.delete(&shared());
    put(&sim, OTHER);
    settle(&sim).await;
    assert_eq!((reason(&sim).as_str(), handle(&sim)), ("Bound", format!("{FS}::{OTHER}")));
}

#[tokio::test]
async fn orphans_go() {
    let sim = ready().await;
    sim.model.edit(&shared(), |doc| doc["metadata"]["finalizers"] = json!([]));
    sim.model.delete(&shared());
    settle(&sim).await;
    assert!(sim.model.object(&volume()).is_none() && sim.model.object(&claim()).is_none());
}

#[tokio::test]
async fn in_a_namespace_that_ends_nothing_is_rebuilt() {
    let sim = ready().await;
    let namespace = NAMESPACE.at("", "team");
    sim.model.edit(&namespace, |doc| doc["metadata"]["finalizers"] = json!(["kubernetes"]));
    sim.model.delete(&namespace);
    sim.model.delete(&claim());
    settle(&sim).await;
    assert_eq!(reason(&sim), "Terminating");
    assert!(sim.model.object(&claim()).is_none() && sim.model.object(&volume()).is_none());
}

#[tokio::test]
async fn twins_in_a_namespace_warn_each_other() {
    let sim = ready().await;
    sim.model.put(
        &SHARED_VOLUME,
        json!({"metadata": {"namespace": "team", "name": "twin"}, "spec": {"fileSystemID": FS, "accessPointID": AP}}),
    );
    settle(&sim).await;
    let twin = sim.model.object(&SHARED_VOLUME.at("team", "twin")).unwrap();
    let warning = |object: &Object| object.condition("Duplicate").map(|c| c["message"].to_string());
    assert!(warning(&twin).is_some_and(|message| message.contains("data")), "{twin:?}");
    sim.model.delete(&SHARED_VOLUME.at("team", "twin"));
    settle(&sim).await;
    assert_eq!(warning(&sim.model.object(&shared()).unwrap()), None);
}

#[tokio::test]
async fn an_unreadable_spec_is_told_and_can_still_be_deleted() {
    let sim = start();
    sim.model.put(&SHARED_VOLUME, json!({"metadata": {"namespace": "team", "name": "data"}}));
    settle(&sim).await;
    assert_eq!(reason(&sim), "Invalid");
    sim.model.delete(&shared());
    settle(&sim).await;
    assert!(sim.model.object(&shared()).is_none());
}

#[test]
fn names_never_collide_and_always_fit() {
    let name = |namespace: &str, name: &str| volume_name(&Key::namespaced(namespace, name));
    assert_eq!(name("team", "data"), "pv-team-data");
    assert_ne!(name("a-b", "c"), name("a", "b-c"));
    let long = "x".repeat(253);
    assert!(name(&"n".repeat(63), &long).len() <= 253);
    assert!(claim_name(&Key::namespaced("n", &long)).len() <= 253);
    assert_eq!(claim_name(&key()), "pvc-data");
}
