//! Making a SharedVolume: what its owner finds afterwards.

use std::time::{Duration, Instant};

use anyhow::Result;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::json;

use super::harness::{condition, shared};
use super::tenant::{ACCESS_POINT, FILE_SYSTEM, OTHER_ACCESS_POINT, Tenant, handle, is_bound};

#[tokio::test]
async fn with_an_access_point_the_volume_is_that_access_point() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let (volume, claim) = tenant.pair("data").await?;
    assert_eq!(handle(&volume), format!("{FILE_SYSTEM}::{ACCESS_POINT}"));
    assert!(is_bound(&claim));
    let spec = volume.spec.unwrap();
    assert_eq!(spec.persistent_volume_reclaim_policy.as_deref(), Some("Retain"), "data outlives its volume");
    assert_eq!(spec.access_modes.unwrap(), ["ReadWriteMany"]);
    Ok(())
}

#[tokio::test]
async fn without_an_access_point_the_root_of_the_file_system_is_mounted() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("root", None).await?;
    let (volume, claim) = tenant.pair("root").await?;
    assert_eq!(handle(&volume), FILE_SYSTEM);
    assert!(is_bound(&claim));
    Ok(())
}

#[tokio::test]
async fn the_status_names_claim_and_volume_and_is_about_this_generation() -> Result<()> {
    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let (volume, claim) = tenant.pair("data").await?;
    let sv = tenant.ready("data").await?;
    let status = serde_json::to_value(sv.status.as_ref())?;
    assert_eq!(status["phase"], "Ready");
    assert_eq!(status["message"], "", "there is nothing to report");
    assert_eq!(
        status["claimRef"],
        json!({"apiGroup": "", "kind": "PersistentVolumeClaim", "name": "pvc-data"})
    );
    assert_eq!(status["claimUID"], json!(claim.uid()));
    assert_eq!(status["volumeRef"], json!({"name": volume.name_any(), "uid": volume.uid()}));
    assert_eq!(status["observedGeneration"], json!(sv.metadata.generation));
    let ready = condition(&sv, "Ready").unwrap();
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("True"), &json!("Bound")));
    assert_eq!(ready["observedGeneration"], json!(sv.metadata.generation));
    assert!(condition(&sv, "DriverReady").is_some(), "the driver has its own condition: {status}");
    assert!(condition(&sv, "Duplicate").is_none() && condition(&sv, "Progressing").is_none(), "{status}");
    assert_eq!(sv.finalizers(), ["aquifer.storage/shared-volume"]);
    Ok(())
}

/// The lab's kube-controller-manager looks at waiting claims every 5 seconds; five SharedVolumes, one after the other, would need at least 20.
#[tokio::test]
async fn claims_are_bound_without_waiting_until_kubernetes_looks_at_them_again() -> Result<()> {
    let tenant = Tenant::new().await?;
    let begin = Instant::now();
    for name in ["a", "b", "c", "d", "e"] {
        tenant.create(name, Some(ACCESS_POINT)).await?;
        tenant.ready(name).await?;
    }
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
    Ok(())
}

#[tokio::test]
async fn kubectl_can_wait_for_it_and_shows_what_matters() -> Result<()> {
    let test = shared().await;
    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let kubectl = |arguments: &'static [&'static str]| {
        let mut command: tokio::process::Command = test.cluster.kubectl().into();
        command.args(["-n", &tenant.name]).args(arguments);
        async move {
            let done = command.output().await?;
            let said = String::from_utf8_lossy(&done.stdout).into_owned();
            anyhow::ensure!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
            Ok(said)
        }
    };
    kubectl(&["wait", "--for=condition=Ready", "--timeout=30s", "sharedvolume/data"]).await?;
    let table = kubectl(&["get", "sv"]).await?;
    for word in
        ["FILE SYSTEM", "ACCESS POINT", "PHASE", "CLAIM", FILE_SYSTEM, ACCESS_POINT, "Ready", "pvc-data"]
    {
        assert!(table.contains(word), "{word} is not in\n{table}");
    }
    Ok(())
}

#[tokio::test]
async fn a_strangers_claim_of_the_same_class_cannot_get_the_volume() -> Result<()> {
    let tenant = Tenant::new().await?;
    // It waits for any volume of its class and size before ours exists, in the namespace next door.
    let stranger = Tenant::new().await?;
    let wish: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": "greedy"},
        "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "efs-sc",
            "resources": {"requests": {"storage": "1Gi"}}},
    }))?;
    stranger.claims().create(&PostParams::default(), &wish).await?;
    for (name, access_point) in [("one", ACCESS_POINT), ("two", OTHER_ACCESS_POINT)] {
        tenant.create(name, Some(access_point)).await?;
        let (volume, claim) = tenant.pair(name).await?;
        let reference = volume.spec.unwrap().claim_ref.unwrap();
        assert_eq!((reference.namespace, reference.uid), (Some(tenant.name.clone()), claim.uid()));
    }
    let greedy = stranger.claims().get("greedy").await?;
    assert!(!is_bound(&greedy), "{greedy:?}");
    Ok(())
}
