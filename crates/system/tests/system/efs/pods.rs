//! Pods of the story: what they mount, where they run, and what they do with files.

use anyhow::{Context as _, Result, anyhow, ensure};
use aquifer_lab::eventually;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use super::world::{PATIENCE, World};

/// A pod that uses claims.
#[derive(Debug, Clone, Copy)]
pub struct User<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub node: &'a str,
    /// The user that it runs as.
    pub uid: i64,
    /// SharedVolumes; each is mounted at a folder of its name.
    pub of: &'a [&'a str],
    /// What it runs, as arguments of the lab's tools.
    pub does: &'a [&'a str],
}

impl<'a> User<'a> {
    /// One that waits for commands.
    pub fn idle(namespace: &'a str, name: &'a str, node: &'a str, uid: i64, of: &'a [&'a str]) -> Self {
        Self { namespace, name, node, uid, of, does: &["wait"] }
    }

    fn pods(&self, world: &World) -> Api<Pod> {
        Api::namespaced(world.client.clone(), self.namespace)
    }

    /// Asks for the pod.
    pub async fn make(&self, world: &World) -> Result<()> {
        let volumes: Vec<_> = self
            .of
            .iter()
            .map(|name| json!({ "name": name, "persistentVolumeClaim": { "claimName": format!("pvc-{name}") } }))
            .collect();
        let mounts: Vec<_> =
            self.of.iter().map(|name| json!({ "name": name, "mountPath": format!("/{name}") })).collect();
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": self.name },
            "spec": {
                "nodeSelector": { "kubernetes.io/hostname": self.node },
                "securityContext": { "runAsUser": self.uid, "runAsGroup": self.uid },
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "restartPolicy": "Never",
                "containers": [{ "name": "main", "image": world.cluster.probe_image()?, "imagePullPolicy": "Never",
                    "args": self.does, "volumeMounts": mounts }],
                "volumes": volumes,
            },
        }))?;
        // The account of a new namespace comes a moment later.
        eventually(PATIENCE, "a pod can be made", || async {
            Ok(Some(self.pods(world).create(&PostParams::default(), &pod).await?))
        })
        .await?;
        Ok(())
    }

    /// Waits until it runs, and so has mounted what it asked for.
    pub async fn runs(&self, world: &World) -> Result<()> {
        let what = format!("pod {}/{} runs on {}", self.namespace, self.name, self.node);
        let looked = eventually(PATIENCE, &what, || async {
            let pod = self.pods(world).get(self.name).await?;
            let status = pod.status.unwrap_or_default();
            let ready = status.container_statuses.iter().flatten().any(|container| container.ready);
            if ready { Ok(Some(())) } else { Err(anyhow!("{}", serde_json::to_string(&status)?)) }
        });
        looked.await
    }

    /// Asks for it and waits until it runs.
    pub async fn start(&self, world: &World) -> Result<()> {
        self.make(world).await?;
        self.runs(world).await
    }

    /// Asks for its end.
    pub async fn ask_to_end(&self, world: &World) -> Result<()> {
        self.pods(world).delete(self.name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Ends it, and waits until it is gone with all that it mounted.
    pub async fn end(&self, world: &World) -> Result<()> {
        self.ask_to_end(world).await?;
        aquifer_lab::kit::gone(&self.pods(world), self.name).await
    }

    async fn tools(&self, world: &World, arguments: &[&str]) -> Result<String> {
        let command = [&["/tools"], arguments].concat();
        Ok(world.cluster.exec(self.namespace, self.name, &command).await?.trim().to_owned())
    }

    /// Writes a file of a megabyte whose content follows from the seed, and gives its checksum.
    pub async fn put(&self, world: &World, file: &str, seed: &str) -> Result<String> {
        self.tools(world, &["put", file, "1000000", seed]).await
    }

    /// The checksum of a file.
    pub async fn sum(&self, world: &World, file: &str) -> Result<String> {
        self.tools(world, &["sum", file]).await
    }

    /// Fails unless the file has this checksum.
    pub async fn sees(&self, world: &World, file: &str, sum: &str) -> Result<()> {
        let seen = self.sum(world, file).await?;
        ensure!(seen == sum, "{}/{} sees {seen} in {file}, not {sum}", self.namespace, self.name);
        Ok(())
    }

    /// Owner, permissions and name of what is in a directory, itself first.
    pub async fn list(&self, world: &World, dir: &str) -> Result<Vec<String>> {
        Ok(self.tools(world, &["list", dir]).await?.lines().map(ToOwned::to_owned).collect())
    }

    /// How many rounds a pod that does `keep` has done without an error, and how many milliseconds the longest took.
    pub async fn rounds(&self, world: &World) -> Result<(u64, u64)> {
        let pod = self.pods(world).get(self.name).await?;
        let state = pod.status.and_then(|status| status.container_statuses);
        let running = state.iter().flatten().all(|container| container.ready && container.restart_count == 0);
        let said = world.kubectl(&["logs", "-n", self.namespace, self.name, "--tail=3"])?;
        ensure!(running, "{}/{} has ended, and said: {said}", self.namespace, self.name);
        let last = said.lines().last().with_context(|| format!("{} has said nothing", self.name))?;
        let numbers: Vec<u64> = last.split(' ').filter_map(|word| word.parse().ok()).collect();
        match numbers[..] {
            [rounds, longest] => Ok((rounds, longest)),
            _ => Err(anyhow!("{} says {last}", self.name)),
        }
    }

    /// Waits until it has done more rounds than that.
    pub async fn goes_on(&self, world: &World, since: u64) -> Result<(u64, u64)> {
        eventually(PATIENCE, &format!("{}/{} goes on", self.namespace, self.name), || async {
            let (rounds, longest) = self.rounds(world).await?;
            Ok((rounds > since).then_some((rounds, longest)))
        })
        .await
    }
}
