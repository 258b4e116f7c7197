//! Claims that users make with the names of ours: they are neither adopted nor deleted, whenever they come, and a SharedVolume
//! heals when they go.

use std::time::Duration;

use anyhow::{Result, ensure};
use aquifer_lab::install;
use aquifer_lab::kit::gone;
use aquifer_lab::proxy::{Fault, Select};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;

use super::harness::{DEADLINE, exclusive, proxied, shared, until, volumes_operator};
use super::tenant::{ACCESS_POINT, Tenant, is_bound};

const CLAIM: &str = "pvc-data";

/// A user makes a claim of this class with the name of ours.
async fn make_users_claim(tenant: &Tenant, class: &str) -> Result<PersistentVolumeClaim> {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM, "namespace": tenant.name},
        "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": class,
            "resources": {"requests": {"storage": "1Gi"}}}});
    install::apply(&tenant.client, claim).await?;
    Ok(tenant.claims().get(CLAIM).await?)
}

/// The claim is the user's as before, and the SharedVolume is Ready with its own when it has gone.
async fn stays_and_heals(tenant: &Tenant, theirs: &PersistentVolumeClaim) -> Result<()> {
    let message = tenant.not_ready("data", "Conflict").await?;
    assert!(message.contains(CLAIM), "{message}");
    let now = tenant.claims().get(CLAIM).await?;
    assert_eq!((now.uid(), now.labels()), (theirs.uid(), theirs.labels()), "it is as it was");
    assert!(now.metadata.deletion_timestamp.is_none(), "{now:?}");
    tenant.claims().delete(CLAIM, &DeleteParams::default()).await?;
    let (_, ours) = tenant.pair("data").await?;
    assert_ne!(ours.uid(), theirs.uid());
    Ok(())
}

#[tokio::test]
async fn a_pending_claim_that_is_there_before_is_left_alone_whatever_its_class() -> Result<()> {
    shared().await;
    for class in ["efs-sc", "another"] {
        let tenant = Tenant::new().await?;
        let theirs = make_users_claim(&tenant, class).await?;
        tenant.create("data", Some(ACCESS_POINT)).await?;
        tenant.not_ready("data", "Conflict").await?;
        assert_eq!(tenant.volumes_here().await?.len(), 0, "no volume is made that it could get");
        stays_and_heals(&tenant, &theirs).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_takes_the_place_of_ours_before_or_after_its_volume_is_made_gets_no_volume() -> Result<()>
{
    let test = exclusive().await?;
    let proxied = proxied(&test).await?;
    let operator = volumes_operator(&proxied);
    let refuse = |resource: &str| {
        proxied.proxy.inject(Fault::Refuse { select: Select::writes().resource(resource) });
    };
    for volume_is_made in [false, true] {
        let tenant = Tenant::on(&test.cluster).await?;
        refuse("persistentvolumes");
        tenant.create("data", Some(ACCESS_POINT)).await?;
        let ours = until(&tenant.claims(), CLAIM, "is made", |_| true).await?;
        assert_eq!(tenant.volumes_here().await?.len(), 0, "the claim comes first");
        if volume_is_made {
            // The annotation that makes Kubernetes look at the claim again cannot be written.
            proxied.proxy.clear();
            refuse("persistentvolumeclaims");
            aquifer_lab::eventually(DEADLINE, "the volume is made", || async {
                Ok((tenant.volumes_here().await?.len() == 1).then_some(()))
            })
            .await?;
        }
        tenant.claims().delete(CLAIM, &DeleteParams::default()).await?;
        gone(&tenant.claims(), CLAIM).await?;
        let theirs = make_users_claim(&tenant, "efs-sc").await?;
        assert_ne!(theirs.uid(), ours.uid());
        proxied.proxy.clear();
        tenant.not_ready("data", "Conflict").await?;
        let rests = proxied.proxy.wait_idle(Duration::from_millis(300), DEADLINE).await;
        ensure!(rests, "the operator never rests");
        let now = tenant.claims().get(CLAIM).await?;
        assert!(!is_bound(&now), "it gets no volume of ours: {now:?}");
        stays_and_heals(&tenant, &theirs).await?;
    }
    operator.crash();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_takes_the_place_of_ours_while_the_operator_is_away_is_left_alone() -> Result<()> {
    let test = exclusive().await?;
    let proxied = proxied(&test).await?;
    let operator = volumes_operator(&proxied);
    let tenant = Tenant::on(&test.cluster).await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    tenant.pair("data").await?;
    operator.crash();
    tenant.claims().delete(CLAIM, &DeleteParams::default()).await?;
    gone(&tenant.claims(), CLAIM).await?;
    let theirs = make_users_claim(&tenant, "efs-sc").await?;
    let operator = volumes_operator(&proxied);
    stays_and_heals(&tenant, &theirs).await?;
    operator.crash();
    Ok(())
}
