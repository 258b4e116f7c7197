//! Fifty SharedVolumes of five namespaces, some of them on the root of a file system, and pods that use all of them all the time.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use aquifer_lab::efs::AccessPoint;
use aquifer_lab::kit;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::ListParams;

use super::pods::User;
use super::world::{ONE, TWO, World};

/// A namespace, and its two pods.
const TEAMS: [(&str, &str, &str); 5] = [
    ("t1", "t1-first", "t1-second"),
    ("t2", "t2-first", "t2-second"),
    ("t3", "t3-first", "t3-second"),
    ("t4", "t4-first", "t4-second"),
    ("t5", "t5-first", "t5-second"),
];
const NODES: [&str; 3] = ["n1", "n2", "n3"];
/// What the first pod of a namespace uses: the roots of both file systems, and three access points.
const FIRST: [&str; 5] = ["v0", "v1", "v2", "v3", "v4"];
const SECOND: [&str; 5] = ["v5", "v6", "v7", "v8", "v9"];

/// Makes all of them, and waits until every pod runs.
pub async fn start(world: &World) -> Result<()> {
    for (team, (namespace, ..)) in TEAMS.iter().enumerate() {
        world.namespace(namespace).await?;
        for (n, name) in FIRST.iter().chain(&SECOND).enumerate() {
            let file_system = if n % 2 == 0 { ONE } else { TWO };
            let point = format!("fsap-0000000{team}{n}");
            let on_root = n < 2;
            if !on_root {
                let uid = u32::try_from(7000 + 10 * team + n)?;
                let (root, permissions) = (format!("/{namespace}/{name}"), Some("0700".to_owned()));
                let described = AccessPoint { uid, gid: uid, root, permissions };
                world.efs.access_point(file_system, &point, described)?;
            }
            let point = (!on_root).then_some(point.as_str());
            world.share(namespace, name, file_system, point).await?;
        }
    }
    for pod in pods() {
        pod.make(world).await?;
    }
    for pod in pods() {
        pod.runs(world).await?;
        pod.goes_on(world, 0).await?;
    }
    Ok(())
}

/// The pods, over all nodes.
fn pods() -> impl Iterator<Item = User<'static>> {
    let pod = |n: usize, namespace, name, of, does| {
        // Root, because on the root of a file system users are who they are.
        User { namespace, name, node: NODES[n % NODES.len()], uid: 0, of, does }
    };
    TEAMS.iter().enumerate().flat_map(move |(team, &(namespace, first, second))| {
        [
            pod(2 * team, namespace, first, &FIRST[..], &["keep", "/v0", "/v1", "/v2", "/v3", "/v4"][..]),
            pod(
                2 * team + 1,
                namespace,
                second,
                &SECOND[..],
                &["keep", "/v5", "/v6", "/v7", "/v8", "/v9"][..],
            ),
        ]
    })
}

/// Waits until every pod has done another round without an error, and gives the milliseconds of the slowest since it started.
pub async fn goes_on(world: &World) -> Result<u64> {
    let mut slowest = 0;
    for pod in pods() {
        let (rounds, _) = pod.rounds(world).await?;
        slowest = slowest.max(pod.goes_on(world, rounds).await?.1);
    }
    Ok(slowest)
}

/// Waits until all SharedVolumes are Ready.
pub async fn is_ready(world: &World) -> Result<()> {
    all_say(world, "Ready").await
}

/// Waits until a version that judges access has looked at all SharedVolumes.
pub async fn is_judged(world: &World) -> Result<()> {
    all_say(world, "Allowed").await
}

async fn all_say(world: &World, condition: &str) -> Result<()> {
    for (namespace, ..) in TEAMS {
        for name in FIRST.iter().chain(&SECOND) {
            let volumes = world.volumes(namespace);
            kit::until(&volumes, name, condition, |volume| kit::is_true(volume, condition)).await?;
        }
    }
    Ok(())
}

/// The uids of all claims and volumes by their names.
pub async fn pairs(world: &World) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    let claims: Api<PersistentVolumeClaim> = Api::all(world.client.clone());
    for claim in claims.list(&ListParams::default()).await? {
        let metadata = claim.metadata;
        let name =
            format!("claim {}/{}", metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default());
        all.insert(name, metadata.uid.unwrap_or_default());
    }
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    for volume in volumes.list(&ListParams::default()).await? {
        let name = format!("volume {}", volume.metadata.name.unwrap_or_default());
        all.insert(name, volume.metadata.uid.unwrap_or_default());
    }
    Ok(all)
}

/// Fails when a pair that was there is another one now, or gone.
pub async fn is_the_same(world: &World, before: &BTreeMap<String, String>) -> Result<()> {
    let now = pairs(world).await?;
    let lost: Vec<_> = before.iter().filter(|(name, uid)| now.get(*name) != Some(uid)).collect();
    ensure!(lost.is_empty(), "rebuilt or gone: {lost:?}");
    Ok(())
}

/// A SharedVolume that is made now, and a pod that uses it.
pub async fn grows(world: &World, name: &'static str) -> Result<()> {
    let namespace = TEAMS[0].0;
    let uid = 8000;
    let point = format!("fsap-{}", name.bytes().fold(String::new(), |all, byte| format!("{all}{byte:02x}")));
    let described =
        AccessPoint { uid, gid: uid, root: format!("/{name}"), permissions: Some("0700".to_owned()) };
    world.efs.access_point(ONE, &point, described)?;
    world.share(namespace, name, ONE, Some(&point)).await?;
    let (of, dir) = ([name], format!("/{name}"));
    let pod = User::idle(namespace, name, "n2", 1, &of);
    pod.start(world).await?;
    let sum = pod.put(world, &format!("{dir}/file"), name).await?;
    pod.sees(world, &format!("{dir}/file"), &sum).await?;
    pod.end(world).await
}
