//! Mount options, read-only volumes, and claims whose name the spec chooses.

use super::*;

fn put_spec(sim: &Sim<Volumes>, name: &str, more: &Value) {
    let mut spec = json!({"fileSystemID": FS, "accessPointID": AP});
    for (field, value) in more.as_object().cloned().unwrap_or_default() {
        spec[field] = value;
    }
    sim.model.put(&SHARED_VOLUME, json!({"metadata": {"namespace": "team", "name": name}, "spec": spec}));
}

fn edit_spec(sim: &Sim<Volumes>, field: &str, value: Value) {
    sim.model.edit(&shared(), |doc| doc["spec"][field] = value);
}

fn claim_named(name: &str) -> ObjectRef {
    CLAIM.at("team", name)
}

fn reason_of(sim: &Sim<Volumes>, name: &str) -> String {
    let object = sim.model.object(&SHARED_VOLUME.at("team", name)).expect("the SharedVolume");
    object.condition("Ready").map(|c| c["reason"].as_str().unwrap_or_default().to_owned()).unwrap_or_default()
}

fn hold(sim: &Sim<Volumes>, claim: &str) {
    sim.model.put(
        &POD,
        json!({"metadata": {"namespace": "team", "name": "holder"}, "spec": {"nodeName": "worker",
            "volumes": [{"persistentVolumeClaim": {"claimName": claim}}]}}),
    );
}

fn no_pair_is_left(sim: &Sim<Volumes>) {
    for kind in [VOLUME, CLAIM] {
        let left = sim.model.objects(&kind);
        assert!(left.is_empty(), "{left:?}\n{:?}", sim.model.log());
    }
}

#[tokio::test]
async fn options_are_those_of_the_volume_and_a_read_only_one_is_mounted_so() {
    for (more, options) in [
        (json!({}), Value::Null),
        (json!({"mountOptions": []}), Value::Null),
        (json!({"readOnly": false}), Value::Null),
        (json!({"mountOptions": ["timeo=600", "noatime"]}), json!(["noatime", "timeo=600"])),
        (json!({"readOnly": true}), json!(["ro"])),
        (json!({"readOnly": true, "mountOptions": ["noatime"]}), json!(["noatime", "ro"])),
    ] {
        let sim = start();
        put_spec(&sim, "data", &more);
        settle(&sim).await;
        assert_eq!(reason(&sim), "Bound", "{more}");
        let made = sim.model.object(&volume()).unwrap();
        assert_eq!(made.at("/spec/mountOptions").cloned().unwrap_or_default(), options, "{more}");
        // The driver refuses other modes.
        assert_eq!(made.at("/spec/accessModes"), Some(&json!(["ReadWriteMany"])));
        assert_eq!(sim.settle().await.writes, 0, "{more}");
    }
}

#[tokio::test]
async fn a_change_of_any_of_them_replaces_the_pair_and_what_means_the_same_does_not() {
    let table = [
        ("mountOptions", json!(["noatime", "hard"]), json!(["hard", "noatime"]), false),
        ("mountOptions", json!(["noatime"]), json!(["noatime", "hard"]), true),
        ("mountOptions", json!(["noatime"]), json!([]), true),
        ("mountOptions", json!([]), json!(["noatime"]), true),
        ("readOnly", Value::Null, json!(false), false),
        ("readOnly", Value::Null, json!(true), true),
        ("readOnly", json!(true), json!(false), true),
        ("claimName", Value::Null, json!("pvc-data"), false),
        ("claimName", Value::Null, json!("other"), true),
        ("claimName", json!("other"), json!("another"), true),
        ("claimName", json!("other"), Value::Null, true),
    ];
    for (field, before, after, replaced) in table {
        let case = format!("{field} from {before} to {after}");
        let sim = start();
        let spec = if before.is_null() { json!({}) } else { json!({field: before}) };
        put_spec(&sim, "data", &spec);
        settle(&sim).await;
        let old = uid(&sim, &volume());
        edit_spec(&sim, field, after);
        settle(&sim).await;
        assert_eq!(reason(&sim), "Bound", "{case}");
        assert_eq!(uid(&sim, &volume()) != old, replaced, "{case}");
        assert_eq!(sim.model.objects(&CLAIM).len(), 1, "{case}: {:?}", sim.model.log());
        assert_eq!(sim.settle().await.writes, 0, "{case}");
    }
}

#[tokio::test]
async fn a_change_of_the_claims_name_waits_for_the_pods_of_the_old_claim() {
    let sim = ready().await;
    hold(&sim, "pvc-data");
    edit_spec(&sim, "claimName", json!("data"));
    settle(&sim).await;
    assert_eq!(reason(&sim), "InUse");
    let object = sim.model.object(&shared()).unwrap();
    assert!(object.text("/status/message").contains("holder"), "{object:?}");
    assert_eq!(object.text("/status/claimRef/name"), "pvc-data", "pods still use it");
    assert_eq!(sim.model.object(&claim_named("data")), None);
    sim.model.delete(&POD.at("team", "holder"));
    settle(&sim).await;
    assert_eq!(reason(&sim), "Bound", "{:?}", sim.model.log());
    assert!(sim.model.object(&claim()).is_none() && sim.model.object(&claim_named("data")).is_some());
}

#[tokio::test]
async fn every_crash_point_of_a_change_of_the_claims_name_ends_in_the_same_state() {
    let script = async |sim: &Sim<Volumes>| {
        put(sim, AP);
        settle(sim).await;
        edit_spec(sim, "claimName", json!("other"));
        settle(sim).await;
        assert_eq!(sim.model.objects(&CLAIM).len(), 1, "{:?}", sim.model.log());
        edit_spec(sim, "claimName", json!("last"));
        edit_spec(sim, "readOnly", json!(true));
        settle(sim).await;
        assert_eq!(reason(sim), "Bound");
        sim.model.delete(&shared());
        settle(sim).await;
        no_pair_is_left(sim);
    };
    let report = walk(start, script, |sim| json!(sim.model.object(&shared()).is_none())).await;
    println!("{} write points, {} runs", report.points, report.runs);
    assert!(report.points >= 15, "{report:?}");
    assert!(report.divergent.is_empty(), "{:#?}", report.divergent);
}

#[tokio::test]
async fn the_claim_of_an_earlier_spec_goes_although_the_status_was_lost_and_its_volume_is_gone() {
    // Each leaves the old claim behind in another way, while nobody looks.
    type Loss = fn(&Sim<Volumes>);
    let losses: [(&str, Loss); 4] = [
        ("nothing else is lost", |_| {}),
        ("the status", |sim| sim.model.edit(&shared(), |doc| doc["status"] = Value::Null)),
        ("the volume", |sim| {
            sim.model.edit(&volume(), |doc| doc["metadata"]["finalizers"] = json!([]));
            sim.model.delete(&volume());
        }),
        ("status and volume", |sim| {
            sim.model.edit(&shared(), |doc| doc["status"] = Value::Null);
            sim.model.edit(&volume(), |doc| doc["metadata"]["finalizers"] = json!([]));
            sim.model.delete(&volume());
        }),
    ];
    for (what, lose) in losses {
        let sim = start();
        put_spec(&sim, "data", &json!({"claimName": "old"}));
        settle(&sim).await;
        lose(&sim);
        edit_spec(&sim, "claimName", json!("new"));
        settle(&sim).await;
        assert_eq!(reason(&sim), "Bound", "{what}: {:?}", sim.model.log());
        assert_eq!(sim.model.object(&claim_named("old")), None, "{what}");
        assert!(sim.model.object(&claim_named("new")).is_some(), "{what}");
    }
}

#[tokio::test]
async fn the_old_claim_is_found_by_the_volume_that_is_for_it_although_its_marks_are_gone() {
    let sim = start();
    put_spec(&sim, "data", &json!({"claimName": "old"}));
    settle(&sim).await;
    sim.model.edit(&claim_named("old"), |doc| doc["metadata"]["labels"] = json!({}));
    edit_spec(&sim, "claimName", json!("new"));
    settle(&sim).await;
    assert_eq!(reason(&sim), "Bound", "{:?}", sim.model.log());
    assert_eq!(sim.model.object(&claim_named("old")), None);
}

/// Found by the simulation: no cache shows the volume, so that only a refused write shows it, and with it the claim that it waits for.
#[tokio::test]
async fn the_old_claim_is_found_although_the_marks_of_both_are_gone_and_the_status_is_lost() {
    let sim = start();
    put_spec(&sim, "data", &json!({"claimName": "old"}));
    settle(&sim).await;
    for half in [volume(), claim_named("old")] {
        sim.model.edit(&half, |doc| {
            doc["metadata"]["labels"].as_object_mut().unwrap().remove(labels::OWNED);
        });
    }
    sim.model.edit(&shared(), |doc| doc["metadata"]["finalizers"] = json!([]));
    sim.model.delete(&shared());
    put_spec(&sim, "data", &json!({"claimName": "new"}));
    settle(&sim).await;
    assert_eq!(reason(&sim), "Bound", "{:?}", sim.model.log());
    assert_eq!(sim.model.object(&claim_named("old")), None);
}

#[tokio::test]
async fn a_pair_with_a_chosen_name_goes_with_its_shared_volume_and_as_an_orphan() {
    for orphan in [false, true] {
        let sim = start();
        put_spec(&sim, "data", &json!({"claimName": "chosen"}));
        settle(&sim).await;
        if orphan {
            sim.model.edit(&shared(), |doc| doc["metadata"]["finalizers"] = json!([]));
        }
        sim.model.delete(&shared());
        settle(&sim).await;
        no_pair_is_left(&sim);
    }
}

#[tokio::test]
async fn of_two_that_want_one_name_the_first_keeps_it_and_the_second_heals_when_it_goes() {
    // The first has the name by its spec or by its own name.
    for (first, second) in [
        (json!({"claimName": "same"}), json!({"claimName": "same"})),
        (json!({}), json!({"claimName": "pvc-data"})),
        (json!({"claimName": "pvc-second"}), json!({})),
    ] {
        let case = format!("{first} {second}");
        let sim = start();
        put_spec(&sim, "data", &first);
        settle(&sim).await;
        let name = sim.model.object(&shared()).unwrap().text("/status/claimRef/name").to_owned();
        let taken = uid(&sim, &claim_named(&name));
        put_spec(&sim, "second", &second);
        settle(&sim).await;
        assert_eq!(
            (reason(&sim).as_str(), reason_of(&sim, "second").as_str()),
            ("Bound", "Conflict"),
            "{case}"
        );
        assert_eq!(uid(&sim, &claim_named(&name)), taken, "{case}");
        let said = sim.model.object(&SHARED_VOLUME.at("team", "second")).unwrap();
        assert!(said.text("/status/message").contains("spec.claimName"), "{said:?}");
        sim.model.delete(&shared());
        settle(&sim).await;
        assert_eq!(reason_of(&sim, "second"), "Bound", "{case}: {:?}", sim.model.log());
        assert_ne!(uid(&sim, &claim_named(&name)), taken, "{case}");
    }
}

/// Nothing is torn down for a name that another one has.
#[tokio::test]
async fn two_that_want_each_others_names_keep_their_pairs_until_one_asks_for_a_free_name() {
    let sim = start();
    put_spec(&sim, "data", &json!({"claimName": "one"}));
    put_spec(&sim, "second", &json!({"claimName": "two", "accessPointID": OTHER}));
    settle(&sim).await;
    let before = (uid(&sim, &claim_named("one")), uid(&sim, &claim_named("two")));
    put_spec(&sim, "data", &json!({"claimName": "two"}));
    put_spec(&sim, "second", &json!({"claimName": "one", "accessPointID": OTHER}));
    settle(&sim).await;
    assert_eq!((reason(&sim).as_str(), reason_of(&sim, "second").as_str()), ("Conflict", "Conflict"));
    assert_eq!((uid(&sim, &claim_named("one")), uid(&sim, &claim_named("two"))), before);
    let status = sim.model.object(&shared()).unwrap();
    assert_eq!(status.text("/status/claimRef/name"), "one", "pods can use it as before");
    put_spec(&sim, "data", &json!({"claimName": "three"}));
    settle(&sim).await;
    assert_eq!((reason(&sim).as_str(), reason_of(&sim, "second").as_str()), ("Bound", "Bound"));
    for (name, of) in [("three", key()), ("one", Key::namespaced("team", "second"))] {
        let claim = sim.model.object(&claim_named(name)).unwrap();
        assert_eq!(claim.text("/spec/volumeName"), volume_name(&of), "{:?}", sim.model.log());
    }
    assert_eq!(sim.model.object(&claim_named("two")), None);
}

#[tokio::test]
async fn options_that_a_volume_has_besides_are_neither_changed_nor_a_reason_to_replace_it() {
    let sim = ready().await;
    let before = uid(&sim, &volume());
    sim.model.edit(&volume(), |doc| doc["spec"]["mountOptions"] = json!(["tls", "iam"]));
    settle(&sim).await;
    assert_eq!((uid(&sim, &volume()), reason(&sim).as_str()), (before, "Bound"));
    assert_eq!(sim.model.object(&volume()).unwrap().at("/spec/mountOptions"), Some(&json!(["tls", "iam"])));
    edit_spec(&sim, "mountOptions", json!(["noatime"]));
    settle(&sim).await;
    assert_eq!(sim.model.object(&volume()).unwrap().at("/spec/mountOptions"), Some(&json!(["noatime"])));
}

#[tokio::test]
async fn damaged_options_are_put_back_in_place() {
    let sim = start();
    put_spec(&sim, "data", &json!({"readOnly": true}));
    settle(&sim).await;
    let before = uid(&sim, &volume());
    let damages: [fn(&mut Value); 2] = [
        |doc| doc["spec"]["mountOptions"] = json!(["rw"]),
        |doc| doc["metadata"]["annotations"][crate::volumes::volume::MOUNT_OPTIONS] = Value::Null,
    ];
    for damage in damages {
        sim.model.edit(&volume(), damage);
        settle(&sim).await;
        let now = sim.model.object(&volume()).unwrap();
        assert_eq!((now.uid(), now.at("/spec/mountOptions")), (before.as_str(), Some(&json!(["ro"]))));
        assert_eq!(now.annotation(crate::volumes::volume::MOUNT_OPTIONS), Some("ro"));
    }
}

/// Users can write the marks of claims: they may not have a claim of their own deleted by that, nor make us look at thousands.
#[tokio::test]
async fn a_claim_of_another_name_with_forged_marks_is_deleted_only_when_it_asks_for_our_volume() {
    let sim = ready().await;
    let ours = sim.model.object(&claim()).unwrap();
    let forge = |name: &str, volume: &str| {
        let mut forged = ours.0.clone();
        forged["metadata"] = json!({"namespace": "team", "name": name,
            "labels": ours.0["metadata"]["labels"], "annotations": {OWNER: "team/data"}});
        forged["spec"]["volumeName"] = json!(volume);
        forged["status"] = json!({});
        sim.model.put(&CLAIM, forged);
    };
    forge("theirs", "pv-of-theirs");
    forge("greedy", &volume_name(&key()));
    settle(&sim).await;
    assert_eq!(reason(&sim), "Bound");
    assert!(sim.model.object(&claim_named("theirs")).is_some_and(|claim| !claim.deleting()));
    assert_eq!(sim.model.object(&claim_named("greedy")), None, "{:?}", sim.model.log());
    assert_eq!(uid(&sim, &claim()), ours.uid());
}
