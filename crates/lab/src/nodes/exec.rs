//! Commands in pods and images for nodes, for tests. Adds nothing to what kubectl and containerd can do.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::host::run;
use super::machine::CONTAINERD_SOCKET;
use crate::cluster::{Cluster, blocking};

const LONGEST: Duration = Duration::from_mins(1);

impl Cluster {
    /// Runs a command in a pod and gives what it printed; what it complained about is in the error.
    pub async fn exec(&self, namespace: &str, pod: &str, command: &[&str]) -> Result<String> {
        let mut args = vec!["exec", "--namespace", namespace, pod, "--"];
        args.extend(command);
        self.kubectl_output(&args).await
    }

    /// Runs kubectl as the user who may do everything and gives what it printed. Fails when it fails, or takes over a minute.
    pub async fn kubectl_output(&self, args: &[&str]) -> Result<String> {
        let mut kubectl: tokio::process::Command = self.kubectl().into();
        let ran = kubectl.args(args).kill_on_drop(true).output();
        let shown = || format!("kubectl {}", args.join(" "));
        let output = tokio::time::timeout(LONGEST, ran)
            .await
            .with_context(|| format!("`{}` did not end within {LONGEST:?}", shown()))?
            .with_context(|| format!("cannot run `{}`", shown()))?;
        if !output.status.success() {
            bail!("`{}` failed: {}", shown(), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Gives an image (an archive as of `docker save`) to every node. Pods use it with a pull policy other than Always.
    pub async fn import_image(&self, archive: &Path) -> Result<()> {
        let (nodes, supervisor, archive) = (self.nodes()?.clone(), self.supervisor(), archive.to_path_buf());
        blocking(move || nodes.import(&supervisor, &archive)).await
    }

    /// Gives an image that every node has another name, beside its own.
    pub async fn name_image(&self, image: &str, name: &str) -> Result<()> {
        for number in 1..=self.node_count() {
            let mut ctr = self.node(number)?.command("ctr")?;
            ctr.args(["--address", CONTAINERD_SOCKET, "--namespace", "k8s.io", "images", "tag", "--force"]);
            ctr.args([image, name]);
            blocking(move || run(&mut ctr)).await.with_context(|| format!("cannot name {image} {name}"))?;
        }
        Ok(())
    }

    /// The name of an image that every node has. Its one program, `/tools`, can `serve :PORT` (answers with the pod's name),
    /// `get URL`, `lookup NAME` and `wait`, and with files `put`, `sum`, `list` and `keep`.
    pub fn probe_image(&self) -> Result<&str> {
        Ok(self.nodes()?.probe_image())
    }
}
