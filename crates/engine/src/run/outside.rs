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

/// How long it counts that a question could not be answered.
const FAILED_LIFE: Duration = Duration::from_secs(20);
/// How long a live list can be shared at all.
const LIST_LIFE: Duration = Duration::from_secs(10);

#[derive(Clone)]
struct Answer {
    value: Result<Value, String>,
    /// When the question was put: what has happened since may not be in it.
    asked_at: Timestamp,
    came_at: Timestamp,
}

/// A question that is on its way.
struct Asking {
    /// Who waits for the answer.
    keys: BTreeSet<Key>,
    asked_at: Timestamp,
    /// Something was done meanwhile that may have changed the answer.
    void: bool,
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
    asking: BTreeMap<Question, Asking>,
    /// Answers that a key has waited for and has had no pass with yet: those are good enough, whatever their age.
    unread: BTreeMap<Key, BTreeSet<Question>>,
}

impl Inner {
    fn drop_old_lists(&mut self, now: Timestamp) {
        self.lists.retain(|_, (_, read_at)| now.duration_since(*read_at).unsigned_abs() <= LIST_LIFE);
    }
}

impl Outside {
    /// What is known, when it is not older than `max_age`, or when this key has waited for it.
    pub(crate) fn get(
        &self,
        question: &Question,
        max_age: Duration,
        key: &Key,
        now: Timestamp,
    ) -> Seen<Value> {
        let inner = self.lock();
        let waited = || inner.unread.get(key).is_some_and(|questions| questions.contains(question));
        let max_age = match inner.answers.get(question) {
            Some(Answer { value: Err(_), .. }) => max_age.min(FAILED_LIFE),
            _ => max_age,
        };
        match inner.answers.get(question) {
            Some(answer) if now.duration_since(answer.came_at).unsigned_abs() <= max_age || waited() => {
                match &answer.value {
                    Ok(value) => Seen::Known { value: value.clone(), read_at: answer.asked_at },
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
    pub(crate) fn wait(&self, question: &Question, key: &Key, now: Timestamp) -> bool {
        let mut inner = self.lock();
        if let Some(asking) = inner.asking.get_mut(question) {
            asking.keys.insert(key.clone());
            return false;
        }
        let asking = Asking { keys: BTreeSet::from([key.clone()]), asked_at: now, void: false };
        inner.asking.insert(question.clone(), asking);
        true
    }

    /// An answer came; returns the keys that waited for it. None when something was done meanwhile that may have changed it: then
    /// the question must be put again.
    pub(crate) fn put(
        &self,
        question: &Question,
        value: Result<Value, String>,
        now: Timestamp,
    ) -> Option<BTreeSet<Key>> {
        let mut inner = self.lock();
        let asking = inner.asking.get_mut(question)?;
        if std::mem::take(&mut asking.void) {
            asking.asked_at = now;
            return None;
        }
        let asking = inner.asking.remove(question)?;
        let answer = Answer { value, asked_at: asking.asked_at, came_at: now };
        inner.answers.insert(question.clone(), answer);
        for key in &asking.keys {
            inner.unread.entry(key.clone()).or_default().insert(question.clone());
        }
        Some(asking.keys)
    }

    /// A key has had a pass with all answers that it waited for.
    pub(crate) fn read_by(&self, key: &Key) {
        self.lock().unread.remove(key);
    }

    /// What these questions were answered is no longer good, and neither is what is on its way: an effect may have changed it.
    pub(crate) fn forget<'a>(&self, questions: impl IntoIterator<Item = &'a Question>) {
        let mut inner = self.lock();
        for question in questions {
            inner.answers.remove(question);
            if let Some(asking) = inner.asking.get_mut(question) {
                asking.void = true;
            }
        }
    }

    /// Drops answers that were read longer ago than `age`, and lists that are too old to be shared.
    pub(crate) fn forget_older_than(&self, age: Duration, now: Timestamp) {
        let mut inner = self.lock();
        inner.answers.retain(|_, answer| now.duration_since(answer.came_at).unsigned_abs() <= age);
        inner.drop_old_lists(now);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn question() -> Question {
        Question::new("dns", "a")
    }

    fn keys() -> [Key; 2] {
        ["one", "two"].map(|name| Key::namespaced("ns", name))
    }

    #[test]
    fn a_question_that_is_on_its_way_is_put_once_whoever_asks_again() {
        let (outside, [one, two]) = (Outside::default(), keys());
        let asked = [&one, &one, &two, &one].map(|key| outside.wait(&question(), key, NOW));
        assert_eq!(asked, [true, false, false, false]);
        assert_eq!(outside.put(&question(), Ok(Value::Null), NOW), Some(BTreeSet::from([one.clone(), two])));
        assert!(outside.wait(&question(), &one, NOW), "after the answer it is a new question");
    }

    #[test]
    fn an_answer_from_before_an_effect_is_asked_for_again() {
        let (outside, [one, _]) = (Outside::default(), keys());
        outside.wait(&question(), &one, NOW);
        outside.forget([&question()]);
        assert_eq!(outside.put(&question(), Ok(Value::from("before")), NOW), None);
        assert!(!outside.wait(&question(), &one, NOW), "it is on its way again");
        assert_eq!(
            outside.put(&question(), Ok(Value::from("after")), NOW),
            Some(BTreeSet::from([one.clone()]))
        );
        let seen = outside.get(&question(), Duration::ZERO, &one, NOW);
        assert_eq!(seen.known(), Some(&Value::from("after")));
    }

    #[test]
    fn who_waited_for_an_answer_may_use_it_in_one_pass_whatever_its_age() {
        let (outside, [one, two]) = (Outside::default(), keys());
        outside.wait(&question(), &one, NOW);
        outside.put(&question(), Ok(Value::Null), NOW);
        let later = NOW + Duration::from_secs(5);
        let knows =
            |key: &Key| outside.get(&question(), Duration::from_secs(1), key, later).known().is_some();
        assert_eq!((knows(&one), knows(&two)), (true, false));
        outside.read_by(&one);
        assert!(!knows(&one));
    }
}
