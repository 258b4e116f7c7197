//! What somebody who may edit one namespace tries on others, and on the operator: forged marks, volumes of other tenants, giant
//! annotations, finalizers that never go, floods of equal SharedVolumes and of edits. Each does harm to nobody but whoever tries it.

use anyhow::Result;
use aquifer_efs::names::labels;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::harness::{edit, exclusive, installed_operator};
use super::tenant::{ACCESS_POINT, OTHER_ACCESS_POINT, Tenant, handle, is_bound};

/// Makes a claim that asks for a volume, with whatever metadata.
async fn make_claim(tenant: &Tenant, metadata: Value, volume: &str) -> Result<PersistentVolumeClaim> {
    let claim = json!({"metadata": metadata, "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "efs-sc",
        "volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}}});
    Ok(tenant.claims().create(&PostParams::default(), &serde_json::from_value(claim)?).await?)
}

#[tokio::test]
async fn forged_marks_and_claims_on_other_tenants_volumes_reach_nobody_else() -> Result<()> {
    let test = exclusive().await?;
    let operator = installed_operator(&test);
    let (victim, thief) = (Tenant::on(&test.cluster).await?, Tenant::on(&test.cluster).await?);
    victim.create("data", Some(ACCESS_POINT)).await?;
    thief.create("data", Some(OTHER_ACCESS_POINT)).await?;
    let (theirs, own) = (victim.pair("data").await?, thief.pair("data").await?);
    let shared = victim.ready("data").await?;
    test.settled().await?;
    let mark = test.cluster.audit().mark()?;

    // Every mark of the victim's claim, in another namespace, on the victim's volume: with a name of its own, and with the name of a
    // claim that a SharedVolume of the thief asks for.
    let marks = json!({"labels": {labels::OWNED: "true", labels::OWNER_NAMESPACE: victim.name, labels::OWNER_NAME: "data",
            "aquifer.storage/owner-uid": shared.uid()},
        "annotations": {"aquifer.storage/owner": format!("{}/data", victim.name),
            "pv.kubernetes.io/bind-completed": "yes"}});
    let named = |name: &str| {
        let mut metadata = marks.clone();
        metadata["name"] = json!(name);
        metadata
    };
    let volume = theirs.0.name_any();
    make_claim(&thief, named("pvc-data-2"), &volume).await?;
    make_claim(&thief, named("pvc-wanted"), &volume).await?;
    thief.create("wanted", Some(OTHER_ACCESS_POINT)).await?;
    thief.not_ready("wanted", "Conflict").await?;
    // The thief's own marks on a claim that asks for the victim's volume.
    let mut metadata =
        json!({"name": "pvc-own", "labels": own.1.labels(), "annotations": own.1.annotations()});
    metadata["annotations"]["aquifer.storage/owner"] = json!(format!("{}/own", thief.name));
    make_claim(&thief, metadata, &volume).await?;
    thief.create("own", Some(OTHER_ACCESS_POINT)).await?;
    thief.ready("own").await?;
    test.settled().await?;

    for claim in thief.claims().list(&kube::api::ListParams::default()).await? {
        let asks = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()) == Some(&volume);
        assert!(!(asks && is_bound(&claim)), "it has got the victim's volume: {claim:?}");
    }
    let (now, still) = (victim.pair("data").await?, thief.pair("data").await?);
    assert_eq!((now.0.uid(), now.1.uid()), (theirs.0.uid(), theirs.1.uid()));
    assert_eq!((still.0.uid(), still.1.uid()), (own.0.uid(), own.1.uid()));
    let touched: Vec<_> =
        test.writes_since(mark)?.into_iter().filter(|call| call.namespace == victim.name).collect();
    assert!(touched.is_empty(), "{touched:?}");
    operator.crash();
    Ok(())
}

#[tokio::test]
async fn giant_annotations_and_finalizers_that_never_go_hold_up_only_what_carries_them() -> Result<()> {
    let tenant = Tenant::new().await?;
    for name in ["giant", "held"] {
        tenant.create(name, Some(ACCESS_POINT)).await?;
        tenant.pair(name).await?;
    }
    let giant = json!({"metadata": {"annotations": {"example.com/giant": "x".repeat(200_000)}}});
    edit(&tenant.shared_volumes(), "giant", &giant).await?;
    edit(&tenant.claims(), "pvc-giant", &giant).await?;
    edit(&tenant.claims(), "pvc-held", &json!({"metadata": {"finalizers": ["example.com/never"]}})).await?;
    let old = tenant.pair("giant").await?;
    tenant.change("giant", OTHER_ACCESS_POINT).await?;
    tenant.another_pair("giant", &old).await?;
    tenant.delete("held").await?;
    let message = tenant.not_ready("held", "InUse").await?;
    assert!(message.contains("example.com/never"), "{message}");
    let neighbour = Tenant::new().await?;
    neighbour.create("data", Some(ACCESS_POINT)).await?;
    neighbour.ready("data").await?;
    tenant.delete("giant").await?;
    tenant.gone("giant").await?;
    edit(&tenant.claims(), "pvc-held", &json!({"metadata": {"finalizers": null}})).await?;
    tenant.gone("held").await?;
    tenant.empty().await
}

#[tokio::test]
async fn duplicates_and_floods_of_edits_cost_a_neighbour_no_write_and_end_as_the_last_one_says() -> Result<()>
{
    const EQUAL: usize = 30;
    const EDITS: usize = 120;
    let test = exclusive().await?;
    let operator = installed_operator(&test);
    let (attacker, neighbour) = (Tenant::on(&test.cluster).await?, Tenant::on(&test.cluster).await?);
    let name = |number: usize| format!("equal-{number:02}");
    for number in 0..EQUAL {
        attacker.create(&name(number), Some(ACCESS_POINT)).await?;
    }
    neighbour.create("data", Some(ACCESS_POINT)).await?;
    neighbour.ready("data").await?;
    test.settled().await?;
    let mark = test.cluster.audit().mark()?;
    for edit_number in 0..EDITS {
        let target = name(edit_number % EQUAL);
        // All end as they began: with the access point that all have.
        let access_point = if edit_number < EDITS - EQUAL { OTHER_ACCESS_POINT } else { ACCESS_POINT };
        let note = json!({"example.com/edit": edit_number.to_string()});
        let change = json!({"metadata": {"annotations": note}, "spec": {"accessPointID": access_point}});
        edit(&attacker.shared_volumes(), &target, &change).await?;
    }
    for number in 0..EQUAL {
        let (volume, _) = attacker.pair(&name(number)).await?;
        assert!(handle(&volume).ends_with(ACCESS_POINT), "{volume:?}");
    }
    test.settled().await?;
    let writes = test.writes_since(mark)?;
    let own: Vec<_> = writes.iter().filter(|call| call.namespace == neighbour.name).collect();
    assert!(own.is_empty(), "{own:?}");
    operator.crash();
    Ok(())
}
