//! What `observe` may ask: the caches, what this pass has read live, and the answers from outside.
//! Asks for nothing itself: what is missing is noted as a want, the engine reads it and observes again.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cluster::Listing;
use crate::intent::OWNER_UID;
use crate::object::{Key, Kind, Object, ObjectRef};
use crate::outside::{List, Moment, Outside};
use crate::question::Question;
use crate::seen::{Group, Seen, Why};
use crate::store::Store;
use crate::stores::Stores;

/// Live facts of one pass; they are newer than the caches.
#[derive(Default)]
pub(crate) struct Fresh {
    /// Something is to be destroyed: everything that is looked at is read live, and only answers count that were asked for
    /// after this.
    pub firm: Option<Moment>,
    /// Objects by name; none when it was seen that there is none. None of them is older than a list here that shows it.
    pub objects: BTreeMap<ObjectRef, (Option<Object>, Timestamp)>,
    /// Kinds of which it was seen that they are not served.
    pub unserved: BTreeSet<Kind>,
    /// Lists.
    pub lists: BTreeMap<Listing, List>,
    /// When a server has last read again what the caches do not show for long.
    pub reread_at: Option<Timestamp>,
}

impl Fresh {
    /// Forgets what was read: from now on everything is read anew. Called when something is to be destroyed, and again after each
    /// effect on firm ground.
    pub fn stand_firm(&mut self, since: Moment) {
        *self = Self { firm: Some(since), ..Self::default() };
    }

    /// Takes a list that was read after everything that is here.
    pub fn add_list(&mut self, listing: Listing, list: List) {
        let shown: BTreeMap<Key, &Object> =
            list.objects.iter().map(|object| (object.key(), object)).collect();
        self.objects.retain(|target, (object, _)| {
            if target.kind != listing.kind {
                return true;
            }
            // What has changed, is gone or is no longer in the list is read again by whoever looks for it by name. A list is not
            // taken for that: it has no `managedFields`.
            match (shown.get(&target.key), object) {
                (Some(new), Some(old)) => new.identity() == old.identity(),
                (Some(_), None) => false,
                (None, old) => old.as_ref().is_none_or(|old| !listing.shows(old)),
            }
        });
        self.lists.insert(listing, list);
    }
}

/// Something `observe` would have liked to know.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Want {
    /// One object, from the source of truth.
    Object(ObjectRef),
    /// A list, from the source of truth.
    List(Listing),
    /// An answer from outside.
    Answer(Question),
}

/// The view of one pass.
pub struct View<'a> {
    stores: &'a Stores,
    fresh: &'a Fresh,
    outside: &'a Outside,
    key: &'a Key,
    /// What the pass is about; a server has none.
    subject: Option<&'a ObjectRef>,
    /// When this pass looks. For the age of answers; decisions get their own.
    now: Timestamp,
    wants: RefCell<BTreeSet<Want>>,
    asked: RefCell<Vec<Question>>,
    polled: RefCell<BTreeMap<Question, Duration>>,
    /// A question could not be answered.
    unanswered: Cell<bool>,
}

/// What a look has noted.
pub(crate) struct Noted {
    /// What is missing.
    pub wants: BTreeSet<Want>,
    /// What was asked of the outside.
    pub asked: Vec<Question>,
    /// What is to be asked again and again, and how often.
    pub polled: BTreeMap<Question, Duration>,
    /// A question could not be answered.
    pub unanswered: bool,
}

impl<'a> View<'a> {
    pub(crate) fn new(
        stores: &'a Stores,
        fresh: &'a Fresh,
        outside: &'a Outside,
        key: &'a Key,
        subject: Option<&'a ObjectRef>,
        now: Timestamp,
    ) -> Self {
        Self {
            stores,
            fresh,
            outside,
            key,
            subject,
            now,
            wants: RefCell::default(),
            asked: RefCell::default(),
            polled: RefCell::default(),
            unanswered: Cell::default(),
        }
    }

    /// What it has noted.
    pub(crate) fn noted(self) -> Noted {
        Noted {
            wants: self.wants.into_inner(),
            asked: self.asked.into_inner(),
            polled: self.polled.into_inner(),
            unanswered: self.unanswered.get(),
        }
    }

    /// Whether something is to be read before this look counts.
    pub(crate) fn wants_anything(&self) -> bool {
        !self.wants.borrow().is_empty()
    }

    /// When this pass looks.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// An object by name, as the cache has it. Absence proves nothing: the cache may be filtered or late. For what is only
    /// reported, and for what is written by a step that is refused when anything is there; else [`View::get`].
    pub fn cached(&self, target: &ObjectRef) -> Seen<Option<Object>> {
        if let Some((object, read_at)) = self.fresh.objects.get(target) {
            let value = object.clone().map(|object| self.stores.as_kept(&target.kind, object));
            return Seen::Known { value, read_at: *read_at };
        }
        if self.fresh.unserved.contains(&target.kind) {
            return Seen::Unknown(Why::NotServed);
        }
        if self.fresh.firm.is_some() {
            return self.want(Want::Object(target.clone()));
        }
        self.stores.get(target)
    }

    /// An object by name. Absence is proved: what no cache shows is read live before it counts as absent.
    pub fn get(&self, target: &ObjectRef) -> Seen<Option<Object>> {
        match self.cached(target) {
            Seen::Known { value: None, .. } | Seen::Unknown(Why::NotSynced)
                if !self.fresh.objects.contains_key(target) =>
            {
                self.want(Want::Object(target.clone()))
            }
            seen => seen,
        }
    }

    /// The objects of a kind that wake this pass's key: its children, and whatever else names it.
    pub fn mine(&self, kind: &Kind) -> Seen<Vec<Object>> {
        self.mine_as(kind, |object| object)
    }

    /// The same, each as what is made of it. For kinds with thousands of objects: one object at a time is in memory. The cache is locked
    /// meanwhile, so what is made depends on the object alone.
    pub fn mine_as<T>(&self, kind: &Kind, make: fn(Object) -> T) -> Seen<Vec<T>> {
        let subject = self.subject.and_then(|subject| self.fresh.objects.get(subject)?.0.as_ref());
        let listing = |store: &Store| {
            let mut listing = store.watch().scope().listing();
            // Not everybody's need be read.
            let narrower = match &store.watch().named_by {
                Some(selector) => Some(selector(self.key)),
                // Children carry the uid of their owner.
                None => subject
                    .filter(|_| store.watch().children)
                    .map(|subject| format!("{OWNER_UID}={}", subject.uid())),
            };
            let parts = [listing.labels, narrower.unwrap_or_default()];
            listing.labels = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(",");
            listing
        };
        let cached = |store: &Store| store.waking(self.key, make);
        self.members(kind, listing, cached, |store, object| store.would_wake(object, self.key), make)
    }

    /// The members of a group of a watched kind.
    pub fn group(&self, kind: &Kind, group: &str) -> Seen<Group> {
        if self.fresh.firm.is_none() {
            return self.cached_group(kind, group);
        }
        let belongs = |store: &Store, object: &Object| store.group_of(object).as_deref() == Some(group);
        let cached = |_: &Store| Seen::Unknown(Why::Reading); // it is read live
        let listing = |store: &Store| store.watch().scope().listing();
        let members = self.members(kind, listing, cached, belongs, |object| object.key());
        members.map(Group::of)
    }

    /// The same as the cache has it, whatever is to be destroyed. For what is only reported.
    pub fn cached_group(&self, kind: &Kind, group: &str) -> Seen<Group> {
        self.stores.group(kind, group)
    }

    /// All objects of a watched kind that are of a topic, as the cache has it, whatever is to be destroyed. For what is only reported,
    /// and for what is looked at more closely by name.
    pub fn cached_topic(&self, kind: &Kind, topic: &str) -> Seen<Vec<Key>> {
        self.stores.topic(kind, topic)
    }

    /// All objects that the watches of a kind hold.
    pub fn list(&self, kind: &Kind) -> Seen<Vec<Object>> {
        let listing = |store: &Store| store.watch().scope().listing();
        self.members(kind, listing, |store| store.list(|object| object), |_, _| true, |object| object)
    }

    /// The objects of a list, read live and not longer than `max_age` ago: for kinds that are not
    /// watched, and where a cache that is behind would do harm. Keys that look at the same list share it.
    pub fn list_live(&self, listing: Listing, max_age: Duration) -> Seen<Arc<[Object]>> {
        let shared = || self.outside.list(&listing, max_age, self.now).filter(|_| self.fresh.firm.is_none());
        match self.fresh.lists.get(&listing).cloned().or_else(shared) {
            Some(List { objects, read_at, .. }) => Seen::Known { value: objects, read_at },
            None if self.fresh.unserved.contains(&listing.kind) => Seen::Unknown(Why::NotServed),
            None => self.want(Want::List(listing)),
        }
    }

    /// An answer from outside, not older than `max_age`. One that cannot be read is as good as none.
    pub fn ask<T: DeserializeOwned>(&self, question: Question, max_age: Duration) -> Seen<T> {
        self.answer(question, max_age, self.fresh.firm)
    }

    fn answer<T: DeserializeOwned>(
        &self,
        question: Question,
        max_age: Duration,
        since: Option<Moment>,
    ) -> Seen<T> {
        self.asked.borrow_mut().push(question.clone());
        match self.outside.get(&question, max_age, self.key, self.now, since) {
            Seen::Known { value, read_at } => {
                let seen = read(value, read_at);
                self.unanswered.set(self.unanswered.get() || matches!(seen, Seen::Unknown(_)));
                seen
            }
            Seen::Unknown(Why::Reading) => self.want(Want::Answer(question)),
            Seen::Unknown(why) => {
                self.unanswered.set(true);
                Seen::Unknown(why)
            }
        }
    }

    /// The same, but asked for after this pass, or the one that it goes on from, began to want it. For what must not be decided on
    /// an answer that is merely young.
    pub fn ask_anew<T: DeserializeOwned>(&self, question: Question) -> Seen<T> {
        let since = self.outside.firm_since(self.key);
        self.answer(question, Duration::MAX, Some(since))
    }

    /// The last answer to a question that is put about every so often from now on, while this is wanted. Never waits: there is none
    /// at first, and one that can no longer be had stays, with the time when it was asked for. Another answer wakes the key.
    pub fn poll<T: DeserializeOwned>(&self, question: Question, every: Duration) -> Seen<T> {
        let seen = self.outside.polls.get(&question);
        self.polled.borrow_mut().insert(question, every);
        match seen {
            Seen::Known { value, read_at } => read(value, read_at),
            Seen::Unknown(why) => Seen::Unknown(why),
        }
    }

    /// Whether a label or annotation of a watched kind is one of ours.
    pub(crate) fn is_ours(&self, kind: &Kind, name: &str) -> bool {
        self.stores.is_ours(kind, name)
    }

    /// What the caches of a kind hold, or a list that was read in this pass. Live facts win, object by object, and what the
    /// cache has not seen yet belongs here too.
    fn members<T>(
        &self,
        kind: &Kind,
        listing: impl Fn(&Store) -> Listing,
        cached: impl Fn(&Store) -> Seen<BTreeMap<Key, T>>,
        belongs: impl Fn(&Store, &Object) -> bool,
        make: impl Fn(Object) -> T,
    ) -> Seen<Vec<T>> {
        if self.fresh.unserved.contains(kind) {
            return Seen::Unknown(Why::NotServed);
        }
        let seen = self.stores.together(kind, |store| {
            let listing = listing(store);
            match self.fresh.lists.get(&listing) {
                Some(List { objects, read_at, .. }) => {
                    let here: Vec<&Object> = objects.iter().filter(|object| belongs(store, object)).collect();
                    let shown: BTreeSet<Key> = here.iter().map(|object| object.key()).collect();
                    // What the cache knows and the list leaves out may have lost the labels that the list asks for.
                    for key in cached(store).known().into_iter().flat_map(BTreeMap::keys) {
                        let target = kind.key(key);
                        if !shown.contains(&target.key) && !self.fresh.objects.contains_key(&target) {
                            self.want::<()>(Want::Object(target));
                        }
                    }
                    let member = |object: &Object| (object.key(), make(store.as_kept(object.clone())));
                    let value = here.into_iter().map(member).collect();
                    Seen::Known { value, read_at: *read_at }
                }
                None if self.fresh.firm.is_some() => self.want(Want::List(listing)),
                None => cached(store),
            }
        });
        let fresh = self.fresh.objects.iter().filter(|(target, _)| target.kind == *kind);
        seen.map(|mut found| {
            for (target, (object, _)) in fresh {
                let store = self.stores.of(kind).iter().find(|store| {
                    let shown =
                        |object: &Object| store.watch().scope().shows(object) && belongs(store, object);
                    object.as_ref().is_some_and(shown)
                });
                match (object, store) {
                    (Some(object), Some(store)) => {
                        found.insert(target.key.clone(), make(store.as_kept(object.clone())));
                    }
                    _ => {
                        found.remove(&target.key);
                    }
                }
            }
            found.into_values().collect()
        })
    }

    fn want<T>(&self, want: Want) -> Seen<T> {
        self.wants.borrow_mut().insert(want);
        Seen::Unknown(Why::Reading)
    }
}

/// An answer as what it is wanted for. One that cannot be read is as good as none.
fn read<T: DeserializeOwned>(value: Value, read_at: Timestamp) -> Seen<T> {
    match serde_json::from_value(value) {
        Ok(value) => Seen::Known { value, read_at },
        Err(error) => Seen::Unknown(Why::Unreachable(format!("cannot read the answer: {error}"))),
    }
}
