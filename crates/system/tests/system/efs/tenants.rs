//! Who may use what, and what they see of it.

use std::os::unix::fs::MetadataExt as _;

use anyhow::{Context as _, Result, ensure};
use kube::api::ListParams;
use serde_json::json;

use super::pods::User;
use super::world::{BLUE, GREEN, ONE, OTHER, RED, TEAM, TWO, World, made};

/// In the zone `a`, not as root.
pub const WRITER: User<'_> =
    User { namespace: RED, name: "writer", node: "n1", uid: 1234, of: &["data"], does: &["wait"] };
/// In the zone `b`, as root.
pub const READER: User<'_> =
    User { namespace: BLUE, name: "reader", node: "n2", uid: 0, of: &["data"], does: &["wait"] };

/// One access point in two namespaces, used in two zones.
pub async fn two_namespaces_share_and_a_third_is_denied(world: &mut World) -> Result<()> {
    let allowed = json!({ "apiVersion": "aws-efs.managed.openshift.io/v1alpha1", "kind": "SharedFileSystem",
        "metadata": { "name": "team-data" },
        "spec": { "fileSystemID": ONE, "allowedNamespaces": { "names": [RED, BLUE] }, "allowedAccessPoints": { "all": true } } });
    made(world, allowed).await?;
    for namespace in [RED, BLUE, GREEN] {
        world.share(namespace, "data", ONE, Some(TEAM)).await?;
    }
    tokio::try_join!(WRITER.make(world), READER.make(world))?;
    tokio::try_join!(WRITER.runs(world), READER.runs(world))?;
    world.in_two_zones(WRITER.node, READER.node)?;
    let written = WRITER.put(world, "/data/from-red", "red").await?;
    READER.sees(world, "/data/from-red", &written).await?;
    let written = READER.put(world, "/data/from-blue", "blue").await?;
    WRITER.sees(world, "/data/from-blue", &written).await?;
    world.done("pods of two namespaces in two zones write and read the same files, with equal checksums");

    let denied = world.not_ready(GREEN, "data", "NotAllowed").await?;
    ensure!(denied.contains(ONE), "{denied}");
    let claims = world.claims(GREEN).list(&ListParams::default()).await?;
    ensure!(claims.items.is_empty(), "a namespace that may not has {claims:?}");
    world.done("a third namespace is denied, and has no claim");
    Ok(())
}

/// Files belong to its user, whoever writes; and its root directory is all there is.
pub async fn an_access_point_decides_who_and_what(world: &mut World) -> Result<()> {
    std::fs::write(world.one.join("of-somebody-else"), "out of reach")?;
    let seen = WRITER.list(world, "/data").await?;
    let expected = ["5000:5001 0750 .", "5000:5001 0644 from-blue", "5000:5001 0644 from-red"];
    ensure!(seen == expected, "{seen:?}");
    let file = world.one.join("teams/one/from-red");
    let owner = std::fs::metadata(&file).with_context(|| format!("no {}", file.display()))?;
    ensure!((owner.uid(), owner.gid()) == (5000, 5001), "{owner:?}");
    world.done(
        "files belong to the access point's user, whoever wrote them, and nothing outside its root is seen",
    );
    Ok(())
}

pub async fn one_pod_uses_two_file_systems(world: &mut World) -> Result<()> {
    let both = BOTH;
    world.share(RED, "other", TWO, Some(OTHER)).await?;
    both.start(world).await?;
    let (data, other) = (
        both.put(world, "/data/same-name", "data").await?,
        both.put(world, "/other/same-name", "other").await?,
    );
    ensure!(data != other, "two contents have one checksum");
    both.sees(world, "/data/same-name", &data).await?;
    both.sees(world, "/other/same-name", &other).await?;
    let seen = both.list(world, "/other").await?;
    ensure!(seen == ["6000:6001 0750 .", "6000:6001 0644 same-name"], "{seen:?}");
    ensure!(world.two.join("all/same-name").is_file(), "it is not in the second file system");
    world.done("one pod uses two file systems at once");
    Ok(())
}

/// Read-only on the node, whatever the pod asks for; with mount options, and by the name that was chosen for the claim.
pub async fn what_is_read_only_can_be_read_and_not_written(world: &mut World) -> Result<()> {
    let spec = json!({ "fileSystemID": ONE, "accessPointID": TEAM, "readOnly": true, "mountOptions": ["noatime"],
        "claimName": "pvc-shelf" });
    made(
        world,
        json!({ "apiVersion": "aws-efs.managed.openshift.io/v1alpha1", "kind": "SharedVolume",
        "metadata": { "name": "archive", "namespace": BLUE }, "spec": spec }),
    )
    .await?;
    let visitor = User::idle(BLUE, "visitor", "n3", 4321, &["shelf"]);
    visitor.start(world).await?;
    let sum = WRITER.sum(world, "/data/from-red").await?;
    visitor.sees(world, "/shelf/from-red", &sum).await?;
    let refused = visitor.put(world, "/shelf/from-visitor", "visitor").await;
    let refused = refused.err().context("a pod has written to what is read-only")?;
    ensure!(format!("{refused:#}").contains("read-only file system"), "{refused:#}");
    visitor.end(world).await?;
    world.unshare(BLUE, "archive").await?;
    world.done("a read-only SharedVolume with a claim name of choice is read, and writing to it is refused");
    Ok(())
}

/// Uses two file systems.
pub const BOTH: User<'_> =
    User { namespace: RED, name: "both", node: "n3", uid: 1234, of: &["data", "other"], does: &["wait"] };

pub async fn twins_in_one_namespace_are_named_and_work(world: &mut World) -> Result<()> {
    world.share(RED, "twin", ONE, Some(TEAM)).await?;
    let twin = User::idle(RED, "twin", "n2", 4321, &["twin"]);
    twin.start(world).await?;
    for name in ["data", "twin"] {
        let volumes = world.volumes(RED);
        aquifer_lab::kit::until(&volumes, name, "is called a duplicate", |volume| {
            aquifer_lab::kit::is_true(volume, "Duplicate") && aquifer_lab::kit::is_true(volume, "Ready")
        })
        .await?;
    }
    let sum = WRITER.sum(world, "/data/from-red").await?;
    twin.sees(world, "/twin/from-red", &sum).await?;
    twin.end(world).await?;
    world.done("two SharedVolumes of one access point in one namespace say so, and both work");
    Ok(())
}
