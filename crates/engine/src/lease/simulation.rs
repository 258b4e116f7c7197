//! Replicas that compete under paused time while clocks, network and processes misbehave. Tests only.

mod scenarios;
mod world;

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use world::{Clock, Stoppable, World};

/// One replica: its processes live, are stopped, cut off, killed or ended, and are started again.
async fn replica(world: Arc<World>, number: usize) {
    for life in 0.. {
        let name = format!("replica-{number}-{life}");
        let speed = world.chance(|c| u32::try_from(c.below(41)).unwrap()) + 80;
        let wall_off = SignedDuration::from_secs(world.chance(|c| c.below(200_000)).cast_signed() - 100_000);
        let now = Instant::now();
        let mut cut_off = now;
        let trouble = !world.calm();
        let mut stops = Vec::new();
        let (mut kill, mut end) = (None, None);
        if trouble {
            let mut at = now;
            for _ in 0..4 {
                let from = at + world.chance(|c| c.millis(0, 15_000));
                at = from + world.chance(|c| c.millis(1, 20_000));
                stops.push((from, at.min(world.calm_from)));
            }
            if world.chance(|c| c.percent(40)) {
                cut_off = (now + world.chance(|c| c.millis(0, 20_000))).min(world.calm_from);
            }
            if world.chance(|c| c.percent(30)) {
                kill = Some(now + world.chance(|c| c.millis(0, 30_000))).filter(|at| *at < world.calm_from);
            }
            if world.chance(|c| c.percent(30)) {
                end = Some(now + world.chance(|c| c.millis(0, 30_000))).filter(|at| *at < world.calm_from);
            }
        }
        let cancel = CancellationToken::new();
        if let Some(end) = end {
            let cancel = cancel.clone();
            tokio::spawn(async move {
                sleep_until(end).await;
                cancel.cancel();
            });
        }
        let elector = world.start_process(&name, Clock { wall_off, speed }, cut_off);
        let far = now + Duration::from_secs(1_000_000);
        let process = Stoppable { inner: Box::pin(elector.run(cancel)), stops, stopped: None };
        tokio::select! {
            biased;
            _ = process => {}
            () = sleep_until(kill.unwrap_or(far)) => {}
        }
        sleep(world.chance(|c| c.millis(100, 3_000))).await;
    }
}

async fn one_seed(seed: u64) -> (usize, usize) {
    let world = World::new(seed, Duration::from_mins(2));
    for number in 0..3 {
        tokio::spawn(replica(world.clone(), number));
    }
    let step = Duration::from_millis(10);
    let (mut led, mut looks) = (0, 0);
    while !world.calm() {
        led += world.check(seed);
        looks += 1;
        sleep(step).await;
    }
    // Late requests of the bad time may still land for half a minute; then one leads, and goes on leading.
    let deadline = Instant::now() + Duration::from_mins(1);
    let mut steady_since = None;
    loop {
        let leads = world.check(seed) == 1;
        steady_since = if leads { steady_since.or(Some(Instant::now())) } else { None };
        if steady_since.is_some_and(|since| since.elapsed() >= Duration::from_secs(20)) {
            return (led, looks);
        }
        assert!(Instant::now() < deadline, "seed {seed}: nobody leads steadily; holder {:?}", world.holder());
        sleep(step).await;
    }
}

#[test]
fn at_most_one_replica_leads_at_any_instant_and_in_the_end_one_does() {
    let (mut led, mut looks) = (0, 0);
    for seed in 0..60 {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (a, b) = runtime.block_on(one_seed(seed));
        led += a;
        looks += b;
    }
    // A simulation in which nobody ever leads would prove nothing.
    assert!(led * 4 > looks, "somebody led in only {led} of {looks} looks");
}
