//! Mount options, read-only volumes, and claims whose name the spec chooses.

use anyhow::Result;
use aquifer_api::efs::{SharedVolume, SharedVolumeSpec};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use super::harness::{absent, edit, exclusive, installed_operator, show};
use super::tenant::{ACCESS_POINT, FILE_SYSTEM, OTHER_ACCESS_POINT, Tenant, is_bound};

/// Creates a SharedVolume with more than its two IDs.
async fn create_with(tenant: &Tenant, name: &str, more: &Value) -> Result<SharedVolume> {
    let mut spec = json!({"fileSystemID": FILE_SYSTEM, "accessPointID": ACCESS_POINT});
    for (field, value) in more.as_object().cloned().unwrap_or_default() {
        spec[field] = value;
    }
    let spec: SharedVolumeSpec = serde_json::from_value(spec)?;
    Ok(tenant.shared_volumes().create(&PostParams::default(), &SharedVolume::new(name, spec)).await?)
}

async fn change(tenant: &Tenant, name: &str, spec: &Value) -> Result<SharedVolume> {
    edit(&tenant.shared_volumes(), name, &json!({"spec": spec})).await
}

fn options(volume: &PersistentVolume) -> Vec<String> {
    volume.spec.clone().and_then(|spec| spec.mount_options).unwrap_or_default()
}

#[tokio::test]
async fn a_read_only_volume_is_one_that_nodes_mount_so_and_that_the_driver_accepts() -> Result<()> {
    let tenant = Tenant::new().await?;
    create_with(&tenant, "data", &json!({"readOnly": true, "mountOptions": ["timeo=150", "noatime"]}))
        .await?;
    let old = tenant.pair("data").await?;
    assert_eq!(options(&old.0), ["noatime", "ro", "timeo=150"]);
    // Kubernetes tells the driver the first mode, and the driver refuses ReadOnlyMany.
    assert_eq!(old.0.spec.clone().and_then(|spec| spec.access_modes).unwrap_or_default(), ["ReadWriteMany"]);
    assert!(is_bound(&old.1));
    // What means the same replaces nothing; what does not, does.
    change(&tenant, "data", &json!({"mountOptions": ["noatime", "timeo=150"]})).await?;
    tenant.create("later", None).await?;
    tenant.ready("later").await?;
    assert_eq!(tenant.pair("data").await?.0.uid(), old.0.uid());
    change(&tenant, "data", &json!({"readOnly": null, "mountOptions": null})).await?;
    let new = tenant.another_pair("data", &old).await?;
    assert_eq!(options(&new.0), [""; 0]);
    Ok(())
}

#[tokio::test]
async fn a_chosen_claim_is_there_under_its_name_and_a_change_of_it_waits_for_pods() -> Result<()> {
    let tenant = Tenant::new().await?;
    create_with(&tenant, "data", &json!({"claimName": "www-web-0"})).await?;
    let old = tenant.pair("data").await?;
    assert_eq!(old.1.name_any(), "www-web-0");
    tenant.pod("web-0", "www-web-0").await?;
    change(&tenant, "data", &json!({"claimName": "other"})).await?;
    let message = tenant.not_ready("data", "InUse").await?;
    assert!(message.contains("web-0"), "{message}");
    tenant.end_pod("web-0").await?;
    let new = tenant.another_pair("data", &old).await?;
    assert_eq!((new.1.name_any().as_str(), is_bound(&new.1)), ("other", true));
    assert_eq!(tenant.claims().get_opt("www-web-0").await?.map(|claim| show(&claim)), None);
    assert_eq!(tenant.volumes_here().await?.len(), 1);
    tenant.delete("data").await?;
    tenant.gone("data").await?;
    tenant.empty().await
}

#[tokio::test]
async fn of_two_that_want_one_claim_the_first_keeps_it_and_the_second_heals_when_it_goes() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("first", Some(ACCESS_POINT)).await?;
    let first = tenant.pair("first").await?;
    create_with(&tenant, "second", &json!({"accessPointID": OTHER_ACCESS_POINT, "claimName": "pvc-first"}))
        .await?;
    let message = tenant.not_ready("second", "Conflict").await?;
    assert!(message.contains("pvc-first") && message.contains("spec.claimName"), "{message}");
    assert_eq!(tenant.pair("first").await?.1.uid(), first.1.uid());
    tenant.delete("first").await?;
    tenant.gone("first").await?;
    let (volume, claim) = tenant.pair("second").await?;
    assert_eq!(claim.name_any(), "pvc-first");
    assert_ne!(claim.uid(), first.1.uid());
    let bound = volume.spec.and_then(|spec| spec.claim_ref).and_then(|reference| reference.uid);
    assert_eq!(bound, claim.uid());
    Ok(())
}

#[tokio::test]
async fn the_claim_of_an_earlier_spec_goes_although_the_operator_was_away_and_the_status_was_lost()
-> Result<()> {
    let test = exclusive().await?;
    let operator = installed_operator(&test);
    let tenant = Tenant::on(&test.cluster).await?;
    for name in ["kept", "volume-lost"] {
        create_with(&tenant, name, &json!({"claimName": format!("old-{name}")})).await?;
    }
    let kept = tenant.pair("kept").await?;
    let lost = tenant.pair("volume-lost").await?;
    operator.crash();
    for name in ["kept", "volume-lost"] {
        change(&tenant, name, &json!({"claimName": format!("new-{name}")})).await?;
        let forgotten = json!({"status": {"claimRef": null, "claimUID": null, "volumeRef": null}});
        let api = tenant.shared_volumes();
        api.patch_status(name, &kube::api::PatchParams::default(), &kube::api::Patch::Merge(&forgotten))
            .await?;
    }
    let gone = lost.0.name_any();
    tenant.volumes().delete(&gone, &DeleteParams::default()).await?;
    let _ = edit(&tenant.volumes(), &gone, &json!({"metadata": {"finalizers": null}})).await;
    let operator = installed_operator(&test);
    for (name, old) in [("kept", &kept), ("volume-lost", &lost)] {
        let new = tenant.another_pair(name, old).await?;
        assert_eq!(new.1.name_any(), format!("new-{name}"));
        absent(&format!("the old claim of {name}"), || async {
            Ok(tenant.claims().get_opt(&old.1.name_any()).await?.map(|claim| show(&claim)))
        })
        .await?;
    }
    for name in ["kept", "volume-lost"] {
        tenant.delete(name).await?;
        tenant.gone(name).await?;
    }
    tenant.empty().await?;
    operator.crash();
    Ok(())
}
