//! SharedVolumes in the model: tables of situations, and a crash at every write point.

use std::sync::Arc;

use aquifer_engine::cluster::ApiError;
use aquifer_engine::intent::{INTENT, OWNER, OWNER_UID};
use aquifer_engine::model::{Model, Sim, walk};
use aquifer_engine::{Key, Object, ObjectRef};
use serde_json::{Value, json};

use super::{Volumes, claim_name, volume_name};
use crate::binder::{PVC_PROTECTION, binder};
use crate::kinds::{CLAIM, COMPONENT, NAMESPACE, POD, SHARED_VOLUME, VOLUME};
use crate::names::{driver, labels};

mod access;
mod driver_seen;
mod plans;
mod restored;
mod wishes;

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
    Sim::new(Volumes::default(), model)
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
        let bugs: Vec<_> =
            settled.failures.iter().filter(|f| f.class == aquifer_engine::Class::Bug).collect();
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
async fn create_makes_a_bound_pair_in_six_writes_and_then_rests() {
    let sim = ready().await;
    assert_eq!(handle(&sim), format!("{FS}::{AP}"));
    let log = sim.model.log();
    // Finalizer, claim, the volume for it, the word to the claim; twice the status.
    let verbs: Vec<&str> = log.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(verbs, ["apply", "apply", "create", "update", "patch", "update"], "{log:?}");
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
async fn what_another_user_owns_is_left_alone_and_named() {
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
async fn a_claim_of_a_user_never_gets_our_volume_whenever_it_comes() {
    // Before the volume is made for ours, and after it.
    for made in [false, true] {
        let sim = start();
        if !made {
            sim.model.refuse(&volume(), ApiError::Forbidden("a quota".into()));
        }
        put(&sim, AP);
        sim.settle().await;
        assert_eq!(
            (sim.model.object(&volume()).is_some(), sim.model.object(&claim()).is_some()),
            (made, true)
        );
        sim.model.delete(&claim());
        let spec = json!({"storageClassName": "efs-sc"});
        let metadata = json!({"namespace": "team", "name": "pvc-data"});
        let theirs = sim.model.put(&CLAIM, json!({"metadata": metadata, "spec": spec}));
        sim.model.admit(&volume());
        settle(&sim).await;
        assert_eq!(reason(&sim), "Conflict");
        let object = sim.model.object(&claim()).unwrap();
        assert_eq!(object.uid(), theirs.uid(), "{:?}", sim.model.log());
        assert_eq!(object.text("/spec/volumeName"), "", "it gets no volume");
        assert_eq!(object.at("/metadata/labels"), None, "it is not marked as ours");
        sim.model.delete(&claim());
        settle(&sim).await;
        assert_eq!(reason(&sim), "Bound", "{:?}", sim.model.log());
        assert_ne!(uid(&sim, &claim()), theirs.uid());
    }
}

#[tokio::test]
async fn a_volume_that_comes_in_the_way_of_our_claim_does_not_get_it() {
    let sim = start();
    sim.model.refuse(&volume(), ApiError::Policy("not now".into()));
    put(&sim, AP);
    sim.settle().await;
    assert!(sim.model.object(&claim()).is_some(), "it waits for its volume");
    let theirs = json!({"metadata": {"name": volume().key.name}, "spec": {"claimRef": {"namespace": "elsewhere", "name": "x"}}});
    sim.model.put(&VOLUME, theirs.clone());
    sim.model.admit(&volume());
    settle(&sim).await;
    assert_eq!(
        (reason(&sim).as_str(), sim.model.object(&claim())),
        ("Conflict", None),
        "{:?}",
        sim.model.log()
    );
    sim.model.delete(&volume());
    settle(&sim).await;
    assert_eq!(reason(&sim), "Bound");

    // One that our claim was bound to goes only when it is deleted, and then our claim lets it.
    let sim = start();
    sim.model.refuse(&volume(), ApiError::Policy("not now".into()));
    put(&sim, AP);
    sim.settle().await;
    let ours = uid(&sim, &claim());
    let mut taken = theirs;
    taken["spec"]["claimRef"] = json!({"namespace": "team", "name": claim().key.name, "uid": ours});
    taken["metadata"]["finalizers"] = json!(["kubernetes.io/pv-protection"]);
    sim.model.put(&VOLUME, taken);
    sim.model.edit(&claim(), |doc| doc["status"] = json!({"phase": "Bound"}));
    sim.model.admit(&volume());
    settle(&sim).await;
    assert_eq!((reason(&sim).as_str(), uid(&sim, &claim())), ("Conflict", ours), "pods may use it");
    sim.model.delete(&volume());
    settle(&sim).await;
    assert_eq!(reason(&sim), "Bound", "{:?}", sim.model.log());
}

#[tokio::test]
async fn claims_of_other_names_or_classes_do_not_keep_the_name_of_a_volume_from_being_read() {
    let labels = json!({labels::OWNED: "true", labels::OWNER_NAMESPACE: "team", labels::OWNER_NAME: "data"});
    for leaves in [false, true] {
        let sim = start();
        put(&sim, AP);
        let mut labels = labels.clone();
        labels[OWNER_UID] = json!(uid(&sim, &shared()));
        // A volume of our name that no cache shows, and a claim with copied marks that asks for it.
        let theirs = json!({"metadata": {"name": volume().key.name}, "spec": {"claimRef": {"namespace": "elsewhere", "name": "x"}}});
        sim.model.put(&VOLUME, theirs);
        let class = if leaves { "another" } else { driver::STORAGE_CLASS };
        let metadata =
            json!({"namespace": "team", "name": "other", "labels": labels, "finalizers": ["example.com/x"]});
        let spec = json!({"volumeName": volume().key.name, "storageClassName": class});
        sim.model.put(&CLAIM, json!({"metadata": metadata, "spec": spec}));
        if leaves {
            sim.model.delete(&CLAIM.at("team", "other"));
            let now = json!(sim.now().to_string());
            sim.model.edit(&CLAIM.at("team", "other"), |doc| doc["metadata"]["deletionTimestamp"] = now);
        }
        sim.settle().await;
        assert_eq!(reason(&sim), "Conflict");
        let made = sim.model.log().iter().any(|line| line.contains("PersistentVolumeClaim team/pvc-data"));
        assert!(!made, "no claim is made that could get it: {:?}", sim.model.log());
    }
}

#[tokio::test]
async fn a_claim_of_ours_that_lost_its_uid_before_it_was_recorded_is_repaired() {
    let sim = ready().await;
    let before = uid(&sim, &claim());
    sim.model.edit(&shared(), |doc| doc["status"]["claimUID"] = Value::Null);
    sim.model.edit(&claim(), |doc| doc["metadata"]["labels"][OWNER_UID] = Value::Null);
    settle(&sim).await;
    assert_eq!(uid(&sim, &claim()), before, "{:?}", sim.model.log());
    assert_eq!(sim.model.object(&claim()).unwrap().label(OWNER_UID), Some(&*uid(&sim, &shared())));
    assert_eq!(reason(&sim), "Bound");
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
                "spec": {"volumeName": "pv-team-data", "storageClassName": driver::STORAGE_CLASS}}),
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
async fn a_strangers_claim_that_goes_does_not_hide_our_volume_that_no_cache_shows() {
    let other = ready().await;
    let sim = start();
    sim.freeze(&VOLUME);
    put(&sim, AP);
    sim.model.edit(&shared(), |doc| doc["metadata"]["finalizers"] = json!([labels::SHARED_VOLUME_FINALIZER]));
    let mut ours = other.model.object(&volume()).unwrap().0;
    ours["metadata"]["labels"][OWNER_UID] = json!(uid(&sim, &shared()));
    sim.model.put(&VOLUME, ours);
    let theirs = json!({"namespace": "team", "name": claim_name(&key()), "finalizers": [PVC_PROTECTION],
        "labels": {labels::OWNED: "true"}});
    sim.model.put(&CLAIM, json!({"metadata": theirs, "spec": {"volumeName": "theirs"}}));
    sim.model.delete(&claim());
    let now = json!(sim.now().to_string());
    sim.model.edit(&claim(), |doc| doc["metadata"]["deletionTimestamp"] = now);
    sim.model.delete(&shared());
    settle(&sim).await;
    let log = sim.model.log();
    let at = |verb: &str, target: &ObjectRef| log.iter().position(|line| *line == format!("{verb} {target}"));
    let (volume_goes, released) = (at("delete", &volume()), at("patch", &shared()));
    assert!(volume_goes.is_some() && volume_goes < released, "{log:?}");
}

/// Kubernetes may delete an object although a finalizer was put on it in the same moment.
#[tokio::test]
async fn a_pair_that_nobody_has_used_goes_at_once_with_a_shared_volume_that_its_finalizer_did_not_keep() {
    for (claim_is_gone, bound, stripped) in
        [(false, false, false), (true, false, false), (false, true, false), (false, true, true)]
    {
        let sim = start();
        put(&sim, AP);
        sim.settle().await;
        if bound {
            settle(&sim).await;
        }
        let now = json!(sim.now().to_string());
        sim.model.edit(&volume(), |doc| doc["status"]["lastPhaseTransitionTime"] = now);
        if claim_is_gone {
            sim.model.delete(&claim());
        }
        if stripped {
            // A user has taken our marks off, and pods may use it all the same.
            sim.model.edit(&claim(), |doc| {
                doc["metadata"]["labels"] = json!({});
                doc["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
            });
        }
        sim.model.edit(&shared(), |doc| doc["metadata"]["finalizers"] = json!([]));
        sim.model.delete(&shared());
        sim.settle().await;
        let stays = sim.model.object(&volume()).is_some_and(|volume| !volume.deleting());
        assert_eq!(stays, bound, "claim gone: {claim_is_gone}, stripped: {stripped}: {:?}", sim.model.log());
    }
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
async fn an_unreadable_spec_is_reported_and_can_still_be_deleted() {
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

/// Clusters are full of pairs that carry these hashes: another hash would mean a write to every volume and claim when the
/// operator is upgraded.
#[tokio::test]
async fn the_intents_of_volume_and_claim_have_the_hashes_that_earlier_versions_wrote() {
    let long = "x".repeat(80);
    let cases = [
        ("team", "data", Some(AP), "0a4d7144c3e55b66", "2ebe72e58105944e"),
        ("team", "data", None, "26054f4f0aa502e1", "2ebe72e58105944e"),
        ("team-a", "data", Some(AP), "af98c164589ca5c9", "edc314a678127379"),
        ("team", "my-data", None, "52104759e5e1bf73", "39b1caf8b91dbf4f"),
        ("team", &long, Some(AP), "c27f463cb9884b8d", "24ee280377c8f734"),
    ];
    for (namespace, name, access_point, volume_hash, claim_hash) in cases {
        let model = Arc::new(Model::default());
        model.put(&NAMESPACE, json!({"metadata": {"name": namespace}}));
        let sim = Sim::new(Volumes::default(), model);
        let mut spec = json!({"fileSystemID": FS});
        if let Some(access_point) = access_point {
            spec["accessPointID"] = json!(access_point);
        }
        sim.model
            .put(&SHARED_VOLUME, json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec}));
        settle(&sim).await;
        let key = Key::namespaced(namespace, name);
        let hash = |target: ObjectRef| {
            let object = sim.model.object(&target).expect("the pair is made");
            object.annotation(INTENT).unwrap_or_default().to_owned()
        };
        let found = (hash(VOLUME.at("", &volume_name(&key))), hash(CLAIM.at(namespace, &claim_name(&key))));
        assert_eq!(found, (volume_hash.to_owned(), claim_hash.to_owned()), "{key} {access_point:?}");
    }
}

/// A pair that keeps the handle it was made with has another intent than one of ours.
#[tokio::test]
async fn the_intent_of_an_adopted_volume_has_the_hash_that_earlier_versions_wrote() {
    let sim = start();
    let upstream =
        json!({labels::OWNED: "true", labels::OWNER_NAMESPACE: "team", labels::OWNER_NAME: "data"});
    sim.model.put(
        &VOLUME,
        json!({"metadata": {"name": "pv-team-data", "labels": upstream}, "spec": {
            "csi": {"driver": driver::DRIVER_NAME, "volumeHandle": FS},
            "mountOptions": ["tls", format!("accesspoint={AP}")]}}),
    );
    sim.model.put(
        &CLAIM,
        json!({"metadata": {"namespace": "team", "name": "pvc-data", "labels": upstream},
            "spec": {"volumeName": "pv-team-data", "storageClassName": driver::STORAGE_CLASS}}),
    );
    put(&sim, AP);
    settle(&sim).await;
    assert_eq!(sim.model.object(&volume()).unwrap().annotation(INTENT), Some("26054f4f0aa502e1"));
}

/// What is in the status of a SharedVolume, to the byte: an upgrade must find nothing to write. (The condition `Allowed` came later, and cost
/// each SharedVolume one write.)
#[tokio::test]
async fn the_status_is_written_in_every_situation_as_earlier_versions_wrote_it() {
    let mut seen = Vec::new();
    let mut note = |what: &str, sim: &Sim<Volumes>| {
        let status = sim.model.object(&shared()).and_then(|object| object.at("/status").cloned());
        seen.push(format!("{what}: {}", status.unwrap_or_default()));
    };
    let sim = start();
    put(&sim, AP);
    sim.settle().await;
    note("made and not bound", &sim);
    settle(&sim).await;
    note("bound", &sim);
    sim.model.put(
        &COMPONENT,
        json!({"metadata": {"name": driver::COMPONENT}, "status": {"conditions": [
            {"type": "Ready", "status": "Unknown", "reason": "External", "message": "theirs"}]}}),
    );
    sim.model.put(
        &SHARED_VOLUME,
        json!({"metadata": {"namespace": "team", "name": "twin"}, "spec": {"fileSystemID": FS, "accessPointID": AP}}),
    );
    settle(&sim).await;
    note("bound, with a twin and a driver of others", &sim);
    sim.model.put(
        &POD,
        json!({"metadata": {"namespace": "team", "name": "writer"}, "spec": {"nodeName": "worker",
            "volumes": [{"persistentVolumeClaim": {"claimName": "pvc-data"}}]}}),
    );
    sim.model.edit(&shared(), |doc| doc["spec"]["accessPointID"] = json!(OTHER));
    settle(&sim).await;
    note("to be replaced and in use", &sim);
    sim.model.delete(&shared());
    settle(&sim).await;
    note("deleted and in use", &sim);

    let sim = ready().await;
    sim.model.edit(&claim(), |doc| doc["metadata"]["finalizers"] = json!([PVC_PROTECTION, "example.com/x"]));
    sim.model.delete(&shared());
    settle(&sim).await;
    note("deleted and held by a finalizer", &sim);

    let sim = start();
    sim.model.put(&CLAIM, json!({"metadata": {"namespace": "team", "name": "pvc-data"}}));
    put(&sim, AP);
    settle(&sim).await;
    note("in the way", &sim);

    let sim = ready().await;
    sim.model.edit(&NAMESPACE.at("", "team"), |doc| doc["metadata"]["finalizers"] = json!(["kubernetes"]));
    sim.model.delete(&NAMESPACE.at("", "team"));
    sim.model.delete(&claim());
    settle(&sim).await;
    note("in a namespace that ends", &sim);

    let sim = start();
    sim.model.serve(&VOLUME, false);
    put(&sim, AP);
    settle(&sim).await;
    note("volumes are not served", &sim);

    let sim = start();
    sim.model.refuse(&volume(), aquifer_engine::cluster::ApiError::Forbidden("no".into()));
    put(&sim, AP);
    sim.settle().await;
    note("refused", &sim);
    insta::assert_snapshot!(seen.join("\n"));
}
