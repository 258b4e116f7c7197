//! The defects of aws-efs-operator that concern volumes, one test each. Those of its driver are with the driver's tests.

use anyhow::{Context as _, Result};
use aquifer_api::efs::{SharedVolume, SharedVolumeSpec};
use aquifer_efs::names::labels;
use aquifer_efs::volumes::Volumes;
use aquifer_lab::install;
use k8s_openapi::api::core::v1::LimitRange;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::harness::{edit, exclusive, installed_operator, operator_with, shared, until};
use super::tenant::{ACCESS_POINT, FILE_SYSTEM, OTHER_ACCESS_POINT, Tenant, handle, is_bound};

#[tokio::test]
async fn defect_1_tenants_whose_names_collide_got_each_others_data() -> Result<()> {
    let cluster = &shared().await.cluster;
    let (left, right) = (Tenant::named(cluster, "a-b").await?, Tenant::named(cluster, "a").await?);
    left.create("c", Some(ACCESS_POINT)).await?;
    let first = left.pair("c").await?;
    right.create("b-c", Some(OTHER_ACCESS_POINT)).await?;
    let second = right.pair("b-c").await?;
    assert_eq!(handle(&first.0), format!("{FILE_SYSTEM}::{ACCESS_POINT}"));
    assert_eq!(handle(&second.0), format!("{FILE_SYSTEM}::{OTHER_ACCESS_POINT}"));
    let spec = right.shared_volumes().get("b-c").await?.spec;
    assert_eq!(spec.access_point_id.as_deref(), Some(OTHER_ACCESS_POINT), "nobody's wish is overwritten");
    right.delete("b-c").await?;
    right.gone("b-c").await?;
    let (volume, claim) = left.pair("c").await?;
    assert_eq!((volume.uid(), volume.metadata.deletion_timestamp), (first.0.uid(), None));
    assert!(is_bound(&claim));
    Ok(())
}

#[tokio::test]
async fn defect_2_recreated_with_other_ids_while_the_old_volume_was_dying_it_got_the_old_data() -> Result<()>
{
    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let old = tenant.pair("data").await?;
    let name = old.0.name_any();
    let held = json!({"metadata": {"finalizers": ["example.com/hold", "kubernetes.io/pv-protection"]}});
    edit(&tenant.volumes(), &name, &held).await?;
    tenant.delete("data").await?;
    until(&tenant.volumes(), &name, "is dying", |volume| volume.metadata.deletion_timestamp.is_some())
        .await?;
    // As long as it dies, the name is taken ...
    let body = SharedVolume::new(
        "data",
        SharedVolumeSpec {
            file_system_id: FILE_SYSTEM.into(),
            access_point_id: Some(OTHER_ACCESS_POINT.into()),
            ..SharedVolumeSpec::default()
        },
    );
    let taken = tenant.shared_volumes().create(&PostParams::default(), &body).await;
    assert!(matches!(taken, Err(kube::Error::Api(status)) if status.code == 409));
    // ... and if another user deletes the old one by force, the new one waits for the dying volume instead of using it.
    edit(&tenant.shared_volumes(), "data", &json!({"metadata": {"finalizers": null}})).await?;
    tenant.gone("data").await?;
    tenant.shared_volumes().create(&PostParams::default(), &body).await?;
    let message = tenant.not_ready("data", "InUse").await?;
    assert!(message.contains("example.com/hold"), "{message}");
    edit(&tenant.volumes(), &name, &json!({"metadata": {"finalizers": null}})).await?;
    let (volume, claim) = tenant.another_pair("data", &old).await?;
    assert_eq!(handle(&volume), format!("{FILE_SYSTEM}::{OTHER_ACCESS_POINT}"));
    assert!(is_bound(&claim));
    Ok(())
}

#[tokio::test]
async fn defect_3_names_over_63_characters_failed_for_ever() -> Result<()> {
    let tenant = Tenant::new().await?;
    for length in [63, 64, 100] {
        let name = "n".repeat(length);
        tenant.create(&name, None).await?;
        let (_, claim) = tenant.pair(&name).await?;
        assert!(is_bound(&claim), "{length} characters");
    }
    Ok(())
}

#[tokio::test]
async fn defect_4_the_message_of_a_failure_stayed_after_it_had_gone() -> Result<()> {
    let tenant = Tenant::new().await?;
    let limits = json!({"apiVersion": "v1", "kind": "LimitRange",
        "metadata": {"name": "big", "namespace": tenant.name},
        "spec": {"limits": [{"type": "PersistentVolumeClaim", "min": {"storage": "2Gi"}}]}});
    install::apply(&tenant.client, limits).await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let message = tenant.not_ready("data", "AccessDenied").await?;
    assert!(message.contains("minimum storage usage per PersistentVolumeClaim is 2Gi"), "{message}");
    let api: Api<LimitRange> = Api::namespaced(tenant.client.clone(), &tenant.name);
    api.delete("big", &DeleteParams::default()).await?;
    let status = tenant.ready("data").await?.status.context("no status")?;
    assert_eq!(status.message.as_deref(), Some(""));
    Ok(())
}

#[tokio::test]
async fn defect_5_what_was_removed_while_the_operator_was_away_left_orphans_that_came_back() -> Result<()> {
    let test = exclusive().await?;
    let tenant = Tenant::on(&test.cluster).await?;
    let operator = installed_operator(&test);
    for name in ["gone", "back"] {
        tenant.create(name, Some(ACCESS_POINT)).await?;
    }
    let (gone, back) = (tenant.pair("gone").await?, tenant.pair("back").await?);
    operator.crash();
    for name in ["gone", "back"] {
        edit(&tenant.shared_volumes(), name, &json!({"metadata": {"finalizers": null}})).await?;
        tenant.delete(name).await?;
        tenant.gone(name).await?;
    }
    tenant.create("back", Some(OTHER_ACCESS_POINT)).await?;
    // What is young would stay for an hour: it may come from a backup.
    let grace = std::time::Duration::from_secs(5);
    let operator = operator_with(&test, Volumes { grace, ..Volumes::default() });
    let (volume, claim) = tenant.another_pair("back", &back).await?;
    assert_eq!(handle(&volume), format!("{FILE_SYSTEM}::{OTHER_ACCESS_POINT}"));
    assert!(is_bound(&claim));
    super::harness::absent("the orphaned pair", || async {
        let volume = tenant.volumes().get_opt(&gone.0.name_any()).await?.map(|o| super::harness::show(&o));
        let claim = tenant.claims().get_opt(&gone.1.name_any()).await?.map(|o| super::harness::show(&o));
        Ok(volume.or(claim))
    })
    .await?;
    tenant.delete("back").await?;
    tenant.gone("back").await?;
    operator.crash();
    Ok(())
}

#[tokio::test]
async fn defect_6_an_edited_owner_label_was_never_repaired() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    tenant.create("other", None).await?;
    let (volume, claim) = tenant.pair("data").await?;
    let other = tenant.pair("other").await?;
    let edited = json!({"metadata": {"labels": {labels::OWNER_NAME: "other"}}});
    edit(&tenant.claims(), "pvc-data", &edited).await?;
    edit(&tenant.volumes(), &volume.name_any(), &edited).await?;
    let right = |labels: &std::collections::BTreeMap<String, String>| {
        labels.get(labels::OWNER_NAME) == Some(&"data".into())
    };
    until(&tenant.claims(), "pvc-data", "is labelled right again", |claim| right(claim.labels())).await?;
    until(&tenant.volumes(), &volume.name_any(), "is labelled right again", |volume| right(volume.labels()))
        .await?;
    let (now, now_other) = (tenant.pair("data").await?, tenant.pair("other").await?);
    assert_eq!((now.0.uid(), now.1.uid()), (volume.uid(), claim.uid()));
    assert_eq!((now_other.0.uid(), now_other.1.uid()), (other.0.uid(), other.1.uid()));
    Ok(())
}
