//! Finds busy loops in a simulation: the simulated clock moves only when every task waits, so tasks that are polled again and
//! again without waiting would keep it where it is for ever. A task that never gives up its thread is not found.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Poll, Waker};

use tokio::time::Instant;

use crate::lock::lock;
use crate::runtime::Runtime;

/// Counts how often tasks are polled while the clock stands still.
#[derive(Debug)]
pub(crate) struct Standstill {
    limit: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What the clock showed at the last poll.
    at: Option<Instant>,
    /// Polls since it shows that.
    polls: u64,
    /// Whose task was polled when there were too many.
    found: Option<String>,
    /// Who waits for that.
    waiting: Option<Waker>,
}

impl Standstill {
    /// So many polls at one time are too many.
    #[cfg(any(test, feature = "simulation"))]
    pub fn new(limit: u64) -> Self {
        Self { limit, state: Mutex::default() }
    }

    /// The same task, whose polls are counted. When there are too many, none of the tasks goes on.
    pub async fn count<T>(&self, whose: &str, task: impl Future<Output = T>) -> T {
        let mut task = pin!(task);
        poll_fn(|context| if self.stands(whose) { Poll::Pending } else { task.as_mut().poll(context) }).await
    }

    /// Waits until there were too many polls at one time, and says so.
    #[cfg(any(test, feature = "simulation"))]
    pub async fn found(&self) -> String {
        let found = poll_fn(|context| {
            let mut state = lock(&self.state);
            state.waiting = Some(context.waker().clone());
            state.found.clone().map_or(Poll::Pending, Poll::Ready)
        });
        let whose = found.await;
        format!(
            "a busy loop: tasks were polled {} times without the clock moving, the last of {whose}",
            self.limit
        )
    }

    /// Counts a poll; whether there were too many.
    fn stands(&self, whose: &str) -> bool {
        let now = Runtime::instant();
        let mut state = lock(&self.state);
        if state.found.is_some() {
            return true;
        }
        if state.at.replace(now) != Some(now) {
            state.polls = 0;
        }
        state.polls += 1;
        if state.polls > self.limit {
            state.found = Some(whose.to_owned());
            if let Some(waiting) = state.waiting.take() {
                waiting.wake();
            }
        }
        state.found.is_some()
    }
}
