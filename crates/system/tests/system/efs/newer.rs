//! SharedVolumes that use what the earlier version does not know: a claim name of choice, mount options, read-only, and a SharedFileSystem
//! that allows one namespace. And what is left of that when the earlier version is back.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use aquifer_lab::efs::AccessPoint;
use aquifer_lab::kit;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::fleet;
use super::pods::User;
use super::world::{World, made};

/// A file system that one namespace may use.
const LIMITED: &str = "fs-00000000000000003";
const POINT: &str = "fsap-00000000000000031";
const OTHER_POINT: &str = "fsap-00000000000000032";
const MAY: &str = "t6";
const MAY_NOT: &str = "t7";
/// The claim of the SharedVolume `named`.
const CLAIM: &str = "pvc-chosen";

/// Uses two of them all the time.
const KEEPER: User<'_> = User {
    namespace: MAY,
    name: "t6-keeper",
    node: "n1",
    uid: 0,
    of: &["limited", "chosen"],
    does: &["keep", "/limited", "/chosen"],
};
const READER: User<'_> =
    User { namespace: MAY, name: "t6-reader", node: "n2", uid: 0, of: &["shelf"], does: &["wait"] };

/// What was there when all of them worked.
pub struct Newer {
    pairs: BTreeMap<String, String>,
    sum: String,
    /// The mark on the volume of `shelf` of what it was made as.
    intent: Option<String>,
}

/// Makes them, and pods that use them.
pub async fn start(world: &World) -> Result<Newer> {
    world.efs.file_system(LIMITED)?;
    for (point, root) in [(POINT, "/one"), (OTHER_POINT, "/two")] {
        let described =
            AccessPoint { uid: 9000, gid: 9000, root: root.to_owned(), permissions: Some("0700".to_owned()) };
        world.efs.access_point(LIMITED, point, described)?;
    }
    let spec = json!({ "fileSystemID": LIMITED, "allowedNamespaces": { "names": [MAY] },
        "allowedAccessPoints": { "all": true } });
    let allowed = json!({ "apiVersion": "aws-efs.managed.openshift.io/v1alpha1", "kind": "SharedFileSystem",
        "metadata": { "name": "limited" }, "spec": spec });
    made(world, allowed).await?;
    for namespace in [MAY, MAY_NOT] {
        world.namespace(namespace).await?;
        share(world, namespace, "limited", POINT, json!({})).await?;
    }
    share(world, MAY, "named", OTHER_POINT, json!({ "claimName": CLAIM })).await?;
    share(world, MAY, "shelf", POINT, json!({ "readOnly": true, "mountOptions": ["noatime"] })).await?;
    tokio::try_join!(KEEPER.start(world), READER.start(world))?;
    KEEPER.goes_on(world, 0).await?;

    let writer = User::idle(MAY, "t6-writer", "n3", 1, &["limited"]);
    writer.start(world).await?;
    let sum = writer.put(world, "/limited/file", "limited").await?;
    writer.end(world).await?;
    READER.sees(world, "/shelf/file", &sum).await?;
    cannot_write(world, &READER).await?;
    ensure!(options(world, "shelf").await? == ["noatime", "ro"], "{:?}", options(world, "shelf").await?);
    let said = world.not_ready(MAY_NOT, "limited", "NotAllowed").await?;
    ensure!(said.contains(LIMITED), "{said}");
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    let intent = intent(&volumes.get(&volume(MAY, "shelf")).await?);
    Ok(Newer { pairs: fleet::pairs(world).await?, sum, intent })
}

/// The earlier version is back: what pods have mounted stays as it is, and no pair is another one. But it does not know the fields.
pub async fn outlive_the_rollback(world: &mut World, before: &Newer) -> Result<()> {
    // It writes the volume as it would have made it, and leaves the mount options as they are.
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    kit::until(&volumes, &volume(MAY, "shelf"), "is written", |volume| intent(volume) != before.intent)
        .await?;
    ensure!(options(world, "shelf").await? == ["noatime", "ro"], "{:?}", options(world, "shelf").await?);
    cannot_write(world, &READER).await?;
    let late = User::idle(MAY, "t6-late", "n3", 1, &["shelf"]);
    late.start(world).await?;
    cannot_write(world, &late).await?;
    late.end(world).await?;
    READER.sees(world, "/shelf/file", &before.sum).await?;
    world.done("read-only: its pair is the one that was, and neither running pods nor new ones can write");

    // It looks for the claim at the usual name, and gives the volume up for which it finds none. The claim keeps the volume.
    kit::until(&volumes, &volume(MAY, "named"), "is to go", |volume| {
        volume.metadata.deletion_timestamp.is_some()
    })
    .await?;
    let another = User::idle(MAY, "t6-another", "n3", 1, &["chosen"]);
    another.start(world).await?;
    another.put(world, "/chosen/file", "chosen").await?;
    another.end(world).await?;
    let claim = world.claims(MAY).get(CLAIM).await?;
    ensure!(claim.metadata.deletion_timestamp.is_none(), "the claim is to go: {claim:?}");
    world.done(
        "a claim name of choice: its volume is to go and stays as long as its claim does; pods run and start",
    );

    // Nobody is denied anything.
    world.ready(MAY_NOT, "limited").await?;
    world.done("what a SharedFileSystem denies has a pair");

    let (rounds, _) = KEEPER.rounds(world).await?;
    let (_, slowest) = KEEPER.goes_on(world, rounds).await?;
    fleet::is_the_same(world, &before.pairs).await?;
    world.done(&format!(
        "every pair with new fields is the one that was, and its pods go on (slowest round {slowest} ms)"
    ));
    Ok(())
}

/// The present version is back. The fields are lost, because the earlier version has written each status.
pub async fn are_known_again(world: &mut World, before: &Newer) -> Result<()> {
    let said = world.not_ready(MAY, "named", "InUse").await?;
    ensure!(said.contains(KEEPER.name), "the pod is not named: {said}");
    let said = world.not_ready(MAY, "shelf", "InUse").await?;
    ensure!(said.contains(READER.name), "the pod is not named: {said}");
    let shelf = world.volumes(MAY).get("shelf").await?;
    ensure!(shelf.spec.read_only.is_none(), "the field has come back: {shelf:?}");
    let denied = world.ready(MAY_NOT, "limited").await?;
    let allowed = kit::condition(&denied, "Allowed").unwrap_or_default();
    ensure!(allowed["status"] == "False", "{allowed}");
    READER.sees(world, "/shelf/file", &before.sum).await?;
    let (rounds, _) = KEEPER.rounds(world).await?;
    KEEPER.goes_on(world, rounds).await?;
    fleet::is_the_same(world, &before.pairs).await?;
    world.done(
        "no pair is another one; what was denied keeps its pair; what lost its claim name or its options waits for its pod",
    );

    READER.end(world).await?;
    world.ready(MAY, "shelf").await?;
    ensure!(options(world, "shelf").await?.is_empty(), "the options have come back");

    KEEPER.end(world).await?;
    world.ready(MAY, "named").await?;
    let claims = world.claims(MAY);
    ensure!(claims.get_opt(CLAIM).await?.is_none(), "the claim of the name of choice is left");
    let usual = User::idle(MAY, "t6-usual", "n3", 1, &["named"]);
    usual.start(world).await?;
    let names = usual.list(world, "/named").await?;
    ensure!(names.iter().any(|name| name.ends_with(" file")), "its data is gone: {names:?}");
    world.done("when its pod has gone it has a claim of the usual name, with its data");
    Ok(())
}

async fn share(world: &World, namespace: &str, name: &str, point: &str, more: Value) -> Result<()> {
    let mut spec = json!({ "fileSystemID": LIMITED, "accessPointID": point });
    let more = more.as_object().cloned().unwrap_or_default();
    spec.as_object_mut().context("a spec without fields")?.extend(more);
    let object = json!({ "apiVersion": "aws-efs.managed.openshift.io/v1alpha1", "kind": "SharedVolume",
        "metadata": { "name": name, "namespace": namespace }, "spec": spec });
    made(world, object).await
}

fn volume(namespace: &str, name: &str) -> String {
    format!("pv-{namespace}-{name}")
}

async fn options(world: &World, name: &str) -> Result<Vec<String>> {
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    let spec = volumes.get(&volume(MAY, name)).await?.spec.unwrap_or_default();
    Ok(spec.mount_options.unwrap_or_default())
}

fn intent(volume: &PersistentVolume) -> Option<String> {
    volume.annotations().get("aquifer.storage/intent").cloned()
}

async fn cannot_write(world: &World, user: &User<'_>) -> Result<()> {
    let refused = user.put(world, "/shelf/from-reader", "reader").await;
    let refused = refused.err().context("a pod has written to what is read-only")?;
    ensure!(format!("{refused:#}").contains("read-only file system"), "{refused:#}");
    Ok(())
}
