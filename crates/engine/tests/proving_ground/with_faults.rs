//! Users and strangers who do anything in any order, while everything goes wrong that can: whole processes in simulated time.
//! What must hold at every moment is in `rules`; here is what happens, and how it must end.

use std::sync::Arc;
use std::time::Duration;

use aquifer_base::Reason;
use aquifer_engine::live::Live;
use aquifer_engine::metrics::Metrics;
use aquifer_engine::model::WriteFault;
use aquifer_engine::process::{Family, Runnable};
use aquifer_engine::runtime::Runtime;
use aquifer_engine::simulation::{Bad, Fault, Played, Tape, World, play, search};
use aquifer_engine::{Class, Failure, Kind, Object};
use async_trait::async_trait;
use serde_json::json;

use crate::family::{
    CLAIM, CONFIG_MAP, Kinds, PANIC, SECRET, WellReason, WellSpec, condition, spring_named, well,
};
use crate::house::{Call, House, Phone, Pump, lost};
use crate::rules;
use crate::springs::Springs;
use crate::wells::Wells;

const RUN: &str = "faults";
/// Longer than any pause after a failure.
const QUIET: Duration = Duration::from_mins(7);
const PATIENCE: Duration = Duration::from_hours(2);
/// What the two springs have.
pub const CAPACITY: [(&str, u64); 2] = [("spring", 10), ("brook", 5)];

fn kinds() -> Vec<Kind> {
    let own = Kinds::new();
    vec![own.well, own.spring, own.meter, CONFIG_MAP, CLAIM, SECRET]
}

/// The pump house as a part of the simulated outside.
struct OutsideLine {
    house: Arc<House>,
    world: World,
}

#[async_trait]
impl Phone for OutsideLine {
    /// The outside allows a minute; a slow process may need some time between the record of an order and the call.
    fn arrives_within(&self) -> Duration {
        Duration::from_secs(90)
    }

    async fn call(&self, call: Call) -> Result<Option<Pump>, Failure> {
        let house = Arc::clone(&self.house);
        let faults: &[Fault] = match call {
            Call::FindOrder(_) | Call::FindPump(_) => &[Fault::OutsideSlow],
            // A resize that arrives late would need a guard against what was decided meanwhile, which this family does not have.
            Call::Resize { .. } | Call::Scrap { .. } => &[Fault::OutsideRefuses, Fault::OutsideReplyLost],
            Call::Order { .. } => &[
                Fault::OutsideSlow,
                Fault::OutsideRefuses,
                Fault::OutsideReplyLost,
                Fault::OutsideLandsLater,
            ],
        };
        let answer = self.world.outside(faults, move || house.handle(&call)).await;
        answer.and_then(Result::ok).ok_or_else(lost)
    }
}

fn family(world: &World, house: &Arc<House>, client: &kube::Client, runtime: &Runtime) -> Vec<Family> {
    let wells = Wells {
        kinds: Kinds::new(),
        run: RUN.into(),
        house: Arc::new(OutsideLine { house: Arc::clone(house), world: world.clone() }),
        keys: Arc::new(Live::new(client.clone(), Metrics::default())),
        decider: None,
        runtime: runtime.clone(),
    };
    let springs = Springs { kinds: Kinds::new(), run: RUN.into(), decider: None };
    let controllers: Vec<Box<dyn Runnable>> = vec![Box::new(wells), Box::new(springs)];
    vec![Family { name: "proving".into(), controllers, servers: Vec::new() }]
}

fn pick<'a, T>(world: &World, among: &'a [T]) -> Option<&'a T> {
    among.get(usize::try_from(world.choose(among.len() as u64)).ok()?)
}

/// One thing that somebody does.
fn interfere(world: &World) {
    let kinds = Kinds::new();
    let name = *pick(world, &["a", "b", "c", "d"]).expect("names");
    let target = kinds.well.at("ns", name);
    let children = || -> Vec<(Kind, Object)> {
        let of =
            |kind: Kind| world.model.objects(&kind).into_iter().map(move |object| (kind.clone(), object));
        of(CONFIG_MAP).chain(of(kinds.meter.clone())).collect()
    };
    let what = match world.choose(11) {
        0 => return,
        // The most frequent: a user wants something.
        1..=5 => {
            let taps: Vec<&str> = ["x", "y", "z"].into_iter().filter(|_| world.choose(2) == 1).collect();
            let mut spec = WellSpec::new(1 + world.choose(8), &taps);
            spec.metered = world.choose(2) == 0;
            pick(world, &CAPACITY).expect("springs").0.clone_into(&mut spec.spring);
            if let Some(well) = world.model.object(&target) {
                well.text("/spec/spring").clone_into(&mut spec.spring); // moving is not what this family can do
            }
            world.model.put(&kinds.well, well(&kinds, "ns", name, RUN, &spec));
            format!("a user wants {spec:?}")
        }
        6 => {
            world.model.delete(&target);
            "a user deletes it".into()
        }
        7 => {
            let Some((kind, child)) = pick(world, &children()).cloned() else { return };
            world.model.delete(&kind.key(&child.key()));
            format!("a stranger deletes {}", child.name())
        }
        8 => {
            let Some((kind, child)) = pick(world, &children()).cloned() else { return };
            world.model.edit(&kind.key(&child.key()), |doc| {
                doc["metadata"]["annotations"]["stranger"] = json!("was here");
            });
            format!("a stranger edits {}", child.name())
        }
        9 => {
            world.model.edit(&target, |doc| doc["metadata"]["annotations"][PANIC] = json!("watch"));
            "the closure of a watch panics at it".into()
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
    };
    world.note(&format!("well {name}: {what}"));
}

async fn script(world: &World) -> Result<(), String> {
    let house = House::new(Arc::new(WriteFault::default()), false);
    let own = Kinds::new();
    for (name, capacity) in CAPACITY {
        world.model.put(&own.spring, spring_named(&own, "ns", name, RUN, capacity));
    }
    let kept = ["one", "two"].map(|name| {
        let (house, its_world) = (Arc::clone(&house), world.clone());
        world.keep(name, move |client, runtime| family(&its_world, &house, client, runtime))
    });
    for _ in 0..10 + world.choose(15) {
        interfere(world);
        tokio::time::sleep(Duration::from_millis(world.choose(40_000))).await;
    }
    world.end_faults();
    for well in world.model.objects(&own.well).iter().filter(|well| well.annotation(PANIC).is_some()) {
        let target = own.well.key(&well.key());
        world.model.edit(&target, |doc| doc["metadata"]["annotations"][PANIC] = json!("no longer"));
    }
    if world.choose(4) == 3 {
        an_hour_without_orders(world, &house).await?;
    }
    let rests = world.rests(QUIET, PATIENCE).await;
    rules::hold(world, &house)?;
    if !rests {
        return Err("it never comes to rest".into());
    }
    ended_well(world, &house)?;
    for process in kept {
        process.stop().await;
    }
    nothing_left_to_do(world, &house).await
}

/// The outside answers questions and takes no orders for an hour: it is not asked all the time, and people are told.
async fn an_hour_without_orders(world: &World, house: &House) -> Result<(), String> {
    world.note("the pump house takes no orders");
    house.refuse(true);
    tokio::time::sleep(Duration::from_hours(1)).await;
    let refused = house.refuse(false);
    world.note("the pump house takes orders again");
    if let Some((buyer, times)) = refused.iter().find(|(_, times)| **times > 40) {
        return Err(format!("{times} orders of {buyer} in an hour, all refused"));
    }
    for well in world.model.objects(&Kinds::new().well).iter().filter(|well| refused.contains_key(well.uid()))
    {
        let (_, reason) = condition(well, "Ready");
        let says = [Class::Transient.reason().as_str(), WellReason::PumpHouse.as_str()];
        if !well.deleting() && !says.contains(&reason.as_str()) {
            return Err(format!(
                "after an hour, {} does not say that it gets no pump: {}",
                well.name(),
                well.0
            ));
        }
    }
    Ok(())
}

/// Every well flows, or says why not, and there is no pump without a well.
fn ended_well(world: &World, house: &House) -> Result<(), String> {
    let good = [WellReason::Dry, WellReason::NameTaken].map(|reason| reason.as_str().to_owned());
    for well in world.model.objects(&Kinds::new().well) {
        let (state, reason) = condition(&well, "Ready");
        if well.deleting() || !(state == "True" || good.contains(&reason)) {
            return Err(format!("in the end, {} is {state} for {reason:?}: {}", well.name(), well.0));
        }
    }
    let uids: Vec<String> =
        world.model.objects(&Kinds::new().well).iter().map(|well| well.uid().to_owned()).collect();
    match house.pumps().into_iter().find(|pump| !uids.iter().any(|uid| pump.order.starts_with(uid.as_str())))
    {
        Some(pump) => Err(format!("in the end, {} belongs to no well", pump.id)),
        None => Ok(()),
    }
}

/// A new process finds nothing to write.
async fn nothing_left_to_do(world: &World, house: &Arc<House>) -> Result<(), String> {
    let before = world.model.version();
    let fresh = world.start("fresh", |client, runtime| family(world, house, client, runtime));
    tokio::time::sleep(Duration::from_mins(2)).await;
    let written: Vec<String> = world
        .model
        .changes_since(before)
        .into_iter()
        .filter(|change| !["Lease", "Event"].contains(&&*change.target.kind.kind))
        .map(|change| change.target.to_string())
        .collect();
    fresh.crash();
    if written.is_empty() { Ok(()) } else { Err(format!("a fresh process writes {written:?}")) }
}

fn history(tape: Tape) -> std::io::Result<Played> {
    play(tape, &kinds(), script)
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// `AQUIFER_SEED` is the first seed, `AQUIFER_SEEDS` how many, `AQUIFER_SECONDS` how long at most; with `AQUIFER_ALL=1` it goes on
/// after the first that ends badly, with `AQUIFER_SHORTEN=0` that one is not shortened.
#[test]
fn whatever_goes_wrong_nothing_is_lost_or_done_twice_and_in_the_end_all_is_well() {
    let first = from_environment("AQUIFER_SEED", 1);
    let seeds = first..first + from_environment("AQUIFER_SEEDS", 1_000_000);
    let limit = Duration::from_secs(from_environment("AQUIFER_SECONDS", 15));
    let bad = match (from_environment("AQUIFER_ALL", 0), from_environment("AQUIFER_SHORTEN", 1)) {
        (1, _) => Bad::All,
        (_, 0) => Bad::Stop,
        _ => Bad::Shorten,
    };
    let found = search(seeds, limit, bad, history).unwrap();
    println!("{found}");
    assert!(found.bad.is_empty(), "a history ends badly; it is printed above");
}

#[test]
fn one_seed_gives_one_history_with_all_its_faults() {
    for seed in 0..5 {
        let first = history(Tape::from_seed(seed)).unwrap();
        let again = history(Tape::replay(first.choices.clone())).unwrap();
        assert_eq!(
            aquifer_engine::simulation::first_difference(&first.history, &again.history),
            None,
            "seed {seed}"
        );
    }
}
