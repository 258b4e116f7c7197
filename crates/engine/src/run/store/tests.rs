//! What a cache knows, whom it wakes, and when it knows nothing.

use super::*;
use crate::object::Kind;
use serde_json::json;

mod looks;

const KIND: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");

fn parsed(key: &str) -> Key {
    Key::parse(key).expect("a key")
}

fn object(name: &str, version: u64, owner: &str, group: &str) -> Object {
    Object(
        json!({"metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": version.to_string(),
        "annotations": {crate::intent::OWNER: owner}}, "group": group}),
    )
}

fn store() -> Store {
    Store::new(Watch::children(KIND).grouped(|o| Some(o.text("/group").to_owned())))
}

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

fn woken(keys: &[&str]) -> BTreeSet<Key> {
    keys.iter().map(|k| parsed(k)).collect()
}

#[test]
fn nothing_is_known_before_the_first_list_is_complete() {
    let store = store();
    store.relist_begins();
    store.upsert(object("a", 1, "ns/x", "g"), now());
    assert_eq!(store.get(&parsed("ns/a")), Seen::Unknown(Why::NotSynced));
    store.relist_ends(now());
    assert!(store.get(&parsed("ns/a")).present().is_some());
    store.not_served();
    assert_eq!(store.list(|object| object), Seen::Unknown(Why::NotServed));
}

#[test]
fn the_end_of_a_list_whose_beginning_was_not_seen_says_nothing() {
    let store = store();
    assert_eq!(store.relist_ends(now()), Woken::default());
    assert_eq!(store.list(|object| object), Seen::Unknown(Why::NotSynced));
}

#[test]
fn a_released_object_is_caught_up_with_when_it_is_gone_or_newer_and_not_because_it_is_going() {
    let (store, key) = (store(), parsed("ns/a"));
    let going = |version: u64| {
        let mut going = object("a", version, "ns/x", "g");
        going.0["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        going
    };
    store.upsert(going(5), now());
    let (deleted, released) = (Progress::Deleted("a".into()), Progress::Released("a".into(), 5));
    let (gone, another) = (Progress::Gone("a".into()), Progress::Gone("another".into()));
    assert!(store.reached(&key, &deleted) && !store.reached(&key, &released));
    assert!(!store.reached(&key, &gone) && store.reached(&key, &another), "it is still here");
    store.upsert(going(6), now());
    assert!(store.reached(&key, &released), "another finalizer holds it");
    let released = Progress::Released("a".into(), 6);
    assert!(!store.reached(&key, &released));
    store.remove(&going(7), now());
    assert!(store.reached(&key, &released) && store.reached(&key, &gone));
}

#[test]
fn a_deletion_and_a_gap_in_a_relist_wake_the_owner() {
    let store = store();
    store.upsert(object("a", 1, "ns/x", "g"), now());
    store.upsert(object("b", 2, "ns/y", "h"), now());
    store.relist_ends(now());
    store.upsert(object("a", 1, "ns/x", "g"), now());
    store.upsert(object("b", 2, "ns/y", "h"), now());
    assert_eq!(store.remove(&object("b", 3, "ns/y", "h"), now()).keys, woken(&["ns/y"]));
    store.relist_begins();
    assert_eq!(store.relist_ends(now()).keys, woken(&["ns/x"]));
}

#[test]
fn a_changed_owner_wakes_both_and_a_repetition_nobody() {
    let store = store();
    store.upsert(object("a", 1, "ns/x", "g"), now());
    assert_eq!(store.upsert(object("a", 1, "ns/x", "g"), now()).keys, woken(&[]));
    assert_eq!(store.upsert(object("a", 2, "ns/y", "g"), now()).keys, woken(&["ns/x", "ns/y"]));
}

#[test]
fn joining_or_leaving_a_group_wakes_its_members() {
    let store = store();
    store.upsert(object("a", 1, "ns/x", "g"), now());
    assert_eq!(store.upsert(object("b", 2, "ns/y", "g"), now()).keys, woken(&["ns/x", "ns/y"]));
    assert_eq!(store.upsert(object("b", 3, "ns/y", "g"), now()).keys, woken(&["ns/y"]));
    assert_eq!(store.remove(&object("b", 4, "ns/y", "g"), now()).keys, woken(&["ns/x", "ns/y"]));
}

#[test]
fn a_change_outside_of_what_is_looked_at_wakes_nobody_and_the_version_is_known_all_the_same() {
    let store =
        Store::new(Watch::new(KIND, |_| Wakes::AllKeys).facts(|o| json!({"group": o.text("/group")})));
    store.relist_begins();
    store.relist_ends(now());
    assert!(store.upsert(object("a", 1, "ns/x", "g"), now()).all);
    assert!(!store.upsert(object("a", 2, "ns/y", "g"), now()).all);
    let seen = store.get(&parsed("ns/a")).present().cloned().expect("it is there");
    assert_eq!((seen.resource_version(), seen.text("/group"), seen.uid()), ("2", "g", "a"));
    assert!(store.upsert(object("a", 3, "ns/y", "h"), now()).all);
    let mut again = object("a", 4, "ns/y", "h");
    again.0["metadata"]["uid"] = "another".into();
    assert!(store.upsert(again, now()).all, "another object of that name");
}

#[test]
fn subjects_are_counted_by_readiness_and_the_time_until_they_are_ready_is_taken_once() {
    let times = Histogram::new([1.0, 100.0]);
    let store = Store::new(Watch::subjects(KIND)).timed(times.clone());
    let at = |seconds: i64| Timestamp::from_second(seconds).unwrap();
    let subject = |name: &str, version: u64, ready: Option<&str>| {
        let mut subject = object(name, version, "", "");
        subject.0["metadata"]["creationTimestamp"] = at(100).to_string().into();
        if let Some(ready) = ready {
            let condition = json!({"type": "Ready", "status": ready, "reason": "InUse", "lastTransitionTime": at(101).to_string()});
            subject.0["status"]["conditions"] = json!([condition]);
        }
        subject
    };
    store.upsert(subject("a", 1, None), at(100));
    store.upsert(subject("b", 2, Some("False")), at(101));
    let because = |reasons: &[(&str, usize)]| reasons.iter().map(|&(why, n)| (why.to_owned(), n)).collect();
    let reasons = because(&[("", 1), ("InUse", 1)]);
    assert_eq!(store.census(), Census { not_ready: 1, unknown: 1, reasons, ..Census::default() });
    store.upsert(subject("a", 2, Some("False")), at(130));
    store.upsert(subject("a", 3, Some("True")), at(142));
    store.upsert(subject("a", 4, Some("True")), at(199));
    store.upsert(subject("c", 5, Some("True")), at(199));
    let mut going = subject("b", 6, Some("False"));
    going.0["metadata"]["deletionTimestamp"] = at(150).to_string().into();
    store.upsert(going, at(151));
    let oldest_deletion = Some(at(150));
    let reasons = because(&[("InUse", 1)]);
    assert_eq!(
        store.census(),
        Census { ready: 2, not_ready: 1, reasons, oldest_deletion, ..Census::default() }
    );
    let mut registry = prometheus_client::registry::Registry::default();
    registry.register("times", "", times);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(text.contains("times_sum 42.0") && text.contains("times_count 1"), "{text}");
}

#[test]
fn a_version_that_is_no_number_comes_back_as_it_was() {
    let (store, mut odd) = (store(), object("a", 1, "ns/x", "g"));
    odd.0["metadata"]["resourceVersion"] = "v07".into();
    store.relist_begins();
    store.upsert(odd, now());
    store.relist_ends(now());
    assert_eq!(store.get(&parsed("ns/a")).present().map(Object::resource_version), Some("v07"));
}

#[test]
fn while_the_code_of_a_watch_panics_at_an_object_no_list_is_complete_and_the_watch_goes_on() {
    let store = Store::new(Watch::new(KIND, |object| {
        assert_ne!(object.text("/group"), "bad", "a mistake");
        Wakes::Keys(vec![parsed("ns/owner")])
    }));
    store.relist_begins();
    store.upsert(object("a", 1, "", "good"), now());
    store.upsert(object("b", 2, "", "good"), now());
    store.relist_ends(now());
    assert!(
        store.upsert(object("b", 3, "", "bad"), now()).all,
        "all must know that the list is not complete"
    );
    let owner = parsed("ns/owner");
    let why = |seen: Seen<BTreeMap<Key, Object>>| seen.why().map(ToString::to_string).unwrap_or_default();
    assert!(
        why(store.waking(&owner, |object| object)).contains("a mistake"),
        "{}",
        why(store.waking(&owner, |object| object))
    );
    assert!(store.list(|object| object).known().is_none() && store.get(&parsed("ns/b")).known().is_none());
    assert!(store.get(&parsed("ns/a")).present().is_some(), "what can be read can be looked at");
    assert!(store.upsert(object("b", 4, "", "good"), now()).all);
    assert_eq!(store.waking(&owner, |object| object).known().map(BTreeMap::len), Some(2));
}

#[test]
fn a_list_that_is_required_counts_from_its_beginning_and_without_it_nothing_is_known() {
    let store = store();
    store.relist_begins();
    store.require_list();
    store.relist_ends(now());
    assert!(!store.settled(), "that list began too early");
    store.relist_begins();
    assert!(store.relist_ends(now()).all && store.settled(), "this one did not, and everybody is woken");
    store.failing("refused");
    assert!(store.list(|object| object).known().is_some(), "what was listed is still the best that is known");
    store.require_list();
    assert!(store.failing("refused").all);
    let why = store.list(|object| object).why().map(ToString::to_string);
    assert_eq!((store.settled(), why.as_deref()), (true, Some("unreachable: refused")));
    store.require_list();
    assert!(store.failing("refused").all, "who waits for the new list must learn that it failed too");
    assert!(store.answered(), "that nothing can be known is an answer");
    store.relist_begins();
    assert!(store.relist_ends(now()).all && store.list(|object| object).known().is_some());
}

#[test]
fn half_a_list_does_not_show_that_the_cache_has_come_as_far_as_a_write() {
    let store = store();
    store.relist_begins();
    store.upsert(object("z", 5, "", ""), now());
    store.relist_ends(now());
    store.relist_begins();
    store.upsert(object("a", 300, "", ""), now());
    let z = parsed("ns/z");
    assert!(!store.reached(&z, &Progress::Revision(100)), "what the list shows of z is still to come");
    store.upsert(object("z", 100, "", ""), now());
    assert!(store.reached(&z, &Progress::Revision(100)));
    store.relist_ends(now());
    assert!(store.reached(&parsed("ns/gone"), &Progress::Revision(300)));
}

#[test]
fn that_a_kind_is_still_not_served_wakes_who_waits_for_its_list() {
    let store = store();
    assert!(store.not_served().all);
    assert!(!store.not_served().all);
    store.require_list();
    assert!(store.not_served().all && store.settled());
}

#[test]
fn in_a_large_group_nobody_is_woken_by_the_others_until_all_can_be_named() {
    let store = Store::new(Watch::subjects(KIND).grouped(|o| Some(o.text("/group").to_owned())));
    store.relist_begins();
    for n in 0..100 {
        store.upsert(object(&format!("{n:03}"), n, "", "g"), now());
    }
    store.relist_ends(now());
    assert_eq!(store.upsert(object("050", 200, "", "other"), now()).keys, woken(&["ns/050"]));
    assert_eq!(store.upsert(object("999", 201, "", "g"), now()).keys, woken(&["ns/999"]));
    assert_eq!(
        store.remove(&object("000", 202, "", "g"), now()).keys,
        woken(&["ns/000"]),
        "not even the first"
    );
    for n in (1..92).filter(|n| *n != 50) {
        store.remove(&object(&format!("{n:03}"), 300 + n, "", "g"), now());
    }
    // Nine are left.
    assert_eq!(store.group("g").known().map(Vec::len), Some(8), "enough to tell that they are too many");
    assert_eq!(store.remove(&object("999", 400, "", "g"), now()).keys, woken(&["ns/999"]), "eight are left");
    assert_eq!(store.remove(&object("092", 401, "", "g"), now()).keys.len(), 8, "seven, which can be named");
    assert_eq!(store.upsert(object("100", 402, "", "g"), now()).keys.len(), 8, "and now they cannot");
    assert_eq!(store.upsert(object("101", 403, "", "g"), now()).keys, woken(&["ns/101"]));
}

#[test]
fn nobody_makes_himself_the_child_of_an_owner_in_another_namespace() {
    let watch = Watch::children(KIND);
    let wakes = |owner: &str| watch.whom(&object("a", 1, owner, "g"));
    assert_eq!(wakes("ns/x"), Wakes::Keys(vec![parsed("ns/x")]));
    assert_eq!(wakes("cluster-wide"), Wakes::Keys(vec![parsed("cluster-wide")]));
    for owner in ["other/x", "ns/x/status", "/x", "ns/", ""] {
        assert_eq!(wakes(owner), Wakes::NoKey, "{owner}");
    }
}

#[test]
fn children_of_an_owner_of_another_kind_wake_nobody_and_those_without_the_mark_still_do() {
    const OTHER: Kind = Kind::namespaced("a.b", "v1", "Other", "others");
    let owned_by = |mark: Option<&str>| {
        let mut child = object("a", 1, "ns/x", "g");
        if let Some(mark) = mark {
            child.0["metadata"]["annotations"][crate::intent::OWNER_KIND] = json!(mark);
        }
        Watch::children(KIND).of_subjects(OTHER).whom(&child)
    };
    let owner = Wakes::Keys(vec![parsed("ns/x")]);
    assert_eq!(owned_by(Some("Other.a.b")), owner);
    assert_eq!(owned_by(None), owner, "it was made before there was the mark");
    assert_eq!(owned_by(Some("Other.c.d")), Wakes::NoKey);
    let subjects = Watch::subjects(KIND).of_subjects(KIND);
    assert_eq!(subjects.whom(&object("a", 1, "", "g")), Wakes::Itself);
}

#[test]
fn objects_are_found_by_their_topics_and_a_change_names_the_old_topic_and_the_new_one() {
    let topics = |object: &Object| vec![object.text("/group").to_owned(), "all".to_owned()];
    let subjects = Store::new(Watch::subjects(KIND).topics(topics));
    subjects.relist_begins();
    for (name, group) in [("b", "g"), ("a", "g"), ("c", "h")] {
        subjects.upsert(object(name, 1, "ns/x", group), now());
    }
    assert_eq!(subjects.topic("g"), Seen::Unknown(Why::NotSynced));
    subjects.relist_ends(now());
    let of = |topic: &str| subjects.topic(topic).known().cloned().unwrap();
    assert_eq!(of("g"), [parsed("ns/a"), parsed("ns/b")]);
    assert_eq!(of("all").len(), 3);
    subjects.upsert(object("a", 2, "ns/x", "h"), now());
    subjects.remove(&object("c", 3, "ns/x", "h"), now());
    assert_eq!((of("g"), of("h")), (vec![parsed("ns/b")], vec![parsed("ns/a")]));
    assert_eq!(of("of nobody"), []);

    let others = Store::new(Watch::new(KIND, |object| Wakes::Topic(object.text("/group").to_owned())));
    let woken = |object| others.upsert(object, now()).topics.into_iter().collect::<Vec<_>>();
    assert_eq!(woken(object("o", 1, "", "g")), ["g"]);
    assert_eq!(woken(object("o", 2, "", "h")), ["g", "h"], "those of the topic that it was about, too");
    assert_eq!(woken(object("o", 2, "", "h")), Vec::<String>::new(), "a relist is no news");
}
