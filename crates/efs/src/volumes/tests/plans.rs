//! Single situations of a SharedVolume that a walk does not come by.

use std::time::Duration;

use aquifer_api::efs::SharedVolumeReason as Is;
use aquifer_engine::{EventType, Plan, Step};

use super::*;

async fn decided(sim: &Sim<Volumes>) -> Plan {
    sim.plan(&key()).await.unwrap()
}

/// A pair that is made and not bound yet.
async fn made() -> Sim<Volumes> {
    let sim = start();
    put(&sim, AP);
    sim.settle().await;
    assert_eq!(reason(&sim), "Provisioning");
    sim
}

#[tokio::test]
async fn without_a_file_system_it_is_invalid_and_says_which_field_is_missing() {
    let sim = start();
    sim.model.put(
        &SHARED_VOLUME,
        json!({"metadata": {"namespace": "team", "name": "data"}, "spec": {"fileSystemID": ""}}),
    );
    settle(&sim).await;
    let object = sim.model.object(&shared()).unwrap();
    assert_eq!((reason(&sim).as_str(), object.text("/status/phase")), ("Invalid", "Failed"));
    assert!(object.text("/status/message").contains("spec.fileSystemID is missing"), "{object:?}");
    assert!(sim.model.objects(&VOLUME).is_empty());
}

#[tokio::test]
async fn that_it_serves_is_an_event_only_after_trouble() {
    let sim = made().await;
    binder(&sim.model);
    binder(&sim.model);
    let table = [("Provisioning", None), ("InUse", Some(EventType::Normal))];
    for (before, event) in table {
        sim.model.edit(&shared(), |doc| doc["status"]["conditions"][0]["reason"] = json!(before));
        let report = decided(&sim).await.status.unwrap();
        let ready = report.get("Ready").unwrap();
        assert_eq!((ready.reason::<Is>(), ready.event), (Some(Is::Bound), event), "after {before}");
    }
    settle(&sim).await;
    assert_eq!(decided(&sim).await.status.unwrap().get("Ready").unwrap().event, None, "nor while it serves");
}

#[tokio::test]
async fn it_serves_when_both_halves_say_that_they_are_bound() {
    let sim = made().await;
    let made_for = sim.model.object(&volume()).unwrap().text("/spec/claimRef/uid").to_owned();
    assert_eq!(made_for, uid(&sim, &claim()));
    binder(&sim.model);
    sim.settle().await;
    assert_eq!(reason(&sim), "Provisioning", "only the volume says so");
    binder(&sim.model);
    sim.settle().await;
    assert_eq!(reason(&sim), "Bound");
}

#[tokio::test]
async fn the_volume_is_noted_on_its_claim_once_and_only_when_kubernetes_calls_it_bound() {
    let sim = made().await;
    let noted = |sim: &Sim<Volumes>| {
        let claim = sim.model.object(&claim()).unwrap();
        claim.annotation("aquifer.storage/volume-made").map(str::to_owned)
    };
    assert_eq!(noted(&sim), None, "Kubernetes may not know the volume yet");
    sim.model.edit(&volume(), |doc| doc["status"]["phase"] = json!("Bound"));
    assert_eq!(sim.settle().await.writes, 1);
    assert_eq!(noted(&sim), Some(uid(&sim, &volume())));
    assert_eq!(sim.settle().await.writes, 0, "once is enough");
    // A restored claim may carry the note of another volume.
    sim.model.edit(&claim(), |doc| {
        doc["metadata"]["annotations"]["aquifer.storage/volume-made"] = json!("another");
    });
    assert_eq!((sim.settle().await.writes, noted(&sim)), (1, Some(uid(&sim, &volume()))));
    // A pair of an earlier version is not written to.
    let sim = ready().await;
    sim.model
        .edit(&claim(), |doc| doc["metadata"]["annotations"]["aquifer.storage/volume-made"] = Value::Null);
    assert_eq!((sim.settle().await.writes, noted(&sim)), (0, None));
}

#[tokio::test]
async fn a_claim_on_which_nothing_can_be_noted_is_bound_later_and_that_is_no_failure() {
    let sim = made().await;
    sim.model.refuse_verb(&claim(), "patch", aquifer_engine::cluster::ApiError::Policy("not here".into()));
    sim.model.edit(&volume(), |doc| doc["status"]["phase"] = json!("Bound"));
    assert!(sim.settle().await.failures.is_empty());
    assert_eq!(reason(&sim), "Provisioning");
    settle(&sim).await;
    assert_eq!(reason(&sim), "Bound");
}

#[tokio::test]
async fn half_a_pair_is_completed_only_where_its_other_half_can_still_join_it() {
    // What is left, what happened to it, and whether it is used.
    type Edit = fn(&mut Value);
    let untouched: Edit = |_| {};
    // As volumes of earlier versions are, and restored ones, which name an earlier SharedVolume.
    let for_any_claim: Edit = |doc| doc["spec"]["claimRef"]["uid"] = Value::Null;
    let restored: Edit = |doc| {
        doc["spec"]["claimRef"]["uid"] = Value::Null;
        doc["metadata"]["labels"][OWNER_UID] = json!("an earlier one");
    };
    let other_volume: Edit = |doc| doc["spec"]["volumeName"] = json!("another");
    let was_bound: Edit = |doc| doc["status"] = json!({"phase": "Bound"});
    let restored_with_other_data: Edit = |doc| {
        doc["spec"]["claimRef"]["uid"] = Value::Null;
        doc["metadata"]["labels"][OWNER_UID] = json!("an earlier one");
        doc["spec"]["csi"]["volumeHandle"] = json!(format!("{FS}::{OTHER}"));
    };
    let table = [
        (volume(), claim(), restored, true),
        (volume(), claim(), restored_with_other_data, false),
        (volume(), claim(), for_any_claim, false),
        (volume(), claim(), untouched, false),
        (claim(), volume(), untouched, true),
        (claim(), volume(), other_volume, false),
        (claim(), volume(), was_bound, false),
    ];
    for (at, (left, gone, edit, used)) in table.into_iter().enumerate() {
        let sim = made().await;
        let before = uid(&sim, &left);
        sim.model.delete(&gone);
        sim.model.edit(&left, edit);
        // A restored SharedVolume has no status yet.
        sim.model.edit(&shared(), |doc| doc["status"] = Value::Null);
        let stages = decided(&sim).await.stages;
        let makes = |step: &Step| matches!(step, Step::Apply(child) if child.target == gone);
        assert_eq!(stages.iter().flat_map(|stage| &stage.steps).any(makes), used, "line {at}");
        settle(&sim).await;
        assert_eq!(reason(&sim), "Bound", "line {at}");
        assert_eq!(handle(&sim), format!("{FS}::{AP}"), "line {at}");
        assert_eq!(uid(&sim, &left) == before, used, "line {at}");
    }
}

#[tokio::test]
async fn a_claim_that_has_lost_its_volume_is_made_anew() {
    let sim = ready().await;
    let before = uid(&sim, &claim());
    sim.model.edit(&claim(), |doc| doc["status"] = json!({"phase": "Lost"}));
    settle(&sim).await;
    assert_eq!(reason(&sim), "Bound");
    assert_ne!(uid(&sim, &claim()), before);
}

#[tokio::test]
async fn a_volume_that_the_old_operator_labelled_for_it_but_made_for_another_is_not_in_the_way() {
    let sim = start();
    let upstream =
        json!({labels::OWNED: "true", labels::OWNER_NAMESPACE: "team", labels::OWNER_NAME: "data"});
    let theirs = sim.model.put(
        &VOLUME,
        json!({"metadata": {"name": "pv-other", "labels": upstream}, "spec": {
            "csi": {"driver": driver::DRIVER_NAME, "volumeHandle": format!("{FS}::{AP}")},
            "claimRef": {"namespace": "other", "name": "pvc-data"}}}),
    );
    put(&sim, AP);
    settle(&sim).await;
    assert_eq!(reason(&sim), "Bound");
    sim.model.delete(&shared());
    settle(&sim).await;
    let left = sim.model.object(&VOLUME.at("", "pv-other")).unwrap();
    assert_eq!((left.uid(), left.deleting()), (theirs.uid(), false));
}

#[tokio::test]
async fn that_it_is_being_deleted_is_said_once_and_its_pair_is_looked_at_soon() {
    let sim = ready().await;
    sim.model.delete(&shared());
    let first = decided(&sim).await;
    let said = first.status.as_ref().and_then(|report| report.get("Ready")?.reason::<Is>());
    assert_eq!((said, first.wake_after), (Some(Is::Deleting), Some(Duration::from_secs(3))));
    sim.model.edit(&shared(), |doc| {
        doc["status"]["conditions"][0]["status"] = json!("False");
        doc["status"]["conditions"][0]["reason"] = json!("Deleting");
    });
    let second = decided(&sim).await;
    assert_eq!((second.status, second.wake_after), (None, Some(Duration::from_secs(3))));
    assert_eq!(second.stages, first.stages);
}

#[test]
fn a_reason_of_another_version_leaves_phase_and_message_as_they_are() {
    use aquifer_api::efs::{Phase, SharedVolumeStatus};
    use aquifer_engine::{Condition, FailureReason, Report, State};
    aquifer_base::reasons! {
        enum Later {
            Unheard,
        }
    }
    let summed = |condition: Condition| {
        let mut status = SharedVolumeStatus { phase: Some(Phase::Ready), ..SharedVolumeStatus::default() };
        let report = Report::new(&json!({})).condition(condition);
        crate::volumes::conditions::summarize(&report, false, &mut status);
        (status.phase, status.message)
    };
    let failed = Condition::new("Ready", State::False, FailureReason::AccessDenied, "no");
    assert_eq!(summed(failed), (Some(Phase::Failed), Some("no".to_owned())));
    let unheard = Condition::new("Ready", State::False, Later::Unheard, "no");
    assert_eq!(summed(unheard), (Some(Phase::Ready), None));
}

#[tokio::test]
async fn a_volume_for_the_claim_of_another_namespace_does_not_serve_although_the_names_are_the_same() {
    let sim = ready().await;
    let before = uid(&sim, &volume());
    sim.model.edit(&volume(), |doc| doc["spec"]["claimRef"]["namespace"] = json!("other"));
    settle(&sim).await;
    assert_ne!(uid(&sim, &volume()), before, "it is made anew");
    assert_eq!(reason(&sim), "Bound");
}

#[test]
fn who_holds_a_pair_is_said_also_when_nobody_is_seen_to() {
    use crate::volumes::conditions::{Blocked, deleting};
    use crate::volumes::pair::Pair;
    use aquifer_engine::{Seen, Why};
    let unknown = || Why::NotSynced;
    let world = crate::volumes::World {
        volumes: Seen::Unknown(unknown()),
        claims: Seen::Unknown(unknown()),
        pods: None,
        namespace_ends: false,
        namespace_labels: Seen::Unknown(unknown()),
        file_systems: Seen::Unknown(unknown()),
        duplicates: aquifer_engine::Group::Few(Vec::new()),
        driver: Seen::Unknown(unknown()),
    };
    let said = |pods: &[&str], finalizers: &[&str]| {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let blocked = Blocked::Claim { pods: owned(pods), finalizers: owned(finalizers) };
        deleting(&world, Pair::default(), Some(&blocked)).get("Ready").unwrap().message.clone()
    };
    assert!(said(&["writer"], &["x"]).contains("held by pods that mount the claim: writer;"));
    assert!(said(&[], &["x"]).contains("held by the claim's finalizers: x;"));
    assert!(said(&[], &[]).contains("held by an unknown holder"));
}

#[tokio::test]
async fn while_only_the_volume_is_left_the_finalizer_stays() {
    let sim = ready().await;
    sim.model.edit(&volume(), |doc| doc["metadata"]["finalizers"] = json!(["example.com/x"]));
    sim.model.delete(&shared());
    settle(&sim).await;
    assert_eq!((sim.model.object(&claim()), sim.model.object(&volume()).is_some()), (None, true));
    assert!(sim.model.object(&shared()).is_some(), "the volume is still there");
    sim.model.edit(&volume(), |doc| doc["metadata"]["finalizers"] = json!([]));
    settle(&sim).await;
    assert!(sim.model.object(&shared()).is_none());
}

#[tokio::test]
async fn that_only_kubernetes_itself_still_protects_a_claim_is_no_news_for_two_minutes() {
    let sim = ready().await;
    let now = sim.now().to_string();
    for gone in [shared(), volume(), claim()] {
        sim.model.delete(&gone);
        sim.model.edit(&gone, |doc| doc["metadata"]["deletionTimestamp"] = json!(now));
    }
    assert_eq!(sim.model.object(&claim()).unwrap().finalizers(), [PVC_PROTECTION]);
    for (seconds, says) in [(10, Some(Is::Deleting)), (120, Some(Is::InUse))] {
        sim.advance(seconds);
        let said = decided(&sim).await.status.and_then(|report| report.get("Ready")?.reason::<Is>());
        assert_eq!(said, says, "{seconds} s later");
    }
}
