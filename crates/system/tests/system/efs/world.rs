//! The cluster of the story, and what is in it: operator, driver, file systems, SharedVolumes. Tells no story.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use aquifer_api::efs::SharedVolume;
use aquifer_lab::efs::{AccessPoint, FileSystems};
use aquifer_lab::install::apply;
use aquifer_lab::{Cluster, ClusterBuilder, Lab, eventually, kit};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::CSINode;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use xtask::operator_image::{self, Profile};

use crate::commands::{self, OPERATOR};

pub const PATIENCE: Duration = Duration::from_mins(1);
const DRIVER: &str = "efs.csi.aws.com";
pub const DRIVER_NAMESPACE: &str = "aquifer-efs";
pub const DRIVER_PODS: &str = "efs-csi-node";

/// File systems, and access points of the first and the second.
pub const ONE: &str = "fs-00000000000000001";
pub const TWO: &str = "fs-00000000000000002";
pub const TEAM: &str = "fsap-00000000000000011";
pub const ARCHIVE: &str = "fsap-00000000000000012";
pub const OTHER: &str = "fsap-00000000000000021";

/// Who uses what.
pub const RED: &str = "red";
pub const BLUE: &str = "blue";
pub const GREEN: &str = "green";

pub struct World {
    pub cluster: Cluster,
    pub client: Client,
    /// Where the two file systems are on this machine.
    pub one: PathBuf,
    pub two: PathBuf,
    pub efs: FileSystems,
    since: Instant,
}

impl World {
    /// Three nodes in two zones.
    pub fn nodes() -> ClusterBuilder {
        Lab::test_cluster().nodes(3).zones(["a", "b"])
    }

    /// Nodes with the operator's image, and two file systems.
    pub async fn start(nodes: ClusterBuilder) -> Result<Self> {
        let since = Instant::now();
        let image = tokio::task::spawn_blocking(|| operator_image::image(Profile::of_tests()));
        let (image, cluster) = tokio::join!(image, nodes.start());
        let (image, cluster) = (image??, cluster?);
        cluster.import_image(&image.image.archive).await?;
        let efs = FileSystems::start(&cluster).await?;
        let (one, two) = (efs.file_system(ONE)?, efs.file_system(TWO)?);
        for (file_system, id, uid, root) in
            [(ONE, TEAM, 5000, "/teams/one"), (ONE, ARCHIVE, 5500, "/archive"), (TWO, OTHER, 6000, "/all")]
        {
            let permissions = Some("0750".to_owned());
            let point = AccessPoint { uid, gid: uid + 1, root: root.to_owned(), permissions };
            efs.access_point(file_system, id, point)?;
        }
        let client = cluster.client()?;
        let mut world = Self { cluster, client, one, two, efs, since };
        for name in [RED, BLUE, GREEN] {
            world.namespace(name).await?;
        }
        world.done("three nodes in two zones run, with the images, beside two file systems");
        Ok(world)
    }

    /// Says how long a step took.
    pub fn done(&mut self, what: &str) {
        println!("{:>5.1} s  {what}", self.since.elapsed().as_secs_f64());
        self.since = Instant::now();
    }

    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        commands::kubectl(&self.cluster, arguments)
    }

    pub async fn namespace(&self, name: &str) -> Result<()> {
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        apply(&self.client, object).await.map(drop)
    }

    /// The chart with one replica and the lab's images of the driver.
    pub fn install(&mut self, chart: &str, more: &[&str]) -> Result<()> {
        let mut values = vec!["replicas=1".to_owned()];
        values.extend(driver_images(self.efs.image()));
        values.extend(more.iter().map(|&value| value.to_owned()));
        let values = values.join(",");
        let install = ["install", "aquifer", chart, "--create-namespace", "--wait", "--timeout", "2m"];
        commands::helm(&self.cluster, &[&install[..], &["--set", &values]].concat())?;
        self.done("helm install --wait");
        Ok(())
    }

    /// Waits until the driver's pods run on all nodes and each kubelet has registered the driver.
    pub async fn driver_runs(&mut self) -> Result<()> {
        let sets: Api<DaemonSet> = Api::namespaced(self.client.clone(), DRIVER_NAMESPACE);
        kit::until(&sets, DRIVER_PODS, "runs on three nodes, and is as it is asked for", |set| {
            let (of, status) = (set.metadata.generation, set.status.clone().unwrap_or_default());
            status.observed_generation == of
                && status.updated_number_scheduled == Some(3)
                && status.number_available == Some(3)
        })
        .await?;
        for number in 1..=3 {
            self.driver_registered(self.cluster.node(number)?.name()).await?;
        }
        let components: Api<aquifer_api::component::Component> = Api::all(self.client.clone());
        let of = "efs-driver";
        kit::until(&components, of, "says so", |component| kit::is_true(component, "NodesReady")).await?;
        self.done("the driver's pods run on all nodes, every kubelet has registered them, and the Component says so");
        Ok(())
    }

    pub async fn driver_registered(&self, node: &str) -> Result<()> {
        let nodes: Api<CSINode> = Api::all(self.client.clone());
        kit::until(&nodes, node, "has the driver", has_driver).await.map(drop)
    }

    /// Begins to look at a node now; gives the moment when its kubelet has lost the driver and registered it again.
    pub fn driver_registered_again(&self, node: &str) -> JoinHandle<Result<Instant>> {
        let (nodes, node): (Api<CSINode>, _) = (Api::all(self.client.clone()), node.to_owned());
        tokio::spawn(async move {
            let lost = AtomicBool::new(false);
            let again = |node: Option<&CSINode>| {
                let has = node.is_some_and(has_driver);
                lost.fetch_or(!has, Ordering::Relaxed);
                has && lost.load(Ordering::Relaxed)
            };
            let seen = tokio::time::timeout(PATIENCE, await_condition(nodes, &node, again)).await;
            seen.with_context(|| format!("node {node} does not register the driver again"))??;
            Ok(Instant::now())
        })
    }

    /// Waits until the driver's containers are asked to run from this image.
    pub async fn driver_uses(&self, image: &str) -> Result<()> {
        let sets: Api<DaemonSet> = Api::namespaced(self.client.clone(), DRIVER_NAMESPACE);
        kit::until(&sets, DRIVER_PODS, &format!("uses {image}"), |set| {
            let pod = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
            let mut containers = pod.iter().flat_map(|pod| &pod.containers);
            containers.all(|container| container.image.as_deref() == Some(image))
        })
        .await
        .map(drop)
    }

    /// Waits until all pods of the operator run from the image with this tag.
    pub async fn operator_runs(&self, tag: &str) -> Result<()> {
        let path = "jsonpath={.items[*].spec.containers[*].image}";
        eventually(PATIENCE, &format!("the operator runs from {tag}"), || async {
            let seen = self.kubectl(&["get", "pods", "-n", OPERATOR, "-o", path])?;
            let all = seen.split_whitespace().all(|image| image.ends_with(&format!(":{tag}")));
            if all && !seen.is_empty() { Ok(Some(())) } else { Err(anyhow!("{seen}")) }
        })
        .await
    }

    /// Waits until a node's kubelet has lost the driver.
    pub async fn driver_gone(&self, node: &str) -> Result<()> {
        let nodes: Api<CSINode> = Api::all(self.client.clone());
        kit::until(&nodes, node, "has no driver", |node| node.spec.drivers.is_empty()).await.map(drop)
    }

    /// Waits until the operator has this many pods, all of them ready.
    pub async fn operators(&self, number: i32) -> Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), OPERATOR);
        self.kubectl(&["scale", "deployment", "-n", OPERATOR, "aquifer", &format!("--replicas={number}")])?;
        kit::until(&deployments, "aquifer", &format!("has {number} pods"), |deployment| {
            let status = deployment.status.clone().unwrap_or_default();
            status.replicas.unwrap_or(0) == number && status.ready_replicas.unwrap_or(0) == number
        })
        .await?;
        // A pod that ends is not counted any more, but may still act.
        let pods = || self.kubectl(&["get", "pods", "-n", OPERATOR, "-o", "name"]);
        eventually(PATIENCE, &format!("{number} pods are there"), || async {
            let seen = pods()?;
            if seen.lines().count() == usize::try_from(number)? {
                Ok(Some(()))
            } else {
                Err(anyhow!("{seen}"))
            }
        })
        .await
    }

    pub fn volumes(&self, namespace: &str) -> Api<SharedVolume> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub fn claims(&self, namespace: &str) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Makes a SharedVolume.
    pub async fn share(
        &self,
        namespace: &str,
        name: &str,
        file_system: &str,
        point: Option<&str>,
    ) -> Result<()> {
        let spec = json!({ "fileSystemID": file_system, "accessPointID": point });
        let volume = SharedVolume::new(name, serde_json::from_value(spec)?);
        self.volumes(namespace).create(&PostParams::default(), &volume).await?;
        Ok(())
    }

    pub async fn unshare(&self, namespace: &str, name: &str) -> Result<()> {
        self.volumes(namespace).delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    pub async fn ready(&self, namespace: &str, name: &str) -> Result<SharedVolume> {
        let volumes = self.volumes(namespace);
        kit::until(&volumes, name, "is Ready", |volume| kit::is_true(volume, "Ready")).await
    }

    /// Waits until the condition `Ready` is False for this reason, and gives its message.
    pub async fn not_ready(&self, namespace: &str, name: &str, reason: &str) -> Result<String> {
        let volumes = self.volumes(namespace);
        let is = |volume: &SharedVolume| {
            let of_now = volume.status.as_ref().and_then(|status| status.observed_generation);
            kit::condition(volume, "Ready").filter(|condition| {
                condition["reason"] == reason
                    && condition["status"] == "False"
                    && of_now == volume.metadata.generation
            })
        };
        let volume = kit::until(&volumes, name, reason, |volume| is(volume).is_some()).await?;
        let condition = is(&volume).unwrap_or_default();
        Ok(condition["message"].as_str().unwrap_or_default().to_owned())
    }

    /// The volume that a SharedVolume's claim is bound to: its uid, and what it names.
    pub async fn pair(&self, namespace: &str, name: &str) -> Result<Pair> {
        let claim = self.claims(namespace).get(&format!("pvc-{name}")).await?;
        let volume = claim.spec.and_then(|spec| spec.volume_name).context("a claim without a volume")?;
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let volume = volumes.get(&volume).await?;
        let handle = volume.spec.and_then(|spec| spec.csi).map(|csi| csi.volume_handle);
        Ok(Pair {
            claim: claim.metadata.uid.context("a claim without a uid")?,
            volume: volume.metadata.uid.context("a volume without a uid")?,
            handle: handle.context("a volume without a driver")?,
        })
    }

    /// Checks that the nodes are in different zones.
    pub fn in_two_zones(&self, one: &str, other: &str) -> Result<()> {
        let zone = |node| {
            let path = r"jsonpath={.metadata.labels.topology\.kubernetes\.io/zone}";
            self.kubectl(&["get", "node", node, "-o", path])
        };
        let (one, other) = (zone(one)?, zone(other)?);
        ensure!(!one.is_empty() && !other.is_empty() && one != other, "both are in zone `{one}`, `{other}`");
        Ok(())
    }

    /// For a reader of a failure, because the cluster is gone when they look.
    pub fn what_the_cluster_says(&self) -> String {
        let mut text = String::from("what the cluster said then:");
        for arguments in [
            &["get", "pods", "-A", "-o", "wide"][..],
            &["get", "sharedvolumes,sharedfilesystems,pvc,pv,components", "-A"],
            &["get", "events", "-A", "--sort-by=.lastTimestamp"],
            &[
                "logs",
                "-n",
                DRIVER_NAMESPACE,
                "-l",
                "app=efs-csi-node",
                "--all-containers",
                "--prefix",
                "--tail=20",
            ],
            &["logs", "-n", OPERATOR, "-l", "app.kubernetes.io/name=aquifer", "--prefix", "--tail=30"],
        ] {
            let said = self.kubectl(arguments).unwrap_or_else(|error| error.to_string());
            let _ = write!(text, "\n$ kubectl {}\n{said}", arguments.join(" "));
        }
        text + "\n"
    }
}

fn has_driver(node: &CSINode) -> bool {
    node.spec.drivers.iter().any(|driver| driver.name == DRIVER)
}

/// Claim and volume of a SharedVolume.
#[derive(Debug, PartialEq, Eq)]
pub struct Pair {
    pub claim: String,
    pub volume: String,
    pub handle: String,
}

/// Applies an object of any kind.
pub async fn made(world: &World, object: Value) -> Result<()> {
    apply(&world.client, object).await.map(drop)
}

/// Values of the chart that set all images of the driver.
pub fn driver_images(image: &str) -> [String; 3] {
    ["plugin", "registrar", "liveness"].map(|container| format!("efs.images.{container}={image}"))
}
