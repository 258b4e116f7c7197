//! Names that a server was asked about and that nothing has. That something is not there is proved by a read of the API server, so
//! whoever invents names could make a server read all the time: what was not there a moment ago is not read again, and only so many
//! such reads are made.
//!
//! Hand-made, because it must follow the clock of the simulation, which the crates for this do not.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::failure::{Class, Failure};
use crate::lock::lock;
use crate::object::ObjectRef;
use crate::runtime::Runtime;

/// How long it counts that something is not there. What is made meanwhile is seen by the caches, which come first.
const LIFE: Duration = Duration::from_secs(5);
/// When so many names are remembered, those that no longer count are dropped. Fewer than this are found absent while one counts.
const MOST: usize = 256;
/// So many reads that find nothing are made at once, and then a second.
const AT_ONCE: f64 = 100.0;
const PER_SECOND: f64 = 20.0;
/// So many reads are on their way at once; others wait for their turn.
const ON_THEIR_WAY: usize = 32;

/// What is not there.
pub(super) struct Absent {
    inner: Mutex<Inner>,
    turns: Semaphore,
}

struct Inner {
    absent: BTreeMap<ObjectRef, (Instant, Timestamp)>,
    /// Reads that may still find nothing, as of an instant.
    left: f64,
    as_of: Instant,
    /// How often something was forgotten.
    forgotten: u64,
}

/// What is known of an object before it is read.
pub(super) enum Looked<'a> {
    /// It was seen not to be there, and that still counts.
    Absent {
        /// When.
        since: Timestamp,
    },
    /// It must be read.
    Unknown(Reading<'a>),
}

/// A read that is on its way. Who makes it says what came of it: only one that finds something costs nothing in the end. One that
/// is dropped has failed, or has found nothing that is remembered.
pub(super) struct Reading<'a> {
    absent: &'a Absent,
    /// How often something had been forgotten when it began.
    forgotten: u64,
    _turn: Option<SemaphorePermit<'a>>,
}

impl Default for Absent {
    fn default() -> Self {
        let inner = Inner { absent: BTreeMap::new(), left: AT_ONCE, as_of: Runtime::instant(), forgotten: 0 };
        Self { inner: Mutex::new(inner), turns: Semaphore::new(ON_THEIR_WAY) }
    }
}

impl Absent {
    /// What is known of an object. Refuses when too much is asked for that is not there.
    pub async fn look(&self, target: &ObjectRef) -> Result<Looked<'_>, Failure> {
        if let Some((begun, seen_at)) = lock(&self.inner).absent.get(target)
            && begun.elapsed() < LIFE
        {
            return Ok(Looked::Absent { since: *seen_at });
        }
        self.begin(target).await.map(Looked::Unknown)
    }

    /// Begins a read of something that may not be there.
    pub async fn begin(&self, what: &impl fmt::Display) -> Result<Reading<'_>, Failure> {
        let turn = self.turns.acquire().await.ok();
        let mut inner = lock(&self.inner);
        inner.refill();
        if inner.left < 1.0 {
            let said = format!("too many names are asked for that do not exist, such as {what}; ask again");
            return Err(Failure::new(Class::Transient, said));
        }
        inner.left -= 1.0;
        Ok(Reading { absent: self, forgotten: inner.forgotten, _turn: turn })
    }

    /// It is being made: what was seen before, or is being read, does not count any more.
    pub fn forget(&self, target: &ObjectRef) {
        let mut inner = lock(&self.inner);
        inner.absent.remove(target);
        inner.forgotten += 1;
    }
}

impl Reading<'_> {
    /// It has found something.
    pub fn found(self) {
        lock(&self.absent.inner).left += 1.0;
    }

    /// It has found nothing.
    pub fn absent(self, target: &ObjectRef, now: Timestamp) {
        let mut inner = lock(&self.absent.inner);
        if inner.forgotten != self.forgotten {
            return; // it may have been made meanwhile
        }
        if inner.absent.len() >= MOST {
            inner.absent.retain(|_, (begun, _)| begun.elapsed() < LIFE);
        }
        inner.absent.insert(target.clone(), (Runtime::instant(), now));
    }
}

impl Inner {
    fn refill(&mut self) {
        let now = Runtime::instant();
        let gained = now.duration_since(self.as_of).as_secs_f64() * PER_SECOND;
        (self.left, self.as_of) = ((self.left + gained).min(AT_ONCE), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Kind;

    const KIND: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");
    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn name(number: usize) -> ObjectRef {
        KIND.at("ns", &number.to_string())
    }

    /// Whether this name must be read; then it is not there.
    async fn is_read(absent: &Absent, number: usize) -> bool {
        match absent.look(&name(number)).await {
            Ok(Looked::Unknown(reading)) => {
                reading.absent(&name(number), NOW);
                true
            }
            _ => false,
        }
    }

    async fn reads(absent: &Absent, from: usize) -> usize {
        let mut reads = 0;
        for number in from..from + 10_000 {
            reads += usize::from(is_read(absent, number).await);
        }
        reads
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_there_is_read_once_in_a_while_and_inventing_names_makes_few_reads() {
        let absent = Absent::default();
        assert!(is_read(&absent, 0).await);
        assert!(matches!(absent.look(&name(0)).await, Ok(Looked::Absent { since }) if since == NOW));
        absent.forget(&name(0));
        assert!(is_read(&absent, 0).await);
        assert_eq!(reads(&absent, 1).await, 98, "two of a hundred are spent");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(reads(&absent, 20_000).await, 40);
        let Err(refused) = absent.look(&name(90_000)).await else { panic!("it is not refused") };
        assert!(refused.class == Class::Transient && refused.message.contains("90000"), "{refused}");
        tokio::time::sleep(LIFE).await;
        assert!(is_read(&absent, 1).await, "that is long ago");
        for round in 0..10 {
            reads(&absent, 100_000 * (round + 1)).await;
            tokio::time::sleep(LIFE).await;
        }
        assert!(lock(&absent.inner).absent.len() <= MOST, "old ones are dropped");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_there_costs_nothing_however_much_of_it_is_read_and_what_fails_does() {
        let absent = Absent::default();
        for _ in 0..1000 {
            let Ok(Looked::Unknown(reading)) = absent.look(&name(0)).await else { panic!("it is refused") };
            reading.found();
        }
        let mut reads = 0;
        while let Ok(reading) = absent.begin(&"a list").await {
            drop(reading);
            reads += 1;
        }
        assert_eq!(reads, 100);
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_are_read_at_once_and_the_others_wait() {
        let absent = Absent::default();
        let mut reading = Vec::new();
        for _ in 0..ON_THEIR_WAY {
            reading.push(absent.begin(&"x").await.unwrap());
        }
        let mut next = std::pin::pin!(absent.begin(&"x"));
        assert!(futures::poll!(next.as_mut()).is_pending());
        reading.pop();
        assert!(next.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_made_while_it_is_read_is_not_remembered_as_absent() {
        let absent = Absent::default();
        let Ok(Looked::Unknown(reading)) = absent.look(&name(0)).await else { panic!("it is refused") };
        absent.forget(&name(0));
        reading.absent(&name(0), NOW);
        assert!(matches!(absent.look(&name(0)).await, Ok(Looked::Unknown(_))));
    }
}
