//! The story in the simulation: whole processes of the operator, with their clients, watches, caches, queues and Leases, in
//! simulated time. One seed gives one history.

use std::sync::Arc;
use std::time::Duration;

use aquifer_engine::live::Live;
use aquifer_engine::metrics::Metrics;
use aquifer_engine::model::WriteFault;
use aquifer_engine::process::Family;
use aquifer_engine::runtime::Runtime;
use aquifer_engine::simulation::{Delays, Process, World, first_difference, run};
use aquifer_engine::{Failure, Kind};
use async_trait::async_trait;
use serde_json::json;

use crate::family::{CLAIM, CONFIG_MAP, Kinds, SECRET, condition, spring, well, well_status};
use crate::guide::{GREETING, Greetings};
use crate::house::{Call, House, Phone, Pump};
use crate::in_model::never_too_much;
use crate::springs::Springs;
use crate::story::{Action, STEPS, actions, expected};
use crate::wells::Wells;

const RUN: &str = "simulated";
/// Longer than a resize by a slow pump house, during which nothing is written.
const QUIET: Duration = Duration::from_secs(40);
const PATIENCE: Duration = Duration::from_mins(20);

/// A line to the pump house on which everything takes its time.
struct SlowLine {
    house: Arc<House>,
    runtime: Runtime,
    slowest: u64,
}

#[async_trait]
impl Phone for SlowLine {
    async fn call(&self, call: Call) -> Result<Option<Pump>, Failure> {
        let takes = || Duration::from_millis(self.runtime.random() % (self.slowest + 1));
        tokio::time::sleep(takes()).await;
        let answer = self.house.call(call).await;
        tokio::time::sleep(takes()).await;
        answer
    }
}

fn kinds() -> Vec<Kind> {
    let own = Kinds::new();
    vec![own.well, own.spring, own.meter, CONFIG_MAP, CLAIM, SECRET]
}

fn start(world: &World, name: &str, house: &Arc<House>, slowest: u64) -> Process {
    world.start(name, families(house, slowest))
}

fn families(
    house: &Arc<House>,
    slowest: u64,
) -> impl Fn(&kube::Client, &Runtime) -> Vec<Family> + Send + 'static {
    let house = Arc::clone(house);
    move |client, runtime| {
        let line = SlowLine { house: Arc::clone(&house), runtime: runtime.clone(), slowest };
        let wells = Wells {
            kinds: Kinds::new(),
            run: RUN.into(),
            house: Arc::new(line),
            keys: Arc::new(Live::new(client.clone(), Metrics::default())),
            decider: None,
            runtime: runtime.clone(),
        };
        let springs = Springs { kinds: Kinds::new(), run: RUN.into(), decider: None };
        let controllers: Vec<Box<dyn aquifer_engine::process::Runnable>> =
            vec![Box::new(wells), Box::new(springs)];
        vec![Family { name: "proving".into(), controllers, servers: Vec::new() }]
    }
}

fn act(world: &World, step: usize) {
    let kinds = Kinds::new();
    for action in actions(step) {
        match action {
            Action::Spring(capacity) => {
                drop(world.model.put(&kinds.spring, spring(&kinds, "ns", RUN, capacity)));
            }
            Action::Well(name, spec) => {
                drop(world.model.put(&kinds.well, well(&kinds, "ns", name, RUN, &spec)));
            }
            Action::Delete(name) => world.model.delete(&kinds.well.at("ns", name)),
        }
    }
}

/// Plays the whole story with two replicas and gives the history.
fn story(seed: u64, delays: &Delays, slowest: u64) -> Vec<String> {
    let (house, history) = run(seed, delays.clone(), &kinds(), async |world| {
        let house = House::new(Arc::new(WriteFault::default()), false);
        let processes = ["one", "two"].map(|name| start(world, name, &house, slowest));
        let wells = Kinds::new().well;
        for step in 0..STEPS {
            act(world, step);
            assert!(world.rests(QUIET, PATIENCE).await, "seed {seed}, step {step}: it never comes to rest");
            for expected in expected(step) {
                let object = world.model.object(&wells.at("ns", expected.well)).expect("the well is there");
                let (ready, reason) = condition(&object, "Ready");
                let what = format!("seed {seed}, step {step}, well {}: {}", expected.well, object.0);
                assert_eq!((ready.as_str(), reason.as_str()), ("True", "Flowing"), "{what}");
                assert_eq!(well_status(&object).using, expected.size, "{what}");
            }
        }
        never_too_much(&world.model, &Kinds::new());
        // At rest, another look changes nothing.
        let before = world.model.version();
        processes.iter().for_each(Process::resync);
        assert!(world.rests(QUIET, PATIENCE).await);
        let after: Vec<_> = world.model.changes_since(before).into_iter().map(|c| c.target).collect();
        assert!(after.iter().all(|target| target.kind.kind == "Lease"), "seed {seed}: {after:?}");
        for process in processes {
            process.stop().await.expect("it stops in order");
        }
        house
    })
    .unwrap();
    let made: Vec<usize> = house.made().into_values().collect();
    assert_eq!(made, [1, 1], "seed {seed}: a pump for each of two wells");
    history
}

#[test]
fn the_story_ends_well_without_faults_and_one_seed_gives_one_history() {
    let first = story(1, &Delays::NONE, 0);
    assert_eq!(first_difference(&first, &story(1, &Delays::NONE, 0)), None);
    assert!(first.len() > 100, "{} requests", first.len());
}

#[test]
fn the_story_ends_well_whatever_takes_how_long() {
    for seed in 0..20 {
        story(seed, &Delays::LONG, 3_000);
    }
    let [seven, again, eight] = [7, 7, 8].map(|seed| story(seed, &Delays::LONG, 3_000));
    assert_eq!(first_difference(&seven, &again), None);
    assert!(first_difference(&seven, &eight).is_some());
}

/// Times that come while every worker is busy: a loop that only looks at the clock again would keep it from moving.
#[test]
fn a_time_that_comes_while_all_workers_are_busy_does_not_make_the_process_spin() {
    let ((), _) = run(1, Delays::LONG, &[GREETING, CONFIG_MAP], async |world| {
        let controllers: Vec<Box<dyn aquifer_engine::process::Runnable>> = vec![Box::new(Greetings)];
        let family = Family { name: "guide".into(), controllers, servers: Vec::new() };
        let process = world.start("one", |_, _| vec![family]);
        for number in 0..200 {
            let body = |text: &str| json!({"metadata": {"namespace": "ns", "name": format!("g-{number}")}, "spec": {"text": text}});
            world.model.put(&GREETING, body("good morning"));
            world.model.put(&GREETING, body("good evening"));
        }
        assert!(world.rests(QUIET, PATIENCE).await);
        assert_eq!(world.model.objects(&CONFIG_MAP).len(), 200);
        process.stop().await.expect("it stops in order");
    })
    .expect("the simulated clock moves");
}

/// The controllers of a process here.
const CONTROLLERS: usize = 2;

#[test]
fn an_hour_of_silence_costs_few_requests_and_a_minute_after_it_all_is_well() {
    let ((), _) = run(3, Delays::NONE, &kinds(), async |world| {
        let house = House::new(Arc::new(WriteFault::default()), false);
        let kept = ["one", "two"].map(|name| world.keep(name, families(&house, 0)));
        act(world, 0);
        assert!(world.rests(QUIET, PATIENCE).await, "it never comes to rest");
        world.silence(true);
        let before = world.history().len();
        // The user goes on: somebody else's server answers him.
        act(world, 1);
        tokio::time::sleep(Duration::from_hours(1)).await;
        let history = world.history();
        let silent = &history[before..];
        let ended: Vec<&String> = silent.iter().filter(|line| line.contains("ends by itself")).collect();
        assert!(
            ended.iter().any(|line| line.contains("LostLease")),
            "who loses the Lease restarts: {ended:?}"
        );
        for name in ["one", "two"] {
            let requests = silent.iter().filter(|line| line.contains(&format!(" {name}-"))).count();
            println!("{name}: {requests} requests in an hour of silence, {} restarts", ended.len());
            assert!(
                requests <= 500 * CONTROLLERS,
                "{name} asked {requests} times:\n{}",
                silent[..40].join("\n")
            );
        }
        world.silence(false);
        tokio::time::sleep(Duration::from_mins(1)).await;
        for expected in expected(1) {
            let object =
                world.model.object(&Kinds::new().well.at("ns", expected.well)).expect("the well is there");
            let what = format!("a minute after the silence, well {}: {}", expected.well, object.0);
            assert_eq!(condition(&object, "Ready").0, "True", "{what}");
            assert_eq!(well_status(&object).using, expected.size, "{what}");
        }
        for process in kept {
            process.stop().await;
        }
    })
    .unwrap();
}

#[test]
fn a_standby_is_not_ready_while_the_api_server_is_silent_and_is_again_when_it_answers() {
    let ((), _) = run(5, Delays::NONE, &kinds(), async |world| {
        let house = House::new(Arc::new(WriteFault::default()), false);
        let _leader = start(world, "one", &house, 0);
        act(world, 0);
        assert!(world.rests(QUIET, PATIENCE).await, "it never comes to rest");
        let standby = start(world, "two", &house, 0);
        let silent = || standby.health().silent().into_keys().collect::<Vec<_>>();
        // Nothing happens for an hour, and that is no silence.
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_mins(1)).await;
            assert_eq!((standby.health().missing(), silent()), (Vec::new(), Vec::new()));
        }
        world.silence(true);
        tokio::time::sleep(Duration::from_mins(3)).await;
        assert_eq!(silent(), Vec::<String>::new(), "so long is nothing yet");
        tokio::time::sleep(Duration::from_mins(4)).await;
        let named = silent();
        for kind in ["wells", "springs"] {
            assert!(named.iter().any(|name| name.starts_with(kind)), "{kind} is not in {named:?}");
        }
        world.silence(false);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(silent(), Vec::<String>::new());
    })
    .unwrap();
}
