//! The durations of an election, checked once. No clock here.

use std::time::Duration;

use thiserror::Error;

/// Durations that are safe together: attempts fit into the renew deadline, which ends before the lease does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    lease: Duration,
    renew_deadline: Duration,
    retry: Duration,
}

/// These durations could let two replicas lead, or none for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "lease durations must satisfy: lease {lease:?} at least a second and at least 1.25 times the renew deadline \
     {renew_deadline:?}, which is at least twice the retry period {retry:?}, which is above zero"
)]
pub struct BadTiming {
    lease: Duration,
    renew_deadline: Duration,
    retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            renew_deadline: Duration::from_secs(6),
            retry: Duration::from_millis(1500),
        }
    }
}

impl Timing {
    /// Checks and keeps the durations.
    pub fn new(lease: Duration, renew_deadline: Duration, retry: Duration) -> Result<Self, BadTiming> {
        let safe = lease >= Duration::from_secs(1)
            && lease * 4 >= renew_deadline * 5
            && renew_deadline >= retry * 2
            && !retry.is_zero();
        if safe {
            Ok(Self { lease, renew_deadline, retry })
        } else {
            Err(BadTiming { lease, renew_deadline, retry })
        }
    }

    /// The same durations by a clock that goes at this rate, in thousandths.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn by_clock(self, rate: u32) -> Self {
        let stretched = |duration: Duration| duration * crate::runtime::EVEN / rate.max(1);
        Self {
            lease: stretched(self.lease),
            renew_deadline: stretched(self.renew_deadline),
            retry: stretched(self.retry),
        }
    }

    /// How long a record must not have changed before another replica takes the lease.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// How long the leader leads after the start of its last successful renewal.
    pub fn renew_deadline(&self) -> Duration {
        self.renew_deadline
    }

    /// The time between attempts, before jitter.
    pub fn retry(&self) -> Duration {
        self.retry
    }

    /// The longest one request may take: short enough that a second attempt fits before the renew deadline.
    pub fn request(&self) -> Duration {
        self.renew_deadline.saturating_sub(self.retry) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_durations_are_refused() {
        let ms = Duration::from_millis;
        let default = Timing::default();
        assert_eq!(Timing::new(default.lease, default.renew_deadline, default.retry), Ok(default));
        assert!(Timing::new(ms(10_000), ms(9_000), ms(1_500)).is_err());
        assert!(Timing::new(ms(10_000), ms(6_000), ms(4_000)).is_err());
        assert!(Timing::new(ms(10_000), ms(6_000), ms(0)).is_err());
        assert!(
            Timing::new(ms(900), ms(500), ms(100)).unwrap_err().to_string().contains("at least a second")
        );
    }

    #[test]
    fn two_full_attempts_fit_before_the_renew_deadline() {
        let timing = Timing::default();
        assert!(timing.retry() + timing.request() * 2 <= timing.renew_deadline());
    }
}
