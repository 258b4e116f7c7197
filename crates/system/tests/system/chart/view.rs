//! What the story of an installation sees of the cluster, and the commands that it gives. Judges nothing.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use aquifer_lab::install::{USER, apply};
use aquifer_lab::{Call, Cluster, Mark, eventually};
use serde_json::{Value, json};

use super::{PATIENCE, USERS};
use crate::commands::{self, OPERATOR, succeeded};

const PODS: &str = "app.kubernetes.io/name=aquifer,app.kubernetes.io/component=operator";

pub struct Story<'a> {
    pub cluster: &'a Cluster,
    /// The operator's own program, for those without Helm.
    aquifer: PathBuf,
    since: Instant,
}

impl<'a> Story<'a> {
    pub fn new(cluster: &'a Cluster, aquifer: &Path) -> Self {
        Self { cluster, aquifer: aquifer.to_path_buf(), since: Instant::now() }
    }

    /// Says how long a step took.
    pub fn done(&mut self, what: &str) {
        println!("{:>5.1} s  {what}", self.since.elapsed().as_secs_f64());
        self.since = Instant::now();
    }

    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        commands::kubectl(self.cluster, arguments)
    }

    pub fn helm(&self, arguments: &[&str]) -> Result<String> {
        commands::helm(self.cluster, arguments)
    }

    pub fn aquifer(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.aquifer);
        succeeded(&command.args(arguments).arg("--kubeconfig").arg(self.cluster.kubeconfig()).output()?)
    }

    pub async fn share(&self, name: &str) -> Result<()> {
        // Each has its own: a second one with the same would be refused.
        let point = name.bytes().fold(String::new(), |all, byte| format!("{all}{byte:02x}"));
        let point = format!("fsap-{point:0>17}");
        let volume = json!({ "apiVersion": "aws-efs.managed.openshift.io/v1alpha1", "kind": "SharedVolume",
            "metadata": { "name": name, "namespace": USERS },
            "spec": { "fileSystemID": "fs-0123456789abcdef0", "accessPointID": point } });
        apply(&self.cluster.client()?, volume).await.map(drop)
    }

    pub async fn wait_ready(&self, name: &str) -> Result<()> {
        let state = r#"jsonpath={.status.conditions[?(@.type=="Ready")]}"#;
        eventually(PATIENCE, &format!("the SharedVolume {name} is Ready"), || async {
            let ready = self.kubectl(&["get", "sharedvolume", "-n", USERS, name, "-o", state])?;
            if ready.contains(r#""status":"True""#) { Ok(Some(())) } else { Err(anyhow!("{ready}")) }
        })
        .await
    }

    /// The operator's pods that are not on their way out.
    pub fn pods(&self) -> Result<Vec<Value>> {
        let list: Value =
            serde_json::from_str(&self.kubectl(&["get", "pods", "-n", OPERATOR, "-l", PODS, "-o", "json"])?)?;
        let all = list["items"].as_array().context("not a list")?;
        Ok(all.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).cloned().collect())
    }

    pub async fn two_replicas_ready(&self) -> Result<()> {
        eventually(PATIENCE, "two replicas are Ready", || async {
            let pods = self.pods()?;
            let ready =
                pods.iter().filter(|pod| pod["status"]["containerStatuses"][0]["ready"] == true).count();
            if (ready, pods.len()) == (2, 2) {
                Ok(Some(()))
            } else {
                Err(anyhow!("{ready} of {:?}", names(&pods)))
            }
        })
        .await
    }

    pub async fn no_pods(&self) -> Result<()> {
        eventually(PATIENCE, "no pod of the operator is left", || async {
            let left = self.kubectl(&["get", "pods", "-n", OPERATOR, "-l", PODS, "-o", "name"])?;
            if left.is_empty() { Ok(Some(())) } else { Err(anyhow!("{left}")) }
        })
        .await
    }

    pub fn holder(&self) -> Result<String> {
        self.kubectl(&[
            "get",
            "lease",
            "-n",
            OPERATOR,
            "aquifer-efs",
            "-o",
            "jsonpath={.spec.holderIdentity}",
        ])
    }

    /// The pod that holds the lease.
    pub async fn leader(&self) -> Result<String> {
        eventually(PATIENCE, "a pod holds the lease", || async {
            let (holder, pods) = (self.holder()?, names(&self.pods()?));
            let pod = pods.into_iter().find(|pod| holder.split('_').next() == Some(pod));
            pod.map(Some).ok_or_else(|| anyhow!("it is held by `{holder}`"))
        })
        .await
    }

    /// The users' SharedVolumes, and all volumes and claims of them, each with the given field.
    pub fn volumes(&self, field: &str) -> Result<BTreeSet<String>> {
        let columns = format!("custom-columns=KIND:.kind,NAME:.metadata.name,UID:.metadata.uid,{field}");
        let list =
            |kinds, columns: &str| self.kubectl(&["get", kinds, "-n", USERS, "--no-headers", "-o", columns]);
        // How wide a column is depends on the other lines.
        let plain = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut all: BTreeSet<String> = list("sharedvolumes,pvc", &columns)?.lines().map(plain).collect();
        // Volumes have no namespace; those of others in the cluster are not our business.
        let volumes = list("pv", &format!("{columns},OF:.spec.claimRef.namespace"))?;
        all.extend(volumes.lines().map(plain).filter(|line| line.ends_with(&format!(" {USERS}"))));
        Ok(all)
    }

    pub fn objects(&self) -> Result<BTreeSet<String>> {
        self.volumes("WHERE:.metadata.namespace")
    }

    /// With what changes at every write to them.
    pub fn versions(&self) -> Result<BTreeSet<String>> {
        self.volumes("VERSION:.metadata.resourceVersion")
    }

    pub fn untouched(&self, before: &BTreeSet<String>, mark: Mark) -> Result<()> {
        let after = self.versions()?;
        ensure!(*before == after, "before {before:#?}, now {after:#?}");
        let writes = self.writes_to_volumes(mark)?;
        ensure!(writes.is_empty(), "{writes:?}");
        Ok(())
    }

    /// Writes of the operator since a mark to the kinds that a SharedVolume is made of.
    pub fn writes_to_volumes(&self, mark: Mark) -> Result<Vec<Call>> {
        let kinds = ["sharedvolumes", "persistentvolumes", "persistentvolumeclaims"];
        let ours =
            |call: &Call| call.user == USER && call.is_write() && kinds.contains(&call.resource.as_str());
        Ok(self.cluster.audit().since(mark)?.into_iter().filter(ours).collect())
    }

    pub async fn at_rest(&self) -> Result<()> {
        eventually(PATIENCE, "the volumes are at rest", || async {
            let mark = self.cluster.audit().mark()?;
            tokio::time::sleep(Duration::from_secs(2)).await;
            let writes = self.writes_to_volumes(mark)?;
            if writes.is_empty() { Ok(Some(())) } else { bail!("{writes:?}") }
        })
        .await
    }

    /// For a reader of a failure, because the cluster is gone when they look.
    pub fn what_the_cluster_says(&self) -> String {
        let mut text = String::from("what the cluster said then:");
        for arguments in [
            &["get", "pods", "-A", "-o", "wide"][..],
            &["get", "events", "-n", OPERATOR, "--sort-by=.lastTimestamp"],
            &["logs", "-n", OPERATOR, "-l", PODS, "--prefix", "--tail=40"],
            &["get", "sharedvolumes,pvc,pv,lease,components", "-A"],
        ] {
            let said = self.kubectl(arguments).unwrap_or_else(|error| error.to_string());
            let _ = write!(text, "\n$ kubectl {}\n{said}", arguments.join(" "));
        }
        text + "\n"
    }
}

pub fn names(pods: &[Value]) -> Vec<String> {
    pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).map(ToOwned::to_owned).collect()
}
