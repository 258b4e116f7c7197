//! Users and strangers who do anything in any order, while everything goes wrong that can: whole processes in simulated time.
//! `people` says who does what, `rules` what must hold at every moment, `ends` how it must end.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::leaks::{Leaks, Log};
use crate::scene::{Scene, kinds};
use crate::{crowd, ends, people, rules};
use aquifer_engine::simulation::{
    Fault, PATIENCE, Played, QUIET, Tape, World, play, play_with_all_faults, search_as_told,
};

/// How long histories are played in everyday tests.
const EVERYDAY: Duration = Duration::from_secs(15);
/// What the processes are called.
pub const PROCESSES: [&str; 3] = ["one", "two", "three"];
/// How much happens in the histories of a full run.
const FULL: usize = 1_000_000;

async fn script(scene: &Scene) -> Result<(), String> {
    // Every other one is about springs alone.
    match scene.world.choose(2) {
        1 => crowd::script(scene).await,
        _ => everything(scene).await,
    }
}

/// Two processes of the operator, or three.
pub fn processes(world: &World) -> impl Iterator<Item = &'static str> + use<> {
    let number = if world.choose(4) == 3 { 3 } else { 2 };
    PROCESSES.into_iter().take(number)
}

async fn everything(scene: &Scene) -> Result<(), String> {
    let world = &scene.world;
    people::put_master(world);
    world.disturb_kinds();
    let kept = processes(world).map(|name| {
        let scene = scene.clone();
        world.keep(name, move |client, runtime| scene.family(client, runtime))
    });
    let kept: Vec<_> = kept.collect();
    tokio::time::sleep(Duration::from_millis(world.choose(20_000))).await;
    people::make_springs(world).await;
    for _ in 0..10 + world.choose(15) {
        people::interfere(scene).await;
        tokio::time::sleep(Duration::from_millis(world.choose(40_000))).await;
    }
    world.end_faults();
    people::put_master(world);
    people::let_all_go_on(world);
    if world.choose(4) == 3 {
        ends::an_hour_without_orders(scene).await?;
    }
    let rests = world.rests(QUIET, PATIENCE).await;
    rules::hold(scene)?;
    scene.leaks.none_in(world)?;
    if !rests {
        return Err("it never comes to rest".into());
    }
    ends::ended_well(scene)?;
    ends::all_are_told(scene).await?;
    ends::little_is_kept(scene).await?;
    for process in kept {
        process.stop().await;
    }
    world.is_nothing_left_to_do(|client, runtime| scene.family(client, runtime)).await
}

fn history(tape: Tape) -> std::io::Result<Played> {
    let leaks = Leaks::default();
    tracing::subscriber::with_default(Log(leaks.clone()), || {
        play(tape, &kinds(), async |world| script(&Scene::new(world, &leaks)).await)
    })
}

#[test]
fn whatever_goes_wrong_nothing_is_lost_or_done_twice_and_in_the_end_all_is_well() {
    let found = search_as_told(EVERYDAY, FULL, history).unwrap();
    println!("{found}");
    assert!(found.bad.is_empty(), "a history ends badly; it is printed above");
}

#[test]
fn every_kind_of_fault_happens() {
    let leaks = Leaks::default();
    let mut happened = BTreeSet::new();
    for seed in 0..20 {
        let played = play_with_all_faults(Tape::from_seed(seed), &kinds(), async |world| {
            everything(&Scene::new(world, &leaks)).await
        });
        let played = played.unwrap();
        assert_eq!(played.end, Ok(()), "seed {seed}");
        happened.extend(played.faults.into_keys());
        if happened.len() == Fault::ALL.len() {
            return;
        }
    }
    let missing: Vec<_> = Fault::ALL.into_iter().filter(|fault| !happened.contains(fault)).collect();
    panic!("{missing:?} have not happened");
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
