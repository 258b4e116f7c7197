//! Questions to the world outside Kubernetes and their last answers. A question that many keys ask is put once;
//! the answer wakes them all. Asking is done by the runner, never here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::cluster::Listing;
use crate::lock::lock;
use crate::object::{Key, Object};
use crate::question::Question;
use crate::seen::{Seen, Why};

/// How long a live list can be shared at all.
const LIST_LIFE: Duration = Duration::from_secs(10);

#[derive(Clone)]
struct Answer {
    value: Result<Value, String>,
    read_at: Timestamp,
}

/// The last answers.
#[derive(Default)]
pub struct Outside {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    answers: BTreeMap<Question, Answer>,
    lists: BTreeMap<Listing, (Arc<[Object]>, Timestamp)>,
    asking: BTreeMap<Question, BTreeSet<Key>>,
}

impl Inner {
    fn drop_old_lists(&mut self, now: Timestamp) {
        self.lists.retain(|_, (_, read_at)| now.duration_since(*read_at).unsigned_abs() <= LIST_LIFE);
    }
}

impl Outside {
    /// What is known, when it is not older than `max_age`.
    pub(crate) fn get(&self, question: &Question, max_age: Duration, now: Timestamp) -> Seen<Value> {
        let inner = self.lock();
        match inner.answers.get(question) {
            Some(answer) if now.duration_since(answer.read_at).unsigned_abs() <= max_age => {
                match &answer.value {
                    Ok(value) => Seen::Known { value: value.clone(), read_at: answer.read_at },
                    Err(said) => Seen::Unknown(Why::Unreachable(said.clone())),
                }
            }
            _ => Seen::Unknown(Why::Reading),
        }
    }

    /// A live list of somebody's, when it is not older than `max_age`.
    pub(crate) fn list(
        &self,
        listing: &Listing,
        max_age: Duration,
        now: Timestamp,
    ) -> Option<(Arc<[Object]>, Timestamp)> {
        let inner = self.lock();
        let (objects, read_at) = inner.lists.get(listing)?;
        (now.duration_since(*read_at).unsigned_abs() <= max_age).then(|| (Arc::clone(objects), *read_at))
    }

    /// Keeps a live list for whoever looks at the same; only the latest few, because they are large.
    pub(crate) fn keep_list(&self, listing: Listing, objects: Arc<[Object]>, now: Timestamp) {
        let mut inner = self.lock();
        inner.drop_old_lists(now);
        inner.lists.insert(listing, (objects, now));
    }

    /// Registers a key as waiting; true when the caller must put the question.
    pub(crate) fn wait(&self, question: &Question, key: &Key) -> bool {
        let mut inner = self.lock();
        let new = !inner.asking.contains_key(question);
        inner.asking.entry(question.clone()).or_default().insert(key.clone());
        new
    }

    /// An answer came; returns the keys that waited for it.
    pub(crate) fn put(
        &self,
        question: &Question,
        value: Result<Value, String>,
        now: Timestamp,
    ) -> BTreeSet<Key> {
        let mut inner = self.lock();
        inner.answers.insert(question.clone(), Answer { value, read_at: now });
        inner.asking.remove(question).unwrap_or_default()
    }

    /// What these questions were answered is no longer good: an effect may have changed it.
    pub(crate) fn forget<'a>(&self, questions: impl IntoIterator<Item = &'a Question>) {
        let mut inner = self.lock();
        for question in questions {
            inner.answers.remove(question);
        }
    }

    /// Drops answers that were read longer ago than `age`, and lists that are too old to be shared.
    pub(crate) fn forget_older_than(&self, age: Duration, now: Timestamp) {
        let mut inner = self.lock();
        inner.answers.retain(|_, answer| now.duration_since(answer.read_at).unsigned_abs() <= age);
        inner.drop_old_lists(now);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_that_is_on_its_way_is_put_once_whoever_asks_again() {
        let (outside, question) = (Outside::default(), Question::new("dns", "a"));
        let (one, two) = (Key::namespaced("ns", "one"), Key::namespaced("ns", "two"));
        let asked = [&one, &one, &two, &one].map(|key| outside.wait(&question, key));
        assert_eq!(asked, [true, false, false, false]);
        assert_eq!(
            outside.put(&question, Ok(Value::Null), Timestamp::UNIX_EPOCH),
            BTreeSet::from([one.clone(), two])
        );
        assert!(outside.wait(&question, &one), "after the answer it is a new question");
    }
}
