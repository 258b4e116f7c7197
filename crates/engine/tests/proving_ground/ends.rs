//! How a history with faults must end, when nothing goes wrong any more.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aquifer_base::Reason;
use aquifer_engine::secret::StoredSecret;
use aquifer_engine::{Class, Object};

use crate::desk::{Call, LEAVERS, Told, Wish};
use crate::family::{CONFIG_MAP, Kinds, SECRET, WELLS, WellReason, WellSpec, condition, well_status};
use crate::gauges::{self, GAUGES, MASTER};
use crate::people;
use crate::scene::{CAPACITY, REGION, Scene};
use crate::with_faults::PROCESSES;

/// How often something is tried in an hour in which it is refused.
const MOST_REFUSED: usize = 40;
/// How soon people are told that it is.
const SAID_WITHIN: Duration = Duration::from_mins(2);

/// The outside answers questions and takes no orders for an hour: it is not asked all the time, and people are told.
pub async fn an_hour_without_orders(scene: &Scene) -> Result<(), String> {
    let Scene { world, house, register, level, .. } = scene;
    world.note("the pump house takes no orders, and the register no entries");
    house.refuse(true);
    register.lock().unwrap().refused = Some(BTreeMap::new());
    level.fetch_add(1, Ordering::SeqCst);
    people::want_for_all(world).await;
    tokio::time::sleep(SAID_WITHIN).await;
    let at_first = house.refused();
    tokio::time::sleep(SAID_WITHIN).await;
    say_that_they_get_no_pump(scene, &at_first)?;
    tokio::time::sleep(Duration::from_hours(1).saturating_sub(SAID_WITHIN * 2)).await;
    let refused = house.refuse(false);
    let entries = register.lock().unwrap().refused.take().unwrap_or_default();
    world.note("the pump house takes orders again, and the register entries");
    if let Some((whose, times)) = refused.iter().chain(&entries).find(|(_, times)| **times > MOST_REFUSED) {
        return Err(format!("{times} orders or entries of {whose} in an hour, all refused"));
    }
    say_that_they_get_no_pump(scene, &refused)
}

/// Wells whose orders are refused say so.
fn say_that_they_get_no_pump(scene: &Scene, refused: &BTreeMap<String, usize>) -> Result<(), String> {
    let wells = scene.world.model.objects(&Kinds::new().well);
    for well in wells.iter().filter(|well| refused.contains_key(well.uid())) {
        let (_, reason) = condition(well, "Ready");
        let mut says = vec![Class::Transient.reason().as_str(), WellReason::PumpHouse.as_str()];
        if well_status(well).allotted.unwrap_or_default() == 0 {
            // What it had was given to somebody else meanwhile: now it wants no pump.
            says.extend([WellReason::Dry.as_str(), WellReason::Unallotted.as_str()]);
        }
        if !well.deleting() && !says.contains(&reason.as_str()) {
            return Err(format!("{} does not say that it gets no pump: {}", well.name(), well.0));
        }
    }
    Ok(())
}

/// Every well flows, or says why not, there is no pump without a well, and every spring has its note and its permit.
pub fn ended_well(scene: &Scene) -> Result<(), String> {
    let model = &scene.world.model;
    let wells = model.objects(&Kinds::new().well);
    for well in &wells {
        well_ended_well(scene, well)?;
    }
    let uids: Vec<&str> = wells.iter().map(Object::uid).collect();
    let is_ours = |order: &str| uids.iter().any(|uid| order.starts_with(uid));
    if let Some(pump) = scene.house.pumps().into_iter().find(|pump| !is_ours(&pump.order)) {
        return Err(format!("in the end, {} belongs to no well", pump.id));
    }
    for spring in model.objects(&Kinds::new().spring) {
        spring_ended_well(scene, &spring)?;
    }
    Ok(())
}

fn well_ended_well(scene: &Scene, well: &Object) -> Result<(), String> {
    // Without a spring, or with one that is being deleted, nothing is given any more.
    let spring =
        scene.world.model.object(&Kinds::new().spring.at(well.namespace(), well.text("/spec/spring")));
    let given = spring.is_some_and(|spring| !spring.deleting());
    let mut good = vec![WellReason::Dry.as_str(), WellReason::NameTaken.as_str()];
    good.extend((!given).then_some(WellReason::Unallotted.as_str()));
    if well.at("/status/leaving").is_some() {
        return Err(format!("in the end, {} is there although its owner has left", well.name()));
    }
    let (state, reason) = condition(well, "Ready");
    if reason == WellReason::Dry.as_str()
        && let Some(left) = left_in(scene, well.text("/spec/spring")).filter(|left| *left > 0)
    {
        return Err(format!("in the end, {} is dry although {left} are left: {}", well.name(), well.0));
    }
    if well.deleting() || !(state == "True" || good.contains(&reason.as_str())) {
        return Err(format!("in the end, {} is {state} for {reason:?}: {}", well.name(), well.0));
    }
    let metered = serde::Deserialize::deserialize(&well.0["spec"]).is_ok_and(|spec: WellSpec| spec.metered);
    let meter = Kinds::new().meter.at(well.namespace(), &format!("{}-meter", well.name()));
    let says = condition(well, "Metered").0 == "True";
    if state == "True" && (says, scene.world.model.object(&meter).is_some()) != (metered, metered) {
        return Err(format!("in the end, the meter of {} is not as it says: {}", well.name(), well.0));
    }
    Ok(())
}

/// What a spring that is not being deleted has not given to anybody.
fn left_in(scene: &Scene, name: &str) -> Option<u64> {
    let (model, kinds) = (&scene.world.model, Kinds::new());
    let spring = model.object(&kinds.spring.at("ns", name)).filter(|spring| !spring.deleting())?;
    let capacity = spring.at("/spec/capacity")?.as_u64()?;
    let wells = model.objects(&kinds.well);
    let given = wells.iter().filter(|well| well.text("/spec/spring") == name);
    Some(capacity.saturating_sub(given.filter_map(|well| well_status(well).allotted).sum()))
}

/// Whoever asks at the desk of any process is told what is stored.
pub async fn all_are_told(scene: &Scene) -> Result<(), String> {
    for well in scene.world.model.objects(&Kinds::new().well) {
        let Some(allotted) = well_status(&well).allotted else { continue };
        for desk in scene.desks.all() {
            let call = Call { well: well.key(), wish: Wish::Grant };
            let told = desk.server.handle(&call, Duration::ZERO).await;
            if told != Ok(Told::Granted(allotted)) {
                return Err(format!("in the end, the owner of {} is told {told:?}: {}", well.name(), well.0));
            }
        }
    }
    Ok(())
}

fn spring_ended_well(scene: &Scene, spring: &Object) -> Result<(), String> {
    let model = &scene.world.model;
    if spring.deleting() {
        let wells = model.objects(&Kinds::new().well);
        let uses = |well: &Object| {
            let status = well_status(well);
            well.text("/spec/spring") == spring.name() && status.using.max(status.allotted.unwrap_or(0)) > 0
        };
        return if wells.iter().any(uses) {
            Ok(())
        } else {
            Err(format!("in the end, {} is being deleted although no well uses it", spring.name()))
        };
    }
    let level = scene.level.load(Ordering::SeqCst).to_string();
    let note = model.object(&CONFIG_MAP.key(&gauges::note(&spring.key())));
    let shows =
        note.as_ref().map(|note| (note.text("/data/level").to_owned(), note.text("/data/region").to_owned()));
    if shows != Some((level.clone(), REGION.to_owned())) {
        return Err(format!(
            "in the end, the gauge of {} shows {level}, and noted is {shows:?}",
            spring.name()
        ));
    }
    let entered = scene.register.lock().unwrap().levels.get(spring.name()).copied();
    if entered.map(|entered| entered.to_string()) != Some(level) {
        return Err(format!("in the end, {entered:?} is entered of {}", spring.name()));
    }
    let secret = |key| model.object(&SECRET.key(&key)).map(|secret| StoredSecret::of(&secret).content);
    let master = secret(aquifer_engine::Key::namespaced(spring.namespace(), MASTER));
    let right = master.map(|master| gauges::composed(&master, spring.name()));
    let permit = secret(gauges::permit(&spring.key()));
    if right.is_none() || permit.as_ref().and_then(|permit| permit.get("permit")) != right.as_ref() {
        return Err(format!(
            "in the end, the permit of {} is {permit:?}, where {right:?} is right",
            spring.name()
        ));
    }
    Ok(())
}

/// What processes keep in memory does not grow with what has happened: most of it is gone when there is nothing to do, and the rest is
/// bounded by the objects that there are.
pub async fn little_is_kept(scene: &Scene) -> Result<(), String> {
    let long = scene.world.choose(16) == 15;
    if long {
        // Every key is looked at every half hour, and answers that nobody asks for any more are kept for an hour.
        tokio::time::sleep(Duration::from_mins(95)).await;
    }
    // Every half hour there is something to do for a moment.
    let mut last = Ok(());
    for _ in 0..3 {
        last = is_little_kept(scene, long);
        if last.is_ok() {
            return last;
        }
        tokio::time::sleep(Duration::from_mins(1)).await;
    }
    last
}

fn is_little_kept(scene: &Scene, long: bool) -> Result<(), String> {
    let world = &scene.world;
    let wells = world.model.objects(&Kinds::new().well).len();
    let springs = CAPACITY.len();
    // Without the kind of its owner, a look-alike may be anybody's child.
    let planted = |object: &Object| object.name().ends_with(people::PLANTED);
    let planted = world.model.objects(&CONFIG_MAP).iter().filter(|object| planted(object)).count();
    for (what, number) in PROCESSES.into_iter().flat_map(|name| world.kept(name)) {
        let (whose, thing) = what.split_once(": ").unwrap_or_default();
        let keys = if whose.ends_with(WELLS) || whose.ends_with(LEAVERS) { wells } else { springs + planted };
        let most = match thing {
            // A gate that a slow watch left behind goes with the next pass of its key, and so does the slot of a key that is gone.
            "answers" | "lists" | "gates" | "slots" if !long => continue,
            "slots" | "compared Secrets" | "answers" => keys,
            "polled questions" if whose.ends_with(GAUGES) => 1,
            "targets of effects" => 1,
            _ => 0,
        };
        if number > most {
            return Err(format!("at rest, {number} of {what} are kept, where {most} would do"));
        }
    }
    Ok(())
}
