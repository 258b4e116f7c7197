//! The cache of one watch. Holds compact JSON, parsed when looked at; `kept` says of what.
//! Knows which keys each object wakes; knows nothing of the API.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use jiff::Timestamp;
use serde_json::Value;

use crate::kept::{Kept, restored};
use crate::object::{Key, Kind, Object, revision};
use crate::seen::{Seen, Why};

/// Whom a change of an object wakes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wakes {
    /// Nobody: it is only looked up.
    Nobody,
    /// The key that it has itself: it is a subject.
    Itself,
    /// These keys.
    Keys(Vec<Key>),
    /// Every key of the controller.
    Everybody,
}

type WakesFn = Arc<dyn Fn(&Object) -> Wakes + Send + Sync>;
type GroupFn = Arc<dyn Fn(&Object) -> Option<String> + Send + Sync>;

/// A kind to watch, and what its objects mean to the controller.
#[derive(Clone)]
#[must_use]
pub struct Watch {
    /// The kind.
    pub kind: Kind,
    /// Label selector; the cache then holds a part only, and absence from it proves nothing.
    pub labels: Option<String>,
    /// Only objects of this name.
    pub name: Option<String>,
    /// Only objects in this namespace.
    pub namespace: Option<String>,
    wakes: WakesFn,
    group: Option<GroupFn>,
    kept: Kept,
    /// Beginnings of the names of labels and annotations that mean something to the family, besides the engine's own.
    marks: Vec<String>,
}

impl Watch {
    /// Watches a kind.
    pub fn new(kind: Kind, wakes: impl Fn(&Object) -> Wakes + Send + Sync + 'static) -> Self {
        Self {
            kind,
            labels: None,
            name: None,
            namespace: None,
            wakes: Arc::new(wakes),
            group: None,
            kept: Kept::Content,
            marks: vec![crate::intent::PREFIX.to_owned()],
        }
    }

    /// Watches the kind of the subjects: each wakes itself.
    pub fn subjects(kind: Kind) -> Self {
        Self::new(kind, |_| Wakes::Itself)
    }

    /// Watches children that carry our marks: each wakes the owner it names.
    pub fn children(kind: Kind) -> Self {
        Self::new(kind, |object| {
            crate::intent::owner_key(object).map_or(Wakes::Nobody, |key| Wakes::Keys(vec![key]))
        })
    }

    /// Only objects with these labels; the label is one of ours then.
    pub fn labelled(mut self, selector: &str) -> Self {
        self.marks.push(selector.split('=').next().unwrap_or(selector).to_owned());
        self.labels = Some(selector.to_owned());
        self
    }

    /// Labels and annotations whose names begin so are ours too.
    pub fn marked(mut self, prefix: &str) -> Self {
        self.marks.push(prefix.to_owned());
        self
    }

    /// Whether a label or annotation is one of ours.
    pub(crate) fn is_ours(&self, name: &str) -> bool {
        self.marks.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }

    /// Only the object (in every namespace) of this name.
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Only objects in this namespace.
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// What of the cluster it shows.
    pub(crate) fn scope(&self) -> Scope {
        Scope {
            kind: self.kind.clone(),
            namespace: self.namespace.clone(),
            labels: self.labels.clone(),
            name: self.name.clone(),
        }
    }

    /// Objects of one group wake each other when one joins or leaves, and can be looked up by it.
    pub fn grouped(mut self, group: impl Fn(&Object) -> Option<String> + Send + Sync + 'static) -> Self {
        self.group = Some(Arc::new(group));
        self
    }

    /// For a kind that we apply: the cache keeps only these parts (JSON pointers), besides metadata that is ours. They must
    /// hold all that our intents say, or we would write for ever.
    pub fn keep(mut self, parts: &'static [&'static str]) -> Self {
        self.kept = Kept::Parts(parts);
        self
    }

    /// For a kind that is only looked at: the cache keeps what this makes of the object, and since when it is being
    /// deleted. When none of it has changed, nobody is woken.
    pub fn facts(mut self, facts: impl Fn(&Object) -> Value + Send + Sync + 'static) -> Self {
        self.kept = Kept::Facts(Arc::new(facts));
        self
    }

    /// For a kind that is replaced wholesale: the cache keeps everything, with `managedFields`.
    pub fn replaced(mut self) -> Self {
        self.kept = Kept::Whole;
        self
    }
}

/// A part of a kind that is watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Scope {
    pub kind: Kind,
    pub namespace: Option<String>,
    pub labels: Option<String>,
    pub name: Option<String>,
}

impl Scope {
    /// Whether an object of this key is in it, its labels apart.
    pub fn may_hold(&self, key: &Key) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| namespace == &*key.namespace)
            && self.name.as_deref().is_none_or(|name| name == &*key.name)
    }
}

/// The cache of one watch.
pub struct Store {
    watch: Watch,
    inner: RwLock<Inner>,
}

#[derive(Default)]
struct Inner {
    state: SyncState,
    read_at: Timestamp,
    progress: u64,
    objects: BTreeMap<Key, Entry>,
    /// By woken key, the objects that wake it, themselves apart. Vectors, because nearly all hold one: a tree has room for
    /// eleven at once.
    by_wake: BTreeMap<Key, Vec<Key>>,
    groups: BTreeMap<String, Vec<Key>>,
    /// During a relist: what it has shown so far.
    relisted: Option<BTreeSet<Key>>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum SyncState {
    #[default]
    NotSynced,
    NotServed,
    Synced,
}

struct Entry {
    uid: Box<str>,
    revision: u64,
    /// The version where it is not the revision in digits.
    odd_version: Option<Box<str>>,
    deleting: bool,
    wakes: Wakes,
    group: Option<String>,
    doc: Box<[u8]>,
}

/// Keys to wake after a change.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Woken {
    /// These keys.
    pub keys: BTreeSet<Key>,
    /// All keys of the controller.
    pub everybody: bool,
}

impl Woken {
    fn add(&mut self, key: &Key, wakes: &Wakes) {
        match wakes {
            Wakes::Nobody => {}
            Wakes::Itself => {
                self.keys.insert(key.clone());
            }
            Wakes::Keys(keys) => self.keys.extend(keys.iter().cloned()),
            Wakes::Everybody => self.everybody = true,
        }
    }
}

impl Store {
    /// An empty cache, not synced.
    pub fn new(watch: Watch) -> Self {
        Self { watch, inner: RwLock::default() }
    }

    /// The watch that fills it.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Whether an object of this key could be here, its labels apart.
    pub(crate) fn may_hold(&self, key: &Key) -> bool {
        self.watch.scope().may_hold(key)
    }

    /// A list begins: what it does not show is gone when it ends.
    pub fn relist_begins(&self) {
        self.write().relisted = Some(BTreeSet::new());
    }

    /// An object, from a list or an event.
    pub fn upsert(&self, object: Object, now: Timestamp) -> Woken {
        let key = object.key();
        let revision = revision(object.resource_version());
        let odd_version =
            (object.resource_version() != revision.to_string()).then(|| object.resource_version().into());
        let mut new = Entry {
            uid: object.uid().into(),
            revision,
            odd_version,
            deleting: object.deleting(),
            wakes: (self.watch.wakes)(&object),
            group: self.watch.group.as_ref().and_then(|group| group(&object)),
            doc: Box::default(),
        };
        let kept = self.watch.kept.of(object, |name| self.watch.is_ours(name));
        new.doc = kept.to_string().into_bytes().into_boxed_slice();
        let mut inner = self.write();
        inner.read_at = now;
        inner.progress = inner.progress.max(revision);
        if let Some(relisted) = &mut inner.relisted {
            relisted.insert(key.clone());
        }
        // A relist repeats what is known, and a change outside of what is looked at is no change: neither is news.
        if let Some(entry) = inner.objects.get_mut(&key)
            && entry.same(&new)
            && (entry.revision == revision || self.watch.kept.ignores_versions())
        {
            *entry = new;
            return Woken::default();
        }
        let mut woken = Woken::default();
        let old_group = inner.remove(&key, &mut woken);
        woken.add(&key, &new.wakes);
        let moved = old_group != new.group;
        if moved {
            inner.wake_group(old_group.as_ref(), &mut woken);
            inner.wake_group(new.group.as_ref(), &mut woken);
        }
        inner.insert(key, new);
        woken
    }

    /// An object left the watch: deleted, or its labels no longer match.
    pub fn remove(&self, object: &Object, now: Timestamp) -> Woken {
        let mut inner = self.write();
        inner.read_at = now;
        inner.progress = inner.progress.max(revision(object.resource_version()));
        let mut woken = Woken::default();
        let group = inner.remove(&object.key(), &mut woken);
        inner.wake_group(group.as_ref(), &mut woken);
        woken
    }

    /// A list is complete.
    pub fn relist_ends(&self, now: Timestamp) -> Woken {
        let mut inner = self.write();
        // The end of a list whose beginning this cache has not seen says nothing about what is gone.
        let Some(shown) = inner.relisted.take() else { return Woken::default() };
        let gone: Vec<Key> = inner.objects.keys().filter(|key| !shown.contains(key)).cloned().collect();
        let mut woken = Woken::default();
        for key in gone {
            let group = inner.remove(&key, &mut woken);
            inner.wake_group(group.as_ref(), &mut woken);
        }
        woken.everybody |= inner.state != SyncState::Synced;
        inner.state = SyncState::Synced;
        inner.read_at = now;
        woken
    }

    /// The server does not serve the kind. What was known of it is unknown now.
    pub fn not_served(&self) -> Woken {
        let mut inner = self.write();
        let news = inner.state != SyncState::NotServed;
        *inner = Inner { state: SyncState::NotServed, ..Inner::default() };
        Woken { everybody: news, ..Woken::default() }
    }

    /// Whether it can answer at all (a kind that is not served is an answer too).
    pub fn settled(&self) -> bool {
        self.read().state != SyncState::NotSynced
    }

    /// Whether the first list is complete.
    pub fn synced(&self) -> bool {
        self.read().state == SyncState::Synced
    }

    /// One object by key.
    pub fn get(&self, key: &Key) -> Seen<Option<Object>> {
        let inner = self.read();
        inner.answer(|inner| self.object(key, inner.objects.get(key)?))
    }

    /// The objects that wake a key.
    pub fn waking(&self, key: &Key) -> Seen<Vec<Object>> {
        let inner = self.read();
        inner.answer(|inner| {
            let itself = inner.objects.get(key).filter(|entry| entry.wakes == Wakes::Itself);
            let mut objects = self.pick(inner, inner.by_wake.get(key));
            objects.extend(itself.and_then(|entry| self.object(key, entry)));
            objects
        })
    }

    /// The objects of a group.
    pub fn group(&self, group: &str) -> Seen<Vec<Object>> {
        let inner = self.read();
        inner.answer(|inner| self.pick(inner, inner.groups.get(group)))
    }

    /// All objects.
    pub fn list(&self) -> Seen<Vec<Object>> {
        let inner = self.read();
        inner
            .answer(|inner| inner.objects.iter().filter_map(|(key, entry)| self.object(key, entry)).collect())
    }

    /// Every key that some object wakes.
    pub fn woken_keys(&self) -> Vec<Key> {
        let inner = self.read();
        let themselves = inner.objects.iter().filter(|(_, entry)| entry.wakes == Wakes::Itself);
        themselves.map(|(key, _)| key).chain(inner.by_wake.keys()).cloned().collect()
    }

    /// Whether this object, if it were here, would wake a key.
    pub(crate) fn would_wake(&self, object: &Object, key: &Key) -> bool {
        match (self.watch.wakes)(object) {
            Wakes::Itself => object.key() == *key,
            Wakes::Keys(keys) => keys.contains(key),
            Wakes::Nobody | Wakes::Everybody => false,
        }
    }

    /// The group that this object would belong to.
    pub(crate) fn group_of(&self, object: &Object) -> Option<String> {
        self.watch.group.as_ref().and_then(|group| group(object))
    }

    /// Whether any object wakes this key.
    pub fn wakes(&self, key: &Key) -> bool {
        let inner = self.read();
        let itself = inner.objects.get(key).is_some_and(|entry| entry.wakes == Wakes::Itself);
        itself || inner.by_wake.contains_key(key)
    }

    /// Whether the cache has come as far as a write of ours to this object.
    pub(crate) fn reached(&self, key: &Key, written: &Progress) -> bool {
        let inner = self.read();
        match written {
            Progress::Revision(wanted) => {
                inner.progress >= *wanted
                    || inner.objects.get(key).is_some_and(|entry| entry.revision >= *wanted)
            }
            Progress::Deleted(uid) => inner.objects.get(key).is_none_or(|e| *e.uid != **uid || e.deleting),
            Progress::Released(uid, held) => {
                inner.objects.get(key).is_none_or(|e| *e.uid != **uid || e.revision > *held)
            }
        }
    }

    fn object(&self, key: &Key, entry: &Entry) -> Option<Object> {
        let kept = serde_json::from_slice(&entry.doc).ok()?;
        let revision = entry.revision.to_string();
        let version = entry.odd_version.as_deref().unwrap_or(&revision);
        Some(restored(kept, &self.watch.kind, key, &entry.uid, version))
    }

    fn pick(&self, inner: &Inner, keys: Option<&Vec<Key>>) -> Vec<Object> {
        let found = keys.into_iter().flatten();
        found.filter_map(|key| self.object(key, inner.objects.get(key)?)).collect()
    }

    // A poisoned lock means that a panic was caught while holding it; entries are replaced whole, so what is there is sound.
    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How far a cache must have come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// At least this revision.
    Revision(u64),
    /// This uid is gone or going.
    Deleted(String),
    /// This uid is gone, or newer than the revision in which it still had our finalizer. It was going before, so that tells nothing.
    Released(String, u64),
}

impl Inner {
    fn answer<T>(&self, value: impl FnOnce(&Self) -> T) -> Seen<T> {
        match self.state {
            SyncState::NotSynced => Seen::Unknown(Why::NotSynced),
            SyncState::NotServed => Seen::Unknown(Why::NotServed),
            SyncState::Synced => Seen::Known { value: value(self), read_at: self.read_at },
        }
    }

    fn insert(&mut self, key: Key, entry: Entry) {
        if let Wakes::Keys(keys) = &entry.wakes {
            for woken in keys {
                add_to(&mut self.by_wake, woken, &key);
            }
        }
        if let Some(group) = &entry.group {
            add_to(&mut self.groups, group, &key);
        }
        self.objects.insert(key, entry);
    }

    fn remove(&mut self, key: &Key, woken: &mut Woken) -> Option<String> {
        let entry = self.objects.remove(key)?;
        woken.add(key, &entry.wakes);
        if let Wakes::Keys(keys) = &entry.wakes {
            for other in keys {
                drop_from(&mut self.by_wake, other, key);
            }
        }
        if let Some(group) = &entry.group {
            drop_from(&mut self.groups, group, key);
        }
        entry.group
    }

    fn wake_group(&self, group: Option<&String>, woken: &mut Woken) {
        for key in group.and_then(|group| self.groups.get(group)).into_iter().flatten() {
            if let Some(entry) = self.objects.get(key) {
                woken.add(key, &entry.wakes);
            }
        }
    }
}

fn add_to<K: Ord + Clone>(map: &mut BTreeMap<K, Vec<Key>>, at: &K, key: &Key) {
    let keys = map.entry(at.clone()).or_insert_with(|| Vec::with_capacity(1));
    if let Err(place) = keys.binary_search(key) {
        keys.insert(place, key.clone());
    }
}

fn drop_from<K: Ord>(map: &mut BTreeMap<K, Vec<Key>>, at: &K, key: &Key) {
    let Some(keys) = map.get_mut(at) else { return };
    if let Ok(place) = keys.binary_search(key) {
        keys.remove(place);
    }
    if keys.is_empty() {
        map.remove(at);
    }
}

impl Entry {
    /// Whether another version of the object says the same.
    fn same(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.doc == other.doc
            && self.wakes == other.wakes
            && self.group == other.group
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const KIND: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");

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
        keys.iter().map(|k| Key::parse(k)).collect()
    }

    #[test]
    fn nothing_is_known_before_the_first_list_is_complete() {
        let store = store();
        store.relist_begins();
        store.upsert(object("a", 1, "ns/x", "g"), now());
        assert_eq!(store.get(&Key::parse("ns/a")), Seen::Unknown(Why::NotSynced));
        store.relist_ends(now());
        assert!(store.get(&Key::parse("ns/a")).present().is_some());
        store.not_served();
        assert_eq!(store.list(), Seen::Unknown(Why::NotServed));
    }

    #[test]
    fn the_end_of_a_list_whose_beginning_was_not_seen_says_nothing() {
        let store = store();
        assert_eq!(store.relist_ends(now()), Woken::default());
        assert_eq!(store.list(), Seen::Unknown(Why::NotSynced));
    }

    #[test]
    fn a_released_object_is_caught_up_with_when_it_is_gone_or_newer_and_not_because_it_is_going() {
        let (store, key) = (store(), Key::parse("ns/a"));
        let going = |version: u64| {
            let mut going = object("a", version, "ns/x", "g");
            going.0["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            going
        };
        store.upsert(going(5), now());
        let (deleted, released) = (Progress::Deleted("a".into()), Progress::Released("a".into(), 5));
        assert!(store.reached(&key, &deleted) && !store.reached(&key, &released));
        store.upsert(going(6), now());
        assert!(store.reached(&key, &released), "another finalizer holds it");
        let released = Progress::Released("a".into(), 6);
        assert!(!store.reached(&key, &released));
        store.remove(&going(7), now());
        assert!(store.reached(&key, &released));
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
            Store::new(Watch::new(KIND, |_| Wakes::Everybody).facts(|o| json!({"group": o.text("/group")})));
        store.relist_begins();
        store.relist_ends(now());
        assert!(store.upsert(object("a", 1, "ns/x", "g"), now()).everybody);
        assert!(!store.upsert(object("a", 2, "ns/y", "g"), now()).everybody);
        let seen = store.get(&Key::parse("ns/a")).present().cloned().expect("it is there");
        assert_eq!((seen.resource_version(), seen.text("/group"), seen.uid()), ("2", "g", "a"));
        assert!(store.upsert(object("a", 3, "ns/y", "h"), now()).everybody);
        let mut again = object("a", 4, "ns/y", "h");
        again.0["metadata"]["uid"] = "another".into();
        assert!(store.upsert(again, now()).everybody, "another object of that name");
    }

    #[test]
    fn a_version_that_is_no_number_comes_back_as_it_was() {
        let (store, mut odd) = (store(), object("a", 1, "ns/x", "g"));
        odd.0["metadata"]["resourceVersion"] = "v07".into();
        store.relist_begins();
        store.upsert(odd, now());
        store.relist_ends(now());
        assert_eq!(store.get(&Key::parse("ns/a")).present().map(Object::resource_version), Some("v07"));
    }
}
