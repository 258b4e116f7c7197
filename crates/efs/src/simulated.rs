//! SharedVolumes and their driver in the simulation: whole processes of the operator in simulated time, beside what
//! kube-controller-manager does. Tests only.

use std::time::Duration;

use crate::names;
use aquifer_engine::process::{Family, Runnable};
use aquifer_engine::simulation::{Delays, Process, World, first_difference, run};
use aquifer_engine::{Key, Kind};
use serde_json::json;

use crate::binder::{binder, quick_binder};
use crate::driver::{Driver, SHARED_VOLUME_CRD};
use crate::file_systems::FileSystems;
use crate::installed::tests::prepare;
use crate::kinds::{
    CLAIM, COMPONENT, CRD, CSI_DRIVER, DAEMON_SET, NAMESPACE, POD, SERVICE_ACCOUNT, SHARED_FILE_SYSTEM,
    SHARED_VOLUME, STORAGE_CLASS, VOLUME,
};
use crate::volumes::{Volumes, claim_name, volume_name};

pub(crate) const KINDS: [Kind; 12] = [
    SHARED_VOLUME,
    SHARED_FILE_SYSTEM,
    COMPONENT,
    VOLUME,
    CLAIM,
    POD,
    NAMESPACE,
    SERVICE_ACCOUNT,
    DAEMON_SET,
    CSI_DRIVER,
    STORAGE_CLASS,
    CRD,
];
pub(crate) const FILE_SYSTEM: &str = "fs-0123456789abcdef0";
const QUIET: Duration = Duration::from_secs(25);
const PATIENCE: Duration = Duration::from_mins(30);
const NAMES: [&str; 3] = ["data", "data-two", "logs"];

/// What a process runs.
pub(crate) fn families() -> Vec<Family> {
    let controllers: Vec<Box<dyn Runnable>> =
        vec![Box::new(Volumes::default()), Box::new(FileSystems), Box::new(Driver::default())];
    vec![Family { name: "efs".into(), controllers, servers: Vec::new() }]
}

fn start(world: &World, name: &str) -> Process {
    world.start(name, |_, _| families())
}

pub(crate) fn put(world: &World, name: &str, access_point: &str) {
    let spec = json!({"fileSystemID": FILE_SYSTEM, "accessPointID": access_point});
    let metadata = json!({"namespace": "team", "name": name});
    world.model.put(&SHARED_VOLUME, json!({"metadata": metadata, "spec": spec}));
}

async fn rests(world: &World, what: &str) {
    assert!(world.rests(QUIET, PATIENCE).await, "{what}: it never comes to rest: {:?}", world.model.log());
}

fn assert_bound(world: &World, what: &str, access_point: &str) {
    for name in NAMES {
        let key = Key::namespaced("team", name);
        let object = world.model.object(&SHARED_VOLUME.key(&key)).expect("the SharedVolume");
        let ready = object.condition("Ready").cloned().unwrap_or_default();
        assert_eq!(
            (&ready["status"], &ready["reason"]),
            (&json!("True"), &json!("Bound")),
            "{what}: {ready}"
        );
        let volume = world.model.object(&VOLUME.at("", &volume_name(&key))).expect("the volume");
        assert!(volume.text("/spec/csi/volumeHandle").ends_with(access_point), "{what}: {}", volume.0);
        assert!(world.model.object(&CLAIM.at("team", &claim_name(&key))).is_some(), "{what}");
    }
}

/// Three SharedVolumes are made, changed and deleted while two replicas run; gives the history.
fn story(seed: u64, delays: &Delays) -> Vec<String> {
    let played = run(seed, delays.clone(), &KINDS, async |world| {
        world.model.put(&NAMESPACE, json!({"metadata": {"name": "team"}}));
        world.model.put(&CRD, json!({"metadata": {"name": SHARED_VOLUME_CRD}}));
        prepare(&world.model);
        world.react(binder);
        let processes = ["one", "two"].map(|name| start(world, name));
        for name in NAMES {
            put(world, name, &format!("fsap-{name}"));
        }
        rests(world, "create").await;
        assert_bound(world, &format!("seed {seed}, create"), "");
        let component =
            world.model.object(&COMPONENT.at("", names::driver::COMPONENT)).expect("the component");
        assert_eq!(component.condition("Ready").cloned().unwrap_or_default()["reason"], "Installed");
        for name in NAMES {
            put(world, name, "fsap-0fedcba9876543210");
        }
        rests(world, "change").await;
        assert_bound(world, &format!("seed {seed}, change"), "::fsap-0fedcba9876543210");
        // At rest, another look changes nothing.
        let before = world.model.version();
        processes.iter().for_each(Process::resync);
        rests(world, "resync").await;
        let after: Vec<_> = world.model.changes_since(before).into_iter().map(|c| c.target).collect();
        assert!(after.iter().all(|target| target.kind.kind == "Lease"), "seed {seed}: {after:?}");
        for name in NAMES {
            world.model.delete(&SHARED_VOLUME.at("team", name));
        }
        rests(world, "delete").await;
        for kind in [SHARED_VOLUME, VOLUME, CLAIM] {
            assert!(world.model.objects(&kind).is_empty(), "seed {seed}: {kind} left");
        }
        for process in processes {
            process.stop().await.expect("it stops in order");
        }
    });
    played.unwrap().1
}

#[test]
fn volumes_are_made_changed_and_deleted_without_faults_and_one_seed_gives_one_history() {
    let (one, two) = (story(1, &Delays::NONE), story(1, &Delays::NONE));
    assert_eq!(first_difference(&one, &two), None);
    assert!(one.len() > 100, "{} requests", one.len());
    // Both controllers look at the driver's Component; the process lists it once for both, and again for each that begins to lead.
    let lists = |line: &&String| {
        line.contains(" one GET ")
            && line.contains("/components?&fieldSelector=metadata.name%3Defs-driver&limit")
    };
    let lists = one.iter().filter(lists).count();
    assert!((2..=3).contains(&lists), "{lists} lists");
    // A page is in memory as a whole, and users decide how large an object is.
    let pages: Vec<&String> = one.iter().filter(|line| line.contains("&limit=")).collect();
    assert!(!pages.is_empty() && pages.iter().all(|line| line.contains("&limit=100")), "{pages:?}");
}

#[test]
fn volumes_are_made_changed_and_deleted_whatever_takes_how_long() {
    for seed in 0..3 {
        story(seed, &Delays::LONG);
    }
    assert_eq!(first_difference(&story(3, &Delays::LONG), &story(3, &Delays::LONG)), None);
}

/// Processor time of this thread, which is all that a simulation has.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(stat.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or_default())
}

/// Many SharedVolumes mean the same data, and one of them is changed. `cargo xtask bench engine` runs this with a large number.
#[test]
fn one_of_many_equal_volumes_is_changed_without_a_look_at_the_others() {
    let n = std::env::var("AQUIFER_VOLUMES").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    let played = run(1, Delays::NONE, &KINDS, async |world| {
        world.model.put(&NAMESPACE, json!({"metadata": {"name": "team"}}));
        world.model.put(&CRD, json!({"metadata": {"name": SHARED_VOLUME_CRD}}));
        prepare(&world.model);
        world.react(quick_binder());
        let process = start(world, "one");
        let name = |number: usize| format!("v-{number:05}");
        for number in 0..n {
            put(world, &name(number), "fsap-0123456789abcdef0");
        }
        rests(world, "create").await;
        let before = cpu();
        rests(world, "idle").await;
        let idle = cpu().checked_sub(before).unwrap();
        let (from, before) = (world.model.version(), cpu());
        put(world, &name(n / 2), "fsap-0fedcba9876543210");
        rests(world, "change").await;
        let spent = cpu().checked_sub(before).unwrap();
        let changes = world.model.changes_since(from);
        let touched = changes.iter().filter(|change| change.target.kind == SHARED_VOLUME);
        let others = touched.filter(|change| *change.target.key.name != *name(n / 2)).count();
        assert_eq!(others, 0, "nobody else's status says anything new");
        let now = world.model.object(&SHARED_VOLUME.at("team", &name(n / 2))).expect("it is there");
        assert!(now.condition("Duplicate").is_none() && now.condition("Ready").is_some(), "{now:?}");
        println!(
            "bench: {}",
            json!({"equal_volumes": n, "one_changed_cpu_ms": spent.saturating_sub(idle).as_millis(),
                "idle_cpu_ms": idle.as_millis()})
        );
        process.stop().await.expect("it stops in order");
    });
    played.unwrap();
}

/// A list of SharedFileSystems that was read for one SharedVolume just before a change must not keep another one from it.
#[test]
fn what_is_allowed_after_a_list_was_read_is_noticed_at_once() {
    let played = run(1, Delays::NONE, &KINDS, async |world| {
        world.model.put(&NAMESPACE, json!({"metadata": {"name": "team"}}));
        world.model.put(&CRD, json!({"metadata": {"name": SHARED_VOLUME_CRD}}));
        prepare(&world.model);
        world.react(binder);
        let allow = |names: &[&str]| {
            let spec = json!({"fileSystemID": FILE_SYSTEM, "allowedNamespaces": {"names": names},
                "allowedAccessPoints": {"all": true}});
            world.model.put(&SHARED_FILE_SYSTEM, json!({"metadata": {"name": "policy"}, "spec": spec}));
        };
        let reasons = || -> Vec<String> {
            let shared = world.model.objects(&SHARED_VOLUME);
            let reason = |one: &aquifer_engine::Object| {
                one.condition("Ready").map(|ready| ready["reason"].as_str().unwrap_or_default().to_owned())
            };
            shared.iter().filter_map(reason).collect()
        };
        allow(&[]);
        let process = start(world, "one");
        put(world, "data", "fsap-a");
        tokio::time::sleep(Duration::from_mins(1)).await;
        put(world, "logs", "fsap-b");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(reasons(), ["NotAllowed", "NotAllowed"]);
        allow(&["team"]);
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(reasons(), ["Bound", "Bound"]);
        process.stop().await.expect("it stops in order");
    });
    played.unwrap();
}

/// Claims and CSIDrivers may not be read from the beginning: the SharedVolume and the Component say so, and the rest of the driver is made
/// and repaired.
#[test]
fn a_kind_that_may_not_be_read_is_reported_and_stops_nothing_else() {
    let played = run(1, Delays::NONE, &KINDS, async |world| {
        world.model.put(&NAMESPACE, json!({"metadata": {"name": "team"}}));
        world.model.put(&CRD, json!({"metadata": {"name": SHARED_VOLUME_CRD}}));
        prepare(&world.model);
        world.react(binder);
        let deny = |denied| {
            for kind in [CLAIM, CSI_DRIVER] {
                world.deny(&kind, denied);
            }
        };
        deny(true);
        let process = start(world, "one");
        put(world, "data", "fsap-a");
        let ready = |kind: &Kind, namespace: &str, name: &str| {
            let object = world.model.object(&kind.at(namespace, name)).expect("the subject");
            object.condition("Ready").cloned().unwrap_or_default()
        };
        let of_volume = || ready(&SHARED_VOLUME, "team", "data");
        let of_driver = || ready(&COMPONENT, "", names::driver::COMPONENT);
        tokio::time::sleep(Duration::from_mins(1)).await;
        let said = of_volume();
        assert_eq!((&said["status"], &said["reason"]), (&json!("Unknown"), &json!("Unknown")), "{said}");
        let message = said["message"].as_str().unwrap_or_default();
        assert!(message.contains("claims cannot be read") && message.contains("denied"), "{message}");
        let component =
            world.model.object(&COMPONENT.at("", names::driver::COMPONENT)).expect("the Component");
        assert_ne!(of_driver()["status"], "True", "{component:?}");
        let objects =
            component.at("/status/objects").and_then(|all| all.as_array()).cloned().unwrap_or_default();
        let of_kind = objects.iter().find(|one| one["kind"] == *CSI_DRIVER.kind).expect("it is listed");
        let message = of_kind["message"].as_str().unwrap_or_default();
        assert!(message.contains("cannot be read") && message.contains("denied"), "{of_kind}");

        // What can be read is repaired all the same.
        let class = STORAGE_CLASS.at("", names::driver::STORAGE_CLASS);
        assert!(world.model.object(&class).is_some(), "it was made");
        world.model.delete(&class);
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(world.model.object(&class).is_some(), "it is made again");

        // Nobody asks all the time, and when the right is there the rest follows by itself.
        let asked = |line: &&String| line.contains("/persistentvolumeclaims?") && line.contains(" 403 ");
        let asked = world.history().iter().filter(asked).count();
        assert!((1..=20).contains(&asked), "{asked} requests in {:?}", world.history());
        deny(false);
        rests(world, "the rights are there").await;
        assert_eq!((&of_volume()["reason"], &of_driver()["reason"]), (&json!("Bound"), &json!("Installed")));
        process.stop().await.expect("it stops in order");
    });
    played.unwrap();
}
