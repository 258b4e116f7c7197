//! `Leadership`: the answer to "may I write now?". Must be right even when nobody updates it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use crate::latest::{Receiver, Sender, latest};
use crate::runtime::Runtime;

const NOT_LEADING: u64 = 0;
const ALWAYS: u64 = u64::MAX;

/// Whether this process leads. Cheap to clone and to ask.
#[derive(Clone, Debug)]
pub struct Leadership(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    born: Instant,
    /// Nanoseconds after `born` until which this process leads. A number rather than a lock, so that a stopped
    /// writer can never block the question.
    until: AtomicU64,
    leads: Sender<bool>,
}

impl Leadership {
    /// Leads for ever: for servers without election, and for tests.
    pub fn always() -> Self {
        Self::with(ALWAYS)
    }

    pub(super) fn none_yet() -> Self {
        Self::with(NOT_LEADING)
    }

    fn with(until: u64) -> Self {
        let (leads, _) = latest(until == ALWAYS);
        Self(Arc::new(Inner { born: Runtime::instant(), until: AtomicU64::new(until), leads }))
    }

    /// Whether this process leads at this very moment. To be asked right before every write.
    pub fn is_current(&self) -> bool {
        match self.0.until.load(Ordering::Acquire) {
            ALWAYS => true,
            until => self.nanos(Runtime::instant()) < until,
        }
    }

    /// Whether there is no election at all.
    pub(crate) fn is_always(&self) -> bool {
        self.0.until.load(Ordering::Acquire) == ALWAYS
    }

    /// Tells when leadership begins and ends. For waking up only: it can lag, [`Self::is_current`] cannot.
    pub fn changes(&self) -> Receiver<bool> {
        self.0.leads.subscribe()
    }

    pub(super) fn lead_until(&self, deadline: Instant) {
        self.0.until.store(self.nanos(deadline), Ordering::Release);
        self.0.leads.modify(|leads| !std::mem::replace(leads, true));
    }

    pub(super) fn end(&self) {
        self.0.until.store(NOT_LEADING, Ordering::Release);
        self.0.leads.modify(|leads| std::mem::replace(leads, false));
    }

    fn nanos(&self, at: Instant) -> u64 {
        // 64 bits of nanoseconds last for 584 years.
        u64::try_from(at.saturating_duration_since(self.0.born).as_nanos()).unwrap_or(ALWAYS - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn leadership_ends_by_itself_at_its_deadline() {
        let leadership = Leadership::none_yet();
        let changes = leadership.changes();
        assert!(!leadership.is_current() && !changes.get());
        leadership.lead_until(Instant::now() + Duration::from_secs(6));
        assert!(leadership.is_current() && changes.get());
        tokio::time::advance(Duration::from_millis(5_999)).await;
        assert!(leadership.is_current());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!leadership.clone().is_current());
        leadership.end();
        assert!(!changes.get());
    }

    #[tokio::test(start_paused = true)]
    async fn changes_are_told_once_each() {
        let leadership = Leadership::none_yet();
        let mut changes = leadership.changes();
        leadership.end();
        assert_eq!(changes.changed().now_or_never(), None);
        leadership.lead_until(Instant::now() + Duration::from_secs(1));
        assert_eq!(changes.changed().now_or_never(), Some(true));
        leadership.lead_until(Instant::now() + Duration::from_secs(2));
        assert_eq!(changes.changed().now_or_never(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn always_means_always() {
        let leadership = Leadership::always();
        tokio::time::advance(Duration::from_secs(1_000_000)).await;
        assert!(leadership.is_current() && leadership.changes().get());
    }
}
