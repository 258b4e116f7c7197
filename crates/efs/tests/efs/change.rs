//! Changing a SharedVolume: volume and claim cannot be changed, so both are replaced, as soon as nobody holds them.

use anyhow::Result;
use kube::ResourceExt;
use kube::api::PatchParams;
use serde_json::json;

use super::harness::{edit, until};
use super::tenant::{ACCESS_POINT, FILE_SYSTEM, OTHER_ACCESS_POINT, Tenant, handle, is_bound};

#[tokio::test]
async fn another_access_point_replaces_the_pair_at_once() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let old = tenant.pair("data").await?;
    tenant.change("data", OTHER_ACCESS_POINT).await?;
    let (volume, claim) = tenant.another_pair("data", &old).await?;
    assert_eq!(handle(&volume), format!("{FILE_SYSTEM}::{OTHER_ACCESS_POINT}"));
    assert!(is_bound(&claim));
    assert_eq!(tenant.volumes_here().await?.len(), 1, "the old volume is gone");
    Ok(())
}

#[tokio::test]
async fn another_file_system_and_a_dropped_access_point_replace_it_too() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let old = tenant.pair("data").await?;
    let other = json!({"spec": {"fileSystemID": "fs-00000000ffffffff", "accessPointID": null}});
    edit(&tenant.shared_volumes(), "data", &other).await?;
    let (volume, _) = tenant.another_pair("data", &old).await?;
    assert_eq!(handle(&volume), "fs-00000000ffffffff");
    Ok(())
}

#[tokio::test]
async fn an_edit_that_means_the_same_data_replaces_nothing() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let (volume, claim) = tenant.pair("data").await?;
    let patch = json!({"apiVersion": "aws-efs.managed.openshift.io/v1alpha1", "kind": "SharedVolume",
        "metadata": {"labels": {"team": "blue"}}, "spec": {"fileSystemID": FILE_SYSTEM, "accessPointID": ACCESS_POINT}});
    let apply = PatchParams::apply("another-user").force();
    tenant.shared_volumes().patch("data", &apply, &kube::api::Patch::Apply(&patch)).await?;
    // Something that the operator does later than it saw the edit.
    tenant.create("later", None).await?;
    tenant.ready("later").await?;
    let (same_volume, same_claim) = tenant.pair("data").await?;
    assert_eq!((volume.uid(), claim.uid()), (same_volume.uid(), same_claim.uid()));
    Ok(())
}

#[tokio::test]
async fn while_pods_hold_the_old_pair_the_status_names_them_and_it_finishes_when_they_go() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let old = tenant.pair("data").await?;
    tenant.pod("writer", "pvc-data").await?;
    tenant.pod("reader", "pvc-data").await?;
    tenant.change("data", OTHER_ACCESS_POINT).await?;
    // The deletion is asked for at once: no new pod can take the old pair.
    until(&tenant.claims(), "pvc-data", "is being deleted", |claim| {
        claim.metadata.deletion_timestamp.is_some()
    })
    .await?;
    let message = tenant.not_ready("data", "InUse").await?;
    assert!(message.contains("reader, writer"), "{message}");
    assert_eq!(tenant.claims().get("pvc-data").await?.uid(), old.1.uid(), "pods keep what they have");
    tenant.end_pod("writer").await?;
    tenant.end_pod("reader").await?;
    let (volume, _) = tenant.another_pair("data", &old).await?;
    assert_eq!(handle(&volume), format!("{FILE_SYSTEM}::{OTHER_ACCESS_POINT}"));
    Ok(())
}

#[tokio::test]
async fn a_change_that_is_taken_back_meanwhile_still_rebuilds_the_pair() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let old = tenant.pair("data").await?;
    tenant.pod("holder", "pvc-data").await?;
    tenant.change("data", OTHER_ACCESS_POINT).await?;
    tenant.not_ready("data", "InUse").await?;
    let sv = tenant.change("data", ACCESS_POINT).await?;
    // A deletion cannot be taken back, and the status does not pretend that it could.
    let seen = tenant.until("data", "has seen the change back", |shared| {
        shared.status.as_ref().is_some_and(|status| status.observed_generation == sv.metadata.generation)
    });
    assert_ne!(serde_json::to_value(seen.await?.status)?["phase"], "Ready");
    tenant.not_ready("data", "InUse").await?;
    tenant.end_pod("holder").await?;
    let (volume, claim) = tenant.another_pair("data", &old).await?;
    assert_eq!(handle(&volume), format!("{FILE_SYSTEM}::{ACCESS_POINT}"));
    assert!(is_bound(&claim));
    Ok(())
}
