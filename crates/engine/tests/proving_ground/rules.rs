//! What must hold at every moment of a history, judged by all versions that the API server has stored and by what the pump house
//! has done.

use std::collections::BTreeMap;

use aquifer_engine::model::{Change, USER};
use aquifer_engine::simulation::World;
use aquifer_engine::{OWNER_UID, Object, ObjectRef};
use serde::Deserialize;

use crate::family::{CLAIM, CONFIG_MAP, Kinds, SECRET, WELLS, WellSpec, condition, well_status};
use crate::house::House;
use crate::with_faults::CAPACITY;

/// The API server's state at one moment.
type State = BTreeMap<ObjectRef, Object>;

pub fn hold(world: &World, house: &House) -> Result<(), String> {
    if let Some((number, pumps)) = house.sold().into_iter().find(|(_, pumps)| *pumps > 1) {
        return Err(format!("{pumps} pumps were made for the order {number}"));
    }
    let most: u64 = CAPACITY.iter().map(|(_, capacity)| capacity).sum();
    if house.most() > most {
        return Err(format!("pumps of {} ran at the same time, where {most} can flow", house.most()));
    }
    let kinds = Kinds::new();
    let mut state = State::new();
    // Children that somebody else has written to last.
    let mut touched: BTreeMap<ObjectRef, bool> = BTreeMap::new();
    for change in world.model.changes_since(0) {
        if change.by != USER && begins_to_go(&change) {
            may_be_deleted(&kinds, &state, &change)?;
        }
        match change.after() {
            Some(object) => drop(state.insert(change.target.clone(), object)),
            None => drop(state.remove(&change.target)),
        }
        touched.insert(change.target.clone(), change.by == USER);
        if change.target.kind == kinds.well {
            never_too_much(&kinds, &state, &change)?;
            if change.by == WELLS {
                ready_is_true(&state, &touched, &change)?;
            }
        }
    }
    Ok(())
}

fn begins_to_go(change: &Change) -> bool {
    let went = |object: Option<Object>| object.is_none_or(|object| object.deleting());
    change.before().is_some() && !went(change.before()) && went(change.after())
}

/// The sum over a spring never exceeds what it has, counting what wells still use.
fn never_too_much(kinds: &Kinds, state: &State, change: &Change) -> Result<(), String> {
    for (spring, capacity) in CAPACITY {
        let wells = state.values().filter(|object| object.0["kind"] == *kinds.well.kind);
        let held: BTreeMap<&str, u64> = wells
            .filter(|well| well.text("/spec/spring") == spring)
            .map(|well| {
                let status = well_status(well);
                (well.name(), status.allotted.unwrap_or(0).max(status.using))
            })
            .collect();
        if held.values().sum::<u64>() > capacity {
            return Err(format!(
                "more than the {capacity} of {spring} are given away after a write of {} to {}: {held:?}",
                change.by, change.target
            ));
        }
    }
    Ok(())
}

/// Only what belongs to nobody any more, or what its owner no longer wants.
fn may_be_deleted(kinds: &Kinds, state: &State, change: &Change) -> Result<(), String> {
    let kind = &change.target.kind;
    if ![&CONFIG_MAP, &CLAIM, &SECRET, &kinds.meter].contains(&kind) {
        return Ok(());
    }
    let Some(child) = change.before() else { return Ok(()) };
    let Some(uid) = child.label(OWNER_UID) else {
        return Err(format!("{}, which is not ours, was deleted by {}", change.target, change.by));
    };
    let owner = state.values().find(|object| object.0["kind"] == *kinds.well.kind && object.uid() == uid);
    let Some(owner) = owner.filter(|owner| !owner.deleting()) else { return Ok(()) };
    let spec = owner.at("/spec").and_then(|spec| WellSpec::deserialize(spec).ok());
    let unwanted = spec.is_some_and(|spec| {
        let tap = |tap: &String| child.name() == format!("{}-{tap}", owner.name());
        (*kind == CONFIG_MAP && !spec.taps.iter().any(tap)) || (*kind == kinds.meter && !spec.metered)
    });
    if unwanted {
        Ok(())
    } else {
        Err(format!("{} was deleted, which {} wants", change.target, owner.name()))
    }
}

/// A status that says that a generation is served is not written before it is.
fn ready_is_true(state: &State, touched: &BTreeMap<ObjectRef, bool>, change: &Change) -> Result<(), String> {
    let Some(well) = change.after() else { return Ok(()) };
    let ready = well.condition("Ready").cloned().unwrap_or_default();
    if condition(&well, "Ready").0 != "True" || ready["observedGeneration"] != well.generation() {
        return Ok(());
    }
    let spec = WellSpec::deserialize(&well.0["spec"]).map_err(|error| error.to_string())?;
    for tap in &spec.taps {
        let at = CONFIG_MAP.at(well.namespace(), &format!("{}-{tap}", well.name()));
        let size = state.get(&at).map(|tap| tap.text("/data/size").to_owned());
        let right = size == Some(well_status(&well).using.to_string());
        if !right && touched.get(&at) != Some(&true) {
            return Err(format!("{} says that it is ready, but {at} has {size:?}: {}", well.name(), well.0));
        }
    }
    Ok(())
}
