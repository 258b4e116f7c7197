//! A namespace with SharedVolumes, as its users see it and work with it.

use std::ops::Deref;

use anyhow::{Context as _, Result};
use aquifer_api::efs::{SharedVolume, SharedVolumeSpec};
use aquifer_lab::Cluster;
use aquifer_lab::kit::{self, TestNamespace};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::harness::{absent, condition, edit, shared, show, until};

pub const FILE_SYSTEM: &str = "fs-0123456789abcdef0";
pub const ACCESS_POINT: &str = "fsap-0123456789abcdef0";
pub const OTHER_ACCESS_POINT: &str = "fsap-0fedcba9876543210";

/// The volume and the claim of a SharedVolume.
pub type Pair = (PersistentVolume, PersistentVolumeClaim);

/// A namespace with SharedVolumes.
pub struct Tenant(TestNamespace);

impl Deref for Tenant {
    type Target = TestNamespace;

    fn deref(&self) -> &TestNamespace {
        &self.0
    }
}

impl Tenant {
    /// A new namespace on the shared cluster.
    pub async fn new() -> Result<Self> {
        Self::on(&shared().await.cluster).await
    }

    /// A new namespace on a cluster.
    pub async fn on(cluster: &Cluster) -> Result<Self> {
        TestNamespace::new(cluster, "tenant").await.map(Self)
    }

    /// A namespace whose name matters.
    pub async fn named(cluster: &Cluster, name: &str) -> Result<Self> {
        TestNamespace::named(cluster, name).await.map(Self)
    }

    /// The same namespace for a user with another client.
    pub fn seen_by(&self, client: Client) -> Self {
        Self(TestNamespace { client, name: self.name.clone() })
    }

    pub fn shared_volumes(&self) -> Api<SharedVolume> {
        self.api()
    }

    pub fn claims(&self) -> Api<PersistentVolumeClaim> {
        self.api()
    }

    pub fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    /// Creates a SharedVolume.
    pub async fn create(&self, name: &str, access_point: Option<&str>) -> Result<SharedVolume> {
        let spec = SharedVolumeSpec {
            file_system_id: FILE_SYSTEM.into(),
            access_point_id: access_point.map(Into::into),
            ..SharedVolumeSpec::default()
        };
        let body = SharedVolume::new(name, spec);
        self.shared_volumes().create(&PostParams::default(), &body).await.context("create a SharedVolume")
    }

    /// Changes the access point of a SharedVolume.
    pub async fn change(&self, name: &str, access_point: &str) -> Result<SharedVolume> {
        edit(&self.shared_volumes(), name, &json!({"spec": {"accessPointID": access_point}})).await
    }

    pub async fn delete(&self, name: &str) -> Result<()> {
        self.shared_volumes().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until a SharedVolume is as wanted; prints it when it does not become so.
    pub async fn until(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&SharedVolume) -> bool,
    ) -> Result<SharedVolume> {
        let waited = until(&self.shared_volumes(), name, what, is).await;
        waited.with_context(|| format!("in namespace {}", self.name))
    }

    /// Waits until a SharedVolume's current generation is Ready.
    pub async fn ready(&self, name: &str) -> Result<SharedVolume> {
        self.until(name, "is Ready", is_ready).await
    }

    /// Waits until `Ready` is false for this reason; returns its message.
    pub async fn not_ready(&self, name: &str, reason: &str) -> Result<String> {
        let is = |ready: &serde_json::Value| ready["status"] == "False" && ready["reason"] == reason;
        let what = format!("is not Ready: {reason}");
        let shared =
            self.until(name, &what, |shared| condition(shared, "Ready").as_ref().is_some_and(is)).await?;
        let ready = condition(&shared, "Ready").context("no condition")?;
        Ok(ready["message"].as_str().unwrap_or_default().to_owned())
    }

    /// Waits until a SharedVolume is gone.
    pub async fn gone(&self, name: &str) -> Result<()> {
        kit::gone(&self.shared_volumes(), name).await
    }

    /// The volume and the claim of a Ready SharedVolume.
    pub async fn pair(&self, name: &str) -> Result<Pair> {
        let shared = self.ready(name).await?;
        let status = shared.status.clone().unwrap_or_default();
        let claim = status.claim_ref.context("no claimRef")?.name;
        let volume = status.volume_ref.context("no volumeRef")?.name;
        Ok((self.volumes().get(&volume).await?, self.claims().get(&claim).await?))
    }

    /// Waits until a SharedVolume is Ready with another pair than this one.
    pub async fn another_pair(&self, name: &str, old: &Pair) -> Result<Pair> {
        self.until(name, "is Ready with a new pair", |shared| {
            let status = shared.status.clone().unwrap_or_default();
            is_ready(shared)
                && status.claim_uid != old.1.uid()
                && status.volume_ref.and_then(|volume| volume.uid) != old.0.uid()
        })
        .await?;
        self.pair(name).await
    }

    /// The volumes whose claim is, or was, in this namespace.
    pub async fn volumes_here(&self) -> Result<Vec<PersistentVolume>> {
        let all = self.volumes().list(&ListParams::default()).await?;
        let here = |volume: &PersistentVolume| {
            let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
            claim.is_some_and(|claim| claim.namespace.as_deref() == Some(&self.name))
        };
        Ok(all.items.into_iter().filter(here).collect())
    }

    /// Waits until no claim and no volume is left here.
    pub async fn empty(&self) -> Result<()> {
        absent(&format!("every pair of {}", self.name), || async {
            let claims = self.claims().list(&ListParams::default()).await?.items;
            let volumes = self.volumes_here().await?;
            let left: Vec<String> = claims.iter().map(show).chain(volumes.iter().map(show)).collect();
            Ok((!left.is_empty()).then(|| left.join("\n")))
        })
        .await
    }
}

pub fn is_ready(shared: &SharedVolume) -> bool {
    kit::is_true(shared, "Ready")
}

/// The handle of a volume.
pub fn handle(volume: &PersistentVolume) -> &str {
    let csi = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
    csi.map(|csi| csi.volume_handle.as_str()).unwrap_or_default()
}

pub fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
}
