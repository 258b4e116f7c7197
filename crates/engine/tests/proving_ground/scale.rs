//! What many objects cost, in the simulation: no cluster, no waiting, one thread. `cargo xtask bench engine` runs this with large
//! numbers and prints what is measured; the tests run it with small ones and look at what must not depend on them.

use std::time::Duration;

use aquifer_engine::cluster::{Cluster as _, Verb, Write};
use aquifer_engine::live::Live;
use aquifer_engine::metrics::Metrics;
use aquifer_engine::process::{Family, Runnable};
use aquifer_engine::simulation::{Delays, Process, World, run};
use serde_json::json;

use crate::family::{Kinds, SPRINGS, WellSpec, spring, well, well_status};
use crate::springs::Springs;

const RUN: &str = "scale";
const QUIET: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_hours(2);
/// What each claimant wants.
const WANT: u64 = 3;

/// How many claimants: few in a test, many in the benchmark.
fn claimants() -> usize {
    std::env::var("AQUIFER_CLAIMANTS").ok().and_then(|n| n.parse().ok()).unwrap_or(200)
}

/// Processor time of this thread, which is all that a simulation has.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(stat.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or_default())
}

/// The most memory that this process has had, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or_default()
}

/// Passes over springs so far.
fn passes(process: &Process) -> u64 {
    let text = process.metrics().text();
    let ours = |line: &&str| line.contains("controller_passes_total{") && line.contains(SPRINGS);
    text.lines().filter(ours).filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

fn start(world: &World) -> Process {
    world.start("one", |_, _| {
        let springs: Vec<Box<dyn Runnable>> =
            vec![Box::new(Springs { kinds: Kinds::new(), run: RUN.into(), decider: None })];
        vec![Family { name: "scale".into(), controllers: springs, servers: Vec::new() }]
    })
}

/// A world with a spring that has enough for all, and its claimants.
fn put_all(world: &World, n: usize) {
    let kinds = Kinds::new();
    let capacity = u64::try_from(n).unwrap_or_default() * WANT;
    world.model.put(&kinds.spring, spring(&kinds, "ns", RUN, capacity));
    for number in 0..n {
        let spec = WellSpec::new(WANT, &[]);
        world.model.put(&kinds.well, well(&kinds, "ns", &format!("w-{number:05}"), RUN, &spec));
    }
}

/// The same grants by a client that does nothing else: read all, write each.
async fn floor(world: &World) {
    let kinds = Kinds::new();
    let api = Live::new(world.client("floor"), Metrics::default());
    let all = aquifer_engine::cluster::Listing::all(&kinds.well, "ns");
    for claimant in api.list(&all).await.unwrap() {
        let body = json!({"metadata": {"uid": claimant.uid(), "resourceVersion": claimant.resource_version()},
            "status": {"allotted": WANT}});
        let target = kinds.well.key(&claimant.key());
        let verb = Verb::Merge { body, status: true };
        api.write(&Write { target, verb, manager: "floor".into() }).await.unwrap();
    }
}

#[test]
fn one_supply_is_divided_among_many_and_their_heartbeats_cost_it_nothing() {
    let n = claimants();
    let kinds = [Kinds::new().well, Kinds::new().spring];
    let (floor_cpu, _) = run(1, Delays::NONE, &kinds, async |world| {
        put_all(world, n);
        let before = cpu();
        floor(world).await;
        cpu().checked_sub(before).unwrap()
    })
    .unwrap();
    let ((), _) = run(1, Delays::NONE, &kinds, async |world| {
        put_all(world, n);
        let (before, from) = (cpu(), world.model.version());
        let process = start(world);
        assert!(world.rests(QUIET, PATIENCE).await, "it never comes to rest");
        let divide_cpu = cpu().checked_sub(before).unwrap();
        let changes = world.model.changes_since(from);
        let writes = |kind: &str| changes.iter().filter(|change| change.target.kind.kind == kind).count();
        let (grants, supply_writes) = (writes("Well"), writes("Spring"));
        let wells = world.model.objects(&kinds[0]);
        assert!(wells.iter().all(|well| well_status(well).allotted == Some(WANT)), "all have their share");
        assert_eq!(grants, n, "one write for each claimant");
        let divided = passes(&process);
        // Now each claimant shows that it lives.
        let before = cpu();
        for well in &wells {
            let target = kinds[0].key(&well.key());
            world.model.edit(&target, |doc| doc["status"]["heartbeat"] = json!("2026-01-01T00:00:00Z"));
        }
        assert!(world.rests(QUIET, PATIENCE).await);
        let beat_cpu = cpu().checked_sub(before).unwrap();
        let heartbeat_passes = passes(&process) - divided;
        assert_eq!(heartbeat_passes, 0, "a heartbeat is no reason to look at the supply");
        println!(
            "bench: {}",
            json!({"claimants": n, "passes": divided, "grants": grants, "supply_writes": supply_writes,
                "cpu_ms": divide_cpu.as_millis(), "floor_cpu_ms": floor_cpu.as_millis(),
                "heartbeats_cpu_ms": beat_cpu.as_millis(), "heartbeat_passes": heartbeat_passes, "peak_kib": peak()})
        );
        process.stop().await.expect("it stops in order");
    })
    .unwrap();
}
