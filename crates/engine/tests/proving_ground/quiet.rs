//! When everything is as it should be, nothing is written: not on a resync, not on a restart, not on a lagging cache.

use std::time::Duration;

use aquifer_lab::proxy::Fault;

use crate::cluster_run::ClusterRun;
use crate::family::CONFIG_MAP;

/// How many passes of a controller have ended well.
pub fn passes(metrics: &str, controller: &str, outcome: &str) -> u64 {
    let line =
        format!("aquifer_controller_passes_total{{controller=\"{controller}\",outcome=\"{outcome}\"}} ");
    metrics.lines().find_map(|text| text.strip_prefix(&line)).map_or(0, |count| count.parse().unwrap())
}

async fn idle(run: &ClusterRun) {
    assert!(
        run.proxy().wait_idle(Duration::from_millis(1500), Duration::from_secs(30)).await,
        "writes never end"
    );
}

async fn converged(purpose: &str) -> ClusterRun {
    let run = ClusterRun::new(purpose).await;
    run.start().await;
    run.play(0).await;
    run.until("both wells flow", async || run.arrived(0).await).await.unwrap();
    idle(&run).await;
    run.proxy().reset();
    run
}

/// Both wells and the spring have had `more` passes since.
async fn passed(run: &ClusterRun, wells: u64, springs: u64) {
    run.until("every key has had its pass", async || {
        let text = run.metrics();
        let (w, s) = (passes(&text, "proving-wells", "ok"), passes(&text, "proving-springs", "ok"));
        anyhow::ensure!(w >= wells && s >= springs, "{w} passes over wells, {s} over springs");
        Ok(Some(()))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_resync_writes_nothing() {
    let run = converged("resync").await;
    let text = run.metrics();
    run.resync();
    passed(&run, passes(&text, "proving-wells", "ok") + 2, passes(&text, "proving-springs", "ok") + 1).await;
    idle(&run).await;
    let writes = run.proxy().writes();
    println!("writes after a resync: {}", writes.len());
    assert!(writes.is_empty(), "{writes:?}");
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_writes_nothing() {
    let run = converged("restart").await;
    run.stop().await;
    run.start().await;
    passed(&run, 2, 1).await;
    idle(&run).await;
    let writes = run.proxy().writes();
    println!("writes after a restart: {}", writes.len());
    assert!(writes.is_empty(), "{writes:?}");
    run.stop().await;
}

/// The caches of the children stand still. The next pass of each well waits for them, then reads live.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caches_that_lag_cause_no_write_that_is_refused_and_no_second_object() {
    const HELD: [&str; 3] = ["configmaps", "persistentvolumeclaims", "meters"];
    let run = ClusterRun::new("lag").await;
    run.start().await;
    run.until("the caches are warm", async || Ok(run.missing().is_empty().then_some(()))).await.unwrap();
    for resource in HELD {
        run.proxy().inject(Fault::HoldWatch { resource: resource.into(), lists_as_of: None });
    }
    for step in 0..2 {
        run.play(step).await;
        run.until(&format!("step {step}"), async || run.arrived(step).await).await.unwrap();
    }
    let metrics = run.metrics();
    let live = "aquifer_controller_live_passes_total{controller=\"proving-wells\"} ";
    assert!(metrics.lines().any(|line| line.starts_with(live)), "no pass has read live: {metrics}");
    // Of the kinds whose caches lag. Two controllers that compare and swap on one status may well refuse each other.
    let lagging = |path: &str| HELD.iter().any(|resource| path.contains(resource));
    let refused: Vec<_> = run
        .proxy()
        .writes()
        .into_iter()
        .filter(|w| lagging(&w.path) && w.status.is_some_and(|s| s >= 400))
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
    run.proxy().clear();
    idle(&run).await;
    assert_eq!(run.names(&CONFIG_MAP).await, ["a-x", "a-y", "a-z", "b-x"]);
    assert!(run.created().values().all(|n| *n == 1), "{:?}", run.created());
    run.stop().await;
}
