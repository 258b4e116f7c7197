//! Questions to the world outside Kubernetes and their last answers. A question that many keys ask is put once;
//! the answer wakes them all. Asking is done by the runner, never here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::cluster::{ApiError, Cluster, Listing};
use crate::lock::lock;
use crate::object::{Identity, Key, Object, ObjectRef};
use crate::polls::Polls;
use crate::question::Question;
use crate::seen::{Seen, Why};

/// How long it counts that a question could not be answered.
const FAILED_LIFE: Duration = Duration::from_secs(20);
/// How long a composed Secret counts as right.
const VERIFIED_LIFE: Duration = Duration::from_hours(1);
/// How many effects on one target are under way at most.
const EFFECTS: usize = 8;
/// How long an effect waits for its turn.
const PERMIT_WAIT: Duration = Duration::from_secs(1);
/// How long a live list can be shared at all.
const LIST_LIFE: Duration = Duration::from_secs(10);

#[derive(Clone)]
struct Answer {
    value: Result<Value, String>,
    /// When the question was put: what has happened since may not be in it.
    asked_at: Timestamp,
    asked: Moment,
    came_at: Timestamp,
}

/// A question that is on its way.
struct Asking {
    /// Who waits for the answer.
    keys: BTreeSet<Key>,
    asked_at: Timestamp,
    asked: Moment,
    /// Something was done meanwhile that may have changed the answer.
    void: bool,
}

/// Which of two things came first: a clock could say of both that they are at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

/// A live list.
#[derive(Clone)]
pub(crate) struct List {
    pub objects: Arc<[Object]>,
    pub read_at: Timestamp,
    begun: Moment,
}

/// What was compared when a composed Secret was found to be right. No content, and nothing that is made of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verified {
    /// What it shall be, as text.
    pub recipe: String,
    pub own: Identity,
    pub sources: Vec<Identity>,
    /// Since when. After an hour it is compared again: what it is made by may depend on the time, as certificates do.
    pub since: Instant,
}

impl Verified {
    /// Whether it still counts.
    pub fn is_young(&self) -> bool {
        self.since.elapsed() < VERIFIED_LIFE
    }
}

/// What the passes of one controller share: answers from outside, live lists, since when a key wants everything anew, composed Secrets
/// that were compared, and leave for effects.
#[derive(Default)]
pub struct Outside {
    inner: Mutex<Inner>,
    /// What is asked again and again.
    pub(crate) polls: Polls,
    /// Effects that are under way, by target.
    effects: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

#[derive(Default)]
struct Inner {
    answers: BTreeMap<Question, Answer>,
    lists: BTreeMap<Listing, List>,
    /// Lists that could not be read, while others wait for the same.
    failed_lists: BTreeMap<Listing, (Moment, ApiError)>,
    /// One reads a list, the others wait for it.
    turns: BTreeMap<Listing, Arc<tokio::sync::Mutex<()>>>,
    now: Moment,
    /// Keys that are about to destroy something: only what is asked and read after this counts for them.
    firm: BTreeMap<Key, Moment>,
    asking: BTreeMap<Question, Asking>,
    /// Composed Secrets whose content was found to be right.
    verified: BTreeMap<ObjectRef, Verified>,
    /// Answers that a key has waited for and has had no pass with yet: those are good enough, whatever their age.
    unread: BTreeMap<Key, BTreeSet<Question>>,
}

impl Inner {
    fn drop_old_lists(&mut self, now: Timestamp) {
        self.lists.retain(|_, list| now.duration_since(list.read_at).unsigned_abs() <= LIST_LIFE);
    }

    fn moment(&mut self) -> Moment {
        self.now.0 += 1;
        self.now
    }
}

impl Outside {
    /// What is known, when it is not older than `max_age`, or when this key has waited for it; asked for after `since`, when
    /// that matters.
    pub(crate) fn get(
        &self,
        question: &Question,
        max_age: Duration,
        key: &Key,
        now: Timestamp,
        since: Option<Moment>,
    ) -> Seen<Value> {
        let inner = self.lock();
        if inner.answers.get(question).is_some_and(|answer| since.is_some_and(|since| answer.asked < since)) {
            return Seen::Unknown(Why::Reading);
        }
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
    pub(crate) fn list(&self, listing: &Listing, max_age: Duration, now: Timestamp) -> Option<List> {
        let inner = self.lock();
        let list = inner.lists.get(listing)?;
        (now.duration_since(list.read_at).unsigned_abs() <= max_age).then(|| list.clone())
    }

    /// Reads a live list. Whoever wants the same meanwhile waits for it, and shares it when it was begun late enough.
    pub(crate) async fn read_list(
        &self,
        cluster: &dyn Cluster,
        listing: &Listing,
        now: Timestamp,
    ) -> Result<List, ApiError> {
        let (wanted, turn) = {
            let mut inner = self.lock();
            (inner.moment(), Arc::clone(inner.turns.entry(listing.clone()).or_default()))
        };
        let mine = turn.lock().await;
        let shared = {
            let inner = self.lock();
            // A failure is shared as well, or each who waits would wait for one of his own.
            if let Some((begun, error)) = inner.failed_lists.get(listing)
                && *begun > wanted
            {
                return Err(error.clone());
            }
            inner.lists.get(listing).filter(|list| list.begun > wanted).cloned()
        };
        if let Some(list) = shared {
            return Ok(list);
        }
        let begun = self.lock().moment();
        let read = cluster.list(listing).await;
        let mut inner = self.lock();
        inner.drop_old_lists(now);
        let list = match read {
            Ok(objects) => {
                let list = List { objects: objects.into(), read_at: now, begun };
                inner.lists.insert(listing.clone(), list.clone());
                inner.failed_lists.remove(listing);
                Ok(list)
            }
            Err(error) => {
                inner.failed_lists.insert(listing.clone(), (begun, error.clone()));
                Err(error)
            }
        };
        drop(mine);
        // Nobody else waits for it.
        if Arc::strong_count(&turn) <= 2 {
            inner.turns.remove(listing);
            inner.failed_lists.remove(listing);
        }
        list
    }

    /// From now on, and until it has had a pass with all answers, only what is asked and read anew counts for this key. Gives since when:
    /// the moment of the first call.
    pub(crate) fn firm_since(&self, key: &Key) -> Moment {
        let mut inner = self.lock();
        let now = inner.moment();
        *inner.firm.entry(key.clone()).or_insert(now)
    }

    /// Registers a key as waiting; true when the caller must put the question.
    pub(crate) fn wait(&self, question: &Question, key: &Key, now: Timestamp) -> bool {
        let mut inner = self.lock();
        if let Some(asking) = inner.asking.get_mut(question) {
            asking.keys.insert(key.clone());
            return false;
        }
        let asked = inner.moment();
        let asking = Asking { keys: BTreeSet::from([key.clone()]), asked_at: now, asked, void: false };
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
        let moment = inner.moment();
        let asking = inner.asking.get_mut(question)?;
        if std::mem::take(&mut asking.void) {
            (asking.asked_at, asking.asked) = (now, moment);
            return None;
        }
        let asking = inner.asking.remove(question)?;
        let answer = Answer { value, asked_at: asking.asked_at, asked: asking.asked, came_at: now };
        inner.answers.insert(question.clone(), answer);
        for key in &asking.keys {
            inner.unread.entry(key.clone()).or_default().insert(question.clone());
        }
        Some(asking.keys)
    }

    /// A key has had a pass with all answers that it waited for.
    pub(crate) fn read_by(&self, key: &Key) {
        let mut inner = self.lock();
        inner.unread.remove(key);
        inner.firm.remove(key);
    }

    /// Leave for one effect on a target; none when too many are under way. A target that hangs must not take all workers.
    pub(crate) async fn permit(&self, target: &str) -> Option<OwnedSemaphorePermit> {
        let semaphore = {
            let mut effects = lock(&self.effects);
            // Those of targets that nobody works on are not kept.
            effects
                .retain(|_, effects| Arc::strong_count(effects) > 1 || effects.available_permits() < EFFECTS);
            let new = || Arc::new(Semaphore::new(EFFECTS));
            Arc::clone(effects.entry(target.to_owned()).or_insert_with(new))
        };
        tokio::time::timeout(PERMIT_WAIT, semaphore.acquire_owned()).await.ok()?.ok()
    }

    /// What was last compared of a composed Secret.
    pub(crate) fn verified(&self, secret: &ObjectRef) -> Option<Verified> {
        self.lock().verified.get(secret).cloned()
    }

    /// A composed Secret is right.
    pub(crate) fn verify(&self, secret: &ObjectRef, verified: Verified) {
        self.lock().verified.insert(secret.clone(), verified);
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
        inner.verified.retain(|_, verified| verified.is_young());
        inner.drop_old_lists(now);
        // Who waited for a list may have been ended meanwhile.
        inner.turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        let Inner { turns, failed_lists, .. } = &mut *inner;
        failed_lists.retain(|listing, _| turns.contains_key(listing));
    }

    /// What it keeps: so many of each.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn kept(&self) -> [(&'static str, usize); 10] {
        let inner = self.lock();
        [
            ("answers", inner.answers.len()),
            ("open questions", inner.asking.len()),
            ("unread answers", inner.unread.len()),
            ("lists", inner.lists.len()),
            ("failed lists", inner.failed_lists.len()),
            ("lists under way", inner.turns.len()),
            ("keys on firm ground", inner.firm.len()),
            ("compared Secrets", inner.verified.len()),
            ("polled questions", self.polls.len()),
            ("targets of effects", lock(&self.effects).len()),
        ]
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
        let seen = outside.get(&question(), Duration::ZERO, &one, NOW, None);
        assert_eq!(seen.known(), Some(&Value::from("after")));
    }

    #[test]
    fn who_waited_for_an_answer_may_use_it_in_one_pass_whatever_its_age() {
        let (outside, [one, two]) = (Outside::default(), keys());
        outside.wait(&question(), &one, NOW);
        outside.put(&question(), Ok(Value::Null), NOW);
        let later = NOW + Duration::from_secs(5);
        let knows =
            |key: &Key| outside.get(&question(), Duration::from_secs(1), key, later, None).known().is_some();
        assert_eq!((knows(&one), knows(&two)), (true, false));
        outside.read_by(&one);
        assert!(!knows(&one));
    }
}
