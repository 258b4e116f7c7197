//! All caches of one controller: one for each of its watches. A controller may watch several parts of a kind, such as two
//! namespaces; together they answer as one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::object::{Key, Kind, Object, ObjectRef};
use crate::seen::{Group, Seen, Why};
use crate::store::{Progress, Store};

/// The caches of one controller.
#[derive(Clone, Default)]
pub struct Stores(BTreeMap<Kind, Vec<Arc<Store>>>);

impl Stores {
    /// Adds the cache of a watch.
    pub fn add(&mut self, store: Arc<Store>) {
        self.0.entry(store.watch().kind.clone()).or_default().push(store);
    }

    /// Every cache.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Store>> {
        self.0.values().flatten()
    }

    /// The caches of a kind.
    pub(crate) fn of(&self, kind: &Kind) -> &[Arc<Store>] {
        self.0.get(kind).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether a watch of ours shows this object; of one that is gone its labels are not known.
    pub(crate) fn shows(&self, target: &ObjectRef, object: Option<&Object>) -> bool {
        self.of(&target.kind).iter().any(|store| match object {
            Some(object) => store.watch().scope().shows(object),
            None => store.may_hold(&target.key),
        })
    }

    /// Whether the first lists of a kind are complete. False for a kind that is not watched.
    pub(crate) fn synced(&self, kind: &Kind) -> bool {
        let stores = self.of(kind);
        !stores.is_empty() && stores.iter().all(|store| store.synced())
    }

    /// One object. Not known while any cache that could hold it knows nothing.
    pub(crate) fn get(&self, target: &ObjectRef) -> Seen<Option<Object>> {
        let mut seen = Seen::Unknown(Why::NotSynced);
        for store in self.of(&target.kind).iter().filter(|store| store.may_hold(&target.key)) {
            match store.get(&target.key) {
                found @ Seen::Known { value: Some(_), .. } => return found,
                unknown @ Seen::Unknown(_) => return unknown,
                absent => seen = absent,
            }
        }
        seen
    }

    /// The uid of an object that some cache shows.
    pub(crate) fn uid(&self, target: &ObjectRef) -> Option<String> {
        self.of(&target.kind).iter().find_map(|store| store.uid(&target.key))
    }

    /// The objects of a kind that wake a key.
    pub(crate) fn waking(&self, kind: &Kind, key: &Key) -> Seen<BTreeMap<Key, Object>> {
        self.together(kind, |store| store.waking(key, |object| object))
    }

    /// The members of a group of a kind.
    pub(crate) fn group(&self, kind: &Kind, group: &str) -> Seen<Group> {
        self.keys(kind, |store| store.group(group)).map(Group::of)
    }

    /// All objects of a kind that are of a topic.
    pub(crate) fn topic(&self, kind: &Kind, topic: &str) -> Seen<Vec<Key>> {
        self.keys(kind, |store| store.topic(topic))
    }

    /// What all caches of a kind say, each key once. Not known while one of them knows nothing.
    fn keys(&self, kind: &Kind, look: impl Fn(&Store) -> Seen<Vec<Key>>) -> Seen<Vec<Key>> {
        let mut stores = self.of(kind).iter().map(|store| look(store));
        let Some(first) = stores.next() else { return Seen::Unknown(Why::NotSynced) };
        stores.fold(first, |seen, more| match (seen, more) {
            (Seen::Known { mut value, read_at }, Seen::Known { value: more, read_at: other }) => {
                value.extend(more);
                value.sort_unstable();
                value.dedup();
                Seen::Known { value, read_at: read_at.min(other) }
            }
            (unknown @ Seen::Unknown(_), _) | (_, unknown @ Seen::Unknown(_)) => unknown,
        })
    }

    /// What counts as news from the user about an object, where it is a subject.
    pub(crate) fn news_mark(&self, target: &ObjectRef) -> Option<u64> {
        self.of(&target.kind).iter().find_map(|store| store.news_mark(&target.key))
    }

    /// A live object, as a cache would show it.
    pub(crate) fn as_kept(&self, kind: &Kind, object: Object) -> Object {
        match self.of(kind).iter().find(|store| store.watch().scope().shows(&object)) {
            Some(store) => store.as_kept(object),
            None => object,
        }
    }

    /// Whether a label or annotation is one of ours.
    pub(crate) fn is_ours(&self, kind: &Kind, name: &str) -> bool {
        self.of(kind).iter().any(|store| store.watch().is_ours(name))
    }

    /// Whether the caches have come as far as what was written or read. What no watch can show is not waited for. Also asks caches
    /// whose labels leave the object out, because its labels are not known here: that may cost a wait, never a wrong decision.
    pub(crate) fn reached(&self, target: &ObjectRef, progress: &Progress) -> bool {
        let mut holding = self.of(&target.kind).iter().filter(|store| store.may_hold(&target.key));
        holding.all(|store| store.reached(&target.key, progress))
    }

    /// What all caches of a kind say, each object once. Not known while one of them knows nothing.
    pub(crate) fn together<T>(
        &self,
        kind: &Kind,
        look: impl Fn(&Store) -> Seen<BTreeMap<Key, T>>,
    ) -> Seen<BTreeMap<Key, T>> {
        let mut stores = self.of(kind).iter();
        let Some(first) = stores.next() else { return Seen::Unknown(Why::NotSynced) };
        let first = look(first);
        stores.fold(first, |seen, store| match (seen, look(store)) {
            (Seen::Known { mut value, read_at }, Seen::Known { value: more, read_at: other }) => {
                for (key, more) in more {
                    value.entry(key).or_insert(more);
                }
                Seen::Known { value, read_at: read_at.min(other) }
            }
            (unknown @ Seen::Unknown(_), _) | (_, unknown @ Seen::Unknown(_)) => unknown,
        })
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::watch::Watch;

    const KIND: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");

    fn store(watch: Watch, names: &[&str]) -> Arc<Store> {
        let store = Store::new(watch);
        store.relist_begins();
        for name in names {
            let (namespace, name) = name.split_once('/').unwrap();
            let metadata = json!({"namespace": namespace, "name": name, "uid": name, "resourceVersion": "5"});
            store.upsert(Object(json!({"metadata": metadata})), Timestamp::UNIX_EPOCH);
        }
        store.relist_ends(Timestamp::UNIX_EPOCH);
        Arc::new(store)
    }

    fn watch(namespace: &str) -> Watch {
        Watch::subjects(KIND).in_namespace(namespace)
    }

    #[test]
    fn two_namespaces_of_a_kind_answer_as_one_and_a_third_is_not_known() {
        let mut stores = Stores::default();
        stores.add(store(watch("a"), &["a/x", "a/y"]));
        stores.add(store(watch("b"), &["b/x"]));
        stores.add(store(watch("b").named("x"), &["b/x"]));
        let keys: Vec<String> = stores
            .together(&KIND, |store| store.list(|object| object))
            .known()
            .unwrap()
            .keys()
            .map(ToString::to_string)
            .collect();
        assert_eq!(keys, ["a/x", "a/y", "b/x"]);
        assert!(stores.get(&KIND.at("b", "x")).present().is_some());
        assert!(stores.get(&KIND.at("b", "z")).absent());
        assert_eq!(stores.get(&KIND.at("c", "x")).why(), Some(&Why::NotSynced));
    }

    #[test]
    fn nothing_is_known_of_a_kind_while_one_of_its_watches_is_not_complete() {
        let mut stores = Stores::default();
        stores.add(store(watch("a"), &["a/x"]));
        stores.add(Arc::new(Store::new(watch("b"))));
        assert!(
            stores.together(&KIND, |store| store.list(|object| object)).known().is_none()
                && !stores.synced(&KIND)
        );
        assert!(stores.get(&KIND.at("a", "x")).present().is_some());
    }

    #[test]
    fn a_write_that_no_watch_can_show_is_not_waited_for() {
        let mut stores = Stores::default();
        stores.add(store(watch("a"), &["a/x"]));
        assert!(!stores.reached(&KIND.at("a", "x"), &Progress::Revision(6)));
        assert!(stores.reached(&KIND.at("b", "x"), &Progress::Revision(6)));
    }
    #[test]
    fn a_kind_is_complete_when_all_its_watches_are_and_never_when_it_has_none() {
        let mut stores = Stores::default();
        assert!(!stores.synced(&KIND), "it is not watched");
        stores.add(store(watch("a"), &["a/x"]));
        stores.add(store(watch("b"), &[]));
        assert!(stores.synced(&KIND));
        assert_eq!(stores.all().count(), 2);
    }

    #[test]
    fn a_group_is_that_of_all_watches_in_order_and_each_member_once() {
        let grouped = |namespace: &str| watch(namespace).grouped(|_| Some("g".to_owned()));
        let group = |stores: &Stores| {
            stores.group(&KIND, "g").known().map(|group| match group {
                Group::Few(keys) => keys.iter().map(ToString::to_string).collect::<Vec<_>>(),
                Group::Many => vec!["many".to_owned()],
            })
        };
        let mut stores = Stores::default();
        assert_eq!(group(&stores), None, "it is not watched");
        stores.add(store(grouped("b"), &["b/x"]));
        stores.add(store(grouped("b").named("x"), &["b/x"]));
        stores.add(store(grouped("a"), &["a/y", "a/x"]));
        assert_eq!(group(&stores), Some(["a/x", "a/y", "b/x"].map(str::to_owned).into()));
        let many: Vec<String> = (0..Group::NAMED - 2).map(|n| format!("c/{n}")).collect();
        stores.add(store(grouped("c"), &many.iter().map(String::as_str).collect::<Vec<_>>()));
        assert_eq!(group(&stores), Some(vec!["many".to_owned()]), "together they are eight");
        stores.add(Arc::new(Store::new(grouped("d"))));
        assert_eq!(group(&stores), None, "one of them knows nothing");
    }

    #[test]
    fn what_is_of_a_topic_is_that_of_all_watches_in_order_and_each_once() {
        let of_topic = |namespace: &str| watch(namespace).topics(|_| vec!["t".to_owned()]);
        let mut stores = Stores::default();
        stores.add(store(of_topic("b"), &["b/x"]));
        stores.add(store(of_topic("b").named("x"), &["b/x"]));
        stores.add(store(of_topic("a"), &["a/x"]));
        let keys = stores.topic(&KIND, "t").known().cloned().unwrap();
        assert_eq!(keys.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a/x", "b/x"]);
    }

    #[test]
    fn a_watch_shows_what_is_in_its_namespace_and_has_its_labels() {
        let mut stores = Stores::default();
        stores.add(store(watch("a").labelled("example.com/ours=yes"), &[]));
        let object = |namespace: &str, ours: &str| {
            let labels = json!({"example.com/ours": ours});
            Object(json!({"metadata": {"namespace": namespace, "name": "x", "labels": labels}}))
        };
        for (namespace, ours, shown) in [("a", "yes", true), ("a", "no", false), ("b", "yes", false)] {
            let object = object(namespace, ours);
            assert_eq!(stores.shows(&KIND.key(&object.key()), Some(&object)), shown, "{object:?}");
        }
        assert!(stores.shows(&KIND.at("a", "gone"), None), "the labels of what is gone are not known");
        assert!(!stores.shows(&KIND.at("b", "gone"), None));
        assert!(stores.is_ours(&KIND, "example.com/ours") && !stores.is_ours(&KIND, "example.com/theirs"));
    }

    #[test]
    fn what_a_cache_keeps_and_what_is_news_is_asked_of_the_watch_that_shows_the_object() {
        let mut stores = Stores::default();
        stores.add(store(watch("a").facts(|_| json!({"fact": 1})), &["a/x"]));
        stores.add(store(Watch::new(KIND, |_| crate::watch::Wakes::NoKey).in_namespace("b"), &["b/x"]));
        let live =
            |namespace: &str| Object(json!({"metadata": {"namespace": namespace, "name": "x"}, "more": 1}));
        let kept = stores.as_kept(&KIND, live("a"));
        assert_eq!((kept.at("/fact"), kept.at("/more")), (Some(&json!(1)), None));
        for namespace in ["b", "c"] {
            assert_eq!(stores.as_kept(&KIND, live(namespace)), live(namespace));
        }
        let mark = |namespace: &str| stores.news_mark(&KIND.at(namespace, "x"));
        let direct = stores.of(&KIND).iter().find_map(|store| store.news_mark(&Key::namespaced("a", "x")));
        assert!(direct.is_some());
        assert_eq!((mark("a"), mark("b")), (direct, None), "only subjects have news");
    }
}
