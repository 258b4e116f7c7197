//! Questions to the outside that are put again and again. Each is put once for all who want the answer; they get the last one with
//! its age and never wait, and only another answer wakes them, or that there is none yet. What nobody wants any more is not asked any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::lock::lock;
use crate::object::Key;
use crate::question::Question;
use crate::seen::{Seen, Why};

/// How many questions to one source are on their way at most.
const PER_SOURCE: usize = 4;
/// A source that fails is asked less often, up to this many periods apart.
const LESS_OFTEN: u32 = 8;
/// Nothing is asked more often than this, nor less often, whatever a family says.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_hours(24);

/// All questions that are put again and again.
#[derive(Default)]
pub(crate) struct Polls {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    questions: BTreeMap<Question, Polled>,
    sources: BTreeMap<String, Arc<Semaphore>>,
}

/// One question.
#[derive(Default)]
struct Polled {
    /// Who wants to know, and how often.
    wanted: BTreeMap<Key, Duration>,
    /// The last answer, and when it was asked for.
    answer: Option<(Value, Timestamp)>,
    /// The same by a clock that nobody sets.
    known_since: Option<Instant>,
    /// What the source says since it no longer answers.
    failing: Option<String>,
    failures: u32,
    /// Somebody asks it.
    asked: bool,
}

impl Polls {
    /// The last answer. One that cannot be had any more is still given, with its age, as long as there was one.
    pub fn get(&self, question: &Question) -> Seen<Value> {
        let inner = self.lock();
        let polled = inner.questions.get(question);
        match polled.map(|polled| (&polled.answer, &polled.failing)) {
            Some((Some((value, read_at)), _)) => Seen::Known { value: value.clone(), read_at: *read_at },
            Some((None, Some(said))) => Seen::Unknown(Why::Unreachable(said.clone())),
            _ => Seen::Unknown(Why::Reading),
        }
    }

    /// What a key wants to know from now on. Gives the questions that somebody must begin to ask.
    pub fn want(&self, key: &Key, questions: &BTreeMap<Question, Duration>) -> Vec<Question> {
        let mut inner = self.lock();
        for (question, polled) in &mut inner.questions {
            if !questions.contains_key(question) {
                polled.wanted.remove(key);
            }
        }
        let mut begin = Vec::new();
        for (question, every) in questions {
            let polled = inner.questions.entry(question.clone()).or_default();
            polled.wanted.insert(key.clone(), *every);
            if !std::mem::replace(&mut polled.asked, true) {
                begin.push(question.clone());
            }
        }
        begin
    }

    /// Leave to ask a source.
    pub async fn permit(&self, source: &str) -> Option<OwnedSemaphorePermit> {
        let semaphore = {
            let mut inner = self.lock();
            let new = || Arc::new(Semaphore::new(PER_SOURCE));
            Arc::clone(inner.sources.entry(source.to_owned()).or_insert_with(new))
        };
        semaphore.acquire_owned().await.ok()
    }

    /// An answer, and when it was asked for. Gives whom it is news to.
    pub fn put(
        &self,
        question: &Question,
        value: Result<Value, String>,
        asked_at: Timestamp,
        asked: Instant,
    ) -> BTreeSet<Key> {
        let mut inner = self.lock();
        let Some(polled) = inner.questions.get_mut(question) else { return BTreeSet::new() };
        let newer = polled.known_since.is_some_and(|known| known > asked);
        let news = match value {
            // What was told meanwhile is newer.
            Ok(_) if newer => false,
            Ok(value) => {
                let news = polled.answer.as_ref().is_none_or(|(known, _)| *known != value);
                (polled.failing, polled.failures) = (None, 0);
                (polled.answer, polled.known_since) = (Some((value, asked_at)), Some(asked));
                news
            }
            Err(said) => {
                polled.failures = polled.failures.saturating_add(1);
                // The last answer stays: whoever minds its age looks at that.
                let news = polled.answer.is_none() && polled.failing.is_none();
                polled.failing = Some(said);
                news
            }
        };
        if news { polled.wanted.keys().cloned().collect() } else { BTreeSet::new() }
    }

    /// When to ask again; none, and the question is forgotten, when nobody wants to know any more. `jitter` is between 0 and 1.
    pub fn next(&self, question: &Question, jitter: f64) -> Option<Duration> {
        let mut inner = self.lock();
        let polled = inner.questions.get(question)?;
        let Some(every) = polled.wanted.values().min() else {
            inner.questions.remove(question);
            return None;
        };
        let slower = 2_u32.saturating_pow(polled.failures.min(8)).min(LESS_OFTEN);
        Some(every.saturating_mul(slower).clamp(SHORTEST, LONGEST).mul_f64(0.9 + 0.2 * jitter))
    }

    /// A key is gone.
    pub fn forget(&self, key: &Key) {
        self.want(key, &BTreeMap::new());
    }

    /// How many questions are put again and again.
    #[cfg(any(test, feature = "simulation"))]
    pub fn len(&self) -> usize {
        self.lock().questions.len()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;
    const MINUTE: Duration = Duration::from_mins(1);

    fn level() -> Question {
        Question::new("gauge", "level")
    }

    #[test]
    fn one_asks_for_all_only_another_answer_is_news_and_a_source_that_fails_is_asked_less_often() {
        let begun = Instant::now();
        let (polls, one, two) = (Polls::default(), Key::cluster("one"), Key::cluster("two"));
        let wants = |every| BTreeMap::from([(level(), every)]);
        assert_eq!(polls.want(&one, &wants(MINUTE)), [level()]);
        assert_eq!(polls.want(&two, &wants(MINUTE * 2)), [], "it is asked already");
        assert_eq!(polls.get(&level()), Seen::Unknown(Why::Reading));
        assert_eq!(
            polls.put(&level(), Err("away".into()), NOW, begun).len(),
            2,
            "that there is none is news once"
        );
        assert_eq!(polls.put(&level(), Err("away".into()), NOW, begun).len(), 0);
        assert_eq!(polls.next(&level(), 0.5), Some(MINUTE * 4));
        assert_eq!(polls.put(&level(), Ok(json!(1)), NOW, begun).len(), 2);
        assert_eq!(
            polls.put(&level(), Ok(json!(1)), NOW + MINUTE, begun + MINUTE).len(),
            0,
            "the same is no news"
        );
        assert_eq!(polls.get(&level()), Seen::Known { value: json!(1), read_at: NOW + MINUTE });
        assert_eq!(polls.put(&level(), Err("away".into()), NOW, begun).len(), 0);
        assert!(polls.get(&level()).known().is_some(), "the last answer stays, with its age");
        assert_eq!(polls.put(&level(), Ok(json!(2)), NOW, begun).len(), 0, "a newer one is known");
        assert_eq!(polls.put(&level(), Ok(json!(2)), NOW + MINUTE, begun + MINUTE).len(), 2);
        assert_eq!(polls.next(&level(), 0.5), Some(MINUTE), "as often as the most curious wants");
        polls.forget(&one);
        assert_eq!(polls.next(&level(), 0.5), Some(MINUTE * 2));
        polls.forget(&two);
        assert_eq!(polls.next(&level(), 0.5), None);
        assert_eq!(polls.get(&level()), Seen::Unknown(Why::Reading), "nothing is kept of it");
    }
}
