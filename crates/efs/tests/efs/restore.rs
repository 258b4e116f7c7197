//! Backup and restore: pairs that a backup tool puts back are adopted, whatever comes first.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use aquifer_efs::volumes::Volumes;
use aquifer_lab::eventually;
use aquifer_lab::kit::gone;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::harness::{DEADLINE, absent, edit, exclusive, installed_operator, operator_with, show, until};
use super::tenant::{ACCESS_POINT, Tenant, is_bound};
use aquifer_lab::kit::TestCluster;

/// What is restored, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Shared,
    Volume,
    Claim,
}

use Part::{Claim, Shared, Volume};

/// A SharedVolume and its pair as Velero keeps them.
struct Backup {
    name: String,
    shared: Value,
    volume: Value,
    claim: Value,
}

/// An object as Velero puts it back: without what the server gives it, and without what binds a volume and a claim to each other.
fn saved<K: Serialize>(object: &K) -> Result<Value> {
    let mut saved = serde_json::to_value(object)?;
    let fields = saved.as_object_mut().context("no object")?;
    fields.remove("status");
    let metadata = saved["metadata"].as_object_mut().context("no metadata")?;
    for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "finalizers"]
    {
        metadata.remove(field);
    }
    saved["metadata"]["labels"]["velero.io/restore-name"] = json!("test");
    if let Some(annotations) = saved["metadata"]["annotations"].as_object_mut() {
        annotations.remove("pv.kubernetes.io/bind-completed");
        annotations.remove("pv.kubernetes.io/bound-by-controller");
    }
    if let Some(reference) = saved["spec"]["claimRef"].as_object_mut() {
        reference.remove("uid");
        reference.remove("resourceVersion");
    }
    Ok(saved)
}

impl Backup {
    /// Takes it.
    async fn take(tenant: &Tenant, name: &str) -> Result<Self> {
        let (volume, claim) = tenant.pair(name).await?;
        let shared = tenant.shared_volumes().get(name).await?;
        let mut shared_saved = saved(&shared)?;
        shared_saved["apiVersion"] = json!("aws-efs.managed.openshift.io/v1alpha1");
        shared_saved["kind"] = json!("SharedVolume");
        Ok(Self {
            name: name.to_owned(),
            shared: shared_saved,
            volume: saved(&volume)?,
            claim: saved(&claim)?,
        })
    }

    async fn restore(&self, tenant: &Tenant, part: Part) -> Result<()> {
        match part {
            Shared => put(&tenant.shared_volumes(), &self.shared).await,
            Volume => put(&tenant.volumes(), &self.volume).await,
            Claim => {
                put(&tenant.claims(), &self.claim).await?;
                // A workload comes back with it, and holds it from then on.
                tenant.pod(&format!("holder-{}", self.name), &format!("pvc-{}", self.name)).await
            }
        }
    }
}

/// Creates an object unless it is there, as Velero does.
async fn put<K>(api: &Api<K>, saved: &Value) -> Result<()>
where
    K: Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    match api.create(&PostParams::default(), &serde_json::from_value(saved.clone())?).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The disaster: all of it vanishes while no operator runs.
async fn lose(tenant: &Tenant, name: &str) -> Result<()> {
    let (volume, claim) = tenant.pair(name).await?;
    edit(&tenant.shared_volumes(), name, &json!({"metadata": {"finalizers": null}})).await?;
    tenant.delete(name).await?;
    tenant.claims().delete(&claim.name_any(), &DeleteParams::default()).await?;
    gone(&tenant.claims(), &claim.name_any()).await?;
    tenant.volumes().delete(&volume.name_any(), &DeleteParams::default()).await?;
    gone(&tenant.volumes(), &volume.name_any()).await
}

/// Takes a backup, loses everything, and gets it back in this order. The operator runs from the beginning of the restore, or from when so
/// many parts are back.
async fn restored(order: [Part; 3], starts_after: Option<usize>) -> Result<()> {
    let what = format!("{order:?}, the operator starts after {starts_after:?}");
    let test = exclusive().await?;
    let tenant = Tenant::on(&test.cluster).await?;
    let operator = installed_operator(&test);
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let backup = Backup::take(&tenant, "data").await?;
    operator.crash();
    lose(&tenant, "data").await?;

    let mut operator = None;
    let mark = test.cluster.audit().mark()?;
    for (at, part) in order.into_iter().enumerate() {
        if starts_after.is_none_or(|after| at >= after) && operator.is_none() {
            operator = Some(installed_operator(&test));
        }
        backup.restore(&tenant, part).await.with_context(|| what.clone())?;
        if operator.is_some() {
            test.settled().await?;
        }
    }
    let operator = operator.unwrap_or_else(|| installed_operator(&test));
    let (volume, claim) = tenant.pair("data").await.with_context(|| what.clone())?;
    assert!(is_bound(&claim), "{what}");
    let shared = tenant.ready("data").await?;
    for labels in [volume.labels(), claim.labels()] {
        assert_eq!(labels.get("aquifer.storage/owner-uid"), shared.uid().as_ref(), "{what}");
    }
    let deleted: Vec<_> = test
        .writes_since(mark)?
        .into_iter()
        .filter(|call| call.verb == "delete" && call.resource.starts_with("persistentvolume"))
        .collect();
    assert!(deleted.is_empty(), "{what}: {deleted:#?}");
    tenant.end_pod("holder-data").await?;
    tenant.delete("data").await?;
    tenant.gone("data").await?;
    tenant.empty().await?;
    operator.crash();
    Ok(())
}

#[tokio::test]
async fn a_pair_is_adopted_in_the_order_of_velero_volume_claim_pods_and_the_shared_volume_last() -> Result<()>
{
    Box::pin(restored([Volume, Claim, Shared], None)).await
}

#[tokio::test]
async fn a_pair_is_adopted_when_the_claim_comes_first() -> Result<()> {
    Box::pin(restored([Claim, Shared, Volume], None)).await
}

#[tokio::test]
async fn a_pair_is_adopted_when_the_shared_volume_comes_first() -> Result<()> {
    Box::pin(restored([Shared, Volume, Claim], None)).await
}

#[tokio::test]
async fn a_pair_is_adopted_when_the_operator_starts_in_the_midst_or_after_it() -> Result<()> {
    for (order, after) in
        [([Claim, Volume, Shared], 1), ([Volume, Claim, Shared], 2), ([Claim, Shared, Volume], 3)]
    {
        Box::pin(restored(order, Some(after))).await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_names_the_claim_of_the_backup_by_its_uid_is_made_anew() -> Result<()> {
    let test = exclusive().await?;
    let tenant = Tenant::on(&test.cluster).await?;
    let operator = installed_operator(&test);
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let mut backup = Backup::take(&tenant, "data").await?;
    let old = tenant.pair("data").await?;
    operator.crash();
    lose(&tenant, "data").await?;
    backup.volume["spec"]["claimRef"]["uid"] = json!(old.1.uid());
    put(&tenant.volumes(), &backup.volume).await?;
    put(&tenant.claims(), &backup.claim).await?;
    let name = old.0.name_any();
    until(&tenant.volumes(), &name, "is Released", |volume| {
        volume.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Released"))
    })
    .await?;
    let operator = installed_operator(&test);
    put(&tenant.shared_volumes(), &backup.shared).await?;
    let (_, claim) = tenant.pair("data").await?;
    assert!(is_bound(&claim));
    tenant.delete("data").await?;
    tenant.gone("data").await?;
    operator.crash();
    Ok(())
}

/// The volumes and claims of a namespace that are not being deleted.
async fn standing(tenant: &Tenant) -> Result<Vec<String>> {
    let volumes: Vec<PersistentVolume> = tenant.volumes_here().await?;
    let claims: Vec<PersistentVolumeClaim> = tenant.claims().list(&ListParams::default()).await?.items;
    let stays = |metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
        metadata.deletion_timestamp.is_none()
    };
    let volumes = volumes.iter().filter(|one| stays(&one.metadata)).map(show);
    Ok(volumes.chain(claims.iter().filter(|one| stays(&one.metadata)).map(show)).collect())
}

/// Starts an operator and waits until it has looked at everything and rests.
async fn looked_at(test: &TestCluster, grace: Duration) -> Result<super::harness::Operator> {
    let operator = operator_with(test, Volumes { grace, ..Volumes::default() });
    eventually(DEADLINE, "the operator has looked at what is left", || async {
        ensure!(super::harness::passes(&operator) >= 2, "{} passes", super::harness::passes(&operator));
        Ok(Some(()))
    })
    .await?;
    test.settled().await?;
    Ok(operator)
}

#[tokio::test]
async fn what_is_left_without_a_shared_volume_stays_for_its_time_and_then_goes() -> Result<()> {
    let test = exclusive().await?;
    let tenant = Tenant::on(&test.cluster).await?;
    let operator = installed_operator(&test);
    for name in ["whole", "half"] {
        tenant.create(name, Some(ACCESS_POINT)).await?;
    }
    let half = Backup::take(&tenant, "half").await?;
    tenant.pair("whole").await?;
    operator.crash();
    edit(&tenant.shared_volumes(), "whole", &json!({"metadata": {"finalizers": null}})).await?;
    tenant.delete("whole").await?;
    lose(&tenant, "half").await?;
    put(&tenant.claims(), &half.claim).await?;
    let before = standing(&tenant).await?;
    assert_eq!(before.len(), 3, "{before:?}");
    let operator = looked_at(&test, Duration::from_hours(1)).await?;
    assert_eq!(standing(&tenant).await?.len(), 3, "they are young");
    operator.crash();
    let operator = operator_with(&test, Volumes { grace: Duration::from_secs(1), ..Volumes::default() });
    absent("what is left", || async {
        let left = standing(&tenant).await?;
        Ok((!left.is_empty()).then(|| left.join("\n")))
    })
    .await?;
    operator.crash();
    Ok(())
}
