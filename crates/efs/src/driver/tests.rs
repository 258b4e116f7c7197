//! The driver's decisions against an API server in memory: from every state, with a crash at every write, to rest.

use std::sync::Arc;

use crate::names::{driver, labels};
use aquifer_engine::cluster::ApiError;
use aquifer_engine::model::{Model, Sim, walk};
use aquifer_engine::{OWNER, OWNER_UID};
use aquifer_engine::{Object, ObjectRef};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::installed::tests::{place, prepare};
use crate::kinds::{SHARED_VOLUME, VOLUME};
use crate::manifests;

mod plans;

/// A cluster in which SharedVolumes are defined and the driver is wanted.
fn start() -> Sim<Driver> {
    start_with(Driver::default())
}

fn start_with(driver: Driver) -> Sim<Driver> {
    let model = Model::default();
    prepare(&model);
    model.put(&CRD, json!({"metadata": {"name": SHARED_VOLUME_CRD}}));
    for body in driver.bootstrap() {
        model.put(&COMPONENT, body.as_value().clone());
    }
    Sim::new(driver, Arc::new(model))
}

fn namespace() -> ObjectRef {
    NAMESPACE.at("", driver::DEFAULT_NAMESPACE)
}

fn component() -> ObjectRef {
    COMPONENT.key(&key())
}

/// Every object of the driver that the operator makes.
fn targets() -> Vec<ObjectRef> {
    manifests::manifests(&DriverConfig::default()).into_iter().map(|manifest| manifest.target).collect()
}

fn target(kind: &Kind) -> ObjectRef {
    targets().into_iter().find(|target| target.kind == *kind).unwrap()
}

fn present(sim: &Sim<Driver>) -> Vec<String> {
    targets()
        .iter()
        .filter(|target| sim.model.object(target).is_some())
        .map(|target| target.kind.to_string())
        .collect()
}

/// `Ready` as status, reason and message.
fn ready(sim: &Sim<Driver>) -> (String, String, String) {
    let object = sim.model.object(&component()).unwrap();
    let ready = object.condition("Ready").cloned().unwrap_or_default();
    let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

fn reason(sim: &Sim<Driver>) -> String {
    ready(sim).1
}

fn mark_removed(sim: &Sim<Driver>) {
    sim.model.edit(&component(), |doc| doc["spec"]["desired"] = json!("Removed"));
}

/// One that may have a volume.
fn shared_volume(sim: &Sim<Driver>) -> ObjectRef {
    let metadata =
        json!({"name": "data", "namespace": "team", "finalizers": [labels::SHARED_VOLUME_FINALIZER]});
    sim.model.put(&SHARED_VOLUME, json!({"metadata": metadata}));
    SHARED_VOLUME.at("team", "data")
}

fn take_away(sim: &Sim<Driver>, shared: &ObjectRef) {
    sim.model.unfinalize(shared, labels::SHARED_VOLUME_FINALIZER);
    sim.model.delete(shared);
}

async fn settled(sim: &Sim<Driver>) -> usize {
    let settled = sim.settle().await;
    assert!(settled.failures.is_empty(), "{:?}", settled.failures);
    settled.writes
}

async fn installed() -> Sim<Driver> {
    let sim = start();
    settled(&sim).await;
    assert_eq!(ready(&sim).0, "True", "{:?}", ready(&sim));
    sim
}

/// Another object of the same name, without our mark.
fn stranger(sim: &Sim<Driver>, kind: &Kind) -> Object {
    let target = target(kind);
    sim.model.put(
        kind,
        json!({"metadata": {"name": target.key.name, "namespace": target.key.namespace}, "theirs": true}),
    )
}

#[tokio::test]
async fn everything_is_made_once_and_then_there_is_rest() {
    let sim = installed().await;
    assert_eq!(present(&sim).len(), targets().len());
    assert_eq!(reason(&sim), "Installed");
    let listed = sim.model.object(&component()).unwrap();
    let listed: Vec<_> = listed
        .at("/status/objects")
        .unwrap()
        .as_array()
        .unwrap()
        .iter()
        .map(|o| format!("{} {}", o["kind"].as_str().unwrap(), o["state"].as_str().unwrap()))
        .collect();
    let provided = ["Namespace Provided", "ServiceAccount Provided"];
    let made = ["DaemonSet Current", "CSIDriver Current", "StorageClass Current"];
    assert_eq!(listed, [&provided[..], &made].concat());
    assert_eq!(settled(&sim).await, 0, "converged is zero writes");
    assert!(sim.model.created().values().all(|n| *n == 1), "{:?}", sim.model.created());
}

#[tokio::test]
async fn whatever_drifts_is_put_back_in_place() {
    for target in targets() {
        let sim = installed().await;
        let before = sim.model.object(&target).unwrap();
        let edits: [fn(&mut Value); 3] = [
            |doc| doc["metadata"]["labels"] = json!({}),
            |doc| doc["metadata"]["annotations"] = json!({}),
            |doc| {
                doc["metadata"] = json!({"name": doc["metadata"]["name"], "namespace": doc["metadata"]["namespace"],
                "uid": doc["metadata"]["uid"], "generation": 1});
            },
        ];
        for edit in edits {
            sim.model.edit(&target, edit);
            settled(&sim).await;
            let after = sim.model.object(&target).unwrap();
            assert_eq!(after.uid(), before.uid(), "{target}");
            assert_eq!(after.at("/metadata/labels"), before.at("/metadata/labels"), "{target}");
            assert_eq!(after.at("/metadata/annotations"), before.at("/metadata/annotations"), "{target}");
        }
        sim.model.delete(&target);
        settled(&sim).await;
        assert!(sim.model.object(&target).is_some(), "{target}");
        assert_eq!(reason(&sim), "Installed");
        assert_eq!(settled(&sim).await, 0, "{target}");
    }
}

#[tokio::test]
async fn a_crash_at_any_write_of_install_drift_and_removal_changes_nothing_about_the_end() {
    let script = async |sim: &Sim<Driver>| {
        sim.settle().await;
        sim.model.delete(&target(&STORAGE_CLASS));
        sim.model.edit(&target(&DAEMON_SET), |doc| {
            doc["spec"]["template"]["spec"]["containers"][0]["image"] = json!("x");
        });
        sim.settle().await;
        let shared = shared_volume(sim);
        mark_removed(sim);
        sim.settle().await;
        take_away(sim, &shared);
        sim.settle().await;
    };
    let report = walk(start, script, |sim| json!({"present": present(sim), "ready": ready(sim).1})).await;
    println!("{} write points, {} runs", report.points, report.runs);
    assert!(report.points > 8, "{}", report.points);
    assert!(report.divergent.is_empty(), "{:#?}", report.divergent);

    let sim = start();
    script(&sim).await;
    assert_eq!((present(&sim), reason(&sim)), (vec![], "Removed".to_owned()));
}

#[tokio::test]
async fn the_marker_stops_repair_and_the_driver_goes_only_when_nothing_needs_it() {
    let sim = installed().await;
    let shared = shared_volume(&sim);
    let volume = VOLUME.at("", "by-hand");
    sim.model.put(
        &VOLUME,
        json!({"metadata": {"name": "by-hand"}, "spec": {"csi": {"driver": driver::DRIVER_NAME}}}),
    );
    sim.model
        .put(&VOLUME, json!({"metadata": {"name": "other"}, "spec": {"csi": {"driver": "ebs.csi.aws.com"}}}));
    mark_removed(&sim);
    sim.model.delete(&target(&STORAGE_CLASS));
    settled(&sim).await;
    let (status, reason, message) = ready(&sim);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Removing"));
    assert!(message.contains("SharedVolume team/data, PersistentVolume by-hand"), "{message}");
    assert!(!message.contains("other"), "{message}");
    assert_eq!(present(&sim).len(), targets().len() - 1, "nothing is repaired, nothing is taken away");

    take_away(&sim, &shared);
    settled(&sim).await;
    assert_eq!(present(&sim).len(), targets().len() - 1, "a volume needs it still");
    sim.model.delete(&volume);
    settled(&sim).await;
    assert_eq!(present(&sim), Vec::<String>::new());
    assert_eq!(ready(&sim).1, "Removed");
    let order: Vec<String> = sim.model.log().into_iter().filter(|line| line.starts_with("delete")).collect();
    let at = |kind: &str| order.iter().position(|line| line.contains(&format!(" {kind} "))).unwrap();
    assert!(at("CSIDriver") < at("DaemonSet"), "{order:?}");
    assert!(sim.model.object(&namespace()).is_some(), "the installation's");

    // Taking the marker back brings everything back.
    sim.model.edit(&component(), |doc| doc["spec"] = json!({}));
    settled(&sim).await;
    assert_eq!(ready(&sim).1, "Installed");
}

#[tokio::test]
async fn without_the_definition_of_shared_volumes_there_is_no_driver() {
    let sim = installed().await;
    let definition = CRD.at("", SHARED_VOLUME_CRD);
    sim.model.edit(&definition, |doc| doc["metadata"]["finalizers"] = json!(["cleanup"]));
    let shared = shared_volume(&sim);
    sim.model.delete(&definition);
    settled(&sim).await;
    assert!(ready(&sim).2.contains("SharedVolume team/data"), "{:?}", ready(&sim));
    take_away(&sim, &shared);
    settled(&sim).await;
    assert_eq!((present(&sim), reason(&sim)), (vec![], "Removed".to_owned()));
    assert!(ready(&sim).2.contains("aquifer crds"), "{:?}", ready(&sim));
    sim.model.unfinalize(&definition, "cleanup");
    assert_eq!(settled(&sim).await, 0);
    sim.model.put(&CRD, json!({"metadata": {"name": SHARED_VOLUME_CRD}}));
    settled(&sim).await;
    assert_eq!(reason(&sim), "Installed");
}

#[tokio::test]
async fn what_is_not_ours_is_left_alone_and_reported() {
    let sim = start();
    let theirs = stranger(&sim, &STORAGE_CLASS);
    settled(&sim).await;
    let (status, reason, message) = ready(&sim);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Conflict"));
    assert!(message.contains("StorageClass efs-sc"), "{message}");
    assert_eq!(sim.model.object(&target(&STORAGE_CLASS)).unwrap(), theirs);
    assert_eq!(present(&sim).len(), targets().len(), "the others are made");
    mark_removed(&sim);
    settled(&sim).await;
    assert_eq!(present(&sim), ["StorageClass"]);
}

#[tokio::test]
async fn a_foreign_csidriver_makes_the_whole_driver_external_until_it_goes() {
    let sim = start();
    stranger(&sim, &CSI_DRIVER);
    settled(&sim).await;
    assert_eq!((reason(&sim), present(&sim)), ("External".to_owned(), vec!["CSIDriver".to_owned()]));
    sim.model.delete(&target(&CSI_DRIVER));
    settled(&sim).await;
    assert_eq!(reason(&sim), "Installed");
}

#[tokio::test]
async fn a_driver_is_never_left_behind_in_another_namespace() {
    let sim = installed().await;
    let config = DriverConfig { namespace: "other".into(), ..DriverConfig::default() };
    let elsewhere = Sim::new(Driver { config, ..Driver::default() }, Arc::clone(&sim.model));
    settled(&elsewhere).await;
    let (_, reason_given, message) = ready(&elsewhere);
    assert_eq!(reason_given, "Conflict");
    assert!(
        message.contains("is in namespace aquifer-efs") && message.contains("keep it in other"),
        "{message}"
    );
    // Not even a removal forgets it: this operator could not find it.
    mark_removed(&elsewhere);
    settled(&elsewhere).await;
    assert_eq!(reason(&elsewhere), "Conflict");
    assert_eq!(present(&elsewhere).len(), targets().len());
    assert_eq!(settled(&elsewhere).await, 0);
    let back = Sim::new(Driver::default(), Arc::clone(&sim.model));
    settled(&back).await;
    assert_eq!((present(&back), reason(&back)), (vec![], "Removed".to_owned()));
}

/// What an attacker has who could make the namespace first, or again after an administrator had deleted it.
#[tokio::test]
async fn a_namespace_or_account_that_somebody_else_made_gets_no_node_plugin() {
    let nobodys = json!({"metadata": {"name": driver::DEFAULT_NAMESPACE}});
    let unmarked = |doc: &mut Value| doc["metadata"]["labels"] = json!({});
    let account = SERVICE_ACCOUNT.at(driver::DEFAULT_NAMESPACE, driver::SERVICE_ACCOUNT);
    let sim = start();
    for target in [namespace(), account] {
        sim.model.edit(&target, unmarked);
        settled(&sim).await;
        let (status, reason, message) = ready(&sim);
        assert_eq!((status.as_str(), reason.as_str()), ("False", "Conflict"), "{message}");
        assert!(message.contains(&target.to_string()) && message.contains("take-ownership"), "{message}");
        assert_eq!(present(&sim), ["CSIDriver", "StorageClass"], "nothing that runs");
        prepare(&sim.model);
    }
    // Without any, it says what to do.
    let sim = start();
    sim.model.delete(&namespace());
    settled(&sim).await;
    assert_eq!(ready(&sim).1, "NotPrepared");
    assert!(ready(&sim).2.contains("helm upgrade, or aquifer install"), "{:?}", ready(&sim));
    assert_eq!(present(&sim), ["CSIDriver", "StorageClass"]);
    sim.model.put(&NAMESPACE, nobodys);
    settled(&sim).await;
    assert_eq!(reason(&sim), "Conflict");
}

#[tokio::test]
async fn another_namespace_of_the_same_name_is_not_the_one_that_was_trusted_whatever_its_marks_say() {
    let sim = installed().await;
    let trusted = sim.model.object(&namespace()).unwrap().uid().to_owned();
    sim.model.delete(&namespace());
    sim.model.delete(&target(&DAEMON_SET));
    settled(&sim).await;
    assert_eq!(reason(&sim), "NotPrepared");
    sim.model.put(&NAMESPACE, place()[0].1.clone());
    settled(&sim).await;
    assert_ne!(sim.model.object(&namespace()).unwrap().uid(), trusted);
    for _ in 0..2 {
        // Also at the next look: what was refused is not recorded as what was trusted.
        assert_eq!(settled(&sim).await, 0);
        let (_, reason, message) = ready(&sim);
        assert_eq!(reason, "Conflict");
        assert!(message.contains("deleted and made again"), "{message}");
        assert!(sim.model.object(&target(&DAEMON_SET)).is_none());
    }
    // An administrator says that it is theirs.
    sim.model.delete(&component());
    for body in Driver::default().bootstrap() {
        sim.model.put(&COMPONENT, body.as_value().clone());
    }
    settled(&sim).await;
    assert_eq!(reason(&sim), "Installed");
}

#[tokio::test]
async fn an_object_that_only_names_our_component_is_not_ours_while_another_one_is_recorded() {
    let sim = installed().await;
    let class = target(&STORAGE_CLASS);
    let forged = |uid: Value| {
        let metadata = json!({"name": driver::STORAGE_CLASS, "annotations": {OWNER: driver::COMPONENT},
            "labels": {OWNER_UID: uid}});
        json!({"metadata": metadata, "theirs": true})
    };
    sim.model.delete(&class);
    sim.model.put(&STORAGE_CLASS, forged(json!("copied")));
    settled(&sim).await;
    assert_eq!(reason(&sim), "Conflict");
    assert_eq!(sim.model.object(&class).unwrap().at("/theirs"), Some(&json!(true)));
    // A copy of our own object, such as one that was restored, carries the uid of the Component.
    let own = sim.model.object(&component()).unwrap().uid().to_owned();
    sim.model.delete(&class);
    sim.model.put(&STORAGE_CLASS, forged(json!(own)));
    settled(&sim).await;
    assert_eq!(reason(&sim), "Installed");
    assert_eq!(sim.model.object(&class).unwrap().at("/theirs"), None);
}

#[tokio::test]
async fn a_shared_volume_that_has_nothing_does_not_hold_a_removal_up() {
    let sim = installed().await;
    sim.model.put(&SHARED_VOLUME, json!({"metadata": {"name": "new", "namespace": "team"}}));
    mark_removed(&sim);
    settled(&sim).await;
    assert_eq!((present(&sim), reason(&sim)), (vec![], "Removed".to_owned()));
}

#[tokio::test]
async fn a_driver_of_another_user_gets_nothing() {
    let sim = start_with(Driver { management: Management::External, ..Driver::default() });
    settled(&sim).await;
    assert_eq!((reason(&sim), present(&sim)), ("External".to_owned(), vec![]));
    assert_eq!(settled(&sim).await, 0);
    let kinds: Vec<Kind> = sim_watches(Management::External);
    assert_eq!(kinds, [COMPONENT, CRD], "it has no rights to look at more");
    // What we made before stays recorded, and a removal is noted.
    let sim = installed().await;
    let before = sim.model.object(&component()).unwrap().at("/status/objects").cloned();
    let other = Driver { management: Management::External, ..Driver::default() };
    let sim = Sim::new(other, Arc::clone(&sim.model));
    settled(&sim).await;
    assert_eq!(reason(&sim), "External");
    assert_eq!(sim.model.object(&component()).unwrap().at("/status/objects").cloned(), before);
    let shared = shared_volume(&sim);
    mark_removed(&sim);
    settled(&sim).await;
    assert_eq!(reason(&sim), "Removing");
    take_away(&sim, &shared);
    settled(&sim).await;
    // What we made is still there, and nobody is told otherwise.
    assert_eq!((reason(&sim), present(&sim).len()), ("Removing".to_owned(), targets().len()));
    assert!(ready(&sim).2.contains("DaemonSet efs-csi-node"), "{:?}", ready(&sim));
    // Where we never made anything, volumes for the other owner's driver hold nothing up.
    let sim = start_with(Driver { management: Management::External, ..Driver::default() });
    sim.model.put(
        &VOLUME,
        json!({"metadata": {"name": "theirs"}, "spec": {"csi": {"driver": driver::DRIVER_NAME}}}),
    );
    mark_removed(&sim);
    settled(&sim).await;
    assert_eq!(reason(&sim), "Removed");
}

fn sim_watches(management: Management) -> Vec<Kind> {
    let driver = Driver { management, ..Driver::default() };
    driver.watches().into_iter().map(|watch| watch.kind).collect()
}

#[tokio::test]
async fn one_object_that_is_refused_keeps_no_other_away() {
    let sim = start();
    let refused = target(&CSI_DRIVER);
    sim.model.refuse(&refused, ApiError::Forbidden("no".into()));
    sim.settle().await;
    let (status, reason, message) = ready(&sim);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "AccessDenied"));
    assert!(message.contains(&refused.to_string()), "{message}");
    assert_eq!(present(&sim).len(), targets().len() - 1);
    sim.model.admit(&refused);
    settled(&sim).await;
    assert_eq!(ready(&sim).1, "Installed");
}

/// What a pass may find in the place of an object.
#[derive(Clone, Copy, Debug)]
enum Found {
    Nothing,
    Ours,
    Drifted,
    Foreign,
    Going,
}

fn found() -> impl Strategy<Value = Found> {
    prop_oneof![
        Just(Found::Nothing),
        Just(Found::Ours),
        Just(Found::Drifted),
        Just(Found::Foreign),
        Just(Found::Going)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// From every state: it comes to rest; at rest the decision stays the same until its wake-up and nothing is written;
    /// what is not ours is never touched.
    #[test]
    fn from_every_state_there_is_rest(states in prop::collection::vec(found(), 3), removed: bool, needed: bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let sim = installed().await;
            for (target, state) in targets().into_iter().zip(&states) {
                match state {
                    Found::Ours => {}
                    Found::Nothing => sim.model.delete(&target),
                    Found::Drifted => sim.model.edit(&target, |doc| doc["metadata"]["labels"] = json!({"theirs": "x"})),
                    Found::Foreign => {
                        sim.model.delete(&target);
                        stranger(&sim, &target.kind);
                    }
                    Found::Going => {
                        sim.model.edit(&target, |doc| doc["metadata"]["finalizers"] = json!(["example.com/theirs"]));
                        sim.model.delete(&target);
                    }
                }
            }
            if needed {
                shared_volume(&sim);
            }
            if removed {
                mark_removed(&sim);
            }
            settled(&sim).await;
            let plan = sim.plan(&key()).await.unwrap();
            if plan.wake_after.is_none() {
                sim.advance(3600);
            }
            assert_eq!(sim.plan(&key()).await.unwrap(), plan, "the plan is constant");
            assert_eq!(settled(&sim).await, 0, "at rest");
            for (target, state) in targets().into_iter().zip(&states) {
                if let Found::Foreign = state {
                    let live = sim.model.object(&target).unwrap();
                    assert_eq!(live.at("/theirs"), Some(&json!(true)), "{target}");
                    assert_eq!(live.annotation(OWNER), None, "{target}");
                }
            }
        });
    }
}

/// What is in the status of the Component, to the byte: an upgrade must find nothing to write.
#[tokio::test]
async fn the_status_is_written_in_every_situation_as_earlier_versions_wrote_it() {
    let mut seen = Vec::new();
    let mut note = |what: &str, sim: &Sim<Driver>| {
        let status = sim.model.object(&component()).and_then(|object| object.at("/status").cloned());
        seen.push(format!("{what}: {}", status.unwrap_or_default()));
    };
    let sim = installed().await;
    note("installed", &sim);
    sim.model.edit(&target(&DAEMON_SET), |doc| {
        doc["status"] = json!({"desiredNumberScheduled": 3, "numberReady": 2});
    });
    settled(&sim).await;
    note("ready on two of three nodes", &sim);
    let shared = shared_volume(&sim);
    mark_removed(&sim);
    settled(&sim).await;
    note("needed", &sim);
    take_away(&sim, &shared);
    sim.model.edit(&target(&DAEMON_SET), |doc| doc["metadata"]["finalizers"] = json!(["example.com/x"]));
    settled(&sim).await;
    note("held", &sim);
    sim.model.unfinalize(&target(&DAEMON_SET), "example.com/x");
    settled(&sim).await;
    note("removed", &sim);

    let sim = start();
    stranger(&sim, &STORAGE_CLASS);
    settled(&sim).await;
    note("in the way", &sim);

    let sim = start();
    sim.model.delete(&namespace());
    settled(&sim).await;
    note("no namespace", &sim);
    sim.model.put(&NAMESPACE, json!({"metadata": {"name": driver::DEFAULT_NAMESPACE}}));
    settled(&sim).await;
    note("the namespace of somebody else", &sim);

    let sim = start();
    stranger(&sim, &CSI_DRIVER);
    settled(&sim).await;
    note("external", &sim);

    let sim = start();
    sim.model.refuse(&target(&STORAGE_CLASS), ApiError::Forbidden("no".into()));
    sim.settle().await;
    note("refused", &sim);
    insta::assert_snapshot!(seen.join("\n"));
}
