//! The family on a real control plane, through the fault proxy.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use aquifer_engine::Object;
use aquifer_engine::model::Mode;
use futures::StreamExt;
use serde_json::Value;

use crate::family::{WellSpec, condition, well_status};
use crate::site::{Point, Site, ready};
use crate::story::{Deed, STEPS};

/// Runs at the same time: most of a run is waiting.
const SIDE_BY_SIDE: usize = 12;
/// Without `AQUIFER_FULL`, at most so many runs.
const RUNS: usize = 100;

struct Reference {
    pictures: Vec<BTreeMap<String, Value>>,
    created: BTreeMap<String, usize>,
    outside: Value,
    writes: u64,
    house: usize,
}

async fn undisturbed() -> Reference {
    let site = Site::new("reference").await;
    site.start().await;
    let mut pictures = Vec::new();
    for step in 0..STEPS {
        site.play(step).await;
        site.until(&format!("step {step}"), async || site.arrived(step).await).await.unwrap();
        assert!(site.proxy.wait_idle(Duration::from_millis(1500), Duration::from_secs(30)).await);
        pictures.push(site.picture().await);
    }
    let refused: Vec<_> =
        site.proxy.writes().into_iter().filter(|w| !matches!(w.status, Some(200 | 201))).collect();
    println!("undisturbed: {} writes, {} of them refused", site.proxy.writes().len(), refused.len());
    let writes = u64::try_from(site.proxy.writes().len()).unwrap();
    let (created, outside, house) = (site.created(), site.outside(), site.house.house.fuse.count());
    site.stop().await;
    Reference { pictures, created, outside, writes, house }
}

/// One run with one fault. Says what went differently, and whether the fault struck at all.
async fn disturbed(reference: &Reference, point: Point, mode: Mode) -> (Vec<String>, bool) {
    let at = format!("{mode:?} at {point:?}");
    let site = Site::new("walk").await;
    let fault = site.inject(point, mode);
    site.start().await;
    let mut divergent = Vec::new();
    for step in 0..STEPS {
        site.play(step).await;
        let same = site
            .until(&format!("{at}, step {step}"), async || {
                site.arrived(step).await?;
                same(&reference.pictures[step], &site.picture().await).map(Some)
            })
            .await;
        if let Err(error) = same {
            divergent.push(format!("{at}, step {step}: {error:#}"));
            break;
        }
    }
    let quiet = site.proxy.wait_idle(Duration::from_millis(300), Duration::from_secs(30)).await;
    if divergent.is_empty()
        && (!quiet || same(&reference.pictures[STEPS - 1], &site.picture().await).is_err())
    {
        divergent.push(format!("{at}: does not stay as it was: {:?}", site.proxy.writes().last()));
    }
    if site.outside() != reference.outside {
        divergent.push(format!(
            "{at}: the outside differs: {} instead of {}",
            site.outside(),
            reference.outside
        ));
    }
    let created = site.created();
    if created != reference.created {
        divergent.push(format!("{at}: created {created:?} instead of {:?}", reference.created));
    }
    let struck = match (point, fault) {
        (_, Some(fault)) => site.proxy.fired(fault) > 0,
        (Point::House(n), None) => site.house.house.fuse.count() >= n,
        (Point::Write(_), None) => false,
    };
    site.stop().await;
    (divergent, struck)
}

fn same(wanted: &BTreeMap<String, Value>, found: &BTreeMap<String, Value>) -> anyhow::Result<()> {
    for name in wanted.keys().chain(found.keys()) {
        let (wanted, found) = (wanted.get(name), found.get(name));
        anyhow::ensure!(wanted == found, "{name} is {found:?} instead of {wanted:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_or_a_lost_reply_at_any_write_point_changes_nothing() {
    let began = Instant::now();
    let reference = undisturbed().await;
    assert!(reference.created.values().all(|n| *n == 1), "{:?}", reference.created);
    let writes = (1..=reference.writes).map(Point::Write);
    let points: Vec<Point> = writes.chain((1..=reference.house).map(Point::House)).collect();
    let all: Vec<(Point, Mode)> =
        points.iter().flat_map(|point| Mode::ALL.map(|mode| (*point, mode))).collect();
    let full = std::env::var_os("AQUIFER_FULL").is_some();
    let every = if full { 1 } else { all.len().div_ceil(RUNS) };
    let runs: Vec<_> = all.iter().copied().step_by(every).collect();
    println!(
        "{} write points ({} in Kubernetes, {} outside): {} of {} runs{}",
        points.len(),
        reference.writes,
        reference.house,
        runs.len(),
        all.len(),
        if runs.len() == all.len() { "" } else { " (AQUIFER_FULL=1 makes all)" },
    );
    let ends: Vec<_> = futures::stream::iter(&runs)
        .map(|(point, mode)| disturbed(&reference, *point, *mode))
        .buffer_unordered(SIDE_BY_SIDE)
        .collect()
        .await;
    let struck = ends.iter().filter(|(_, struck)| *struck).count();
    let divergent: Vec<String> = ends.into_iter().flat_map(|(divergent, _)| divergent).collect();
    println!(
        "{struck} of {} faults struck, {} divergent, {:.0} s",
        runs.len(),
        divergent.len(),
        began.elapsed().as_secs_f64()
    );
    assert!(divergent.is_empty(), "{divergent:#?}");
    // A run may get along with a few writes less than the undisturbed one, when statuses fall together.
    assert!(struck * 10 >= runs.len() * 9, "only {struck} of {} faults struck", runs.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_wells_share_a_spring_and_never_pump_more_than_it_has() {
    let site = Site::new("fifty").await;
    site.start().await;
    site.act(&Deed::Spring(100)).await;
    let plain = |want| WellSpec { metered: false, basin: false, ..WellSpec::new(want, &[]) };
    for n in 0..50 {
        site.well(&format!("w{n:02}"), &plain(3)).await;
    }
    let flows = async |capacity: u64| {
        let wells = site.objects(&site.kinds.well).await;
        let rests =
            |well: &&Object| condition(well, "Ready").0 == "True" || well_status(well).allotted == Some(0);
        let resting = wells.iter().filter(rests).count();
        let sum: u64 = site.house.house.pumps().iter().map(|pump| pump.size).sum();
        anyhow::ensure!(resting == 50 && sum == capacity, "{resting} flow or are dry, {sum} are pumped");
        anyhow::Ok(Some(()))
    };
    site.until("all that the spring has flows", async || flows(100).await).await.unwrap();
    // The first ones want more: the last ones let go first, and only then the water moves.
    for n in 0..10 {
        site.well(&format!("w{n:02}"), &plain(7)).await;
    }
    site.until("the water has moved", async || {
        for n in 0..10 {
            ready(&site.the_well(&format!("w{n:02}")).await?, 7)?;
        }
        flows(100).await
    })
    .await
    .unwrap();
    assert_eq!(site.house.house.most(), 100, "never more than it has, at any moment");
    assert!(site.house.house.made().values().all(|n| *n == 1), "{:?}", site.house.house.made());
    site.stop().await;
}
