//! Changing a SharedVolume: volume and claim cannot be changed, so both are replaced, as soon as nobody holds them.

use anyhow::Result;
use kube::ResourceExt;
use kube::api::PatchParams;
use serde_json::json;

use super::harness::{ACCESS_POINT, Corner, FILE_SYSTEM, OTHER_ACCESS_POINT, edit, handle, is_bound, until};

#[tokio::test]
async fn another_access_point_replaces_the_pair_at_once() -> Result<()> {
    let corner = Corner::new().await?;
    corner.create("data", Some(ACCESS_POINT)).await?;
    let old = corner.pair("data").await?;
    corner.change("data", OTHER_ACCESS_POINT).await?;
    let (volume, claim) = corner.another_pair("data", &old).await?;
    assert_eq!(handle(&volume), format!("{FILE_SYSTEM}::{OTHER_ACCESS_POINT}"));
    assert!(is_bound(&claim));
    assert_eq!(corner.volumes_here().await?.len(), 1, "the old volume is gone");
    Ok(())
}

#[tokio::test]
async fn another_file_system_and_a_dropped_access_point_replace_it_too() -> Result<()> {
    let corner = Corner::new().await?;
    corner.create("data", Some(ACCESS_POINT)).await?;
    let old = corner.pair("data").await?;
    let other = json!({"spec": {"fileSystemID": "fs-00000000ffffffff", "accessPointID": null}});
    edit(&corner.shared_volumes(), "data", &other).await?;
    let (volume, _) = corner.another_pair("data", &old).await?;
    assert_eq!(handle(&volume), "fs-00000000ffffffff");
    Ok(())
}

#[tokio::test]
async fn an_edit_that_means_the_same_data_replaces_nothing() -> Result<()> {
    let corner = Corner::new().await?;
    corner.create("data", Some(ACCESS_POINT)).await?;
    let (volume, claim) = corner.pair("data").await?;
    let patch = json!({"apiVersion": "aws-efs.managed.openshift.io/v1alpha1", "kind": "SharedVolume",
        "metadata": {"labels": {"team": "blue"}}, "spec": {"fileSystemID": FILE_SYSTEM, "accessPointID": ACCESS_POINT}});
    let apply = PatchParams::apply("somebody").force();
    corner.shared_volumes().patch("data", &apply, &kube::api::Patch::Apply(&patch)).await?;
    // Something that the operator does later than it saw the edit.
    corner.create("later", None).await?;
    corner.ready("later").await?;
    let (same_volume, same_claim) = corner.pair("data").await?;
    assert_eq!((volume.uid(), claim.uid()), (same_volume.uid(), same_claim.uid()));
    Ok(())
}

#[tokio::test]
async fn while_pods_hold_the_old_pair_the_status_names_them_and_it_finishes_when_they_go() -> Result<()> {
    let corner = Corner::new().await?;
    corner.create("data", Some(ACCESS_POINT)).await?;
    let old = corner.pair("data").await?;
    corner.pod("writer", "pvc-data").await?;
    corner.pod("reader", "pvc-data").await?;
    corner.change("data", OTHER_ACCESS_POINT).await?;
    // The deletion is asked for at once: no new pod can take the old pair.
    until(&corner.claims(), "pvc-data", "is being deleted", |claim| {
        claim.metadata.deletion_timestamp.is_some()
    })
    .await?;
    let message = corner.not_ready("data", "InUse").await?;
    assert!(message.contains("reader, writer"), "{message}");
    assert_eq!(corner.claims().get("pvc-data").await?.uid(), old.1.uid(), "pods keep what they have");
    corner.end_pod("writer").await?;
    corner.end_pod("reader").await?;
    let (volume, _) = corner.another_pair("data", &old).await?;
    assert_eq!(handle(&volume), format!("{FILE_SYSTEM}::{OTHER_ACCESS_POINT}"));
    Ok(())
}

#[tokio::test]
async fn a_change_that_is_taken_back_meanwhile_still_rebuilds_the_pair() -> Result<()> {
    let corner = Corner::new().await?;
    corner.create("data", Some(ACCESS_POINT)).await?;
    let old = corner.pair("data").await?;
    corner.pod("holder", "pvc-data").await?;
    corner.change("data", OTHER_ACCESS_POINT).await?;
    corner.not_ready("data", "InUse").await?;
    let sv = corner.change("data", ACCESS_POINT).await?;
    // A deletion cannot be taken back, and the status does not pretend that it could.
    let seen = corner.until("data", "has seen the change back", |shared| {
        shared.status.as_ref().is_some_and(|status| status.observed_generation == sv.metadata.generation)
    });
    assert_ne!(serde_json::to_value(seen.await?.status)?["phase"], "Ready");
    corner.not_ready("data", "InUse").await?;
    corner.end_pod("holder").await?;
    let (volume, claim) = corner.another_pair("data", &old).await?;
    assert_eq!(handle(&volume), format!("{FILE_SYSTEM}::{ACCESS_POINT}"));
    assert!(is_bound(&claim));
    Ok(())
}
