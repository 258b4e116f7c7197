//! SharedVolumes while everything goes wrong that can: users and strangers who do anything in any order, whole processes of the
//! operator in simulated time, beside what kube-controller-manager does. `rules` below says what must hold. Tests only.

mod rules;

use std::time::Duration;

use aquifer_api::component::{ComponentReason, ComponentStatus};
use aquifer_api::efs::SharedVolumeReason;
use aquifer_base::Reason as _;
use aquifer_engine::simulation::{
    PATIENCE, Played, QUIET, Tape, World, first_difference, play, search_as_told,
};
use aquifer_engine::{Key, Kind, Object, ObjectRef, reason_in};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::binder::binder;
use crate::driver::SHARED_VOLUME_CRD;
use crate::installed::tests::prepare;
use crate::kinds::{CLAIM, COMPONENT, CRD, NAMESPACE, POD, SHARED_FILE_SYSTEM, SHARED_VOLUME, VOLUME};
use crate::names::driver;
use crate::simulated::{FILE_SYSTEM, KINDS, families, put};
use crate::volumes::{claim_name, volume_name};

/// How long histories are played in everyday tests.
const EVERYDAY: Duration = Duration::from_secs(4);
/// How much happens in the histories of a full run.
const FULL: usize = 100_000;
const NAMES: [&str; 3] = ["data", "logs", "scratch"];
/// One that is made when nothing goes wrong any more.
const LATE: &str = "late";
/// The annotation of claims that a user makes, with the names of ours.
const OF_A_USER: &str = "of-a-user";
/// The annotation of volumes that an administrator makes, with the names of ours and for claims of others.
const OF_AN_ADMINISTRATOR: &str = "of-an-administrator";
/// A name that several want for their claims.
const CONTESTED: &str = "contested";
const ACCESS_POINTS: [&str; 3] = ["fsap-a", "fsap-b", "fsap-c"];

/// One thing that somebody does.
fn interfere(world: &World) -> Option<String> {
    let model = &world.model;
    let name = *world.pick(&NAMES)?;
    let target = SHARED_VOLUME.at("team", name);
    let pair = || -> Vec<(ObjectRef, Object)> {
        let of =
            |kind: Kind| model.objects(&kind).into_iter().map(move |found| (kind.key(&found.key()), found));
        of(VOLUME).chain(of(CLAIM)).collect()
    };
    Some(match world.choose(17) {
        0 => return None,
        1..=3 => {
            let access_point = *world.pick(&ACCESS_POINTS)?;
            put(world, name, access_point);
            format!("a user wants {access_point} for {name}")
        }
        4 => {
            model.delete(&target);
            format!("a user deletes {name}")
        }
        5 => {
            let (child, _) = world.pick(&pair())?.clone();
            model.delete(&child);
            format!("a stranger deletes {child}")
        }
        6 => {
            let (child, _) = world.pick(&pair())?.clone();
            model.edit(&child, |doc| doc["metadata"]["annotations"]["stranger"] = json!("was here"));
            format!("a stranger edits {child}")
        }
        7 => {
            let names: &[&str] = if world.choose(2) == 0 { &[] } else { &["team"] };
            let spec = json!({"fileSystemID": FILE_SYSTEM, "allowedNamespaces": {"names": names},
                "allowedAccessPoints": {"all": true}});
            model.put(&SHARED_FILE_SYSTEM, json!({"metadata": {"name": "policy"}, "spec": spec}));
            format!("an administrator allows {names:?}")
        }
        8 => {
            model.delete(&SHARED_FILE_SYSTEM.at("", "policy"));
            "an administrator allows everybody".into()
        }
        9 => {
            let (child, found) = world.pick(&pair())?.clone();
            let labels = found.0["metadata"]["labels"].as_object().cloned().unwrap_or_default();
            let names: Vec<&String> = labels.keys().collect();
            let label = (*world.pick(&names)?).clone();
            model.edit(&child, |doc| {
                if let Some(labels) = doc["metadata"]["labels"].as_object_mut() {
                    labels.remove(&label);
                }
            });
            format!("a stranger takes the label {label} off {child}")
        }
        10 => {
            let claim = *world.pick(&["pvc-data", "pvc-logs", "pvc-scratch", CONTESTED, "own-data"])?;
            if model.object(&CLAIM.at("team", claim)).is_some() {
                return None;
            }
            let metadata = json!({"namespace": "team", "name": claim, "annotations": {OF_A_USER: "yes"}});
            model.put(&CLAIM, json!({"metadata": metadata, "spec": {"storageClassName": "efs-sc"}}));
            format!("a user makes the claim {claim}")
        }
        11 => {
            let own = format!("own-{name}");
            let claim = *world.pick(&["", "pvc-logs", CONTESTED, own.as_str()])?;
            model.object(&target)?;
            model.edit(&target, |doc| {
                doc["spec"]["claimName"] = if claim.is_empty() { Value::Null } else { json!(claim) };
            });
            format!("a user wants the claim {claim:?} for {name}")
        }
        12 => {
            let read_only = world.choose(2) == 0;
            let options: &[&str] = if world.choose(2) == 0 { &[] } else { &["noatime"] };
            model.object(&target)?;
            model.edit(&target, |doc| {
                doc["spec"]["readOnly"] = json!(read_only);
                doc["spec"]["mountOptions"] = json!(options);
            });
            format!("a user wants {name} with {options:?}, read-only: {read_only}")
        }
        13 => {
            // As a restore does, or somebody who takes the finalizer off.
            let before = model.object(&target)?;
            model.edit(&target, |doc| doc["metadata"]["finalizers"] = json!([]));
            model.delete(&target);
            let again = world.choose(2) == 0;
            if again {
                let metadata = json!({"namespace": "team", "name": name});
                model.put(&SHARED_VOLUME, json!({"metadata": metadata, "spec": before.0["spec"]}));
            }
            format!("{name} vanishes, and comes again: {again}")
        }
        14 => {
            let at = VOLUME.at("", &volume_name(&target.key));
            if model.object(&at).is_some() {
                return None;
            }
            let elsewhere = json!({"namespace": "elsewhere", "name": "theirs"});
            let metadata = json!({"name": at.key.name, "annotations": {OF_AN_ADMINISTRATOR: "yes"}});
            model.put(&VOLUME, json!({"metadata": metadata, "spec": {"claimRef": elsewhere}}));
            format!("an administrator makes {at}")
        }
        _ => {
            let pod = POD.at("team", &format!("pod-{name}"));
            if model.object(&pod).is_some() {
                model.delete(&pod);
                format!("{pod} ends")
            } else {
                let wanted = model.object(&target).map(|shared| rules::wanted_claim(&shared));
                let claim =
                    wanted.map_or_else(|| claim_name(&target.key), |claim| claim.key.name.to_string());
                let source = json!({"claimName": claim});
                let volumes = json!([{"name": "data", "persistentVolumeClaim": source}]);
                model.put(
                    &POD,
                    json!({"metadata": {"namespace": "team", "name": pod.key.name}, "spec": {"nodeName": "worker", "volumes": volumes}}),
                );
                format!("{pod} begins")
            }
        }
    })
}

async fn script(world: &World) -> Result<(), String> {
    world.model.put(&NAMESPACE, json!({"metadata": {"name": "team"}}));
    world.model.put(&CRD, json!({"metadata": {"name": SHARED_VOLUME_CRD}}));
    prepare(&world.model);
    world.react(binder);
    world.disturb_kinds();
    let kept = ["one", "two"].map(|name| world.keep(name, |_, _| families()));
    for _ in 0..10 + world.choose(15) {
        if let Some(what) = interfere(world) {
            world.note(&what);
        }
        tokio::time::sleep(Duration::from_millis(world.choose(40_000))).await;
    }
    world.end_faults();
    if world.choose(2) == 0 {
        world.model.delete(&SHARED_FILE_SYSTEM.at("", "policy"));
    }
    for pod in world.model.objects(&POD) {
        world.model.delete(&POD.key(&pod.key()));
    }
    for claim in world.model.objects(&CLAIM).iter().filter(|claim| claim.annotation(OF_A_USER).is_some()) {
        world.model.delete(&CLAIM.key(&claim.key()));
    }
    for volume in world.model.objects(&VOLUME) {
        if volume.annotation(OF_AN_ADMINISTRATOR).is_some() {
            world.model.delete(&VOLUME.key(&volume.key()));
        }
    }
    for shared in world.model.objects(&SHARED_VOLUME) {
        if ["pvc-logs", CONTESTED].contains(&shared.text("/spec/claimName")) {
            world.model.edit(&SHARED_VOLUME.key(&shared.key()), |doc| doc["spec"]["claimName"] = Value::Null);
        }
    }
    let mut rests = world.rests(QUIET, PATIENCE).await;
    if denies(world) {
        put(world, LATE, ACCESS_POINTS[0]);
        rests &= world.rests(QUIET, PATIENCE).await;
    }
    rules::hold(world)?;
    if !rests {
        return Err("it never comes to rest".into());
    }
    ended_well(world)?;
    for process in kept {
        process.stop().await;
    }
    world.is_nothing_left_to_do(|_, _| families()).await
}

fn denies(world: &World) -> bool {
    let policy = world.model.object(&SHARED_FILE_SYSTEM.at("", "policy"));
    policy.is_some_and(|policy| !rules::names_team(&policy))
}

/// Every SharedVolume is Ready with its pair, or is not allowed; there is nothing else, and the driver is installed.
fn ended_well(world: &World) -> Result<(), String> {
    let model = &world.model;
    let shared = model.objects(&SHARED_VOLUME);
    let denies = denies(world);
    if denies && model.object(&VOLUME.at("", &volume_name(&Key::namespaced("team", LATE)))).is_some() {
        return Err("in the end, a volume was made that is not allowed".into());
    }
    for one in &shared {
        let reason = one.condition("Ready").map(|ready| ready["reason"].clone()).unwrap_or_default();
        if denies && !one.deleting() && reason == SharedVolumeReason::NotAllowed.as_str() {
            continue;
        }
        let ready = one.condition("Ready").is_some_and(|ready| ready["status"] == "True");
        if one.deleting() || !ready {
            return Err(format!("in the end, {} is not ready: {}", one.name(), one.0));
        }
        if !rules::is_served(one, |target| model.object(target)) {
            return Err(format!("in the end, {} is ready without its pair: {}", one.name(), one.0));
        }
    }
    for kind in [VOLUME, CLAIM] {
        let there = model.objects(&kind).len();
        if there > shared.len() || (there < shared.len() && !denies) {
            return Err(format!(
                "in the end, there are {there} of {kind} for {} SharedVolumes",
                shared.len()
            ));
        }
    }
    let component = model.object(&COMPONENT.at("", driver::COMPONENT));
    let status = component.as_ref().and_then(|component| component.at("/status"));
    let status = status.and_then(|status| ComponentStatus::deserialize(status).ok()).unwrap_or_default();
    match reason_in(&status.conditions, "Ready") {
        Some(ComponentReason::Installed) => Ok(()),
        reason => Err(format!("in the end, the driver is {reason:?}")),
    }
}

fn history(tape: Tape) -> std::io::Result<Played> {
    play(tape, &KINDS, script)
}

#[test]
fn whatever_goes_wrong_no_pair_that_is_wanted_goes_and_in_the_end_all_are_ready() {
    let found = search_as_told(EVERYDAY, FULL, history).unwrap();
    println!("{found}");
    assert!(found.bad.is_empty(), "a history ends badly; it is printed above");
}

#[test]
fn one_seed_gives_one_history_with_all_its_faults() {
    let first = history(Tape::from_seed(1)).unwrap();
    let again = history(Tape::replay(first.choices.clone())).unwrap();
    assert_eq!(first_difference(&first.history, &again.history), None);
}
