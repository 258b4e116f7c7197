//! Who wakes whom, what is news, and what a live object looks like.

use super::*;

fn names(seen: &Seen<BTreeMap<Key, Object>>) -> Vec<String> {
    seen.known().expect("it is known").values().map(|object| object.name().to_owned()).collect()
}

fn listed(store: &Store, objects: Vec<Object>) -> Woken {
    store.relist_begins();
    for object in objects {
        store.upsert(object, now());
    }
    store.relist_ends(now())
}

#[test]
fn a_child_wakes_its_owner_and_a_subject_itself() {
    let (child, owner, itself) = (object("a", 1, "ns/x", "g"), parsed("ns/x"), parsed("ns/a"));
    let children = store();
    let subjects = Store::new(Watch::subjects(KIND));
    for (store, woken, other) in [(&children, &owner, &itself), (&subjects, &itself, &owner)] {
        listed(store, vec![child.clone()]);
        assert_eq!(store.woken_keys(), std::slice::from_ref(woken));
        for (key, wakes) in [(woken, true), (other, false)] {
            assert_eq!((store.wakes(key), store.would_wake(&child, key)), (wakes, wakes), "{key}");
            assert_eq!(names(&store.waking(key, |object| object)), vec!["a"; usize::from(wakes)], "{key}");
        }
    }
    assert_eq!((children.group_of(&child), subjects.group_of(&child)), (Some("g".to_owned()), None));
}

#[test]
fn what_the_user_says_of_a_subject_is_news_and_nothing_else_is() {
    let store = Store::new(Watch::subjects(KIND));
    let mark = |edit: fn(&mut Value)| {
        let mut object = object("a", 1, "ns/x", "g");
        edit(&mut object.0);
        store.upsert(object, now());
        store.news_mark(&parsed("ns/a")).expect("a subject has one")
    };
    let first = mark(|_| {});
    let same: [fn(&mut Value); 3] = [
        |doc| doc["metadata"]["resourceVersion"] = json!("2"),
        |doc| doc["metadata"]["annotations"]["example.com/theirs"] = json!("x"),
        |doc| doc["status"] = json!({"phase": "P"}),
    ];
    for edit in same {
        assert_eq!(mark(edit), first);
    }
    let news: [fn(&mut Value); 4] = [
        |doc| doc["metadata"]["uid"] = json!("another"),
        |doc| doc["metadata"]["generation"] = json!(2),
        |doc| doc["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
        |doc| doc["metadata"]["annotations"][crate::PAUSED] = json!("true"),
    ];
    for edit in news {
        assert_ne!(mark(edit), first);
    }
    let children = super::store();
    children.upsert(object("a", 1, "ns/x", "g"), now());
    assert_eq!(children.news_mark(&parsed("ns/a")), None, "a child is no subject");
}

#[test]
fn a_live_object_looks_as_the_cache_would_show_it() {
    let mut live = object("a", 7, "ns/x", "g");
    live.0["more"] = json!(1);
    assert_eq!(store().as_kept(live.clone()), live, "where versions count, it is shown as it is");
    let facts =
        Store::new(Watch::new(KIND, |_| Wakes::NoKey).facts(|object| json!({"group": object.at("/group")})));
    let kept = facts.as_kept(live);
    assert_eq!((kept.text("/group"), kept.at("/more")), ("g", None), "nothing but facts");
    assert_eq!((kept.name(), kept.uid(), kept.resource_version()), ("a", "a", "7"));
}

#[test]
fn a_list_that_shows_what_was_known_wakes_nobody() {
    let store = store();
    let all = || vec![object("a", 1, "ns/x", "g"), object("b", 2, "ns/y", "g")];
    assert!(listed(&store, all()).all, "the first is what everybody waits for");
    assert_eq!(listed(&store, all()), Woken::default());
}

#[test]
fn a_cache_that_has_said_nothing_has_not_answered_and_the_first_failure_is_an_answer() {
    let store = store();
    assert!(!store.answered() && !store.settled() && !store.synced());
    assert!(store.failing("refused").all, "everybody waits for it");
    assert!(store.answered() && store.settled() && !store.synced());
    assert!(!store.failing("refused").all, "that is known");
    listed(&store, Vec::new());
    assert!(store.answered() && store.settled() && store.synced());
}

#[test]
fn a_deletion_is_reached_when_the_object_goes_is_gone_or_is_another() {
    let (store, key) = (store(), parsed("ns/a"));
    let (deleted, released) = (Progress::Deleted("a".into()), Progress::Released("a".into(), 9));
    assert!(store.reached(&key, &deleted), "it is not there");
    store.upsert(object("a", 5, "ns/x", "g"), now());
    assert!(!store.reached(&key, &deleted), "it is still there as it was");
    let mut another = object("a", 6, "ns/x", "g");
    another.0["metadata"]["uid"] = "another".into();
    store.upsert(another, now());
    assert!(store.reached(&key, &deleted) && store.reached(&key, &released), "that is another one");
}

/// A watch whose code panics at some objects, and that keeps only facts.
fn fragile() -> Store {
    let watch = Watch::new(KIND, |object| {
        assert_ne!(object.text("/group"), "bad", "a mistake");
        Wakes::NoKey
    });
    let store = Store::new(watch.facts(|object| json!({"group": object.at("/group")})));
    listed(&store, vec![object("a", 1, "", "good"), object("b", 2, "", "good")]);
    store
}

#[test]
fn that_the_code_of_a_watch_panics_is_news_once_and_is_counted_each_time() {
    let store = fragile();
    let woken = |version: u64| store.upsert(object("a", version, "", "bad"), now());
    assert_eq!(woken(3), Woken { all: true, panicked: true, ..Woken::default() });
    assert_eq!(woken(4), Woken { panicked: true, ..Woken::default() });
}

#[test]
fn everybody_learns_that_all_can_be_read_again_however_that_comes_about() {
    type Heal = fn(&Store) -> Woken;
    let ways: [(&str, Heal); 3] = [
        ("it says what it said before", |store| store.upsert(object("a", 4, "", "good"), now())),
        ("it is deleted", |store| store.remove(&object("a", 4, "", "bad"), now())),
        ("a list does not show it", |store| listed(store, vec![object("b", 2, "", "good")])),
    ];
    for (what, heal) in ways {
        let store = fragile();
        store.upsert(object("a", 3, "", "bad"), now());
        assert!(store.list(|object| object).known().is_none(), "{what}");
        assert!(heal(&store).all, "{what}");
        assert!(store.list(|object| object).known().is_some(), "{what}");
    }
    let store = fragile();
    store.upsert(object("a", 3, "", "bad"), now());
    store.upsert(object("b", 4, "", "bad"), now());
    assert!(!store.upsert(object("a", 5, "", "good"), now()).all, "the other cannot be read yet");
}
