//! Clock, randomness and tasks of one process. Nothing else in the engine or in a family reads a clock or draws a number, so that
//! one seed gives one history in a simulation. Tasks that outlive their starter start only here; a `JoinSet` ends with its owner.
//!
//! Waiting is done with `tokio::time` (`sleep`, `timeout`): a simulation pauses that clock, and it then moves only when every
//! task waits. Instants are tokio's for the same reason.
#![expect(clippy::disallowed_methods, reason = "this is the one place that may")]

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

use crate::lock::lock;
use crate::standstill::Standstill;

/// Handles of ended tasks are dropped when this many have collected.
const TIDY_AT: usize = 64;

/// The rate of a clock that is right.
pub(crate) const EVEN: u32 = 1000;

/// The clock, the randomness and the tasks of one process. Copies share them.
#[derive(Clone, Debug)]
pub struct Runtime(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    random: Mutex<fastrand::Rng>,
    tasks: Mutex<Vec<AbortHandle>>,
    identity: u64,
    /// In a simulation that looks for busy loops: whose tasks these are, and what counts their polls.
    watched: Option<(String, Arc<Standstill>)>,
}

#[derive(Debug)]
enum Clock {
    /// The machine's.
    System,
    /// Moves with tokio's clock from a fixed time on, so many thousandths as fast.
    Simulated { start: Instant, wall: Timestamp, rate: u32 },
}

impl Runtime {
    /// The real clock, and randomness from the operating system.
    pub fn system() -> Self {
        Self::with(Clock::System, fastrand::Rng::new(), None)
    }

    /// A clock that shows `wall` now and moves with tokio's, and randomness from a seed.
    pub fn simulated(wall: Timestamp, seed: u64) -> Self {
        let clock = Clock::Simulated { start: Instant::now(), wall, rate: EVEN };
        Self::with(clock, fastrand::Rng::with_seed(seed), None)
    }

    /// The same for a process with this name, whose tasks are watched for busy loops and whose clock goes at this rate, in
    /// thousandths. Only the wall clock does: tokio's, which sleeps and time-outs go by, is one for the whole simulation.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn watched(
        wall: Timestamp,
        rate: u32,
        seed: u64,
        name: &str,
        standstill: &Arc<Standstill>,
    ) -> Self {
        let clock = Clock::Simulated { start: Instant::now(), wall, rate };
        let watched = (name.to_owned(), Arc::clone(standstill));
        Self::with(clock, fastrand::Rng::with_seed(seed), Some(watched))
    }

    fn with(clock: Clock, mut random: fastrand::Rng, watched: Option<(String, Arc<Standstill>)>) -> Self {
        let identity = random.u64(..);
        Self(Arc::new(Inner {
            clock,
            random: Mutex::new(random),
            tasks: Mutex::default(),
            identity,
            watched,
        }))
    }

    /// The wall clock: for people, for times that the API server wrote, and for waits that allow for clocks that differ.
    pub fn now(&self) -> Timestamp {
        match &self.0.clock {
            Clock::System => Timestamp::now(),
            Clock::Simulated { start, wall, rate } => {
                let passed = start.elapsed().saturating_mul(*rate) / EVEN;
                let passed = SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX);
                wall.saturating_add(passed).unwrap_or(Timestamp::MAX)
            }
        }
    }

    /// The monotonic clock, which all processes of a machine share.
    pub fn instant() -> Instant {
        Instant::now()
    }

    /// Tells this process from others, and from itself after a restart. What it noted by its own clock, it may compare with that clock;
    /// the clock of another process may show any time.
    pub fn identity(&self) -> u64 {
        self.0.identity
    }

    /// A random number. Good enough to spread retries and to tell processes apart, not to make keys from.
    pub fn random(&self) -> u64 {
        lock(&self.0.random).u64(..)
    }

    /// A random number from 0 up to 1.
    pub fn fraction(&self) -> f64 {
        lock(&self.0.random).f64()
    }

    /// Starts a task of this process. It ends with [`Runtime::end`] at the latest.
    pub fn spawn<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        let handle = match &self.0.watched {
            None => tokio::spawn(task),
            Some(_) => tokio::spawn(self.counted(task)),
        };
        let mut tasks = lock(&self.0.tasks);
        if tasks.len() >= TIDY_AT && tasks.len().is_power_of_two() {
            tasks.retain(|task| !task.is_finished());
        }
        tasks.push(handle.abort_handle());
        handle
    }

    /// A task of this process that ends with its owner, for a `JoinSet`.
    pub(crate) fn counted<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> BoxFuture<'static, T> {
        match self.0.watched.clone() {
            None => Box::pin(task),
            Some((name, standstill)) => Box::pin(async move { standstill.count(&name, task).await }),
        }
    }

    /// Ends every task of this process where it is, as a crash would.
    pub fn end(&self) {
        for task in lock(&self.0.tasks).drain(..) {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_simulated_clock_moves_with_tokios_and_its_numbers_come_from_the_seed() {
        let wall: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let (one, two) = (Runtime::simulated(wall, 7), Runtime::simulated(wall, 7));
        tokio::time::sleep(Duration::from_secs(90)).await;
        assert_eq!(one.now(), "2026-01-02T03:05:35Z".parse().unwrap());
        let draw = |runtime: &Runtime| (0..5).map(|_| runtime.random()).collect::<Vec<_>>();
        assert_eq!(draw(&one), draw(&two));
        assert_ne!(draw(&one), draw(&Runtime::simulated(wall, 8)));
        assert!((0..100).all(|_| (0.0..1.0).contains(&one.fraction())));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_process_ends_its_tasks_and_no_others() {
        let (ending, staying) = (Runtime::system(), Runtime::system());
        let forever = || async { std::future::pending::<()>().await };
        let ended = ending.spawn(forever());
        let stayed = staying.spawn(forever());
        ending.clone().end();
        assert!(ended.await.unwrap_err().is_cancelled());
        assert!(!stayed.is_finished());
    }

    #[tokio::test]
    async fn handles_of_ended_tasks_do_not_pile_up() {
        let runtime = Runtime::system();
        for _ in 0..1000 {
            runtime.spawn(async {}).await.unwrap();
        }
        assert!(lock(&runtime.0.tasks).len() <= TIDY_AT, "{}", lock(&runtime.0.tasks).len());
    }
}
