//! What must hold at every moment of a history, judged by all versions that the API server has stored and by what the pump house
//! has done.

use std::collections::BTreeMap;
use std::time::Duration;

use aquifer_base::Reason;
use aquifer_engine::model::{Change, USER};
use aquifer_engine::{OWNER_UID, Object, ObjectRef};
use serde::Deserialize;
use tokio::time::Instant;

use crate::family::{
    CLAIM, CONFIG_MAP, Kinds, SECRET, SPRINGS, WELLS, WellReason, WellSpec, condition, well_status,
};
use crate::scene::{CAPACITY, Scene};

/// How late a write of ours may land after it was decided. What can be made again may be deleted by the word of a spec that was
/// true so long ago; what holds data may not.
const LATE: Duration = Duration::from_secs(90);

/// What has happened up to one moment.
#[derive(Default)]
struct Past {
    /// The API server's state.
    state: BTreeMap<ObjectRef, Object>,
    /// Who wrote an object last, and when.
    last: BTreeMap<ObjectRef, (String, Instant)>,
    /// Every spec of each well, by uid, and since when it holds.
    specs: BTreeMap<String, Vec<(Instant, WellSpec)>>,
}

impl Past {
    fn add(&mut self, kinds: &Kinds, change: &Change) {
        self.last.insert(change.target.clone(), (change.by.clone(), change.at));
        let Some(object) = change.after() else {
            self.state.remove(&change.target);
            return;
        };
        if change.target.kind == kinds.well
            && let Ok(spec) = WellSpec::deserialize(&object.0["spec"])
        {
            let specs = self.specs.entry(object.uid().to_owned()).or_default();
            if specs.last().is_none_or(|(_, last)| *last != spec) {
                specs.push((change.at, spec));
            }
        }
        self.state.insert(change.target.clone(), object);
    }

    /// Whether a spec says so that was true not long before.
    fn recently(&self, uid: &str, at: Instant, says: impl Fn(&WellSpec) -> bool) -> bool {
        let specs = self.specs.get(uid).map(Vec::as_slice).unwrap_or_default();
        specs.iter().enumerate().any(|(number, (_, spec))| {
            let until = specs.get(number + 1).map_or(at, |(next, _)| *next);
            says(spec) && until + LATE >= at
        })
    }
}

pub fn hold(scene: &Scene) -> Result<(), String> {
    let Scene { world, house, register, .. } = scene;
    if let Some(entry) = register.lock().unwrap().again.first() {
        return Err(format!("{entry:?} was made again by a process that knew of it"));
    }
    if let Some((number, pumps)) = house.sold().into_iter().find(|(_, pumps)| *pumps > 1) {
        return Err(format!("{pumps} pumps were made for the order {number}"));
    }
    let most: u64 = CAPACITY.iter().map(|(_, capacity)| capacity).sum();
    if house.most() > most {
        return Err(format!("pumps of {} ran at the same time, where {most} can flow", house.most()));
    }
    scene.asked.was_true(world)?;
    let kinds = Kinds::new();
    let mut past = Past::default();
    for change in world.model.changes_since(0) {
        if change.by != USER && change.begins_to_go() {
            may_be_deleted(&kinds, &past, &change)?;
        }
        past.add(&kinds, &change);
        if change.target.kind == kinds.spring {
            if change.after().is_none() {
                may_go(&kinds, &past, &change)?;
            }
            if change.by == SPRINGS {
                observed_is_true(&change)?;
            }
        }
        if change.target.kind == kinds.well {
            never_too_much(&kinds, &past, &change)?;
            if change.by == WELLS {
                ready_is_true(&kinds, &past, &change)?;
            }
        }
    }
    Ok(())
}

/// A spring that is deleted stays until no well has anything of it.
fn may_go(kinds: &Kinds, past: &Past, change: &Change) -> Result<(), String> {
    let name = &*change.target.key.name;
    let wells = past.state.values().filter(|object| object.0["kind"] == *kinds.well.kind);
    let mut users = wells.filter(|well| {
        let status = well_status(well);
        well.text("/spec/spring") == name && status.allotted.unwrap_or(0).max(status.using) > 0
    });
    match users.next() {
        None => Ok(()),
        Some(user) => Err(format!("{name} is gone, which {} uses", user.name())),
    }
}

/// The sum over a spring never exceeds what it has, counting what wells still use.
fn never_too_much(kinds: &Kinds, past: &Past, change: &Change) -> Result<(), String> {
    for (spring, capacity) in CAPACITY {
        let wells = past.state.values().filter(|object| object.0["kind"] == *kinds.well.kind);
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

/// Only what belongs to nobody any more, or what can be made again and its owner did not want.
fn may_be_deleted(kinds: &Kinds, past: &Past, change: &Change) -> Result<(), String> {
    let kind = &change.target.kind;
    if *kind == kinds.well && change.before().is_some_and(|well| well.at("/status/leaving").is_none()) {
        return Err(format!("{}, whose owner has not left, was deleted by {}", change.target, change.by));
    }
    if ![&CONFIG_MAP, &CLAIM, &SECRET, &kinds.meter].contains(&kind) {
        return Ok(());
    }
    let Some(child) = change.before() else { return Ok(()) };
    let Some(uid) = child.label(OWNER_UID) else {
        return Err(format!("{}, which is not ours, was deleted by {}", change.target, change.by));
    };
    let owner =
        past.state.values().find(|object| object.0["kind"] == *kinds.well.kind && object.uid() == uid);
    let spring =
        past.state.values().find(|object| object.0["kind"] == *kinds.spring.kind && object.uid() == uid);
    if let Some(spring) = spring.filter(|spring| !spring.deleting()) {
        return Err(format!("{} was deleted, which {} wants", change.target, spring.name()));
    }
    let Some(owner) = owner.filter(|owner| !owner.deleting()) else { return Ok(()) };
    let unwanted = past.recently(uid, change.at, |spec| {
        let tap = |tap: &String| child.name() == format!("{}-{tap}", owner.name());
        (*kind == CONFIG_MAP && !spec.taps.iter().any(tap)) || (*kind == kinds.meter && !spec.metered)
    });
    if unwanted {
        Ok(())
    } else {
        Err(format!("{} was deleted, which {} wants", change.target, owner.name()))
    }
}

/// A status that says which generation it is about was decided by the spec of that generation.
fn observed_is_true(change: &Change) -> Result<(), String> {
    let Some(spring) = change.after().filter(|spring| !spring.deleting()) else { return Ok(()) };
    // When a pass has failed, the engine reports that, and leaves the fields as they are.
    let failed = !condition(&spring, "Progressing").0.is_empty();
    let divided = condition(&spring, "Ready").1 == WellReason::Divided.as_str();
    let observed = spring.condition("Ready").and_then(|ready| ready["observedGeneration"].as_i64());
    let about_this = divided && !failed && observed == Some(spring.generation());
    if about_this && spring.at("/status/capacity") != spring.at("/spec/capacity") {
        return Err(format!("{} was not decided by the spec that it names: {}", spring.name(), spring.0));
    }
    Ok(())
}

/// A status that says that a generation is served is not written before it is.
fn ready_is_true(kinds: &Kinds, past: &Past, change: &Change) -> Result<(), String> {
    let says = |well: &Object| {
        let observed = well.condition("Ready").and_then(|ready| ready["observedGeneration"].as_i64());
        (condition(well, "Ready").0 == "True" && observed == Some(well.generation())).then_some(observed)
    };
    let Some(well) = change.after().filter(|well| says(well).is_some()) else { return Ok(()) };
    if change.before().and_then(|before| says(&before)) == says(&well) {
        return Ok(()); // it said so before
    }
    let spec = WellSpec::deserialize(&well.0["spec"]).map_err(|error| error.to_string())?;
    for tap in &spec.taps {
        let at = CONFIG_MAP.at(well.namespace(), &format!("{}-{tap}", well.name()));
        let size = past.state.get(&at).map(|tap| tap.text("/data/size").to_owned());
        let right = size == Some(well_status(&well).using.to_string());
        let excused = past.last.get(&at).is_some_and(|(by, when)| {
            by == USER || (size.is_none() && *when + LATE >= change.at) // a deletion of ours that landed late
        });
        if !right && !excused {
            return Err(format!("{} says that it is ready, but {at} has {size:?}: {}", well.name(), well.0));
        }
    }
    let metered = condition(&well, "Metered").0 == "True";
    let parts = [(&CLAIM, "basin", spec.basin), (&SECRET, "key", true), (&kinds.meter, "meter", metered)];
    for (kind, part, wanted) in parts {
        let at = kind.at(well.namespace(), &format!("{}-{part}", well.name()));
        let excused = past.last.get(&at).is_some_and(|(by, when)| by == USER || *when + LATE >= change.at);
        if wanted && !past.state.contains_key(&at) && !excused {
            return Err(format!("{} says that it is ready without {at}: {}", well.name(), well.0));
        }
    }
    Ok(())
}
