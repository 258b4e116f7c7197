//! The cache of one watch. Holds compact JSON, parsed when looked at; `kept` says of what.
//! Knows which keys each object wakes; knows nothing of the API.

mod progress;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use jiff::Timestamp;
use prometheus_client::metrics::histogram::Histogram;
use serde_json::Value;

use crate::intent::PREFIX;
use crate::kept::restored;
use crate::object::{Key, Object, revision};
use crate::panic_text::panic_text;
use crate::readiness::{Census, Readiness, reason};
use crate::secret::without_content;
use crate::seen::{Group, Seen, Why};
use crate::watch::{Wakes, Watch};

pub(crate) use progress::Progress;

/// The cache of one watch.
pub struct Store {
    watch: Watch,
    inner: RwLock<Inner>,
    ready_times: Option<Histogram>,
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
    topics: BTreeMap<String, Vec<Key>>,
    /// During a relist: what it has shown so far.
    relisted: Option<BTreeSet<Key>>,
    /// The highest revision that it has shown. It counts only when the list is complete: lists are sorted by name.
    relisted_to: u64,
    /// Only what a list shows that begins after this was asked for is good enough.
    required: Required,
    /// Objects at which the family's code panicked, with what it said. While there is one, no list of ours is complete.
    unreadable: BTreeMap<Key, String>,
}

#[derive(Clone, Default, PartialEq)]
enum SyncState {
    #[default]
    NotSynced,
    NotServed,
    /// The first list, or one that was required, does not succeed; what the server says.
    Failing(String),
    Synced,
}

/// Whether a new list is required.
#[derive(Clone, Copy, Default, PartialEq)]
enum Required {
    #[default]
    No,
    Asked,
    /// One has begun since.
    Begun,
}

struct Entry {
    uid: Box<str>,
    revision: u64,
    /// The version where it is not the revision in digits.
    odd_version: Option<Box<str>>,
    deleting: Option<Timestamp>,
    /// Only of subjects.
    readiness: Option<Readiness>,
    /// Why it is not ready; only of subjects that are not.
    reason: Option<Box<str>>,
    /// What the user has said of it, as a number; only of subjects.
    news: Option<u64>,
    wakes: Wakes,
    group: Option<String>,
    topics: Box<[String]>,
    doc: Box<[u8]>,
}

/// Keys to wake after a change.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Woken {
    /// These keys.
    pub keys: BTreeSet<Key>,
    /// The subjects of these topics.
    pub topics: BTreeSet<String>,
    /// All keys of the controller.
    pub all: bool,
    /// The code of the watch panicked at an object.
    pub panicked: bool,
}

impl Woken {
    fn add(&mut self, key: &Key, wakes: &Wakes) {
        match wakes {
            Wakes::NoKey => {}
            Wakes::Itself => {
                self.keys.insert(key.clone());
            }
            Wakes::Keys(keys) => self.keys.extend(keys.iter().cloned()),
            Wakes::Topic(topic) => {
                self.topics.insert(topic.clone());
            }
            Wakes::AllKeys => self.all = true,
        }
    }
}

impl Store {
    /// An empty cache, not synced.
    pub fn new(watch: Watch) -> Self {
        Self { watch, inner: RwLock::default(), ready_times: None }
    }

    /// Counts how long its objects take to become Ready.
    pub(crate) fn timed(mut self, ready_times: Histogram) -> Self {
        self.ready_times = Some(ready_times);
        self
    }

    /// How many subjects are here.
    pub(crate) fn census(&self) -> Census {
        let inner = self.read();
        let mut census = Census::default();
        for entry in inner.objects.values() {
            let Some(readiness) = entry.readiness else { continue };
            match readiness {
                Readiness::Ready => census.ready += 1,
                Readiness::NotReady(_) => census.not_ready += 1,
                Readiness::Unknown(_) => census.unknown += 1,
            }
            if let Some(reason) = &entry.reason {
                census.because(reason, 1);
            }
            census.oldest_deletion = [census.oldest_deletion, entry.deleting].into_iter().flatten().min();
        }
        census
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
        let mut inner = self.write();
        inner.relisted = Some(BTreeSet::new());
        inner.relisted_to = 0;
        if inner.required == Required::Asked {
            inner.required = Required::Begun;
        }
    }

    /// An object, from a list or an event.
    pub fn upsert(&self, object: Object, now: Timestamp) -> Woken {
        let (key, revision) = (object.key(), revision(object.resource_version()));
        // The family's code: a mistake in it must not end the watch.
        let mut new = match catch_unwind(AssertUnwindSafe(|| self.entry(object))) {
            Ok(new) => new,
            Err(panic) => return self.is_unreadable(key, revision, panic_text(&*panic), now),
        };
        let mut inner = self.write();
        inner.read_at = now;
        inner.reaches(revision);
        if let Some(relisted) = &mut inner.relisted {
            relisted.insert(key.clone());
        }
        let readable_again = inner.unreadable.remove(&key).is_some() && inner.unreadable.is_empty();
        let old = inner.objects.get(&key).filter(|old| old.uid == new.uid);
        new.readiness = new.readiness.map(|readiness| readiness.after(old.and_then(|old| old.readiness)));
        self.time_readiness(old, &new, now);
        let mut woken = Woken { all: readable_again, ..Woken::default() };
        if let Some(entry) = inner.objects.get_mut(&key)
            && entry.is_indexed_like(&new)
        {
            // A relist repeats what is known, and a change outside of what is looked at is no change: neither is news.
            let same_version = entry.revision == revision || self.watch.kept.ignores_versions();
            if entry.uid != new.uid || entry.doc != new.doc || !same_version {
                woken.add(&key, &new.wakes);
            }
            // Replaced in place: to remove each of thousands from one sorted index and to insert it again takes quadratic time.
            *entry = new;
            return woken;
        }
        let old_group = inner.remove(&key, &mut woken);
        woken.add(&key, &new.wakes);
        let group = new.group.clone();
        inner.insert(key, new);
        if old_group != group {
            if let Some(group) = old_group {
                inner.wake_left(&group, &mut woken);
            }
            if let Some(group) = group {
                inner.wake_joined(&group, &mut woken);
            }
        }
        woken
    }

    fn entry(&self, object: Object) -> Entry {
        let revision = revision(object.resource_version());
        let odd_version =
            (object.resource_version() != revision.to_string()).then(|| object.resource_version().into());
        let mut new = Entry {
            uid: object.uid().into(),
            revision,
            odd_version,
            deleting: object.deleting_since(),
            readiness: None,
            reason: None,
            news: None,
            wakes: self.watch.whom(&object),
            group: self.watch.group.as_ref().and_then(|group| group(&object)),
            topics: self.watch.topics.as_ref().map(|topics| topics(&object)).unwrap_or_default().into(),
            doc: Box::default(),
        };
        if new.wakes == Wakes::Itself {
            let readiness = Readiness::of(&object);
            new.reason = (readiness != Readiness::Ready).then(|| reason(&object).into());
            new.readiness = Some(readiness);
            new.news = Some(news_mark(&object));
        }
        let object = without_content(&self.watch.kind, object);
        let kept = self.watch.kept.of(object, |name| self.watch.is_ours(name));
        new.doc = kept.to_string().into_bytes().into_boxed_slice();
        new
    }

    /// The family's code panicked at an object. What was known of it stays, and no list is complete until it can be read.
    fn is_unreadable(&self, key: Key, revision: u64, said: String, now: Timestamp) -> Woken {
        tracing::error!(kind = %self.watch.kind.plural, %key, said, "A bug: the code of a watch panicked at this object");
        let mut inner = self.write();
        inner.read_at = now;
        inner.reaches(revision);
        if let Some(relisted) = &mut inner.relisted {
            relisted.insert(key.clone());
        }
        let news = inner.unreadable.insert(key, said).is_none();
        Woken { all: news, panicked: true, ..Woken::default() }
    }

    fn time_readiness(&self, old: Option<&Entry>, new: &Entry, now: Timestamp) {
        let (Some(times), Some(old)) = (&self.ready_times, old) else { return };
        if let (Some(Readiness::NotReady(since) | Readiness::Unknown(since)), Some(Readiness::Ready)) =
            (old.readiness, new.readiness)
        {
            times.observe(now.duration_since(since).as_secs_f64().max(0.0));
        }
    }

    /// An object left the watch: deleted, or its labels no longer match.
    pub fn remove(&self, object: &Object, now: Timestamp) -> Woken {
        let mut inner = self.write();
        inner.read_at = now;
        inner.progress = inner.progress.max(revision(object.resource_version()));
        let mut woken = Woken::default();
        woken.all |= inner.unreadable.remove(&object.key()).is_some();
        if let Some(group) = inner.remove(&object.key(), &mut woken) {
            inner.wake_left(&group, &mut woken);
        }
        woken
    }

    /// A list is complete.
    pub fn relist_ends(&self, now: Timestamp) -> Woken {
        let mut inner = self.write();
        // The end of a list whose beginning this cache has not seen says nothing about what is gone.
        let Some(shown) = inner.relisted.take() else { return Woken::default() };
        let gone: Vec<Key> = inner.objects.keys().filter(|key| !shown.contains(key)).cloned().collect();
        let mut woken = Woken::default();
        // Each group is woken once, and not once for each object that has gone.
        let left: BTreeSet<String> = gone.iter().filter_map(|key| inner.remove(key, &mut woken)).collect();
        for group in left {
            inner.wake_left(&group, &mut woken);
        }
        inner.progress = inner.progress.max(inner.relisted_to);
        let unreadable = !inner.unreadable.is_empty();
        inner.unreadable.retain(|key, _| shown.contains(key));
        woken.all |= unreadable && inner.unreadable.is_empty();
        let required = inner.required == Required::Begun;
        if required {
            inner.required = Required::No;
        }
        woken.all |= required || inner.state != SyncState::Synced;
        inner.state = SyncState::Synced;
        inner.read_at = now;
        woken
    }

    /// The server does not serve the kind. What was known of it is unknown now.
    pub fn not_served(&self) -> Woken {
        let mut inner = self.write();
        // Also when it was known: somebody may wait for a list that was required.
        let news = inner.required != Required::No || inner.state != SyncState::NotServed;
        *inner = Inner { state: SyncState::NotServed, ..Inner::default() };
        Woken { all: news, ..Woken::default() }
    }

    /// What is here may be too old for what is to be decided now: nothing shall be decided before a new list is complete.
    pub(crate) fn require_list(&self) {
        self.write().required = Required::Asked;
    }

    /// The list does not succeed. What an earlier one has shown is still the best that is known, unless a new one is required.
    pub fn failing(&self, said: &str) -> Woken {
        let mut inner = self.write();
        if inner.state == SyncState::Synced && inner.required == Required::No {
            return Woken::default();
        }
        let news = inner.required != Required::No || !matches!(inner.state, SyncState::Failing(_));
        inner.state = SyncState::Failing(said.to_owned());
        inner.required = Required::No;
        Woken { all: news, ..Woken::default() }
    }

    /// Whether it has ever answered.
    pub(crate) fn answered(&self) -> bool {
        self.read().state != SyncState::NotSynced
    }

    /// Whether there is anything to watch, as far as is known.
    pub(crate) fn served(&self) -> bool {
        self.read().state != SyncState::NotServed
    }

    /// Whether it can answer at all (that a kind is not served, or cannot be read, is an answer too).
    pub fn settled(&self) -> bool {
        let inner = self.read();
        inner.state != SyncState::NotSynced && inner.required == Required::No
    }

    /// Whether its list is complete.
    pub fn synced(&self) -> bool {
        self.read().state == SyncState::Synced
    }

    /// One object by key.
    pub fn get(&self, key: &Key) -> Seen<Option<Object>> {
        let inner = self.read();
        match inner.unreadable.get(key) {
            Some(said) => unreadable(key, said),
            None => inner.answer(|inner| self.object(key, inner.objects.get(key)?)),
        }
    }

    /// The objects that wake a key, each as what is made of it. Thousands of objects take many times the memory of what is made of
    /// them, so there is one at a time.
    pub fn waking<T>(&self, key: &Key, make: impl Fn(Object) -> T) -> Seen<BTreeMap<Key, T>> {
        let inner = self.read();
        inner.answer_list(|inner| {
            let itself = inner.objects.get(key).filter(|entry| entry.wakes == Wakes::Itself);
            let others = inner.by_wake.get(key).into_iter().flatten();
            let others = others.filter_map(|other| Some((other, inner.objects.get(other)?)));
            let all = others.chain(itself.map(|entry| (key, entry)));
            all.filter_map(|(key, entry)| Some((key.clone(), make(self.object(key, entry)?)))).collect()
        })
    }

    /// The members of a group, or as many as tell that they are too many to be named.
    pub(crate) fn group(&self, group: &str) -> Seen<Vec<Key>> {
        let inner = self.read();
        inner.answer_list(|inner| {
            let members = inner.groups.get(group).into_iter().flatten();
            members.take(Group::NAMED + 1).cloned().collect()
        })
    }

    /// All objects of a topic.
    pub(crate) fn topic(&self, topic: &str) -> Seen<Vec<Key>> {
        let inner = self.read();
        inner.answer_list(|inner| inner.topics.get(topic).cloned().unwrap_or_default())
    }

    /// What counts as news from the user about a subject.
    pub(crate) fn news_mark(&self, key: &Key) -> Option<u64> {
        self.read().objects.get(key).and_then(|entry| entry.news)
    }

    /// All objects, each as what is made of it.
    pub fn list<T>(&self, make: impl Fn(Object) -> T) -> Seen<BTreeMap<Key, T>> {
        let inner = self.read();
        inner.answer_list(|inner| {
            let member = |(key, entry): (&Key, _)| Some((key.clone(), make(self.object(key, entry)?)));
            inner.objects.iter().filter_map(member).collect()
        })
    }

    /// Every key that some object wakes.
    pub fn woken_keys(&self) -> Vec<Key> {
        let inner = self.read();
        let themselves = inner.objects.iter().filter(|(_, entry)| entry.wakes == Wakes::Itself);
        themselves.map(|(key, _)| key).chain(inner.by_wake.keys()).cloned().collect()
    }

    /// Whether this object, if it were here, would wake a key.
    pub(crate) fn would_wake(&self, object: &Object, key: &Key) -> bool {
        match self.watch.whom(object) {
            Wakes::Itself => object.key() == *key,
            Wakes::Keys(keys) => keys.contains(key),
            Wakes::NoKey | Wakes::Topic(_) | Wakes::AllKeys => false,
        }
    }

    /// A live object, as this cache would show it: where only facts are kept, nothing else may be looked at.
    pub(crate) fn as_kept(&self, object: Object) -> Object {
        if !self.watch.kept.ignores_versions() {
            return object;
        }
        let (key, identity) = (object.key(), object.identity());
        let kept = self.watch.kept.of(object, |name| self.watch.is_ours(name));
        restored(kept, &self.watch.kind, &key, identity.uid.as_str(), identity.version.as_str())
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

    /// The uid of an object.
    pub(crate) fn uid(&self, key: &Key) -> Option<String> {
        self.read().objects.get(key).map(|entry| entry.uid.to_string())
    }

    /// Whether the cache has come as far as a write of ours to this object, or as what was read of it.
    pub(crate) fn reached(&self, key: &Key, progress: &Progress) -> bool {
        let inner = self.read();
        match progress {
            Progress::Revision(wanted) => {
                inner.progress >= *wanted
                    || inner.objects.get(key).is_some_and(|entry| entry.revision >= *wanted)
            }
            Progress::Deleted(uid) => {
                inner.objects.get(key).is_none_or(|e| *e.uid != **uid || e.deleting.is_some())
            }
            Progress::Gone(uid) => inner.objects.get(key).is_none_or(|e| *e.uid != **uid),
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

    // A poisoned lock means that a panic was caught while holding it; entries are replaced whole, so what is there is sound.
    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unreadable<T>(key: &Key, said: &str) -> Seen<T> {
    Seen::Unknown(Why::Unreachable(format!("a bug of Aquifer: its code panicked at {key}: {said}")))
}

impl Inner {
    /// An object of this revision was shown.
    fn reaches(&mut self, revision: u64) {
        let so_far = if self.relisted.is_some() { &mut self.relisted_to } else { &mut self.progress };
        *so_far = revision.max(*so_far);
    }

    fn answer<T>(&self, value: impl FnOnce(&Self) -> T) -> Seen<T> {
        match &self.state {
            SyncState::NotSynced => Seen::Unknown(Why::NotSynced),
            SyncState::NotServed => Seen::Unknown(Why::NotServed),
            SyncState::Failing(said) => Seen::Unknown(Why::Unreachable(said.clone())),
            SyncState::Synced => Seen::Known { value: value(self), read_at: self.read_at },
        }
    }

    /// The same for what must be complete.
    fn answer_list<T>(&self, value: impl FnOnce(&Self) -> T) -> Seen<T> {
        match self.unreadable.iter().next() {
            Some((key, said)) => unreadable(key, said),
            None => self.answer(value),
        }
    }

    /// Adds an object.
    fn insert(&mut self, key: Key, entry: Entry) {
        if let Wakes::Keys(keys) = &entry.wakes {
            for woken in keys {
                add_to(&mut self.by_wake, woken, &key);
            }
        }
        for topic in &entry.topics {
            add_to(&mut self.topics, topic, &key);
        }
        if let Some(group) = &entry.group {
            add_to(&mut self.groups, group, &key);
        }
        self.objects.insert(key, entry);
    }

    /// Takes an object out; says of which group.
    fn remove(&mut self, key: &Key, woken: &mut Woken) -> Option<String> {
        let entry = self.objects.remove(key)?;
        woken.add(key, &entry.wakes);
        if let Wakes::Keys(keys) = &entry.wakes {
            for other in keys {
                drop_from(&mut self.by_wake, other, key);
            }
        }
        for topic in &entry.topics {
            drop_from(&mut self.topics, topic, key);
        }
        let group = entry.group?;
        drop_from(&mut self.groups, &group, key);
        Some(group)
    }

    /// A member has left its group: the others are to know unless they are still too many to be named.
    fn wake_left(&self, group: &str, woken: &mut Woken) {
        self.wake_up_to(Group::NAMED, group, woken);
    }

    /// A member has joined its group: the others are to know unless they were too many to be named before.
    fn wake_joined(&self, group: &str, woken: &mut Woken) {
        self.wake_up_to(Group::NAMED + 1, group, woken);
    }

    fn wake_up_to(&self, size: usize, group: &str, woken: &mut Woken) {
        let members = self.groups.get(group).map(Vec::as_slice).unwrap_or_default();
        if members.len() > size {
            return;
        }
        for key in members {
            if let Some(entry) = self.objects.get(key) {
                woken.add(key, &entry.wakes);
            }
        }
    }
}

/// Adds a key.
fn add_to<K: Ord + Clone>(map: &mut BTreeMap<K, Vec<Key>>, at: &K, key: &Key) {
    let keys = map.entry(at.clone()).or_insert_with(|| Vec::with_capacity(1));
    if let Err(place) = keys.binary_search(key) {
        keys.insert(place, key.clone());
    }
}

/// Takes a key out.
fn drop_from<K: Ord>(map: &mut BTreeMap<K, Vec<Key>>, at: &K, key: &Key) {
    let Some(keys) = map.get_mut(at) else { return };
    if let Ok(place) = keys.binary_search(key) {
        keys.remove(place);
    }
    if keys.is_empty() {
        map.remove(at);
    }
}

/// What counts as news from the user: another object of the same name, a change of its spec or of our annotations, its deletion.
fn news_mark(object: &Object) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new(); // without a random key
    (object.uid(), object.generation(), object.deleting()).hash(&mut hasher);
    let annotations = object.at("/metadata/annotations").and_then(Value::as_object);
    for (name, value) in annotations.into_iter().flatten().filter(|(name, _)| name.starts_with(PREFIX)) {
        (name, value.as_str()).hash(&mut hasher);
    }
    hasher.finish()
}

impl Entry {
    /// Whether another version of the object stands at the same places of all indexes.
    fn is_indexed_like(&self, other: &Self) -> bool {
        self.wakes == other.wakes && self.group == other.group && self.topics == other.topics
    }
}

#[cfg(test)]
mod tests;
