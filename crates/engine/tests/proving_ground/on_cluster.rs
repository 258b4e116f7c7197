//! The family on a real control plane, through the fault proxy.

use std::time::Duration;

use anyhow::Result;
use aquifer_engine::{Kind, Object};
use aquifer_lab::kit::disturbed::Disturbed;
use aquifer_lab::kit::walk::{Story, Walk};

use crate::cluster_run::{ClusterRun, ready};
use crate::family::{Kinds, WellSpec, condition, well_status};
use crate::story::{Action, STEPS};

/// The story that all walks play, each run on a run of its own.
struct Wells;

impl Story for Wells {
    type Run = ClusterRun;

    fn steps(&self) -> usize {
        STEPS
    }

    async fn begin(&self) -> Result<ClusterRun> {
        let run = ClusterRun::new("walk").await;
        run.start().await;
        run.until("the caches are filled", async || Ok(run.missing().is_empty().then_some(()))).await?;
        Ok(run)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_or_a_lost_reply_at_any_write_point_changes_nothing() -> Result<()> {
    let walk = Walk {
        // Most of a run is waiting.
        side_by_side: 12,
        settle: Duration::from_millis(1500),
        quiet: Duration::from_millis(300),
        most_runs: 40,
        least_points: 80,
    };
    walk.run(&Wells).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_goes_wrong_with_requests_the_end_is_the_same() -> Result<()> {
    let kinds = Kinds::new();
    let of = |kind: &Kind| format!("{}.{}", kind.plural, kind.group);
    let own = [of(&kinds.well), of(&kinds.spring), of(&kinds.meter)];
    let mut resources: Vec<&str> = own.iter().map(String::as_str).collect();
    resources.push("configmaps");
    Disturbed { side_by_side: 7, resources: &resources, most: 4 }.run(&Wells).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_wells_share_a_spring_and_never_pump_more_than_it_has() {
    let run = ClusterRun::new("fifty").await;
    run.start().await;
    run.act(&Action::Spring(100)).await;
    let plain = |want| WellSpec { metered: false, basin: false, ..WellSpec::new(want, &[]) };
    for n in 0..50 {
        run.well(&format!("w{n:02}"), &plain(3)).await;
    }
    let flows = async |capacity: u64| {
        let wells = run.objects(&run.kinds.well).await;
        let rests =
            |well: &&Object| condition(well, "Ready").0 == "True" || well_status(well).allotted == Some(0);
        let resting = wells.iter().filter(rests).count();
        let sum: u64 = run.house.house.pumps().iter().map(|pump| pump.size).sum();
        anyhow::ensure!(resting == 50 && sum == capacity, "{resting} flow or are dry, {sum} are pumped");
        anyhow::Ok(Some(()))
    };
    run.until("all that the spring has flows", async || flows(100).await).await.unwrap();
    // The first ones want more: the last ones let go first, and only then the water moves.
    for n in 0..10 {
        run.well(&format!("w{n:02}"), &plain(7)).await;
    }
    run.until("the water has moved", async || {
        for n in 0..10 {
            ready(&run.the_well(&format!("w{n:02}")).await?, 7)?;
        }
        flows(100).await
    })
    .await
    .unwrap();
    assert_eq!(run.house.house.most(), 100, "never more than it has, at any moment");
    assert!(run.house.house.made().values().all(|n| *n == 1), "{:?}", run.house.house.made());
    run.stop().await;
}
