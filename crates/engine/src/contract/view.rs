//! What `observe` may ask: the caches, what this pass has read live, and the answers from outside.
//! Asks for nothing itself: what is missing is noted as a want, the engine reads it and observes again.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;

use crate::cluster::Listing;
use crate::object::{Key, Kind, Object, ObjectRef};
use crate::outside::Outside;
use crate::question::Question;
use crate::seen::{Seen, Why};
use crate::stores::Stores;

/// Live facts of one pass; they are newer than the caches.
#[derive(Default)]
pub(crate) struct Fresh {
    /// Something is to be destroyed: what is looked at by name, and what belongs to the key, is read live.
    pub live: bool,
    /// Objects by name; none when it was seen that there is none.
    pub objects: BTreeMap<ObjectRef, (Option<Object>, Timestamp)>,
    /// Kinds of which it was seen that they are not served.
    pub unserved: BTreeSet<Kind>,
    /// Lists.
    pub lists: BTreeMap<Listing, (Arc<[Object]>, Timestamp)>,
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
    /// Own writes that the caches have not reached: what is of these kinds is read live.
    pub(crate) lagging: &'a [ObjectRef],
    pub(crate) wants: RefCell<Vec<Want>>,
    pub(crate) asked: RefCell<Vec<Question>>,
    /// A question could not be answered.
    pub(crate) unanswered: Cell<bool>,
}

impl View<'_> {
    /// When this pass looks.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// An object by name, as the cache has it. Absence proves nothing: the cache may be filtered or late. For what is only
    /// reported, and for what is written by a step that is refused when anything is there; else [`View::get`].
    pub fn cached(&self, target: &ObjectRef) -> Seen<Option<Object>> {
        if let Some((object, read_at)) = self.fresh.objects.get(target) {
            return Seen::Known { value: object.clone(), read_at: *read_at };
        }
        if self.fresh.unserved.contains(&target.kind) {
            return Seen::Unknown(Why::NotServed);
        }
        if self.fresh.live || self.lags(&target.kind) {
            return self.want(Want::Object(target.clone()));
        }
        self.in_store(target)
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
        let live = self.fresh.live || self.lags(kind);
        let cached = self.stores.waking(kind, self.key);
        self.refreshed(kind, cached, live, |object| self.stores.would_wake(kind, object, self.key))
    }

    /// The objects of a group of a watched kind.
    pub fn group(&self, kind: &Kind, group: &str) -> Seen<Vec<Object>> {
        let cached = self.stores.group(kind, group);
        self.refreshed(kind, cached, self.lags(kind), |object| self.stores.would_join(kind, object, group))
    }

    /// All objects that the watch of a kind holds.
    pub fn list(&self, kind: &Kind) -> Seen<Vec<Object>> {
        self.refreshed(kind, self.stores.list(kind), self.lags(kind), |_| true)
    }

    /// All objects of a kind in a namespace, read live and not longer than `max_age` ago: for large kinds that are not worth a
    /// watch. Keys that look at the same list share it.
    pub fn list_live(&self, kind: &Kind, namespace: &str, max_age: Duration) -> Seen<Vec<Object>> {
        let listing = Listing { kind: kind.clone(), namespace: namespace.to_owned() };
        if let Some((objects, read_at)) = self.fresh.lists.get(&listing) {
            return Seen::Known { value: objects.to_vec(), read_at: *read_at };
        }
        match self.outside.list(&listing, max_age, self.now) {
            Some((objects, read_at)) => Seen::Known { value: objects.to_vec(), read_at },
            None => self.want(Want::List(listing)),
        }
    }

    /// An answer from outside, not older than `max_age`. One that cannot be read is as good as none.
    pub fn ask<T: DeserializeOwned>(&self, question: Question, max_age: Duration) -> Seen<T> {
        self.asked.borrow_mut().push(question.clone());
        match self.outside.get(&question, max_age, self.key, self.now) {
            Seen::Known { value, read_at } => match serde_json::from_value(value) {
                Ok(value) => Seen::Known { value, read_at },
                Err(error) => {
                    self.unanswered.set(true);
                    Seen::Unknown(Why::Unreachable(format!("cannot read the answer: {error}")))
                }
            },
            Seen::Unknown(Why::Reading) => {
                self.wants.borrow_mut().push(Want::Answer(question));
                Seen::Unknown(Why::Reading)
            }
            Seen::Unknown(why) => {
                self.unanswered.set(true);
                Seen::Unknown(why)
            }
        }
    }

    /// Whether a label or annotation of a watched kind is one of ours.
    pub(crate) fn is_ours(&self, kind: &Kind, name: &str) -> bool {
        self.stores.is_ours(kind, name)
    }

    fn in_store(&self, target: &ObjectRef) -> Seen<Option<Object>> {
        self.stores.get(target)
    }

    fn lags(&self, kind: &Kind) -> bool {
        self.lagging.iter().any(|target| target.kind == *kind)
    }

    /// Live facts win over the cache's, object by object, and what the cache has not seen yet belongs here too.
    fn refreshed(
        &self,
        kind: &Kind,
        seen: Seen<Vec<Object>>,
        live: bool,
        belongs: impl Fn(&Object) -> bool,
    ) -> Seen<Vec<Object>> {
        seen.map(|cached| {
            let news: Vec<Object> = self
                .fresh
                .objects
                .iter()
                .filter(|(target, _)| {
                    target.kind == *kind && cached.iter().all(|object| object.key() != target.key)
                })
                .filter_map(|(_, (object, _))| object.clone().filter(&belongs))
                .collect();
            let mut objects: Vec<Object> = cached
                .into_iter()
                .filter_map(|object| {
                    let target = kind.key(&object.key());
                    if let Some((fresh, _)) = self.fresh.objects.get(&target) {
                        return fresh.clone();
                    }
                    if live && !self.fresh.unserved.contains(kind) {
                        self.want::<()>(Want::Object(target));
                    }
                    Some(object)
                })
                .chain(news)
                .collect();
            objects.sort_by_cached_key(Object::key);
            objects
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
