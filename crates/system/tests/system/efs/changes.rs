//! Pods and SharedVolumes that come, change and go.

use anyhow::{Result, ensure};
use aquifer_lab::kit;
use kube::api::DeleteParams;
use serde_json::json;

use super::pods::User;
use super::tenants::{BOTH, READER, WRITER};
use super::world::{ARCHIVE, BLUE, ONE, RED, World};

/// The same pod again, on another node.
pub async fn a_pod_bounces(world: &mut World) -> Result<()> {
    let sum = WRITER.sum(world, "/data/from-red").await?;
    WRITER.end(world).await?;
    let again = User { node: "n3", ..WRITER };
    again.start(world).await?;
    again.sees(world, "/data/from-red", &sum).await?;
    world.done("a pod that was deleted and made again, on another node, sees its data");
    Ok(())
}

pub async fn a_changed_volume_moves_when_its_pods_go(world: &mut World) -> Result<()> {
    let (before, sum) = (world.pair(RED, "other").await?, BOTH.sum(world, "/other/same-name").await?);
    let change = json!({ "spec": { "fileSystemID": ONE, "accessPointID": ARCHIVE } });
    kit::edit(&world.volumes(RED), "other", &change).await?;
    let message = world.not_ready(RED, "other", "InUse").await?;
    ensure!(message.contains(BOTH.name), "the pod is not named: {message}");
    BOTH.sees(world, "/other/same-name", &sum).await?;
    ensure!(world.pair(RED, "other").await? == before, "the pair of a running pod was replaced");
    world.done("a changed SharedVolume that is in use names its pod, which goes on with the old file system");

    BOTH.end(world).await?;
    world.ready(RED, "other").await?;
    let after = world.pair(RED, "other").await?;
    ensure!(after.handle.contains(ONE) && after.claim != before.claim, "{after:?} after {before:?}");
    BOTH.start(world).await?;
    let seen = BOTH.list(world, "/other").await?;
    ensure!(seen == ["5500:5501 0750 ."], "{seen:?}");
    BOTH.end(world).await?;
    world.done("when the pod goes it moves to its new file system, and a new pod sees that one");
    Ok(())
}

pub async fn a_volume_deleted_in_use_waits_for_its_pod(world: &mut World) -> Result<()> {
    let sum = READER.sum(world, "/data/from-blue").await?;
    let pair = world.pair(BLUE, "data").await?;
    world.unshare(BLUE, "data").await?;
    let message = world.not_ready(BLUE, "data", "InUse").await?;
    ensure!(message.contains(READER.name), "the pod is not named: {message}");
    READER.sees(world, "/data/from-blue", &sum).await?;
    ensure!(world.pair(BLUE, "data").await? == pair, "the pair of a running pod is gone");
    READER.end(world).await?;
    kit::gone(&world.volumes(BLUE), "data").await?;
    ensure!(world.claims(BLUE).get_opt("pvc-data").await?.is_none(), "its claim is left");
    WRITER.sees(world, "/data/from-blue", &sum).await?;
    world.done("a SharedVolume deleted in use waits, names the pod, and ends with it; others keep the data");
    Ok(())
}

pub async fn a_deleted_claim_is_made_again(world: &mut World) -> Result<()> {
    let before = world.pair(RED, "twin").await?;
    world.claims(RED).delete("pvc-twin", &DeleteParams::default()).await?;
    is_another_pair(world, &before).await?;
    let sum = WRITER.sum(world, "/data/from-red").await?;
    let twin = User::idle(RED, "twin", "n1", 4321, &["twin"]);
    twin.start(world).await?;
    twin.sees(world, "/twin/from-red", &sum).await?;
    twin.end(world).await?;
    world.done("a managed claim that was deleted is made again, with its volume, and pods use it");
    Ok(())
}

/// Waits until the SharedVolume `twin` has another pair than it had.
pub async fn is_another_pair(world: &World, before: &super::world::Pair) -> Result<()> {
    let volumes = world.volumes(RED);
    let twin = kit::until(&volumes, "twin", "has another claim", |volume| {
        let claim = volume.status.as_ref().and_then(|status| status.claim_uid.clone());
        claim.is_some_and(|claim| claim != before.claim) && kit::is_true(volume, "Ready")
    });
    twin.await?;
    let after = world.pair(RED, "twin").await?;
    ensure!(after.volume != before.volume && after.handle == before.handle, "{after:?} after {before:?}");
    Ok(())
}
