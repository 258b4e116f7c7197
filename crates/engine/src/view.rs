//! What `observe` may ask: the caches, what this pass has read live, and the answers from outside.
//! Asks for nothing itself: what is missing is noted as a want, the engine reads it and observes again.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::cluster::Listing;
use crate::object::{Key, Kind, Object, ObjectRef};
use crate::outside::{Outside, Question};
use crate::seen::{Seen, Why};
use crate::store::Stores;

/// Live facts of one pass; they are newer than the caches.
#[derive(Default)]
pub(crate) struct Fresh {
    /// Objects by name; none when it was seen that there is none.
    pub objects: HashMap<ObjectRef, (Option<Object>, Timestamp)>,
    /// Lists.
    pub lists: HashMap<Listing, (Vec<Object>, Timestamp)>,
}

/// Something `observe` would have liked to know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    pub(crate) stores: &'a Stores,
    pub(crate) fresh: &'a Fresh,
    pub(crate) outside: &'a Outside,
    pub(crate) key: &'a Key,
    /// When this pass looks. For the age of answers; decisions get their own.
    pub(crate) now: Timestamp,
    /// The caches have fallen behind our own writes: everything is read live.
    pub(crate) live: bool,
    pub(crate) wants: RefCell<Vec<Want>>,
    pub(crate) asked: RefCell<Vec<Question>>,
}

impl View<'_> {
    /// When this pass looks.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// An object by name, as the cache has it. From a filtered cache, absence proves nothing: see [`View::exact`].
    pub fn get(&self, target: &ObjectRef) -> Seen<Option<Object>> {
        if let Some((object, read_at)) = self.fresh.objects.get(target) {
            return Seen::Known { value: object.clone(), read_at: *read_at };
        }
        if self.live {
            return self.want(Want::Object(target.clone()));
        }
        self.cached(target)
    }

    /// An object by name, where absence is confirmed by a live read: what to use before acting on absence.
    pub fn exact(&self, target: &ObjectRef) -> Seen<Option<Object>> {
        match self.get(target) {
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
        let Some(store) = self.stores.get(kind) else { return Seen::Unknown(Why::NotSynced) };
        self.refreshed(kind, store.waking(self.key))
    }

    /// The objects of a group of a watched kind.
    pub fn group(&self, kind: &Kind, group: &str) -> Seen<Vec<Object>> {
        let Some(store) = self.stores.get(kind) else { return Seen::Unknown(Why::NotSynced) };
        self.refreshed(kind, store.group(group))
    }

    /// All objects that the watch of a kind holds.
    pub fn list(&self, kind: &Kind) -> Seen<Vec<Object>> {
        let Some(store) = self.stores.get(kind) else { return Seen::Unknown(Why::NotSynced) };
        self.refreshed(kind, store.list())
    }

    /// All objects of a kind in a namespace, read now: for large kinds that are not worth a watch.
    pub fn list_live(&self, kind: &Kind, namespace: &str) -> Seen<Vec<Object>> {
        let listing = Listing { kind: kind.clone(), namespace: namespace.to_owned() };
        match self.fresh.lists.get(&listing) {
            Some((objects, read_at)) => Seen::Known { value: objects.clone(), read_at: *read_at },
            None => self.want(Want::List(listing)),
        }
    }

    /// An answer from outside, not older than `max_age`.
    pub fn ask(&self, question: Question, max_age: Duration) -> Seen<Value> {
        self.asked.borrow_mut().push(question.clone());
        let seen = self.outside.get(&question, max_age, self.now);
        if matches!(seen, Seen::Unknown(Why::Reading)) {
            self.wants.borrow_mut().push(Want::Answer(question));
        }
        seen
    }

    fn cached(&self, target: &ObjectRef) -> Seen<Option<Object>> {
        match self.stores.get(&target.kind) {
            Some(store) => store.get(&target.key),
            None => Seen::Unknown(Why::NotSynced),
        }
    }

    /// Live facts win over the cache's, object by object.
    fn refreshed(&self, kind: &Kind, seen: Seen<Vec<Object>>) -> Seen<Vec<Object>> {
        seen.map(|objects| {
            objects
                .into_iter()
                .filter_map(|object| match self.fresh.objects.get(&kind.key(&object.key())) {
                    Some((fresh, _)) => fresh.clone(),
                    None => {
                        if self.live {
                            self.want::<()>(Want::Object(kind.key(&object.key())));
                        }
                        Some(object)
                    }
                })
                .collect()
        })
    }

    fn want<T>(&self, want: Want) -> Seen<T> {
        let mut wants = self.wants.borrow_mut();
        if !wants.contains(&want) {
            wants.push(want);
        }
        Seen::Unknown(Why::Reading)
    }
}
