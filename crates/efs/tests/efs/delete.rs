//! Deleting a SharedVolume: it stays until claim and volume are really gone, and says what they wait for.

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::harness::{DEADLINE, absent, edit, exclusive, installed_operator, show, until};
use super::tenant::{ACCESS_POINT, Tenant};

#[tokio::test]
async fn it_goes_only_after_claim_and_volume_are_gone() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let (volume, _) = tenant.pair("data").await?;
    let held = json!({"metadata": {"finalizers": ["example.com/hold", "kubernetes.io/pv-protection"]}});
    edit(&tenant.volumes(), &volume.name_any(), &held).await?;
    tenant.delete("data").await?;
    let message = tenant.not_ready("data", "InUse").await?;
    assert!(message.contains("example.com/hold") && message.contains(&volume.name_any()), "{message}");
    let sv = tenant.shared_volumes().get("data").await?;
    assert_eq!(serde_json::to_value(sv.status)?["phase"], "Deleting");
    assert!(tenant.claims().get_opt("pvc-data").await?.is_none(), "the claim had nothing to wait for");
    edit(&tenant.volumes(), &volume.name_any(), &json!({"metadata": {"finalizers": null}})).await?;
    tenant.gone("data").await?;
    assert!(tenant.volumes().get_opt(&volume.name_any()).await?.is_none());
    Ok(())
}

#[tokio::test]
async fn pods_that_hold_the_claim_are_named_and_it_finishes_when_they_go() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    tenant.ready("data").await?;
    tenant.pod("holder", "pvc-data").await?;
    tenant.delete("data").await?;
    let message = tenant.not_ready("data", "InUse").await?;
    assert!(message.contains("holder"), "{message}");
    assert!(tenant.claims().get_opt("pvc-data").await?.is_some(), "the pod keeps what it has");
    tenant.end_pod("holder").await?;
    tenant.gone("data").await?;
    tenant.empty().await
}

#[tokio::test]
async fn one_that_was_never_ready_goes_too() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    tenant.delete("data").await?;
    tenant.gone("data").await?;
    tenant.empty().await
}

#[tokio::test]
async fn deleting_the_namespace_takes_everything_with_it() -> Result<()> {
    let tenant = Tenant::new().await?;
    for name in ["one", "two", "three"] {
        tenant.create(name, Some(ACCESS_POINT)).await?;
    }
    for name in ["one", "two", "three"] {
        tenant.ready(name).await?;
    }
    tenant.delete_namespace().await?;
    let namespaces: Api<Namespace> = Api::all(tenant.client.clone());
    absent(&format!("namespace {}", tenant.name), || async {
        Ok(namespaces.get_opt(&tenant.name).await?.map(|namespace| show(&namespace)))
    })
    .await?;
    tenant.empty().await
}

#[tokio::test]
async fn while_something_else_holds_the_namespace_nothing_comes_back() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    tenant.ready("data").await?;
    let maps: Api<ConfigMap> = Api::namespaced(tenant.client.clone(), &tenant.name);
    let anchor =
        serde_json::from_value(json!({"metadata": {"name": "anchor", "finalizers": ["example.com/hold"]}}))?;
    maps.create(&PostParams::default(), &anchor).await?;
    tenant.delete_namespace().await?;
    tenant.gone("data").await?;
    tenant.empty().await?;
    // Something that the operator does later than all of that.
    let other = Tenant::new().await?;
    other.create("later", None).await?;
    other.ready("later").await?;
    tenant.empty().await?;
    edit(&maps, "anchor", &json!({"metadata": {"finalizers": null}})).await?;
    Ok(())
}

#[tokio::test]
async fn a_pair_that_dies_before_its_owner_in_a_dying_namespace_is_not_rebuilt() -> Result<()> {
    let test = exclusive().await?;
    let operator = installed_operator(&test);
    let tenant = Tenant::on(&test.cluster).await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let (volume, _) = tenant.pair("data").await?;
    // Nobody empties the namespace now, nor lets go of what is deleted: we do both, claim and volume first.
    test.cluster.stop_program("kube-controller-manager").await?;
    tenant.delete_namespace().await?;
    tenant.claims().delete("pvc-data", &DeleteParams::default()).await?;
    edit(&tenant.claims(), "pvc-data", &json!({"metadata": {"finalizers": null}})).await?;
    let dying =
        |volume: &k8s_openapi::api::core::v1::PersistentVolume| volume.metadata.deletion_timestamp.is_some();
    until(&tenant.volumes(), &volume.name_any(), "goes with its claim", dying).await?;
    edit(&tenant.volumes(), &volume.name_any(), &json!({"metadata": {"finalizers": null}})).await?;
    tenant.not_ready("data", "Terminating").await?;
    assert!(tenant.volumes_here().await?.is_empty());
    test.cluster.start_program("kube-controller-manager").await?;
    aquifer_lab::eventually(DEADLINE, "the namespace is gone", || async {
        let namespaces: Api<Namespace> = Api::all(tenant.client.clone());
        Ok(namespaces.get_opt(&tenant.name).await?.is_none().then_some(()))
    })
    .await?;
    operator.crash();
    Ok(())
}
