//! From the chart of an earlier version to today's, back, and to today's again, by Helm, under fifty SharedVolumes whose pods notice nothing.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use aquifer_lab::kit;
use xtask::earlier;

use super::fleet;
use super::newer;
use super::world::{World, driver_images};
use crate::commands::{self, CHART};

/// The version before access was restricted.
const EARLIER: &str = "f7d08d7";
/// Names of the two operators and of the driver's other image on the nodes; nothing is at these places but on the nodes.
const EARLIER_TAG: &str = "earlier";
const PRESENT_TAG: &str = "present";
const OTHER_DRIVER: &str = "localhost/aquifer-lab/efs:another-name";
/// What people add to `helm upgrade` and to `helm rollback`. The earlier operator made the driver's namespace and its rights itself; today the
/// chart does.
const UPGRADE: &[&str] = &["--take-ownership"];
const ROLLBACK: &[&str] = &[];

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_from_an_earlier_chart_and_back_loses_no_mount_and_rebuilds_no_pair() -> Result<()> {
    if !kit::is_full() {
        println!(
            "skipped: the upgrade of 50 SharedVolumes from {EARLIER} and back; it builds that version (AQUIFER_FULL=1 does it)"
        );
        return Ok(());
    }
    let earlier = tokio::task::spawn_blocking(|| earlier::version(EARLIER)).await??;
    // The earlier operator has other rights than the ones that are judged.
    let mut world = World::start(World::nodes().unrecorded()).await?;
    let told = story(&mut world, &earlier).await;
    told.map_err(|error| error.context(world.what_the_cluster_says()))
}

async fn story(world: &mut World, earlier: &earlier::Earlier) -> Result<()> {
    has_both_operators(world, earlier).await?;
    let chart = text(&earlier.chart)?;
    world.install(chart, &[&format!("image.tag={EARLIER_TAG}")])?;
    world.driver_runs().await?;
    fleet::start(world).await?;
    let before = fleet::pairs(world).await?;
    ensure!(before.len() == 100, "fifty SharedVolumes have {} claims and volumes", before.len());
    world.done("50 SharedVolumes of the earlier version are used by ten pods all the time");

    upgrade(world)?;
    world.done("helm upgrade --wait to the present chart, with another driver image");
    has_settled(world, PRESENT_TAG, OTHER_DRIVER, &before).await?;
    fleet::is_judged(world).await?;
    let served =
        world.kubectl(&["get", "crd", "sharedfilesystems.aws-efs.managed.openshift.io", "-o", "name"])?;
    ensure!(!served.is_empty(), "the new kind is not there");
    fleet::grows(world, "after-upgrade").await?;
    world.done("a new SharedVolume works");
    let newer = newer::start(world).await?;
    world.done(
        "SharedVolumes with new fields work: claim name, mount options, read-only, one namespace that may",
    );

    let rollback = ["rollback", "aquifer", "1", "--wait", "--timeout", "2m"];
    commands::helm(&world.cluster, &[&rollback[..], ROLLBACK].concat())?;
    world.done("helm rollback --wait to the earlier chart");
    let first_image = world.efs.image().to_owned();
    has_settled(world, EARLIER_TAG, &first_image, &before).await?;
    newer::outlive_the_rollback(world, &newer).await?;
    fleet::grows(world, "after-rollback").await?;
    world.done("a new SharedVolume works");

    upgrade(world)?;
    world.done("helm upgrade --wait to the present chart once more");
    has_settled(world, PRESENT_TAG, OTHER_DRIVER, &before).await?;
    newer::are_known_again(world, &newer).await
}

/// To the present chart, with another image of the driver.
fn upgrade(world: &World) -> Result<()> {
    let mut values = vec!["replicas=1".to_owned(), format!("image.tag={PRESENT_TAG}")];
    values.extend(driver_images(OTHER_DRIVER));
    let upgrade = [
        "upgrade",
        "aquifer",
        CHART,
        "--wait",
        "--timeout",
        "2m",
        "--reset-values",
        "--set",
        &values.join(","),
    ];
    commands::helm(&world.cluster, &[&upgrade[..], UPGRADE].concat()).map(drop)
}

/// Both operators' images have one name when they are built.
async fn has_both_operators(world: &mut World, earlier: &earlier::Earlier) -> Result<()> {
    let image = &earlier.image.name;
    let (repository, _) = image.rsplit_once(':').context("an image without a tag")?;
    let cluster = &world.cluster;
    cluster.name_image(image, &format!("{repository}:{PRESENT_TAG}")).await?;
    cluster.import_image(&earlier.image.archive).await?;
    cluster.name_image(image, &format!("{repository}:{EARLIER_TAG}")).await?;
    cluster.name_image(world.efs.image(), OTHER_DRIVER).await?;
    world.done(&format!("the nodes have the operators of {EARLIER} and of today"));
    Ok(())
}

/// Waits until operator and driver run from these images and all is well, and checks what must not have changed.
async fn has_settled(
    world: &mut World,
    operator: &str,
    driver: &str,
    before: &std::collections::BTreeMap<String, String>,
) -> Result<()> {
    world.operator_runs(operator).await?;
    world.driver_uses(driver).await?;
    world.driver_runs().await?;
    fleet::is_ready(world).await?;
    fleet::is_the_same(world, before).await?;
    let slowest = fleet::goes_on(world).await?;
    world.done(&format!(
        "all SharedVolumes are Ready, every claim and volume is the one that was, all pods have gone on (slowest round {slowest} ms)"
    ));
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not text", path.display()))
}
