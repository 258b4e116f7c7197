//! SharedVolumes as pods see them: the operator and the driver's node plugin on three nodes in two zones, installed with the chart, and
//! file systems of the lab's stand-in for AWS EFS behind them.
//!
//! What upstream tests by hand is all here: pods that bounce, several zones, one access point in two namespaces, identical
//! SharedVolumes in one namespace, a SharedVolume that is deleted in use, a managed claim that is deleted, an operator that is down.

#[path = "efs/changes.rs"]
mod changes;
#[path = "efs/fleet.rs"]
mod fleet;
#[path = "efs/newer.rs"]
mod newer;
#[path = "efs/outages.rs"]
mod outages;
#[path = "efs/pods.rs"]
mod pods;
#[path = "efs/tenants.rs"]
mod tenants;
#[path = "efs/upgrade.rs"]
mod upgrade;
#[path = "efs/world.rs"]
mod world;

use anyhow::Result;

use self::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn pods_mount_what_their_namespace_may_and_keep_it_whatever_happens() -> Result<()> {
    let mut world = World::start(World::nodes()).await?;
    let told = story(&mut world).await;
    told.map_err(|error| error.context(world.what_the_cluster_says()))
}

async fn story(world: &mut World) -> Result<()> {
    world.install(crate::commands::CHART, &[])?;
    world.driver_runs().await?;
    tenants::two_namespaces_share_and_a_third_is_denied(world).await?;
    tenants::an_access_point_decides_who_and_what(world).await?;
    tenants::one_pod_uses_two_file_systems(world).await?;
    tenants::what_is_read_only_can_be_read_and_not_written(world).await?;
    tenants::twins_in_one_namespace_are_named_and_work(world).await?;
    changes::a_pod_bounces(world).await?;
    changes::a_changed_volume_moves_when_its_pods_go(world).await?;
    changes::a_volume_deleted_in_use_waits_for_its_pod(world).await?;
    changes::a_deleted_claim_is_made_again(world).await?;
    outages::mounts_outlive_the_driver_and_new_ones_follow_it(world).await?;
    outages::what_happens_while_the_operator_is_down_is_done_later(world).await
}
