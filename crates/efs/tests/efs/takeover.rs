//! Clusters where aws-efs-operator worked before: its pairs go on serving, its finalizer does not stay behind.

use anyhow::Result;
use aquifer_api::efs::SharedVolume;
use aquifer_efs::names::labels;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::harness::{exclusive, installed_operator, until};
use super::tenant::{ACCESS_POINT, FILE_SYSTEM, OTHER_ACCESS_POINT, Tenant, handle, is_bound};

/// What aws-efs-operator leaves for one SharedVolume when it is switched off.
struct Left {
    name: &'static str,
    handle: String,
    mount_options: Value,
    claim_ref: bool,
    /// Whether Kubernetes had the time to bind the two.
    bound: bool,
}

impl Left {
    fn new(name: &'static str) -> Self {
        let handle = format!("{FILE_SYSTEM}::{ACCESS_POINT}");
        Self { name, handle, mount_options: Value::Null, claim_ref: false, bound: true }
    }

    async fn make(&self, tenant: &Tenant) -> Result<(PersistentVolume, PersistentVolumeClaim)> {
        let namespace = &tenant.name;
        let volume_name = format!("pv-{namespace}-{}", self.name);
        let claim_name = format!("pvc-{}", self.name);
        let marks =
            json!({labels::OWNED: "true", labels::OWNER_NAMESPACE: namespace, labels::OWNER_NAME: self.name});
        let mut volume = json!({
            "metadata": {"name": volume_name, "labels": marks},
            "spec": {"capacity": {"storage": "1Gi"}, "volumeMode": "Filesystem", "accessModes": ["ReadWriteMany"],
                "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "efs-sc",
                "csi": {"driver": "efs.csi.aws.com", "volumeHandle": self.handle}},
        });
        if !self.mount_options.is_null() {
            volume["spec"]["mountOptions"] = self.mount_options.clone();
        }
        if self.claim_ref {
            volume["spec"]["claimRef"] = json!({"namespace": namespace, "name": claim_name});
        }
        let claim = json!({
            "metadata": {"name": claim_name, "labels": marks},
            "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": "efs-sc", "volumeMode": "Filesystem", "volumeName": volume_name},
        });
        let volume =
            tenant.volumes().create(&PostParams::default(), &serde_json::from_value(volume)?).await?;
        let mut claim =
            tenant.claims().create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
        if self.bound {
            claim = until(&tenant.claims(), &claim_name, "is Bound", is_bound).await?;
        }
        // Last, so that an operator that runs finds the pair when it finds its owner.
        let mut shared: SharedVolume = serde_json::from_value(json!({
            "apiVersion": "aws-efs.managed.openshift.io/v1alpha1", "kind": "SharedVolume",
            "metadata": {"name": self.name, "finalizers": [labels::UPSTREAM_FINALIZER]},
            "spec": {"fileSystemID": FILE_SYSTEM, "accessPointID": ACCESS_POINT},
        }))?;
        shared = tenant.shared_volumes().create(&PostParams::default(), &shared).await?;
        let status = json!({"status": {"phase": "Ready", "message": "",
            "claimRef": {"apiGroup": "", "kind": "PersistentVolumeClaim", "name": claim_name}}});
        let patch = kube::api::Patch::Merge(&status);
        let _ = tenant
            .shared_volumes()
            .patch_status(&shared.name_any(), &kube::api::PatchParams::default(), &patch)
            .await?;
        Ok((volume, claim))
    }
}

#[tokio::test]
async fn the_pairs_of_aws_efs_operator_are_taken_over_without_deleting_anything() -> Result<()> {
    let test = exclusive().await?;
    let tenant = Tenant::on(&test.cluster).await?;
    let all = [
        Left::new("plain"),
        Left { claim_ref: true, ..Left::new("claimed") },
        Left { bound: false, ..Left::new("fresh") },
        Left {
            handle: FILE_SYSTEM.into(),
            mount_options: json!(["tls", format!("accesspoint={ACCESS_POINT}")]),
            ..Left::new("old-style")
        },
    ];
    let mut before = Vec::new();
    for left in &all {
        before.push(left.make(&tenant).await?);
    }
    let mark = test.cluster.audit().mark()?;
    let operator = installed_operator(&test);
    for (left, (volume, claim)) in all.iter().zip(&before) {
        let (now_volume, now_claim) = tenant.pair(left.name).await?;
        assert_eq!((now_volume.uid(), now_claim.uid()), (volume.uid(), claim.uid()), "{}", left.name);
        assert_eq!(handle(&now_volume), left.handle, "{}", left.name);
        assert!(is_bound(&now_claim), "{}", left.name);
        assert!(
            now_claim.labels().contains_key("aquifer.storage/owner-uid"),
            "it is ours now: {now_claim:?}"
        );
    }
    let deletions: Vec<_> =
        test.writes_since(mark)?.into_iter().filter(|call| call.verb == "delete").collect();
    assert!(deletions.is_empty(), "{deletions:?}");
    // Upstream's finalizer goes with ours: nobody else is left to take it off.
    for left in &all {
        tenant.delete(left.name).await?;
        tenant.gone(left.name).await?;
    }
    tenant.empty().await?;
    operator.crash();
    Ok(())
}

#[tokio::test]
async fn a_pair_of_aws_efs_operator_with_other_data_is_replaced() -> Result<()> {
    let test = exclusive().await?;
    let tenant = Tenant::on(&test.cluster).await?;
    // aws-efs-operator took edits back; whoever edited while it was off means it.
    let left = Left { handle: format!("{FILE_SYSTEM}::{OTHER_ACCESS_POINT}"), ..Left::new("data") };
    let old = left.make(&tenant).await?;
    let operator = installed_operator(&test);
    let (volume, claim) = tenant.another_pair("data", &old).await?;
    assert_eq!(handle(&volume), format!("{FILE_SYSTEM}::{ACCESS_POINT}"));
    assert!(is_bound(&claim));
    assert!(tenant.volumes().get_opt(&old.0.name_any()).await?.is_none_or(|now| now.uid() != old.0.uid()));
    tenant.delete("data").await?;
    tenant.gone("data").await?;
    operator.crash();
    Ok(())
}
