//! SharedFileSystems decide who gets which data, on a real control plane.

use anyhow::{Context as _, Result};
use aquifer_api::efs::{SharedVolume, SharedVolumeSpec};
use aquifer_api::shared_file_system::{SharedFileSystem, SharedFileSystemStatus};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::harness::{condition, edit, shared, until};
use super::tenant::{ACCESS_POINT, OTHER_ACCESS_POINT, Tenant, handle};

/// A file system that no other test names.
const GUARDED: &str = "fs-0a110000000000001";

async fn ask(tenant: &Tenant, name: &str, access_point: Option<&str>) -> Result<()> {
    let spec = SharedVolumeSpec {
        file_system_id: GUARDED.into(),
        access_point_id: access_point.map(Into::into),
        ..SharedVolumeSpec::default()
    };
    let body = SharedVolume::new(name, spec);
    tenant.shared_volumes().create(&PostParams::default(), &body).await.context("create a SharedVolume")?;
    Ok(())
}

fn reason_of_allowed(shared: &SharedVolume) -> Value {
    condition(shared, "Allowed").map(|allowed| allowed["reason"].clone()).unwrap_or_default()
}

#[tokio::test]
async fn a_shared_file_system_says_who_gets_what_and_revoking_cuts_nothing() -> Result<()> {
    let test = shared().await;
    let (one, two) = (Tenant::new().await?, Tenant::new().await?);
    let policies: Api<SharedFileSystem> = Api::all(test.cluster.client()?);
    let spec = json!({"fileSystemID": GUARDED, "allowedNamespaces": {"names": [one.name]},
        "allowedAccessPoints": {"perNamespace": [{"namespace": one.name, "accessPoints": [ACCESS_POINT]}]}});
    let policy = SharedFileSystem::new("guarded", serde_json::from_value(spec)?);
    policies.create(&PostParams::default(), &policy).await?;

    ask(&one, "data", Some(ACCESS_POINT)).await?;
    ask(&one, "root", None).await?;
    ask(&one, "other", Some(OTHER_ACCESS_POINT)).await?;
    ask(&two, "data", Some(ACCESS_POINT)).await?;
    let pair = one.pair("data").await?;
    for (tenant, name, field) in [
        (&one, "root", "spec.allowRoot"),
        (&one, "other", "spec.allowedAccessPoints"),
        (&two, "data", "spec.allowedNamespaces"),
    ] {
        let said = tenant.not_ready(name, "NotAllowed").await?;
        assert!(said.contains(field) && said.contains("administrator"), "{said}");
    }
    assert_eq!(one.volumes_here().await?.len(), 1, "nothing is made for what is not allowed");
    assert!(two.volumes_here().await?.is_empty());
    until(&policies, "guarded", "says who uses it", |policy| {
        let SharedFileSystemStatus { shared_volumes, namespaces, .. } =
            policy.status.clone().unwrap_or_default();
        shared_volumes == Some(4) && namespaces.len() == 2
    })
    .await?;

    // The other namespace by a label that it gets.
    let selector = json!({"matchLabels": {"storage": two.name}});
    let allowed = json!({"perNamespace": [{"namespace": two.name, "accessPoints": [ACCESS_POINT]}]});
    let change = json!({"spec": {"allowedNamespaces": {"names": [], "selector": selector}, "allowedAccessPoints": allowed}});
    edit(&policies, "guarded", &change).await?;
    one.until("data", "is revoked", |shared| reason_of_allowed(shared) == "Revoked").await?;
    let still = one.pair("data").await?;
    assert_eq!((still.0.uid(), still.1.uid()), (pair.0.uid(), pair.1.uid()));
    let namespaces: Api<Namespace> = Api::all(test.cluster.client()?);
    edit(&namespaces, &two.name, &json!({"metadata": {"labels": {"storage": two.name}}})).await?;
    two.ready("data").await?;

    // What is revoked does not move, and moves when it is allowed.
    one.change("data", OTHER_ACCESS_POINT).await?;
    one.not_ready("data", "NotAllowed").await?;
    let still = one.claims().get(&pair.1.name_any()).await?;
    assert_eq!((still.uid(), still.metadata.deletion_timestamp), (pair.1.uid(), None));
    let change = json!({"spec": {"allowedNamespaces": {"selector": {"matchLabels": null}},
        "allowedAccessPoints": {"all": true, "perNamespace": null}, "allowRoot": true}});
    edit(&policies, "guarded", &change).await?;
    let moved = one.another_pair("data", &pair).await?;
    assert_eq!(handle(&moved.0), format!("{GUARDED}::{OTHER_ACCESS_POINT}"));
    one.ready("root").await?;
    let free = one.ready("other").await?;
    assert_eq!(reason_of_allowed(&free), "Allowed");
    Ok(())
}
