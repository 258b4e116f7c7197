//! Pairs that come back from a backup, in any order, and what is left of SharedVolumes that do not.

use super::*;
use crate::kinds::SHARED_FILE_SYSTEM;
use crate::volumes::Tenancy;

const HOUR: i64 = 3600;

/// A SharedVolume and its pair as a backup tool puts them back: with new uids, without the binding.
struct Backup {
    shared: Value,
    volume: Value,
    claim: Value,
}

impl Backup {
    async fn taken() -> Self {
        let sim = ready().await;
        let saved = |target: &ObjectRef| {
            let mut saved = sim.model.object(target).unwrap().0;
            for field in
                ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "finalizers"]
            {
                saved["metadata"].as_object_mut().unwrap().remove(field);
            }
            saved.as_object_mut().unwrap().remove("status");
            saved
        };
        let (mut volume, mut claim) = (saved(&volume()), saved(&claim()));
        volume["spec"]["claimRef"].as_object_mut().unwrap().remove("uid");
        claim["metadata"]["annotations"].as_object_mut().unwrap().remove("pv.kubernetes.io/bind-completed");
        // The model would give the restored SharedVolume the uid that it had.
        volume["metadata"]["labels"][OWNER_UID] = json!("an-earlier-one");
        claim["metadata"]["labels"][OWNER_UID] = json!("an-earlier-one");
        Self { shared: saved(&shared()), volume, claim }
    }

    /// Puts one of them back, unless it is there.
    fn restore(&self, sim: &Sim<Volumes>, target: &ObjectRef) {
        if sim.model.object(target).is_some() {
            return;
        }
        let now = sim.now().to_string();
        let mut doc = match &*target.kind.kind {
            "PersistentVolume" => self.volume.clone(),
            "PersistentVolumeClaim" => self.claim.clone(),
            _ => self.shared.clone(),
        };
        doc["metadata"]["creationTimestamp"] = json!(now);
        if target.kind == VOLUME {
            doc["status"] = json!({"lastPhaseTransitionTime": now});
        }
        sim.model.put(&target.kind, doc);
    }
}

fn deletions(sim: &Sim<Volumes>) -> Vec<String> {
    sim.model.log().into_iter().filter(|line| line.starts_with("delete")).collect()
}

fn orders() -> [[ObjectRef; 3]; 6] {
    let (s, v, c) = (shared(), volume(), claim());
    [
        [s.clone(), v.clone(), c.clone()],
        [s.clone(), c.clone(), v.clone()],
        [v.clone(), s.clone(), c.clone()],
        [v.clone(), c.clone(), s.clone()],
        [c.clone(), s.clone(), v.clone()],
        [c, v, s],
    ]
}

#[tokio::test]
async fn a_restored_pair_is_adopted_in_any_order_also_when_the_operator_starts_in_the_midst() {
    let backup = Backup::taken().await;
    for order in orders() {
        // The operator runs when so many of them are there.
        for before in 0..=3 {
            let sim = start();
            let mut claim_uid = String::new();
            for (at, target) in order.iter().enumerate() {
                backup.restore(&sim, target);
                binder(&sim.model);
                if claim_uid.is_empty() {
                    claim_uid = uid(&sim, &claim());
                }
                if at + 1 >= before {
                    settle(&sim).await;
                    sim.advance(60);
                }
            }
            settle(&sim).await;
            let case = format!("{order:?}, the operator after {before}: {:?}", sim.model.log());
            assert_eq!(reason(&sim), "Bound", "{case}");
            assert_eq!(deletions(&sim), [""; 0], "{case}");
            for half in [volume(), claim()] {
                let marked = sim.model.object(&half).unwrap();
                assert_eq!(marked.label(OWNER_UID), Some(uid(&sim, &shared()).as_str()), "{case}");
            }
            if !claim_uid.is_empty() {
                assert_eq!(uid(&sim, &claim()), claim_uid, "{case}");
            }
            assert_eq!(sim.settle().await.writes, 0, "{case}");
        }
    }
}

#[tokio::test]
async fn a_volume_that_still_names_the_claim_of_the_backup_can_only_be_made_anew() {
    let mut backup = Backup::taken().await;
    backup.volume["spec"]["claimRef"]["uid"] = json!("of-the-backup");
    for order in orders() {
        let sim = start();
        for target in &order {
            backup.restore(&sim, target);
            settle(&sim).await;
        }
        assert_eq!(reason(&sim), "Bound", "{order:?}: {:?}", sim.model.log());
        let bound = sim.model.object(&volume()).unwrap();
        assert_eq!(bound.text("/spec/claimRef/uid"), uid(&sim, &claim()), "{order:?}");
    }
}

#[tokio::test]
async fn who_comes_again_with_the_same_wish_keeps_the_pair_although_a_mark_was_lost() {
    for loses_mark in [None, Some(volume()), Some(claim())] {
        let sim = ready().await;
        let before = (uid(&sim, &volume()), uid(&sim, &claim()));
        if let Some(target) = &loses_mark {
            sim.model.edit(target, |doc| {
                doc["metadata"]["labels"].as_object_mut().unwrap().remove(OWNER_UID);
            });
        }
        sim.model.edit(&shared(), |doc| doc["metadata"]["finalizers"] = json!([]));
        sim.model.delete(&shared());
        put(&sim, AP);
        settle(&sim).await;
        assert_eq!(reason(&sim), "Bound", "{loses_mark:?}");
        assert_eq!((uid(&sim, &volume()), uid(&sim, &claim())), before, "{loses_mark:?}");
    }
}

#[tokio::test]
async fn what_a_missing_shared_volume_has_left_stays_for_an_hour_and_then_goes() {
    let backup = Backup::taken().await;
    for restored in [vec![volume()], vec![claim()], vec![volume(), claim()]] {
        let sim = start();
        for target in &restored {
            backup.restore(&sim, target);
        }
        let made = sim.now();
        let left =
            |plan: Option<aquifer_engine::Plan>| plan.and_then(|plan| plan.wake_after).unwrap_or_default();
        assert_eq!(left(sim.plan(&key()).await).as_secs(), HOUR.unsigned_abs(), "{restored:?}");
        sim.advance(HOUR - 100);
        settle(&sim).await;
        assert_eq!(deletions(&sim), [""; 0], "{restored:?}");
        let passed = sim.now().duration_since(made).as_secs();
        assert_eq!(left(sim.plan(&key()).await).as_secs(), (HOUR - passed).unsigned_abs(), "{restored:?}");
        sim.advance(HOUR - passed);
        settle(&sim).await;
        for target in &restored {
            assert_eq!(sim.model.object(target), None, "{restored:?}");
        }
    }
}

/// A restored volume is reserved by name only, and Kubernetes gives it to whatever claim of that name comes first.
#[tokio::test]
async fn a_claim_of_a_user_that_got_a_restored_volume_is_neither_adopted_nor_deleted() {
    let backup = Backup::taken().await;
    let claims = [
        json!({"metadata": {"namespace": "team", "name": "pvc-data"}, "spec": {"storageClassName": "efs-sc"}}),
        // Marks alone, which users can write, make no claim of another class ours.
        json!({"metadata": {"namespace": "team", "name": "pvc-data", "labels": backup.claim["metadata"]["labels"],
            "annotations": backup.claim["metadata"]["annotations"]}, "spec": {"storageClassName": "fast", "volumeName": "pv-team-data"}}),
    ];
    for claim_of_user in claims {
        for with_shared_volume in [false, true] {
            let sim = start();
            binder(&sim.model);
            backup.restore(&sim, &volume());
            let theirs = sim.model.put(&CLAIM, claim_of_user.clone());
            settle(&sim).await;
            if with_shared_volume {
                backup.restore(&sim, &shared());
                settle(&sim).await;
                assert_eq!(reason(&sim), "Conflict", "{claim_of_user}");
                sim.model.delete(&shared());
            }
            sim.advance(2 * HOUR);
            settle(&sim).await;
            assert_eq!(uid(&sim, &claim()), theirs.uid(), "{claim_of_user} {:?}", sim.model.log());
        }
    }
}

#[tokio::test]
async fn what_has_begun_to_go_and_what_is_left_while_the_driver_goes_is_not_waited_for() {
    let backup = Backup::taken().await;
    for removal in [false, true] {
        let sim = start();
        backup.restore(&sim, &volume());
        backup.restore(&sim, &claim());
        settle(&sim).await;
        assert_eq!(deletions(&sim), [""; 0]);
        if removal {
            let component = json!({"metadata": {"name": driver::COMPONENT}, "spec": {"desired": "Removed"}});
            sim.model.put(&COMPONENT, component);
        } else {
            sim.model.delete(&claim());
        }
        settle(&sim).await;
        assert_eq!((sim.model.object(&volume()), sim.model.object(&claim())), (None, None), "{removal}");
    }
}

#[tokio::test]
async fn a_restored_pair_waits_for_what_allows_it_but_not_for_long() {
    let backup = Backup::taken().await;
    for comes in [true, false] {
        let sim = Sim::new(
            Volumes { tenancy: Tenancy::Restricted, ..Volumes::default() },
            Arc::clone(&start().model),
        );
        for target in [volume(), claim(), shared()] {
            backup.restore(&sim, &target);
        }
        binder(&sim.model);
        settle(&sim).await;
        assert_eq!((reason(&sim).as_str(), deletions(&sim).len()), ("NotAllowed", 0));
        let claimed = uid(&sim, &claim());
        if comes {
            let spec = json!({"fileSystemID": FS, "allowedNamespaces": {"names": ["team"]},
                "allowedAccessPoints": {"all": true}});
            sim.model.put(&SHARED_FILE_SYSTEM, json!({"metadata": {"name": "data"}, "spec": spec}));
            settle(&sim).await;
            assert_eq!((reason(&sim).as_str(), uid(&sim, &claim())), ("Bound", claimed));
        } else {
            sim.advance(HOUR);
            settle(&sim).await;
            assert_eq!(reason(&sim), "NotAllowed");
            assert_eq!((sim.model.object(&volume()), sim.model.object(&claim())), (None, None));
        }
    }
}

/// Users write the marks of claims, so these prove nothing: neither a volume of somebody else nor one that says nothing is taken over by them.
#[tokio::test]
async fn a_claim_with_forged_marks_takes_over_no_volume_of_others() {
    let backup = Backup::taken().await;
    let sim = start();
    let mut theirs = backup.volume.clone();
    theirs["metadata"]["name"] = json!("pv-other-data");
    theirs["metadata"]["annotations"][OWNER] = json!("other/data");
    theirs["metadata"]["labels"][labels::OWNER_NAMESPACE] = json!("other");
    theirs["spec"]["claimRef"]["namespace"] = json!("other");
    theirs["status"] = json!({"lastPhaseTransitionTime": sim.now().to_string()});
    let theirs = sim.model.put(&VOLUME, theirs);
    let mut forged = backup.claim.clone();
    forged["spec"]["volumeName"] = json!("pv-other-data");
    sim.model.put(&CLAIM, forged);
    put(&sim, AP);
    settle(&sim).await;
    let now = sim.model.object(&VOLUME.at("", "pv-other-data")).unwrap();
    assert_eq!(
        (now.uid(), now.deleting(), now.label(OWNER_UID)),
        (theirs.uid(), false, theirs.label(OWNER_UID))
    );
    assert_eq!(reason(&sim), "Bound", "{:?}", sim.model.log());
    assert_eq!(sim.model.object(&claim()).unwrap().text("/spec/volumeName"), volume_name(&key()));
}

#[tokio::test]
async fn a_restored_volume_is_adopted_also_when_a_write_of_its_adoption_is_refused_at_first() {
    let backup = Backup::taken().await;
    for refused in [claim(), volume()] {
        let sim = start();
        backup.restore(&sim, &volume());
        let before = uid(&sim, &volume());
        sim.model.refuse(&refused, ApiError::Forbidden("no".into()));
        backup.restore(&sim, &shared());
        for _ in 0..3 {
            sim.settle().await;
        }
        assert_eq!(reason(&sim), "AccessDenied");
        binder(&sim.model);
        sim.settle().await;
        sim.model.admit(&refused);
        settle(&sim).await;
        assert_eq!(
            (reason(&sim).as_str(), uid(&sim, &volume())),
            ("Bound", before),
            "{refused}: {:?}",
            sim.model.log()
        );
    }
}
