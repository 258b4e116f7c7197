//! The least that anybody could do for N SharedVolumes: the same final objects by the fewest writes, without looking at anything.

use anyhow::{Context, Result};
use aquifer_api::efs::SharedVolume;
use aquifer_families::efs::names::{
    driver::{DRIVER_NAME, STORAGE_CLASS},
    labels::SHARED_VOLUME_FINALIZER,
};
use futures::{StreamExt, TryStreamExt, channel::mpsc, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::bench::{
    BenchCluster, Floor, NAMESPACE, Start, bound, create_volume, created, delete_volume, gone, name, spec,
};
use crate::bench::CONCURRENCY;

/// Measures all cases.
pub(super) async fn run(bench: &BenchCluster, n: usize) -> Result<Floor> {
    // As the operator's own account: the server treats administrators better than programs.
    let apis = Apis::new(&bench.cluster.client_with_token(&bench.account.token)?);
    let users: Api<SharedVolume> = Api::namespaced(bench.user.clone(), NAMESPACE);

    let begin = Start::now()?;
    let each = |index| {
        let (apis, users) = (&apis, &users);
        async move {
            create_volume(users, index).await?;
            apis.create(index).await
        }
    };
    stream::iter(0..n).map(Ok).try_for_each_concurrent(CONCURRENCY, each).await?;
    created(&bench.user, n).await?;
    let create = begin.cost("all created")?;

    // Statuses only now: before, they would make the floor of `create` higher than it is.
    let (sender, names) = mpsc::unbounded();
    let watch = async move {
        // The other end outlives this one.
        bound(&bench.user, n, |claim| drop(sender.unbounded_send(claim.clone()))).await
    };
    let write = names.map(Ok).try_for_each_concurrent(CONCURRENCY, |claim| apis.report(claim));
    tokio::try_join!(watch, write)?;
    let ready = begin.cost("all Ready and Bound")?;

    let begin = Start::now()?;
    let each = |index| {
        let (apis, users) = (&apis, &users);
        async move {
            delete_volume(users, index).await?;
            apis.delete(index).await
        }
    };
    stream::iter(0..n).map(Ok).try_for_each_concurrent(CONCURRENCY, each).await?;
    gone(&bench.user, n).await?;
    let delete = begin.cost("all gone")?;
    Ok(Floor { create, ready, delete })
}

struct Apis {
    volumes: Api<SharedVolume>,
    pvs: Api<PersistentVolume>,
    pvcs: Api<PersistentVolumeClaim>,
}

impl Apis {
    fn new(client: &Client) -> Self {
        Self {
            volumes: Api::namespaced(client.clone(), NAMESPACE),
            pvs: Api::all(client.clone()),
            pvcs: Api::namespaced(client.clone(), NAMESPACE),
        }
    }

    /// Three writes: finalizer, volume, claim.
    async fn create(&self, index: usize) -> Result<()> {
        self.finalizers(index, &json!([SHARED_VOLUME_FINALIZER])).await?;
        self.pvs
            .create(&PostParams::default(), &typed(volume(index))?)
            .await
            .context("cannot create a PV")?;
        self.pvcs
            .create(&PostParams::default(), &typed(claim(index))?)
            .await
            .context("cannot create a PVC")?;
        Ok(())
    }

    /// One write of status, as it looks when all is well.
    async fn report(&self, claim: PersistentVolumeClaim) -> Result<()> {
        let claim_name = claim.metadata.name.unwrap_or_default();
        let name = claim_name.strip_prefix("pvc-").context("a claim that is not ours")?;
        let condition = |kind: &str| {
            json!({ "type": kind, "status": "True", "reason": "Bound", "message": "", "observedGeneration": 1,
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
        };
        let status = json!({ "status": {
            "phase": "Ready",
            "claimRef": { "apiGroup": "", "kind": "PersistentVolumeClaim", "name": claim_name },
            "claimUID": claim.metadata.uid,
            "volumeRef": { "name": format!("pv-{NAMESPACE}-{name}") },
            "observedGeneration": 1,
            "conditions": [condition("Ready"), condition("DriverReady")],
        } });
        self.volumes
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
            .await
            .with_context(|| format!("cannot write the status of {name}"))?;
        Ok(())
    }

    /// Three writes: claim, volume, finalizer. They need not wait for each other here.
    async fn delete(&self, index: usize) -> Result<()> {
        let params = DeleteParams::default();
        self.pvcs.delete(&claim_name(index), &params).await.context("cannot delete a PVC")?;
        self.pvs.delete(&volume_name(index), &params).await.context("cannot delete a PV")?;
        self.finalizers(index, &Value::Null).await
    }

    async fn finalizers(&self, index: usize, finalizers: &Value) -> Result<()> {
        let patch = json!({ "metadata": { "finalizers": finalizers } });
        self.volumes
            .patch(&name(index), &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .with_context(|| format!("cannot write the finalizer of {}", name(index)))?;
        Ok(())
    }
}

fn volume_name(index: usize) -> String {
    format!("pv-{NAMESPACE}-{}", name(index))
}

fn claim_name(index: usize) -> String {
    format!("pvc-{}", name(index))
}

fn volume(index: usize) -> Value {
    let spec = spec(index);
    let handle = format!("{}::{}", spec.file_system_id, spec.access_point_id.unwrap_or_default());
    json!({
        "metadata": { "name": volume_name(index) },
        "spec": {
            "capacity": { "storage": "1Gi" },
            "volumeMode": "Filesystem",
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": STORAGE_CLASS,
            "claimRef": { "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": claim_name(index) },
            "csi": { "driver": DRIVER_NAME, "volumeHandle": handle },
        },
    })
}

fn claim(index: usize) -> Value {
    json!({
        "metadata": { "name": claim_name(index), "namespace": NAMESPACE },
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": { "requests": { "storage": "1Gi" } },
            "storageClassName": STORAGE_CLASS,
            "volumeMode": "Filesystem",
            "volumeName": volume_name(index),
        },
    })
}

fn typed<K: DeserializeOwned>(value: Value) -> Result<K> {
    Ok(serde_json::from_value(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volume_and_claim_name_each_other() {
        let (pv, pvc) = (
            typed::<PersistentVolume>(volume(7)).unwrap(),
            typed::<PersistentVolumeClaim>(claim(7)).unwrap(),
        );
        let reference = pv.spec.unwrap().claim_ref.unwrap();
        assert_eq!(reference.name, pvc.metadata.name);
        assert_eq!(pvc.spec.unwrap().volume_name, pv.metadata.name);
    }
}
