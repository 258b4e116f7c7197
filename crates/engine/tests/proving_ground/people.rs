//! Users and strangers who do anything in any order.

use std::sync::atomic::Ordering;
use std::time::Duration;

use aquifer_engine::simulation::World;
use aquifer_engine::{Key, Kind, OWNER, OWNER_UID, Object, PAUSED};
use k8s_openapi::ByteString;
use serde_json::json;

use crate::desk::Wish;
use crate::family::{CONFIG_MAP, Kinds, PANIC, RUN as LABEL, SECRET, WellSpec, spring_named, well};
use crate::gauges::{self, MASTER};
use crate::leaks;
use crate::scene::{CAPACITY, RUN, Scene};

/// In so many milliseconds the first pass of a new object may not be over.
const HASTE: u64 = 500;
/// What the names of look-alikes end with.
pub const PLANTED: &str = "-planted";
/// What wells are called.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A user makes the springs, and may change one before its finalizer is on it.
pub async fn make_springs(world: &World) {
    let kinds = Kinds::new();
    for (name, capacity) in CAPACITY {
        world.model.put(&kinds.spring, spring_named(&kinds, "ns", name, RUN, capacity));
        if world.choose(2) == 1 {
            tokio::time::sleep(Duration::from_millis(world.choose(HASTE))).await;
            resize(world, name, capacity);
        }
    }
}

/// A spring never has more than at first.
fn resize(world: &World, name: &str, capacity: u64) {
    let capacity = capacity - world.choose(3);
    world.model.edit(&Kinds::new().spring.at("ns", name), |doc| doc["spec"]["capacity"] = json!(capacity));
    world.note(&format!("a user gives {name} {capacity}"));
}

/// A user makes the master's Secret, or makes it anew.
pub fn put_master(world: &World) {
    let key = leaks::bytes(world.runtime());
    let data = json!({"key": ByteString(key.expose().to_vec())});
    world.model.put(&SECRET, json!({"metadata": {"namespace": "ns", "name": MASTER}, "data": data}));
}

/// Nothing is paused any more, and no watch has anything to panic at.
pub fn let_all_go_on(world: &World) {
    let kind = Kinds::new().well;
    for well in world.model.objects(&kind) {
        world.model.edit(&kind.key(&well.key()), |doc| {
            if let Some(annotations) = doc["metadata"]["annotations"].as_object_mut() {
                annotations.remove(PAUSED);
                annotations.remove(PANIC);
            }
        });
    }
}

/// One thing that somebody does.
pub async fn interfere(scene: &Scene) {
    let world = &scene.world;
    if world.choose(2) == 1 {
        let level = 1 + scene.level.fetch_add(1, Ordering::SeqCst);
        world.note(&format!("the gauge shows {level}"));
    }
    if world.choose(4) == 3 {
        if let Some(what) = disturb_spring(world) {
            world.note(&what);
        }
        return;
    }
    if world.choose(4) == 3 {
        want_for_all(world).await;
        return;
    }
    let name = *world.pick(&NAMES).expect("names");
    if world.choose(5) == 4 {
        ask_at_desks(scene, name);
        return;
    }
    disturb_well(world, name);
    if world.choose(3) == 2 {
        // Somebody is there again before the finalizer is on it.
        tokio::time::sleep(Duration::from_millis(world.choose(HASTE))).await;
        disturb_well(world, name);
    }
}

/// A user wants something for all wells, one after the other, and those first that are served last.
pub async fn want_for_all(world: &World) {
    let spring = world.pick(&CAPACITY).expect("springs").0;
    for name in NAMES.iter().rev() {
        let what = want(world, name, spring);
        world.note(&format!("well {name}: {what}"));
        tokio::time::sleep(Duration::from_millis(world.choose(HASTE))).await;
    }
}

fn disturb_spring(world: &World) -> Option<String> {
    let kinds = Kinds::new();
    let (name, capacity) = *world.pick(&CAPACITY)?;
    let permit = SECRET.key(&gauges::permit(&kinds.spring.at("ns", name).key));
    Some(match world.choose(8) {
        0 => return None,
        1 => {
            put_master(world);
            "a user makes the master's Secret anew".into()
        }
        2 => {
            world.model.delete(&SECRET.at("ns", MASTER));
            "a user deletes the master's Secret".into()
        }
        3 => {
            world.model.delete(&permit);
            format!("a stranger deletes {permit}")
        }
        4 => {
            world.model.delete(&kinds.spring.at("ns", name));
            format!("a user deletes {name}")
        }
        5 => {
            resize(world, name, capacity);
            return None;
        }
        6 if world.model.object(&kinds.spring.at("ns", name)).is_none() => {
            world.model.put(&kinds.spring, spring_named(&kinds, "ns", name, RUN, capacity));
            format!("a user makes {name} again")
        }
        _ => {
            let key = leaks::bytes(world.runtime());
            world.model.edit(&permit, |doc| doc["data"]["permit"] = json!(ByteString(key.expose().to_vec())));
            format!("a stranger edits {permit}")
        }
    })
}

fn ask_at_desks(scene: &Scene, name: &str) {
    let world = &scene.world;
    let wish = if world.choose(4) == 3 { Wish::Leave } else { Wish::Grant };
    for desk in scene.desks.all() {
        // Some ask every process.
        if world.choose(2) == 0 {
            world.note(&format!("the owner of {name} asks: {wish:?}"));
            let well = Key::namespaced("ns", name);
            if world.choose(3) == 2 {
                scene.asked.follow(&desk, well, wish);
            } else {
                scene.asked.ask(&desk, well, wish);
            }
        }
    }
}

fn disturb_well(world: &World, name: &str) {
    if let Some(what) = do_to_well(world, name) {
        world.note(&format!("well {name}: {what}"));
    }
}

/// A user wants something of a spring, or something else of the spring that the well has.
fn want(world: &World, name: &str, spring: &str) -> String {
    let kinds = Kinds::new();
    let taps: Vec<&str> = ["x", "y", "z"].into_iter().filter(|_| world.choose(2) == 1).collect();
    let mut spec = WellSpec::new(1 + world.choose(8), &taps);
    spec.metered = world.choose(2) == 0;
    spring.clone_into(&mut spec.spring);
    if let Some(well) = world.model.object(&kinds.well.at("ns", name)) {
        well.text("/spec/spring").clone_into(&mut spec.spring); // moving is not what this family can do
    }
    world.model.put(&kinds.well, well(&kinds, "ns", name, RUN, &spec));
    format!("a user wants {spec:?}")
}

fn do_to_well(world: &World, name: &str) -> Option<String> {
    let kinds = Kinds::new();
    let target = kinds.well.at("ns", name);
    let children = || -> Vec<(Kind, Object)> {
        let of =
            |kind: Kind| world.model.objects(&kind).into_iter().map(move |object| (kind.clone(), object));
        of(CONFIG_MAP).chain(of(kinds.meter.clone())).collect()
    };
    Some(match world.choose(14) {
        0 => return None,
        // The most frequent: a user wants something.
        1..=5 => {
            let spring = world.pick(&CAPACITY).expect("springs").0;
            want(world, name, spring)
        }
        6 => {
            world.model.delete(&target);
            "a user deletes it".into()
        }
        7 => {
            let (kind, child) = world.pick(&children()).cloned()?;
            world.model.delete(&kind.key(&child.key()));
            format!("a stranger deletes {}", child.name())
        }
        8 => {
            let (kind, child) = world.pick(&children()).cloned()?;
            world.model.edit(&kind.key(&child.key()), |doc| {
                doc["metadata"]["annotations"]["stranger"] = json!("was here");
            });
            format!("a stranger edits {}", child.name())
        }
        9 => {
            world.model.edit(&target, |doc| doc["metadata"]["annotations"][PANIC] = json!("watch"));
            "the closure of a watch panics at it".into()
        }
        10 | 11 => {
            let paused = if world.choose(2) == 0 { "true" } else { "false" };
            world.model.edit(&target, |doc| doc["metadata"]["annotations"][PAUSED] = json!(paused));
            format!("a user pauses it: {paused}")
        }
        12 => {
            // With the marks of a child that somebody has seen, or with invented ones.
            let uid = world.model.object(&target).filter(|_| world.choose(2) == 0);
            let uid = uid.map_or_else(|| "invented".to_owned(), |well| well.uid().to_owned());
            let owner = target.key.to_string();
            world.model.put(
                &CONFIG_MAP,
                json!({"metadata": {"namespace": "ns", "name": format!("{name}{PLANTED}"),
                    "labels": {LABEL: RUN, OWNER_UID: uid}, "annotations": {OWNER: owner}}}),
            );
            "a stranger plants a look-alike of its taps".into()
        }
        _ => {
            let place = CONFIG_MAP.at("ns", &format!("{name}-z"));
            if world.model.object(&place).is_some() {
                world.model.delete(&place);
                format!("a stranger deletes what is at {place}")
            } else {
                world.model.put(
                    &CONFIG_MAP,
                    json!({"metadata": {"namespace": "ns", "name": place.key.name}, "data": {}}),
                );
                format!("a stranger takes {place}")
            }
        }
    })
}
