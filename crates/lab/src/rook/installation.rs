//! Installs the real Rook and a real Ceph on a cluster with nodes, and waits until they are healthy. What their objects look like is in
//! `objects`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::Value;

use super::objects::{self, CLUSTER, FILE_SYSTEM, NAMESPACE, Size};
use super::{Kind, ceph, disks, idle, image, module};
use crate::cluster::{Cluster, blocking};
use crate::eventually;
use crate::install;
use crate::recipe::Image;

const RBAC: &str = "deploy/examples/common.yaml";
/// The Secret in which Rook keeps the key of Ceph's administrator; there as soon as the first mon is.
const ADMIN: &str = "rook-ceph-mon";
const ADMIN_KEY: &str = "ceph-secret";
const PATIENCE: Duration = Duration::from_mins(8);

/// Builds the image of Rook and Ceph and finds the manifests of Rook, unless they are cached. Blocks.
pub(crate) fn prepare() -> Result<Image> {
    module::file(RBAC)?;
    image::find()
}

/// Installs Rook and Ceph. An error has the pods of Rook and the last lines of its operator with it.
pub(crate) async fn install(cluster: &Cluster, image: &Image) -> Result<()> {
    let Err(error) = install_all(cluster, image).await else { return Ok(()) };
    let operator = format!("deployment/{}", objects::OPERATOR);
    let log = cluster.kubectl_output(&["logs", "--namespace", NAMESPACE, &operator, "--tail=20"]).await;
    let pods = cluster.kubectl_output(&["get", "pods", "--namespace", NAMESPACE, "--output=wide"]).await;
    let [log, pods] = [log, pods].map(|output| output.unwrap_or_else(|error| format!("{error:#}")));
    Err(error
        .context(format!("the pods of Rook are\n{pods}\nand the last lines of its operator are\n{log}\n")))
}

/// Prints how long each step took.
async fn install_all(cluster: &Cluster, image: &Image) -> Result<()> {
    let began = Instant::now();
    let name = cluster.name();
    let report =
        |what: &str| eprintln!("cluster {name}: {what} after {:.1} s", began.elapsed().as_secs_f64());
    let size = Size::for_nodes(cluster.node_count());
    let client = cluster.client()?;

    let imported = async {
        cluster.import_image(&image.archive).await?;
        report("image of Rook and Ceph imported");
        Ok::<(), anyhow::Error>(())
    };
    let installed = async {
        module::install_crds(&client).await?;
        install_rights(&client).await?;
        report("kinds and rights of Rook installed");
        Ok::<(), anyhow::Error>(())
    };
    // Both to their end: nothing may work on in a cluster that is given up.
    let (imported, installed) = tokio::join!(imported, installed);
    imported?;
    installed?;

    let names: Vec<String> = (1..=cluster.node_count())
        .map(|number| cluster.node(number).map(|node| node.name().to_owned()))
        .collect::<Result<_>>()?;
    let dir = cluster.dir().to_path_buf();
    let disks = blocking(move || disks::make(&dir, &names, size.osds)).await?;
    let mut all = objects::disks(&disks);
    all.extend(objects::operator(&image.name, size));
    all.push(objects::ceph(&image.name, size));
    all.push(objects::file_system(size));
    for object in all {
        install::apply(&client, object).await?;
    }

    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    eventually(PATIENCE, "Rook has made the key of Ceph's administrator", || async {
        let secret = secrets.get_opt(ADMIN).await?.context("its Secret is not there")?;
        Ok(secret.data.is_some_and(|data| data.contains_key(ADMIN_KEY)).then_some(()))
    })
    .await?;
    let tools = objects::tools(NAMESPACE, objects::TOOLS, &image.name, ADMIN, ADMIN_KEY);
    install::apply(&client, tools).await?;
    report("operator at work");
    eventually(PATIENCE, "a mon answers", || async {
        end_canaries(&client).await?;
        ceph::leave_out_what_fails(cluster).await.map(Some)
    })
    .await?;
    report("first mon answers");
    let quorum = format!("{} mons have a quorum", size.mons);
    eventually(PATIENCE, &quorum, || async {
        let status = cluster.ceph(&["quorum_status", "--format=json"]).await?;
        let members = serde_json::from_str::<Value>(&status)?["quorum"].as_array().map_or(0, Vec::len);
        ensure!(members == size.mons, "{members} mons have one");
        Ok(Some(()))
    })
    .await?;
    report(&quorum);
    wait_for_phase(&client, Kind::CephCluster, CLUSTER).await?;
    report("Ceph cluster Ready");
    wait_for_phase(&client, Kind::CephFilesystem, FILE_SYSTEM).await?;
    report("file system Ready");
    let health = at_rest(cluster, &client).await?;
    report(&health);
    Ok(())
}

/// Before each mon, Rook starts a pod in its place that only sleeps, and deletes it. This pod ignores the signal to end, and its grace period
/// of 30 s keeps the mon from its node.
async fn end_canaries(client: &kube::Client) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let canaries = pods.list(&ListParams::default().labels("mon_canary=true")).await?;
    for canary in canaries.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
        match pods.delete(&canary.name_any(), &DeleteParams::default().grace_period(0)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            deleted => drop(deleted?),
        }
    }
    Ok(())
}

/// Waits until Ceph is healthy while Rook has nothing to do. A node that Rook sees before an OSD on it is up costs one more pass over the
/// whole cluster; once Ceph is healthy, and so has all its OSDs, that is either begun or will not come.
async fn at_rest(cluster: &Cluster, client: &kube::Client) -> Result<String> {
    eventually(PATIENCE, "Ceph is healthy and Rook at rest", || async {
        let before = idle::since(client).await?;
        let health = ceph::healthy(cluster).await?;
        let after = idle::since(client).await?;
        ensure!(before == after, "Rook has made one more pass");
        Ok(Some(health))
    })
    .await
}

/// Waits until Rook says that it is done with one of its objects.
async fn wait_for_phase(client: &kube::Client, kind: Kind, name: &str) -> Result<()> {
    let api = kind.api(client, NAMESPACE);
    eventually(PATIENCE, &format!("{} {name} is Ready", kind.name()), || async {
        let status = api.get(name).await?.data["status"].take();
        if status["phase"] == "Ready" {
            return Ok(Some(()));
        }
        bail!("its status is {status}")
    })
    .await
}

/// Rook's own accounts and roles, in its own namespace.
async fn install_rights(client: &kube::Client) -> Result<()> {
    let objects: Vec<Value> = blocking(|| {
        let file = module::file(RBAC)?;
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        serde_saphyr::from_multiple(&text).with_context(|| format!("{} is not YAML", file.display()))
    })
    .await?;
    for object in objects {
        install::apply(client, object).await?;
    }
    Ok(())
}
