//! Histories of springs alone: no pumps, and users who change what they want every few seconds. Something is nearly always on its way
//! to somebody when a process ends, when a write lands late or when a new leader has not seen everything yet.

use std::time::Duration;

use aquifer_engine::Object;
use aquifer_engine::simulation::{PATIENCE, QUIET, World};
use serde::Deserialize;

use crate::family::{Kinds, RUN as LABEL, SpringStatus, WellSpec, well, well_status};
use crate::people::make_springs;
use crate::rules;
use crate::scene::{CAPACITY, RUN, Scene};
use crate::with_faults::processes;

/// Wells, in the order in which they are served.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Between two things that users do, at most, in milliseconds.
const PAUSE: u64 = 4_000;

pub async fn script(scene: &Scene) -> Result<(), String> {
    let world = &scene.world;
    world.disturb_kinds();
    let kept = processes(world).map(|name| {
        let scene = scene.clone();
        world.keep(name, move |_, _| scene.springs_only())
    });
    let kept: Vec<_> = kept.collect();
    make_springs(world).await;
    for _ in 0..60 + world.choose(120) {
        let name = *world.pick(&NAMES).expect("names");
        world.note(&format!("well {name}: {}", change(world, name)));
        tokio::time::sleep(Duration::from_millis(world.choose(PAUSE))).await;
    }
    world.end_faults();
    let rests = world.rests(QUIET, PATIENCE).await;
    rules::hold(scene)?;
    if !rests {
        return Err("it never comes to rest".into());
    }
    for (spring, _) in CAPACITY {
        is_divided(world, spring)?;
    }
    for process in kept {
        process.stop().await;
    }
    world.is_nothing_left_to_do(|_, _| scene.springs_only()).await
}

/// A user makes a well, wants something else of it, or deletes it.
fn change(world: &World, name: &str) -> String {
    let kinds = Kinds::new();
    let target = kinds.well.at("ns", name);
    let there = world.model.object(&target);
    if there.is_some() && world.choose(4) == 3 {
        world.model.delete(&target);
        return "a user deletes it".into();
    }
    let mut spec = WellSpec::new(world.choose(9), &[]);
    // A well does not move to another spring.
    spec.spring = there.map_or_else(
        || world.pick(&CAPACITY).expect("springs").0.to_owned(),
        |well| well.text("/spec/spring").to_owned(),
    );
    world.model.put(&kinds.well, well(&kinds, "ns", name, RUN, &spec));
    format!("a user wants {} of {}", spec.want, spec.spring)
}

/// Nobody uses anything, so that in the end all have what they want, in the order of their names, while there is some left.
fn is_divided(world: &World, name: &str) -> Result<(), String> {
    let kinds = Kinds::new();
    let spring = world.model.object(&kinds.spring.at("ns", name)).expect("nobody deletes springs");
    let mut left = spring.at("/spec/capacity").and_then(serde_json::Value::as_u64).unwrap_or_default();
    let mut wells: Vec<Object> = world.model.objects(&kinds.well);
    wells.retain(|well| well.text("/spec/spring") == name && well.label(LABEL) == Some(RUN));
    wells.sort_by_key(|well| well.name().to_owned());
    for well in wells {
        let wants = WellSpec::deserialize(&well.0["spec"]).map_err(|error| error.to_string())?.want;
        let share = wants.min(left);
        left -= share;
        if well_status(&well).allotted != Some(share) {
            return Err(format!("in the end, {} should have {share} of {name}: {}", well.name(), well.0));
        }
    }
    let status = spring.at("/status").and_then(|status| SpringStatus::deserialize(status).ok());
    if status.is_none_or(|status| !status.reserved.is_empty()) {
        return Err(format!("in the end, {name} has reserved something: {}", spring.0));
    }
    Ok(())
}
