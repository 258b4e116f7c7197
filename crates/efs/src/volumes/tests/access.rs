//! Who may have what: SharedVolumes under SharedFileSystems.

use super::*;
use crate::kinds::SHARED_FILE_SYSTEM;
use crate::volumes::Tenancy;

fn allow(sim: &Sim<Volumes>, spec: Value) {
    let mut spec = spec;
    spec["fileSystemID"] = json!(FS);
    sim.model.put(&SHARED_FILE_SYSTEM, json!({"metadata": {"name": "data"}, "spec": spec}));
}

fn condition(sim: &Sim<Volumes>, kind: &str) -> (String, String, String) {
    let object = sim.model.object(&shared()).expect("the SharedVolume");
    let found = object.condition(kind).cloned().unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

fn is_made(sim: &Sim<Volumes>) -> bool {
    sim.model.object(&volume()).is_some() || sim.model.object(&claim()).is_some()
}

fn restricted() -> Sim<Volumes> {
    let sim = start();
    Sim::new(Volumes { tenancy: Tenancy::Restricted, ..Volumes::default() }, Arc::clone(&sim.model))
}

#[tokio::test]
async fn what_is_allowed_follows_from_namespaces_access_points_and_root() {
    let by_name = json!({"names": ["team"]});
    let by_label = json!({"selector": {"matchLabels": {"storage": "yes"}}});
    let every = json!({"all": true});
    let points = |namespace: &str, point: &str| json!({"perNamespace": [{"namespace": namespace, "accessPoints": [point]}]});
    let table = [
        ("nobody is named", json!({}), AP, Some("spec.allowedNamespaces")),
        (
            "another namespace",
            json!({"allowedNamespaces": {"names": ["other"]}, "allowedAccessPoints": every}),
            AP,
            Some("spec.allowedNamespaces"),
        ),
        ("by name", json!({"allowedNamespaces": by_name, "allowedAccessPoints": every}), AP, None),
        ("by label", json!({"allowedNamespaces": by_label, "allowedAccessPoints": every}), AP, None),
        (
            "by an empty selector",
            json!({"allowedNamespaces": {"selector": {}}, "allowedAccessPoints": every}),
            AP,
            None,
        ),
        (
            "by a label that it has not",
            json!({"allowedNamespaces": {"selector": {"matchLabels": {"storage": "no"}}}, "allowedAccessPoints": every}),
            AP,
            Some("spec.allowedNamespaces"),
        ),
        (
            "a selector that would select everything",
            json!({"allowedNamespaces": {"selector": {"matchExpressions": [
                {"key": "storage", "operator": "NotIn", "values": []}]}}, "allowedAccessPoints": every}),
            AP,
            Some("spec.allowedNamespaces"),
        ),
        (
            "a selector that cannot be read",
            json!({"allowedNamespaces": {"selector": {"matchExpressions": [
            {"key": "storage", "operator": "Near", "values": ["yes"]}]}}, "allowedAccessPoints": every}),
            AP,
            Some("spec.allowedNamespaces"),
        ),
        (
            "the root",
            json!({"allowedNamespaces": by_name, "allowedAccessPoints": every}),
            "",
            Some("spec.allowRoot"),
        ),
        ("the root is allowed", json!({"allowedNamespaces": by_name, "allowRoot": true}), "", None),
        (
            "its access point",
            json!({"allowedNamespaces": by_name, "allowedAccessPoints": points("team", AP)}),
            AP,
            None,
        ),
        ("no access point", json!({"allowedNamespaces": by_name}), AP, Some("spec.allowedAccessPoints")),
        (
            "what is left of a list",
            json!({"allowedNamespaces": by_name, "allowedAccessPoints": null}),
            AP,
            Some("spec.allowedAccessPoints"),
        ),
        (
            "neither all nor a list",
            json!({"allowedNamespaces": by_name, "allowedAccessPoints": {}}),
            AP,
            Some("spec.allowedAccessPoints"),
        ),
        (
            "not all",
            json!({"allowedNamespaces": by_name, "allowedAccessPoints": {"all": false}}),
            AP,
            Some("spec.allowedAccessPoints"),
        ),
        (
            "an empty list",
            json!({"allowedNamespaces": by_name, "allowedAccessPoints": {"perNamespace": []}}),
            AP,
            Some("spec.allowedAccessPoints"),
        ),
        (
            "all and a list without it",
            json!({"allowedNamespaces": by_name, "allowedAccessPoints": {"all": true,
                "perNamespace": [{"namespace": "team", "accessPoints": [OTHER]}]}}),
            AP,
            Some("spec.allowedAccessPoints"),
        ),
        (
            "another access point",
            json!({"allowedNamespaces": by_name, "allowedAccessPoints": points("team", OTHER)}),
            AP,
            Some("spec.allowedAccessPoints"),
        ),
        (
            "the access point of another namespace",
            json!({"allowedNamespaces": by_name, "allowedAccessPoints": points("other", AP)}),
            AP,
            Some("spec.allowedAccessPoints"),
        ),
        (
            "an access point of a namespace that is not allowed",
            json!({"allowedAccessPoints": points("team", AP)}),
            AP,
            Some("spec.allowedNamespaces"),
        ),
    ];
    for (what, spec, access_point, refused) in table {
        for sim in [start(), restricted()] {
            sim.model.edit(&NAMESPACE.at("", "team"), |doc| {
                doc["metadata"]["labels"] = json!({"storage": "yes"});
            });
            allow(&sim, spec.clone());
            put(&sim, access_point);
            settle(&sim).await;
            let (state, reason, message) = condition(&sim, "Ready");
            match refused {
                None => assert_eq!((state.as_str(), is_made(&sim)), ("True", true), "{what}: {message}"),
                Some(field) => {
                    assert_eq!((reason.as_str(), is_made(&sim)), ("NotAllowed", false), "{what}: {message}");
                    assert!(
                        message.contains(field) && message.contains("administrator"),
                        "{what}: {message}"
                    );
                    assert_eq!(sim.model.object(&shared()).unwrap().text("/status/phase"), "Failed");
                }
            }
            assert_eq!(sim.settle().await.writes, 0, "{what}: it rests");
        }
    }
}

#[tokio::test]
async fn a_file_system_that_nobody_names_is_free_to_all_and_says_so_or_to_nobody() {
    for access_point in [AP, ""] {
        let sim = start();
        put(&sim, access_point);
        settle(&sim).await;
        let (state, reason, message) = condition(&sim, "Allowed");
        assert_eq!(
            (reason_of(&sim), state.as_str(), reason.as_str()),
            ("Bound".into(), "True", "Unrestricted")
        );
        assert!(message.contains("every namespace"), "{message}");

        let sim = restricted();
        put(&sim, access_point);
        settle(&sim).await;
        let (_, reason, message) = condition(&sim, "Ready");
        assert_eq!((reason.as_str(), is_made(&sim)), ("NotAllowed", false));
        assert!(message.contains(FS) && message.contains("administrator"), "{message}");
    }
}

fn reason_of(sim: &Sim<Volumes>) -> String {
    condition(sim, "Ready").1
}

#[tokio::test]
async fn one_of_several_that_allows_it_is_enough() {
    let sim = start();
    allow(&sim, json!({}));
    let other = json!({"fileSystemID": FS, "allowedNamespaces": {"names": ["team"]},
        "allowedAccessPoints": {"all": true}});
    sim.model.put(&SHARED_FILE_SYSTEM, json!({"metadata": {"name": "other"}, "spec": other}));
    put(&sim, AP);
    settle(&sim).await;
    assert_eq!(reason_of(&sim), "Bound");
    assert!(condition(&sim, "Allowed").2.contains("SharedFileSystem other"));
}

#[tokio::test]
async fn revoking_never_cuts_what_serves_and_denies_what_is_new() {
    let sim = start();
    allow(&sim, json!({"allowedNamespaces": {"names": ["team"]}, "allowedAccessPoints": {"all": true}}));
    put(&sim, AP);
    settle(&sim).await;
    let before = [uid(&sim, &volume()), uid(&sim, &claim())];
    allow(&sim, json!({"allowedNamespaces": {"names": ["other"]}}));
    settle(&sim).await;
    assert_eq!([uid(&sim, &volume()), uid(&sim, &claim())], before);
    let (state, reason, message) = condition(&sim, "Allowed");
    assert_eq!((reason_of(&sim).as_str(), state.as_str(), reason.as_str()), ("Bound", "False", "Revoked"));
    assert!(message.contains("stay as they are"), "{message}");
    // Another access point would be another pair. The old one stays: its pods go on.
    sim.model.edit(&shared(), |doc| doc["spec"]["accessPointID"] = json!(OTHER));
    settle(&sim).await;
    assert_eq!([uid(&sim, &volume()), uid(&sim, &claim())], before);
    assert_eq!(reason_of(&sim), "NotAllowed");
    // Allowed again, it moves.
    allow(&sim, json!({"allowedNamespaces": {"names": ["team"]}, "allowedAccessPoints": {"all": true}}));
    settle(&sim).await;
    assert_eq!((reason_of(&sim).as_str(), handle(&sim)), ("Bound", format!("{FS}::{OTHER}")));
    // What was revoked can still be deleted.
    allow(&sim, json!({}));
    sim.model.delete(&shared());
    settle(&sim).await;
    assert!(sim.model.object(&shared()).is_none() && !is_made(&sim));
}

#[tokio::test]
async fn half_a_pair_is_not_completed_when_it_is_not_allowed_any_more() {
    let with_claim = start();
    with_claim.model.refuse(&volume(), aquifer_engine::cluster::ApiError::Forbidden("a quota".into()));
    put(&with_claim, AP);
    with_claim.settle().await;
    assert!(with_claim.model.object(&claim()).is_some() && with_claim.model.object(&volume()).is_none());
    let with_volume = start();
    volume_of_an_earlier_version(&with_volume).await;
    for sim in [with_claim, with_volume] {
        allow(&sim, json!({}));
        settle(&sim).await;
        assert_eq!((reason_of(&sim).as_str(), is_made(&sim)), ("NotAllowed", false));
    }
}

/// Half a pair as an earlier version began one: a volume for whatever claim has the name.
async fn volume_of_an_earlier_version(sim: &Sim<Volumes>) {
    put(sim, AP);
    sim.settle().await;
    sim.model.delete(&claim());
    sim.model.edit(&volume(), |doc| doc["spec"]["claimRef"]["uid"] = Value::Null);
    assert!(sim.model.object(&volume()).is_some() && sim.model.object(&claim()).is_none());
}

#[tokio::test]
async fn labels_that_a_namespace_gets_count() {
    let sim = start();
    allow(
        &sim,
        json!({"allowedNamespaces": {"selector": {"matchLabels": {"storage": "yes"}}}, "allowedAccessPoints": {"all": true}}),
    );
    put(&sim, AP);
    settle(&sim).await;
    assert_eq!(reason_of(&sim), "NotAllowed");
    sim.model.edit(&NAMESPACE.at("", "team"), |doc| doc["metadata"]["labels"] = json!({"storage": "yes"}));
    settle(&sim).await;
    assert_eq!(reason_of(&sim), "Bound");
}

#[tokio::test]
async fn while_shared_file_systems_cannot_be_read_what_serves_is_kept_and_nothing_is_made() {
    let sim = ready().await;
    let before = [uid(&sim, &volume()), uid(&sim, &claim())];
    sim.model.serve(&SHARED_FILE_SYSTEM, false);
    settle(&sim).await;
    assert_eq!([uid(&sim, &volume()), uid(&sim, &claim())], before);
    assert_eq!((reason_of(&sim).as_str(), condition(&sim, "Allowed").0.as_str()), ("Bound", "Unknown"));

    let sim = start();
    sim.model.serve(&SHARED_FILE_SYSTEM, false);
    put(&sim, AP);
    settle(&sim).await;
    let (state, _, message) = condition(&sim, "Ready");
    assert_eq!((state.as_str(), is_made(&sim)), ("Unknown", false));
    assert!(message.contains("SharedFileSystems cannot be read"), "{message}");
    sim.model.serve(&SHARED_FILE_SYSTEM, true);
    settle(&sim).await;
    assert_eq!(reason_of(&sim), "Bound");
}

#[tokio::test]
async fn restricting_a_cluster_cuts_nothing_that_serves() {
    let open = ready().await;
    let before = [uid(&open, &volume()), uid(&open, &claim())];
    let sim =
        Sim::new(Volumes { tenancy: Tenancy::Restricted, ..Volumes::default() }, Arc::clone(&open.model));
    settle(&sim).await;
    assert_eq!([uid(&sim, &volume()), uid(&sim, &claim())], before);
    assert_eq!((reason_of(&sim).as_str(), condition(&sim, "Allowed").1.as_str()), ("Bound", "Revoked"));
}

#[tokio::test]
async fn what_cannot_be_read_allows_nothing() {
    for spec in [
        json!({"allowedNamespaces": "team"}),
        // As it was before "all" had to be said.
        json!({"allowedNamespaces": {"names": ["team"]}, "allowedAccessPoints": []}),
    ] {
        let sim = start();
        allow(&sim, spec.clone());
        put(&sim, AP);
        settle(&sim).await;
        assert_eq!((reason_of(&sim).as_str(), is_made(&sim)), ("NotAllowed", false), "{spec}");
        assert!(condition(&sim, "Ready").2.contains("SharedFileSystem data "), "it is named");
    }
}

#[tokio::test]
async fn of_several_the_one_that_allows_the_namespace_says_why_not() {
    let sim = start();
    allow(&sim, json!({"allowedNamespaces": {"names": ["team"]}, "allowedAccessPoints": {}}));
    for name in ["before", "later"] {
        sim.model.put(&SHARED_FILE_SYSTEM, json!({"metadata": {"name": name}, "spec": {"fileSystemID": FS}}));
    }
    put(&sim, AP);
    settle(&sim).await;
    let (_, _, message) = condition(&sim, "Ready");
    assert!(message.contains("spec.allowedAccessPoints"), "{message}");
}

#[tokio::test]
async fn what_is_in_the_way_is_not_called_revoked() {
    let sim = start();
    sim.model.put(&CLAIM, json!({"metadata": {"namespace": "team", "name": "pvc-data"}}));
    put(&sim, AP);
    settle(&sim).await;
    allow(&sim, json!({}));
    settle(&sim).await;
    let (_, reason, _) = condition(&sim, "Allowed");
    assert_eq!((reason_of(&sim).as_str(), reason.as_str()), ("NotAllowed", "NotAllowed"));
}

/// Otherwise the tenant could bind its own claim to the volume after the revocation.
#[tokio::test]
async fn half_a_pair_goes_when_it_is_not_allowed_any_more_although_a_claim_is_in_the_way() {
    let sim = start();
    volume_of_an_earlier_version(&sim).await;
    let theirs = sim.model.put(&CLAIM, json!({"metadata": {"namespace": "team", "name": "pvc-data"}}));
    settle(&sim).await;
    assert_eq!(reason_of(&sim), "Conflict");
    assert!(sim.model.object(&volume()).is_some(), "the volume was made before the claim was there");
    allow(&sim, json!({}));
    settle(&sim).await;
    assert_eq!(sim.model.object(&volume()), None, "{:?}", sim.model.log());
    assert_eq!(uid(&sim, &claim()), theirs.uid(), "it is left alone");
    assert_eq!(reason_of(&sim), "NotAllowed");
    let plan = sim.plan(&key()).await.unwrap();
    assert_eq!(plan.wake_after, None, "what is in the way is not looked at again and again");
}

/// Pods may use the claim, whoever made it.
#[tokio::test]
async fn a_volume_that_a_users_claim_has_got_stays_when_it_is_not_allowed_any_more() {
    let sim = start();
    volume_of_an_earlier_version(&sim).await;
    let spec = json!({"storageClassName": "efs-sc"});
    sim.model.put(&CLAIM, json!({"metadata": {"namespace": "team", "name": "pvc-data"}, "spec": spec}));
    settle(&sim).await;
    allow(&sim, json!({}));
    settle(&sim).await;
    let volume = sim.model.object(&volume()).expect("it stays");
    assert!(!volume.deleting(), "{:?}", sim.model.log());
    assert_eq!(reason_of(&sim), "NotAllowed");
}

#[tokio::test]
async fn a_volume_of_the_old_operator_that_a_claim_is_bound_to_stays_although_it_is_not_allowed() {
    let sim = start();
    let theirs = sim.model.put(&CLAIM, json!({"metadata": {"namespace": "team", "name": "pvc-data"}}));
    let upstream =
        json!({labels::OWNED: "true", labels::OWNER_NAMESPACE: "team", labels::OWNER_NAME: "data"});
    let bound = json!({"namespace": "team", "name": "pvc-data", "uid": theirs.uid()});
    sim.model.put(
        &VOLUME,
        json!({"metadata": {"name": "pv-team-data", "labels": upstream}, "spec": {"claimRef": bound,
            "csi": {"driver": driver::DRIVER_NAME, "volumeHandle": format!("{FS}::{AP}")}}}),
    );
    allow(&sim, json!({}));
    put(&sim, AP);
    settle(&sim).await;
    let volume = sim.model.object(&VOLUME.at("", "pv-team-data")).expect("pods may use it");
    assert!(!volume.deleting(), "{:?}", sim.model.log());
    assert_eq!(uid(&sim, &claim()), theirs.uid());
}

/// The SharedVolume of a pair goes although its pair is there, as when a tenant takes its finalizer off.
fn cut_off(sim: &Sim<Volumes>) {
    sim.model.edit(&shared(), |doc| doc["metadata"]["finalizers"] = json!([]));
    sim.model.delete(&shared());
    allow(sim, json!({}));
}

/// All marks of ours on a claim, which its user can take off.
fn strip(doc: &mut Value) {
    doc["metadata"]["labels"] = json!({});
    doc["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
}

#[tokio::test]
async fn who_was_cut_off_keeps_no_pair_by_taking_the_marks_off_its_claim() {
    for comes_again in [true, false] {
        let sim = ready().await;
        cut_off(&sim);
        sim.model.edit(&claim(), strip);
        if comes_again {
            put(&sim, AP);
        }
        settle(&sim).await;
        assert!(!is_made(&sim), "{comes_again}: {:?}", sim.model.log());
    }
}

#[tokio::test]
async fn a_volume_whose_mark_was_damaged_is_ours_because_the_status_names_it() {
    let sim = ready().await;
    let before = (uid(&sim, &volume()), uid(&sim, &claim()));
    sim.model.edit(&volume(), |doc| doc["metadata"]["labels"][OWNER_UID] = json!("not-the-uid"));
    settle(&sim).await;
    assert_eq!((uid(&sim, &volume()), uid(&sim, &claim())), before, "{:?}", sim.model.log());
    let label = sim.model.object(&volume()).unwrap().label(OWNER_UID).map(str::to_owned);
    assert_eq!(label, Some(uid(&sim, &shared())), "it is repaired");
}

#[tokio::test]
async fn a_volume_whose_mark_was_damaged_while_volumes_could_not_be_read_is_still_ours() {
    let sim = ready().await;
    let before = (uid(&sim, &volume()), uid(&sim, &claim()));
    sim.model.edit(&volume(), |doc| doc["metadata"]["labels"][OWNER_UID] = json!("not-the-uid"));
    sim.model.serve(&VOLUME, false);
    settle(&sim).await;
    assert_eq!(reason_of(&sim), "Unknown");
    sim.model.serve(&VOLUME, true);
    settle(&sim).await;
    assert_eq!((uid(&sim, &volume()), uid(&sim, &claim())), before, "{:?}", sim.model.log());
    assert_eq!(reason_of(&sim), "Bound");
}

#[tokio::test]
async fn a_volume_of_another_claim_is_not_ours_although_it_carries_our_marks() {
    let sim = ready().await;
    let mut other = sim.model.object(&volume()).unwrap().0;
    other["metadata"]["name"] = json!("pv-of-another-team");
    other["spec"]["claimRef"] = json!({"namespace": "another-team", "name": "pvc-data", "uid": "theirs"});
    sim.model.put(&VOLUME, other);
    settle(&sim).await;
    assert!(sim.model.object(&VOLUME.at("", "pv-of-another-team")).is_some(), "{:?}", sim.model.log());
    assert_eq!(reason_of(&sim), "Bound");
}

#[tokio::test]
async fn the_status_names_nothing_that_a_predecessor_has_left() {
    // Held by a pod, so that it is seen for long; and with something else in the way.
    let writer = json!({"metadata": {"namespace": "team", "name": "writer"},
        "spec": {"nodeName": "worker", "volumes": [{"persistentVolumeClaim": {"claimName": "pvc-data"}}]}});
    let held = ready().await;
    held.model.put(&POD, writer);
    cut_off(&held);
    let in_the_way = ready().await;
    cut_off(&in_the_way);
    in_the_way.model.edit(&volume(), |doc| doc["metadata"]["finalizers"] = json!(["example.com/x"]));
    in_the_way.model.edit(&claim(), |doc| doc["metadata"]["finalizers"] = json!([]));
    in_the_way.model.delete(&claim());
    in_the_way.model.put(&CLAIM, json!({"metadata": {"namespace": "team", "name": "pvc-data"}}));
    for (sim, says) in [(held, "NotAllowed"), (in_the_way, "NotAllowed")] {
        put(&sim, AP);
        settle(&sim).await;
        assert!(sim.model.object(&volume()).is_some(), "{says}: it is still there");
        let status = sim.model.object(&shared()).unwrap().0["status"].clone();
        assert_eq!(reason_of(&sim), says);
        assert_eq!((&status["volumeRef"], &status["claimUID"]), (&Value::Null, &Value::Null), "{status}");
    }
}

/// Another volume of the same SharedVolume, which is being deleted and does not go.
fn leaves(sim: &Sim<Volumes>) {
    let mut other = sim.model.object(&volume()).unwrap().0;
    other["metadata"]["name"] = json!("pv-older");
    other["metadata"]["finalizers"] = json!(["example.com/x"]);
    other["spec"]["claimRef"]["uid"] = json!("of-a-claim-that-is-gone");
    sim.model.put(&VOLUME, other);
    sim.model.delete(&VOLUME.at("", "pv-older"));
}

#[tokio::test]
async fn a_change_that_is_not_allowed_takes_no_pair_that_serves_because_something_else_goes() {
    let sim = ready().await;
    let before = [uid(&sim, &volume()), uid(&sim, &claim())];
    leaves(&sim);
    allow(&sim, json!({}));
    sim.model.edit(&shared(), |doc| doc["spec"]["accessPointID"] = json!(OTHER));
    settle(&sim).await;
    let (_, reason, message) = condition(&sim, "Ready");
    assert_eq!((reason.as_str(), [uid(&sim, &volume()), uid(&sim, &claim())]), ("NotAllowed", before));
    assert!(message.contains("stay as they are"), "{message}");
    assert!(
        !sim.model.object(&volume()).unwrap().deleting() && !sim.model.object(&claim()).unwrap().deleting()
    );

    // Nor while it is not known whether it is allowed.
    let sim = ready().await;
    leaves(&sim);
    sim.model.serve(&SHARED_FILE_SYSTEM, false);
    sim.model.edit(&shared(), |doc| doc["spec"]["accessPointID"] = json!(OTHER));
    settle(&sim).await;
    assert_eq!(condition(&sim, "Ready").0, "Unknown");
    assert!(
        !sim.model.object(&volume()).unwrap().deleting() && !sim.model.object(&claim()).unwrap().deleting()
    );
}

#[tokio::test]
async fn beside_a_pair_that_serves_what_a_predecessor_has_left_goes_when_a_change_is_not_allowed() {
    let sim = ready().await;
    let before = [uid(&sim, &volume()), uid(&sim, &claim())];
    let mut other = sim.model.object(&volume()).unwrap().0;
    other["metadata"]["name"] = json!("pv-older");
    other["metadata"]["labels"][OWNER_UID] = json!("a-predecessor");
    other["spec"]["claimRef"]["uid"] = json!("of-a-claim-that-is-gone");
    sim.model.put(&VOLUME, other);
    allow(&sim, json!({}));
    sim.model.edit(&shared(), |doc| doc["spec"]["accessPointID"] = json!(OTHER));
    settle(&sim).await;
    assert_eq!([uid(&sim, &volume()), uid(&sim, &claim())], before);
    assert_eq!(sim.model.object(&VOLUME.at("", "pv-older")), None);
}

#[tokio::test]
async fn what_is_being_deleted_goes_on_going_when_it_is_not_allowed_any_more() {
    let sim = ready().await;
    let pod = json!({"metadata": {"namespace": "team", "name": "writer"},
        "spec": {"nodeName": "worker", "volumes": [{"persistentVolumeClaim": {"claimName": "pvc-data"}}]}});
    sim.model.put(&POD, pod);
    sim.model.edit(&shared(), |doc| doc["spec"]["accessPointID"] = json!(OTHER));
    settle(&sim).await;
    assert_eq!(reason_of(&sim), "InUse");
    allow(&sim, json!({}));
    settle(&sim).await;
    let (_, reason, message) = condition(&sim, "Ready");
    assert!(reason == "NotAllowed" && message.contains("is being deleted"), "{reason}: {message}");
    sim.model.delete(&POD.at("team", "writer"));
    settle(&sim).await;
    assert_eq!((reason_of(&sim).as_str(), is_made(&sim)), ("NotAllowed", false));
    assert!(!condition(&sim, "Ready").2.contains("deleted"));
}

/// A tenant whose SharedVolume was deleted to cut it off makes one of the same name, and marks its claim as the new one's.
#[tokio::test]
async fn a_pair_that_a_predecessor_has_left_is_not_kept_by_whoever_is_not_allowed() {
    let sim = ready().await;
    sim.model.edit(&shared(), |doc| doc["metadata"]["finalizers"] = json!([]));
    sim.model.delete(&shared());
    allow(&sim, json!({}));
    put(&sim, AP);
    let uid = sim.model.object(&shared()).unwrap().uid().to_owned();
    sim.model.edit(&claim(), |doc| doc["metadata"]["labels"][OWNER_UID] = json!(uid));
    settle(&sim).await;
    assert_eq!((reason_of(&sim).as_str(), is_made(&sim)), ("NotAllowed", false));
}

#[tokio::test]
async fn a_shared_volume_that_is_not_allowed_and_has_nothing_costs_one_write() {
    let sim = start();
    allow(&sim, json!({}));
    put(&sim, AP);
    settle(&sim).await;
    assert_eq!(sim.model.log().len(), 1, "{:?}", sim.model.log());
}
