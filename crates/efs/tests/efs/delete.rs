//! Deleting a SharedVolume: it stays until claim and volume are really gone, and says what they wait for.

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::harness::{ACCESS_POINT, Corner, DEADLINE, absent, edit, lonely, show, until};

#[tokio::test]
async fn it_goes_only_after_claim_and_volume_are_gone() -> Result<()> {
    let corner = Corner::new().await?;
    corner.create("data", Some(ACCESS_POINT)).await?;
    let (volume, _) = corner.pair("data").await?;
    let held = json!({"metadata": {"finalizers": ["example.com/hold", "kubernetes.io/pv-protection"]}});
    edit(&corner.volumes(), &volume.name_any(), &held).await?;
    corner.delete("data").await?;
    let message = corner.not_ready("data", "InUse").await?;
    assert!(message.contains("example.com/hold") && message.contains(&volume.name_any()), "{message}");
    let sv = corner.shared_volumes().get("data").await?;
    assert_eq!(serde_json::to_value(sv.status)?["phase"], "Deleting");
    assert!(corner.claims().get_opt("pvc-data").await?.is_none(), "the claim had nothing to wait for");
    edit(&corner.volumes(), &volume.name_any(), &json!({"metadata": {"finalizers": null}})).await?;
    corner.gone("data").await?;
    assert!(corner.volumes().get_opt(&volume.name_any()).await?.is_none());
    Ok(())
}

#[tokio::test]
async fn pods_that_hold_the_claim_are_named_and_it_finishes_when_they_go() -> Result<()> {
    let corner = Corner::new().await?;
    corner.create("data", Some(ACCESS_POINT)).await?;
    corner.ready("data").await?;
    corner.pod("holder", "pvc-data").await?;
    corner.delete("data").await?;
    let message = corner.not_ready("data", "InUse").await?;
    assert!(message.contains("holder"), "{message}");
    assert!(corner.claims().get_opt("pvc-data").await?.is_some(), "the pod keeps what it has");
    corner.end_pod("holder").await?;
    corner.gone("data").await?;
    corner.empty().await
}

#[tokio::test]
async fn one_that_was_never_ready_goes_too() -> Result<()> {
    let corner = Corner::new().await?;
    corner.create("data", Some(ACCESS_POINT)).await?;
    corner.delete("data").await?;
    corner.gone("data").await?;
    corner.empty().await
}

#[tokio::test]
async fn deleting_the_namespace_takes_everything_with_it() -> Result<()> {
    let corner = Corner::new().await?;
    for name in ["one", "two", "three"] {
        corner.create(name, Some(ACCESS_POINT)).await?;
    }
    for name in ["one", "two", "three"] {
        corner.ready(name).await?;
    }
    corner.delete_namespace().await?;
    let namespaces: Api<Namespace> = Api::all(corner.client.clone());
    absent(&format!("namespace {}", corner.namespace), || async {
        Ok(namespaces.get_opt(&corner.namespace).await?.map(|namespace| show(&namespace)))
    })
    .await?;
    corner.empty().await
}

#[tokio::test]
async fn while_something_else_holds_the_namespace_nothing_comes_back() -> Result<()> {
    let corner = Corner::new().await?;
    corner.create("data", Some(ACCESS_POINT)).await?;
    corner.ready("data").await?;
    let maps: Api<ConfigMap> = Api::namespaced(corner.client.clone(), &corner.namespace);
    let anchor =
        serde_json::from_value(json!({"metadata": {"name": "anchor", "finalizers": ["example.com/hold"]}}))?;
    maps.create(&PostParams::default(), &anchor).await?;
    corner.delete_namespace().await?;
    corner.gone("data").await?;
    corner.empty().await?;
    // Something that the operator does later than all of that.
    let other = Corner::new().await?;
    other.create("later", None).await?;
    other.ready("later").await?;
    corner.empty().await?;
    edit(&maps, "anchor", &json!({"metadata": {"finalizers": null}})).await?;
    Ok(())
}

#[tokio::test]
async fn a_pair_that_dies_before_its_owner_in_a_dying_namespace_is_not_rebuilt() -> Result<()> {
    let ground = lonely().await;
    let operator = ground.operator();
    let corner = Corner::on(&ground.cluster).await?;
    corner.create("data", Some(ACCESS_POINT)).await?;
    let (volume, _) = corner.pair("data").await?;
    // Nobody empties the namespace now, nor lets go of what is deleted: we do both, claim and volume first.
    ground.cluster.stop_program("kube-controller-manager").await?;
    corner.delete_namespace().await?;
    corner.claims().delete("pvc-data", &DeleteParams::default()).await?;
    edit(&corner.claims(), "pvc-data", &json!({"metadata": {"finalizers": null}})).await?;
    let dying =
        |volume: &k8s_openapi::api::core::v1::PersistentVolume| volume.metadata.deletion_timestamp.is_some();
    until(&corner.volumes(), &volume.name_any(), "goes with its claim", dying).await?;
    edit(&corner.volumes(), &volume.name_any(), &json!({"metadata": {"finalizers": null}})).await?;
    corner.not_ready("data", "Terminating").await?;
    assert!(corner.volumes_here().await?.is_empty());
    ground.cluster.start_program("kube-controller-manager").await?;
    aquifer_lab::eventually(DEADLINE, "the namespace is gone", || async {
        let namespaces: Api<Namespace> = Api::all(corner.client.clone());
        Ok(namespaces.get_opt(&corner.namespace).await?.is_none().then_some(()))
    })
    .await?;
    operator.crash();
    Ok(())
}
