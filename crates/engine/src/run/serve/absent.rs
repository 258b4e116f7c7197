//! Names that a server was asked about and that nothing has. That something is not there is proved by a read of the API server, so
//! whoever invents names could make a server read all the time: what was not there a moment ago is not read again, and only so many
//! such reads are made.
//!
//! Hand-made, because it must follow the clock of the simulation, which the crates for this do not.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
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

/// What is not there.
pub(super) struct Absent(Mutex<Inner>);

struct Inner {
    absent: BTreeMap<ObjectRef, (Instant, Timestamp)>,
    /// Reads that may be made, as of an instant.
    left: f64,
    as_of: Instant,
}

impl Default for Absent {
    fn default() -> Self {
        Self(Mutex::new(Inner { absent: BTreeMap::new(), left: AT_ONCE, as_of: Runtime::instant() }))
    }
}

impl Absent {
    /// When it was seen that this is not there, if that still counts; if not, the caller reads it and says what came of it. Refuses
    /// when too much is asked for that is not there.
    pub fn known_since(&self, target: &ObjectRef) -> Result<Option<Timestamp>, Failure> {
        let mut inner = lock(&self.0);
        inner.refill();
        if let Some((since, seen_at)) = inner.absent.get(target)
            && since.elapsed() < LIFE
        {
            return Ok(Some(*seen_at));
        }
        if inner.left < 1.0 {
            let said = format!("too many names are asked for that do not exist, such as {target}; ask again");
            return Err(Failure::new(Class::Transient, said));
        }
        // Before the read: many may be on their way at once.
        inner.left -= 1.0;
        Ok(None)
    }

    /// The read has found it, or has failed: that is nobody's invention, and does not count.
    pub fn give_back(&self) {
        lock(&self.0).left += 1.0;
    }

    /// A read has found nothing.
    pub fn add(&self, target: &ObjectRef, now: Timestamp) {
        let mut inner = lock(&self.0);
        if inner.absent.len() >= MOST {
            inner.absent.retain(|_, (since, _)| since.elapsed() < LIFE);
        }
        inner.absent.insert(target.clone(), (Runtime::instant(), now));
    }

    /// It is being made: what was seen before does not count any more.
    pub fn forget(&self, target: &ObjectRef) {
        lock(&self.0).absent.remove(target);
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

    #[tokio::test(start_paused = true)]
    async fn what_is_not_there_is_read_once_in_a_while_and_inventing_names_makes_few_reads() {
        let absent = Absent::default();
        let name = |number: usize| KIND.at("ns", &number.to_string());
        assert_eq!(absent.known_since(&name(0)), Ok(None));
        absent.add(&name(0), NOW);
        assert_eq!(absent.known_since(&name(0)), Ok(Some(NOW)));
        absent.forget(&name(0));
        assert_eq!(absent.known_since(&name(0)), Ok(None));
        absent.give_back();
        let ask = |from: usize| {
            let read = |number: &usize| matches!(absent.known_since(&name(*number)), Ok(None));
            (from..from + 10_000).filter(read).inspect(|number| absent.add(&name(*number), NOW)).count()
        };
        assert_eq!(ask(1), 99, "one of a hundred is spent");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(ask(20_000), 40);
        let refused = absent.known_since(&name(90_000)).unwrap_err();
        assert!(refused.class == Class::Transient && refused.message.contains("90000"), "{refused}");
        tokio::time::sleep(LIFE).await;
        assert_eq!(absent.known_since(&name(1)), Ok(None), "that is long ago");
        for round in 0..10 {
            ask(100_000 * (round + 1));
            tokio::time::sleep(LIFE).await;
        }
        assert!(lock(&absent.0).absent.len() <= MOST, "old ones are dropped");
    }
}
