//! Namespaces beside each other, and people who have no other right than to edit one of them.

use anyhow::{Context as _, Result};
use aquifer_api::efs::SharedVolume;
use aquifer_lab::{eventually, install};
use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::harness::{DEADLINE, condition, shared};
use super::tenant::{ACCESS_POINT, FILE_SYSTEM, Tenant, handle, is_bound};

#[tokio::test]
async fn two_namespaces_share_one_access_point() -> Result<()> {
    let (one, two) = (Tenant::new().await?, Tenant::new().await?);
    one.create("data", Some(ACCESS_POINT)).await?;
    two.create("data", Some(ACCESS_POINT)).await?;
    let (first, second) = (one.pair("data").await?, two.pair("data").await?);
    assert_eq!(handle(&first.0), handle(&second.0));
    assert_ne!(first.0.name_any(), second.0.name_any());
    assert!(is_bound(&first.1) && is_bound(&second.1));
    for tenant in [&one, &two] {
        assert!(
            condition(&tenant.ready("data").await?, "Duplicate").is_none(),
            "other namespaces do not count"
        );
    }
    one.delete("data").await?;
    one.gone("data").await?;
    let still = two.pair("data").await?;
    assert_eq!(still.0.uid(), second.0.uid());
    Ok(())
}

#[tokio::test]
async fn a_duplicate_in_one_namespace_is_warned_about_on_both_as_long_as_it_lasts() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("one", Some(ACCESS_POINT)).await?;
    tenant.ready("one").await?;
    tenant.create("two", Some(ACCESS_POINT)).await?;
    for (name, twin) in [("one", "two"), ("two", "one")] {
        let sv = tenant.until(name, "names its twin", |sv| condition(sv, "Duplicate").is_some()).await?;
        let duplicate = condition(&sv, "Duplicate").context("no condition")?;
        assert_eq!(duplicate["status"], "True");
        assert!(duplicate["message"].as_str().unwrap_or_default().contains(twin), "{duplicate}");
        tenant.ready(name).await?;
    }
    tenant.delete("two").await?;
    tenant.gone("two").await?;
    tenant.until("one", "is alone again", |sv| condition(sv, "Duplicate").is_none()).await?;
    Ok(())
}

/// A user who may edit one namespace, by the built-in role, and nothing else.
async fn editor(tenant: &Tenant, user: &str) -> Result<Client> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "editor", "namespace": tenant.name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    install::apply(&tenant.client, binding).await?;
    let client = shared().await.cluster.client_as(user, &["system:authenticated"])?;
    let volumes: Api<SharedVolume> = Api::namespaced(client.clone(), &tenant.name);
    eventually(DEADLINE, "the role reaches its user", || async {
        volumes.list(&ListParams::default()).await?;
        Ok(Some(()))
    })
    .await?;
    Ok(client)
}

fn wish(name: &str, spec: &Value) -> Result<SharedVolume> {
    let mut wish = SharedVolume::new(name, serde_json::from_value(spec.clone())?);
    wish.metadata.name = Some(name.into());
    Ok(wish)
}

/// Events about a SharedVolume as its owner sees them.
async fn reported(client: &Client, tenant: &Tenant, name: &str, reason: &str) -> Result<Event> {
    let events: Api<Event> = Api::namespaced(client.clone(), &tenant.name);
    eventually(DEADLINE, &format!("an event {reason} about {name}"), || async {
        let all = events.list(&ListParams::default()).await?.items;
        let about = |event: &&Event| {
            event.involved_object.name.as_deref() == Some(name) && event.reason.as_deref() == Some(reason)
        };
        let found = all.iter().find(about).cloned();
        found.map(Some).with_context(|| format!("{} events, none of them", all.len()))
    })
    .await
}

#[tokio::test]
async fn who_may_edit_a_namespace_needs_nothing_else_for_a_shared_volume() -> Result<()> {
    let tenant = Tenant::new().await?;
    let client = editor(&tenant, "dana").await?;
    let volumes: Api<SharedVolume> = Api::namespaced(client.clone(), &tenant.name);
    let spec = json!({"fileSystemID": FILE_SYSTEM, "accessPointID": ACCESS_POINT});
    volumes.create(&PostParams::default(), &wish("data", &spec)?).await?;
    let (_, claim) = tenant.seen_by(client).ready("data").await.map(|sv| {
        let claim = sv.status.clone().unwrap_or_default().claim_ref.map(|claim| claim.name);
        (sv, claim)
    })?;
    assert_eq!(claim.as_deref(), Some("pvc-data"));
    volumes.delete("data", &kube::api::DeleteParams::default()).await?;
    tenant.gone("data").await?;
    let elsewhere: Api<SharedVolume> = Api::namespaced(volumes.into_client(), "default");
    let refused = elsewhere.create(&PostParams::default(), &wish("data", &spec)?).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 403));
    Ok(())
}

#[tokio::test]
async fn wrong_ids_are_refused_at_apply_with_words_that_help() -> Result<()> {
    let tenant = Tenant::new().await?;
    let client = editor(&tenant, "erin").await?;
    let volumes: Api<SharedVolume> = Api::namespaced(client, &tenant.name);
    let cases = [
        (json!({"fileSystemID": "vol-0123456789abcdef0"}), "must be an EFS file system ID"),
        (json!({"fileSystemID": "fs-XYZ"}), "for example fs-0123456789abcdef0"),
        (json!({"fileSystemID": ""}), "must be an EFS file system ID"),
        (
            json!({"fileSystemID": FILE_SYSTEM, "accessPointID": FILE_SYSTEM}),
            "must be an EFS access point ID",
        ),
        (json!({"fileSystemID": FILE_SYSTEM, "accessPointID": ""}), "leave the field out"),
    ];
    for (spec, words) in cases {
        let refused = volumes.create(&PostParams::default(), &wish("bad", &spec)?).await;
        let Err(kube::Error::Api(status)) = refused else { panic!("{spec} was not refused: {refused:?}") };
        assert_eq!(status.code, 422, "{spec}");
        assert!(status.message.contains(words), "{spec}: {}", status.message);
    }
    Ok(())
}

#[tokio::test]
async fn a_quota_in_the_way_is_reported_by_the_status_and_an_event_and_heals_when_it_is_lifted() -> Result<()>
{
    let tenant = Tenant::new().await?;
    let client = editor(&tenant, "finn").await?;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "none", "namespace": tenant.name},
        "spec": {"hard": {"persistentvolumeclaims": "0"}}});
    install::apply(&tenant.client, quota.clone()).await?;
    let quotas: Api<k8s_openapi::api::core::v1::ResourceQuota> =
        Api::namespaced(tenant.client.clone(), &tenant.name);
    super::harness::until(&quotas, "none", "is in force", |q| {
        q.status.as_ref().is_some_and(|s| s.hard.is_some())
    })
    .await?;
    let theirs = tenant.seen_by(client.clone());
    theirs.create("data", Some(ACCESS_POINT)).await?;
    let message = theirs.not_ready("data", "AccessDenied").await?;
    assert!(message.contains("exceeded quota: none") && message.contains("pvc-data"), "{message}");
    let sv = theirs.shared_volumes().get("data").await?;
    let status = serde_json::to_value(sv.status)?;
    assert_eq!((&status["phase"], &status["message"]), (&json!("Failed"), &json!(message)));
    let event = reported(&client, &tenant, "data", "AccessDenied").await?;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert!(event.message.unwrap_or_default().contains("exceeded quota"));
    quotas.delete("none", &kube::api::DeleteParams::default()).await?;
    let sv = theirs.ready("data").await?;
    assert_eq!(serde_json::to_value(sv.status)?["message"], "");
    Ok(())
}

#[tokio::test]
async fn pods_and_strangers_in_the_way_are_reported_by_events_too() -> Result<()> {
    let tenant = Tenant::new().await?;
    let client = editor(&tenant, "gwen").await?;
    let theirs = tenant.seen_by(client.clone());
    theirs.create("used", Some(ACCESS_POINT)).await?;
    theirs.ready("used").await?;
    tenant.pod("holder", "pvc-used").await?;
    theirs.delete("used").await?;
    let event = reported(&client, &tenant, "used", "InUse").await?;
    assert!(event.message.unwrap_or_default().contains("holder"));
    let foreign = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "pvc-taken", "namespace": tenant.name},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "theirs",
            "resources": {"requests": {"storage": "5Gi"}}}});
    install::apply(&tenant.client, foreign).await?;
    theirs.create("taken", None).await?;
    let event = reported(&client, &tenant, "taken", "Conflict").await?;
    assert!(event.message.unwrap_or_default().contains("pvc-taken"));
    // What is reported again is counted, not repeated.
    let forgotten = Patch::Merge(json!({"status": {"conditions": []}}));
    tenant.shared_volumes().patch_status("taken", &PatchParams::default(), &forgotten).await?;
    let events: Api<Event> = Api::namespaced(client.clone(), &tenant.name);
    eventually(DEADLINE, "the event is counted", || async {
        let all = events.list(&ListParams::default()).await?.items;
        let same: Vec<_> = all.iter().filter(|event| event.reason.as_deref() == Some("Conflict")).collect();
        let counted = |event: &Event| event.series.as_ref().is_some_and(|series| series.count >= Some(2));
        anyhow::ensure!(same.len() == 1 && counted(same[0]), "{same:?}");
        Ok(Some(()))
    })
    .await?;
    tenant.end_pod("holder").await?;
    tenant.gone("used").await
}
