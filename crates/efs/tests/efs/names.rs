//! Names: long ones, equal ones, and those that another owner has taken.

use anyhow::Result;
use aquifer_efs::volumes::volume_name;
use aquifer_engine::Key;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use super::harness::{exclusive, installed_operator, shared};
use super::tenant::{ACCESS_POINT, Tenant, is_bound};

#[tokio::test]
async fn the_longest_name_that_kubernetes_allows_works() -> Result<()> {
    let tenant = Tenant::new().await?;
    let name = "n".repeat(253);
    tenant.create(&name, Some(ACCESS_POINT)).await?;
    let (volume, claim) = tenant.pair(&name).await?;
    assert!(is_bound(&claim));
    assert!(volume.name_any().len() <= 253 && claim.name_any().len() <= 253);
    tenant.delete(&name).await?;
    tenant.gone(&name).await?;
    tenant.empty().await
}

#[tokio::test]
async fn long_names_that_begin_alike_get_claims_of_their_own() -> Result<()> {
    let tenant = Tenant::new().await?;
    let names = ["a", "b"].map(|end| format!("{}{end}", "n".repeat(252)));
    for name in &names {
        tenant.create(name, Some(ACCESS_POINT)).await?;
    }
    let (one, two) = (tenant.pair(&names[0]).await?, tenant.pair(&names[1]).await?);
    assert_ne!(one.0.name_any(), two.0.name_any());
    assert_ne!(one.1.name_any(), two.1.name_any());
    Ok(())
}

#[tokio::test]
async fn names_that_meet_when_joined_to_their_namespaces_stay_apart() -> Result<()> {
    let cluster = &shared().await.cluster;
    let (left, right) =
        (Tenant::named(cluster, "names-a-b").await?, Tenant::named(cluster, "names-a").await?);
    left.create("c", Some(ACCESS_POINT)).await?;
    right.create("b-c", Some(ACCESS_POINT)).await?;
    let (one, two) = (left.pair("c").await?, right.pair("b-c").await?);
    assert_ne!(one.0.name_any(), two.0.name_any());
    assert!(is_bound(&one.1) && is_bound(&two.1));
    Ok(())
}

#[tokio::test]
async fn a_foreign_claim_in_the_way_is_reported_left_alone_and_waited_for() -> Result<()> {
    let tenant = Tenant::new().await?;
    let foreign: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": "pvc-data", "labels": {"app": "theirs"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "theirs",
            "resources": {"requests": {"storage": "5Gi"}}},
    }))?;
    let foreign = tenant.claims().create(&PostParams::default(), &foreign).await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let message = tenant.not_ready("data", "Conflict").await?;
    let at = format!("PersistentVolumeClaim {}/pvc-data", tenant.name);
    assert!(message.contains(&at), "{message}");
    let now = tenant.claims().get("pvc-data").await?;
    assert_eq!((now.uid(), &now.spec, now.labels()), (foreign.uid(), &foreign.spec, foreign.labels()));
    assert!(now.metadata.deletion_timestamp.is_none());
    tenant.claims().delete("pvc-data", &DeleteParams::default()).await?;
    let (_, claim) = tenant.pair("data").await?;
    assert!(is_bound(&claim));
    Ok(())
}

#[tokio::test]
async fn a_foreign_claim_in_the_way_does_not_keep_a_shared_volume_from_being_deleted() -> Result<()> {
    let tenant = Tenant::new().await?;
    let foreign: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": "pvc-data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "theirs",
            "resources": {"requests": {"storage": "5Gi"}}},
    }))?;
    let foreign = tenant.claims().create(&PostParams::default(), &foreign).await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    tenant.not_ready("data", "Conflict").await?;
    tenant.delete("data").await?;
    tenant.gone("data").await?;
    let now = tenant.claims().get("pvc-data").await?;
    assert_eq!((now.uid(), &now.metadata.deletion_timestamp), (foreign.uid(), &None));
    assert!(tenant.volumes_here().await?.is_empty(), "what we had begun is gone");
    Ok(())
}

#[tokio::test]
async fn a_foreign_volume_in_the_way_is_reported_left_alone_and_waited_for() -> Result<()> {
    // Where no other test has a claim that could take a free volume.
    let test = exclusive().await?;
    let operator = installed_operator(&test);
    let tenant = Tenant::on(&test.cluster).await?;
    let name = volume_name(&Key::namespaced(&tenant.name, "data"));
    let foreign: PersistentVolume = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": "efs-sc",
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": "efs.csi.aws.com", "volumeHandle": "fs-00000000aaaaaaaa"}},
    }))?;
    let foreign = tenant.volumes().create(&PostParams::default(), &foreign).await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let message = tenant.not_ready("data", "Conflict").await?;
    assert!(message.contains(&format!("PersistentVolume {name}")), "{message}");
    let now = tenant.volumes().get(&name).await?;
    assert_eq!((now.uid(), &now.spec), (foreign.uid(), &foreign.spec), "and nobody got its data");
    tenant.volumes().delete(&name, &DeleteParams::default()).await?;
    let (_, claim) = tenant.pair("data").await?;
    assert!(is_bound(&claim));
    tenant.delete("data").await?;
    tenant.gone("data").await?;
    operator.crash();
    Ok(())
}
