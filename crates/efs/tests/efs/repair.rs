//! What another user does to volume and claim: damage is repaired in place, a loss is made good by a whole new pair.

use anyhow::{Result, ensure};
use aquifer_efs::names::labels;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::harness::{DEADLINE, edit, until};
use super::tenant::{ACCESS_POINT, Tenant, handle, is_bound, is_ready};

const OWNER_UID: &str = "aquifer.storage/owner-uid";
const OWNER: &str = "aquifer.storage/owner";

#[tokio::test]
async fn a_deleted_claim_brings_a_whole_new_pair() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let old = tenant.pair("data").await?;
    tenant.claims().delete("pvc-data", &DeleteParams::default()).await?;
    let (volume, claim) = tenant.another_pair("data", &old).await?;
    assert!(is_bound(&claim));
    assert_eq!(handle(&volume), handle(&old.0));
    Ok(())
}

#[tokio::test]
async fn a_deleted_volume_brings_a_whole_new_pair() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let old = tenant.pair("data").await?;
    tenant.volumes().delete(&old.0.name_any(), &DeleteParams::default()).await?;
    let (volume, claim) = tenant.another_pair("data", &old).await?;
    assert!(is_bound(&claim));
    assert_eq!(handle(&volume), handle(&old.0));
    Ok(())
}

#[tokio::test]
async fn a_volume_that_was_torn_out_by_force_brings_a_whole_new_pair() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let old = tenant.pair("data").await?;
    let name = old.0.name_any();
    // Without its protection it is gone at once, and the claim is Lost.
    tenant.volumes().delete(&name, &DeleteParams::default()).await?;
    let _ = edit(&tenant.volumes(), &name, &json!({"metadata": {"finalizers": null}})).await;
    let (_, claim) = tenant.another_pair("data", &old).await?;
    assert!(is_bound(&claim));
    Ok(())
}

#[tokio::test]
async fn damaged_marks_of_the_claim_are_repaired_and_nothing_is_replaced() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let (volume, claim) = tenant.pair("data").await?;
    for damage in damages() {
        repaired(&tenant.claims(), &claim, &damage).await?;
    }
    unchanged(&tenant, &volume, &claim).await
}

#[tokio::test]
async fn damaged_marks_of_the_volume_are_repaired_and_nothing_is_replaced() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let (volume, claim) = tenant.pair("data").await?;
    for damage in damages() {
        repaired(&tenant.volumes(), &volume, &damage).await?;
    }
    unchanged(&tenant, &volume, &claim).await
}

/// Each is seen by a watch in another way: as a change, as an object of another owner, as a deletion.
fn damages() -> [Value; 7] {
    [
        json!({"metadata": {"labels": {labels::OWNER_NAME: "another-owner"}}}),
        json!({"metadata": {"labels": {labels::OWNER_NAMESPACE: null}}}),
        json!({"metadata": {"labels": {labels::OWNED: null}}}),
        json!({"metadata": {"labels": {labels::OWNED: "false", OWNER_UID: "not-the-uid"}}}),
        json!({"metadata": {"annotations": {OWNER: "other/place"}}}),
        json!({"metadata": {"annotations": {OWNER: null}}}),
        json!({"metadata": {
            "labels": {labels::OWNED: null, labels::OWNER_NAME: null, labels::OWNER_NAMESPACE: null, OWNER_UID: null},
            "annotations": {OWNER: null},
        }}),
    ]
}

async fn repaired<K>(api: &Api<K>, object: &K, damage: &Value) -> Result<()>
where
    K: Clone + serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug + ResourceExt,
{
    let name = object.name_any();
    let damaged = edit(api, &name, damage).await?;
    assert_eq!(damaged.uid(), object.uid(), "{damage}");
    until(api, &name, &format!("is repaired after {damage}"), |now| {
        let ours = |key: &str| object.annotations().get(key) == now.annotations().get(key);
        now.labels() == object.labels() && ours(OWNER)
    })
    .await?;
    Ok(())
}

async fn unchanged(tenant: &Tenant, volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Result<()> {
    let (same_volume, same_claim) = tenant.pair("data").await?;
    assert_eq!((same_volume.uid(), same_claim.uid()), (volume.uid(), claim.uid()));
    assert!(is_bound(&same_claim) && same_volume.metadata.deletion_timestamp.is_none());
    Ok(())
}

#[tokio::test]
async fn a_changed_reclaim_policy_is_set_back_so_that_data_stays_safe() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let (volume, claim) = tenant.pair("data").await?;
    let policy = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}});
    edit(&tenant.volumes(), &volume.name_any(), &policy).await?;
    until(&tenant.volumes(), &volume.name_any(), "is retained again", |volume| {
        let spec = volume.spec.as_ref();
        spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref()) == Some("Retain")
    })
    .await?;
    unchanged(&tenant, &volume, &claim).await
}

#[tokio::test]
async fn a_volume_that_was_cut_off_from_its_claim_serves_it_again() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let (volume, _) = tenant.pair("data").await?;
    edit(&tenant.volumes(), &volume.name_any(), &json!({"spec": {"claimRef": null}})).await?;
    // Kubernetes may be faster and bind the same two again, or both are made anew.
    aquifer_lab::eventually(DEADLINE, "a claim and a volume are bound to each other", || async {
        let (volume, claim) = tenant.pair("data").await?;
        let of =
            volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()).and_then(|claim| claim.uid.clone());
        let alive =
            volume.metadata.deletion_timestamp.is_none() && claim.metadata.deletion_timestamp.is_none();
        ensure!(alive && is_bound(&claim) && of == claim.uid(), "{volume:?}, {claim:?}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test]
async fn a_status_that_another_user_edits_is_corrected() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let (volume, claim) = tenant.pair("data").await?;
    let lies = json!({"status": {"phase": "Failed", "message": "nonsense", "claimRef": null, "claimUID": "x",
        "volumeRef": {"name": "other"}, "conditions": []}});
    let api = tenant.shared_volumes();
    api.patch_status("data", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(&lies)).await?;
    tenant
        .until("data", "is correct again", |shared| {
            let status = shared.status.clone().unwrap_or_default();
            is_ready(shared)
                && status.message.as_deref() == Some("")
                && status.claim_uid == claim.uid()
                && status.claim_ref.is_some_and(|claim| claim.name == "pvc-data")
                && status.volume_ref.and_then(|volume| volume.uid) == volume.uid()
        })
        .await?;
    unchanged(&tenant, &volume, &claim).await
}

#[tokio::test]
async fn our_finalizer_that_another_user_removes_comes_back() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    tenant.ready("data").await?;
    edit(&tenant.shared_volumes(), "data", &json!({"metadata": {"finalizers": null}})).await?;
    tenant.until("data", "is held again", |shared| !shared.finalizers().is_empty()).await?;
    Ok(())
}
