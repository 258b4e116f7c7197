//! The family `efs` in the lab.

mod attack;
mod bench;
mod floor;

use std::path::Path;

use anyhow::Result;
use aquifer_families::efs::names::driver::DAEMON_SET;
use async_trait::async_trait;
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::{Api, Client};
use serde_json::Value;

use super::InLab;
use crate::bench::Row;
use crate::follow;

/// The family.
pub struct Efs;

#[async_trait(?Send)]
impl InLab for Efs {
    fn name(&self) -> &'static str {
        "efs"
    }

    fn warning(&self) -> &'static str {
        "It installs the EFS CSI driver there."
    }

    fn try_next(&self, examples: &[Value]) -> Vec<String> {
        let mut commands =
            vec!["get sharedvolumes,pvc -A".to_owned(), "get component,csidriver,storageclass".to_owned()];
        let volume = examples.iter().find(|object| object["kind"] == "SharedVolume");
        if let Some((namespace, name)) = volume.and_then(|object| {
            Some((object["metadata"]["namespace"].as_str()?, object["metadata"]["name"].as_str()?))
        }) {
            commands.push(format!("-n {namespace} describe sharedvolume {name}"));
            commands.push(format!("-n {namespace} delete pvc pvc-{name}   # the pair is rebuilt"));
            commands.push(format!("-n {namespace} delete sharedvolume {name}"));
        }
        commands
    }

    /// How many pods the driver has, because an empty cluster looks like a failure otherwise.
    async fn remarks(&self, client: &Client) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        let sets: Api<DaemonSet> = Api::all(client.clone());
        for set in sets.list(&kube::api::ListParams::default()).await? {
            if set.metadata.name.as_deref() == Some(DAEMON_SET) {
                let desired = set.status.map_or(0, |status| status.desired_number_scheduled);
                let why = if desired == 0 {
                    ": no node of this cluster takes it, so nothing could be mounted"
                } else {
                    ""
                };
                lines.push(format!(
                    "driver DaemonSet {}: {desired} pods wanted{why}",
                    follow::place(&set.metadata)
                ));
            }
        }
        Ok(lines)
    }

    fn bench_about(&self) -> Option<&'static str> {
        Some("SharedVolumes: create, ready, delete")
    }

    async fn bench_idle(&self, n: usize, program: &Path) -> Result<String> {
        bench::idle(n, program).await
    }

    async fn bench_attack(&self, n: usize, program: &Path) -> Result<String> {
        attack::run(n, program).await
    }

    async fn bench(&self, n: usize, program: &Path) -> Result<Vec<Row>> {
        bench::run(n, program).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_to_try_next_uses_an_example() {
        let example = json!({"kind": "SharedVolume", "metadata": {"name": "a", "namespace": "b"}});
        assert!(Efs.try_next(&[example]).contains(&"-n b describe sharedvolume a".to_owned()));
    }
}
