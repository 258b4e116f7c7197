//! The record in the Lease and what to do about it: pure, reads no clock.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::Timing;

/// What the Lease says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Who leads; `None` when the lease was given back.
    pub holder: Option<String>,
    /// How long others must wait.
    pub duration: Duration,
    /// When this holder got it, by the holder's wall clock.
    pub acquired: Option<Timestamp>,
    /// When this holder last renewed it, by the holder's wall clock.
    pub renewed: Option<Timestamp>,
    /// How often the holder changed.
    pub transitions: i32,
}

impl Record {
    /// The record with which `identity` takes over from `before`.
    #[must_use]
    pub fn taken_by(before: Option<&Self>, identity: &str, timing: &Timing, wall: Timestamp) -> Self {
        let wall = micros(wall);
        Self {
            holder: Some(identity.to_owned()),
            duration: timing.lease(),
            acquired: Some(wall),
            renewed: Some(wall),
            transitions: before.map_or(0, |before| before.transitions.saturating_add(1)),
        }
    }

    /// The same holder, alive. Always differs from the record before, even if the wall clock stood still or went
    /// back: a change is the only sign of life that others look for.
    #[must_use]
    pub fn renewed(&self, timing: &Timing, wall: Timestamp) -> Self {
        let later = self.renewed.and_then(|before| before.checked_add(SignedDuration::from_micros(1)).ok());
        let renewed = later.map_or(micros(wall), |later| later.max(micros(wall)));
        Self { duration: timing.lease(), renewed: Some(renewed), ..self.clone() }
    }

    /// Given back: anybody may take it at once.
    #[must_use]
    pub fn released(&self, wall: Timestamp) -> Self {
        Self { holder: None, duration: Duration::from_secs(1), renewed: Some(micros(wall)), ..self.clone() }
    }

    fn held_by(&self, identity: &str) -> bool {
        self.holder.as_deref() == Some(identity)
    }
}

/// The Lease keeps microseconds; a finer time would look changed after it was read back.
fn micros(wall: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(wall.as_microsecond()).unwrap_or(wall)
}

/// This replica.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Its name in the record.
    pub identity: &'a str,
    /// When its last successful write *started*, if it leads.
    pub leading_since: Option<Instant>,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Try to take the lease.
    Acquire,
    /// Write a new sign of life.
    Renew,
    /// Somebody else leads; nothing to do before this time unless the record changes.
    Wait {
        /// When the lease runs out if it does not change.
        until: Instant,
    },
    /// This replica must not lead any more.
    StepDown,
}

/// Judges the record. `latest` is the last record that was ever seen, `missing` whether it has been deleted since;
/// `observed_at` is when it was first seen as it is, on this process' monotonic clock.
pub fn evaluate(
    latest: Option<&Record>,
    missing: bool,
    observed_at: Instant,
    now: Instant,
    timing: &Timing,
    me: &Candidate<'_>,
) -> Verdict {
    if let Some(since) = me.leading_since {
        let mine = missing || latest.is_some_and(|record| record.held_by(me.identity));
        // A leader that finds the Lease deleted makes it anew: creating is exclusive, so it leads on or it loses.
        return if mine && now < since + timing.renew_deadline() {
            Verdict::Renew
        } else {
            Verdict::StepDown
        };
    }
    match latest {
        // The write that took it succeeded but its reply was lost. Nobody else may lead, so confirm it.
        Some(record) if record.held_by(me.identity) && !missing => Verdict::Renew,
        Some(record) if record.holder.is_some() && !record.held_by(me.identity) => {
            // A deleted Lease gives no right either: its holder leads until its own deadline.
            let until = observed_at + record.duration.max(timing.lease());
            if now >= until { Verdict::Acquire } else { Verdict::Wait { until } }
        }
        _ => Verdict::Acquire,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: &str = "me";

    fn held(holder: &str) -> Record {
        let wall = Timestamp::from_second(1_700_000_000).unwrap();
        Record::taken_by(None, holder, &Timing::default(), wall)
    }

    /// The verdict some seconds after a record was seen; `leading` is how long ago the last renewal started.
    fn verdict(
        record: Option<&Record>,
        missing: bool,
        seen_for: f64,
        leading: Option<f64>,
    ) -> (Verdict, Instant) {
        let start = Instant::now();
        let now = start + Duration::from_secs_f64(seen_for);
        let since = leading.map(|seconds| now - Duration::from_secs_f64(seconds));
        let me = Candidate { identity: ME, leading_since: since };
        (evaluate(record, missing, start, now, &Timing::default(), &me), start)
    }

    #[test]
    fn a_free_lease_is_taken() {
        assert_eq!(verdict(None, true, 0.0, None).0, Verdict::Acquire);
        let released = held("other").released(Timestamp::now());
        assert_eq!(verdict(Some(&released), false, 0.0, None).0, Verdict::Acquire);
    }

    #[test]
    fn a_held_lease_is_taken_only_after_it_stood_still_for_its_whole_duration() {
        let other = held("other");
        let (early, start) = verdict(Some(&other), false, 9.99, None);
        assert_eq!(early, Verdict::Wait { until: start + Duration::from_secs(10) });
        assert_eq!(verdict(Some(&other), false, 10.0, None).0, Verdict::Acquire);
    }

    #[test]
    fn the_longer_of_both_durations_counts() {
        let patient = Record { duration: Duration::from_secs(30), ..held("other") };
        let (verdict_, start) = verdict(Some(&patient), false, 20.0, None);
        assert_eq!(verdict_, Verdict::Wait { until: start + Duration::from_secs(30) });
        let hasty = Record { duration: Duration::from_secs(1), ..held("other") };
        assert!(matches!(verdict(Some(&hasty), false, 5.0, None).0, Verdict::Wait { .. }));
    }

    #[test]
    fn a_deleted_lease_does_not_cut_its_holder_short() {
        let other = held("other");
        assert!(matches!(verdict(Some(&other), true, 5.0, None).0, Verdict::Wait { .. }));
        assert_eq!(verdict(Some(&other), true, 10.0, None).0, Verdict::Acquire);
        assert_eq!(verdict(Some(&held(ME)), true, 1.0, Some(1.0)).0, Verdict::Renew);
        assert_eq!(verdict(Some(&held(ME)), true, 1.0, None).0, Verdict::Acquire);
    }

    #[test]
    fn the_leader_renews_until_its_deadline_and_then_steps_down() {
        assert_eq!(verdict(Some(&held(ME)), false, 1.0, Some(5.99)).0, Verdict::Renew);
        assert_eq!(verdict(Some(&held(ME)), false, 1.0, Some(6.0)).0, Verdict::StepDown);
    }

    #[test]
    fn a_leader_that_sees_another_holder_or_none_steps_down() {
        assert_eq!(verdict(Some(&held("other")), false, 0.0, Some(0.1)).0, Verdict::StepDown);
        let cleared = held(ME).released(Timestamp::now());
        assert_eq!(verdict(Some(&cleared), false, 0.0, Some(0.1)).0, Verdict::StepDown);
    }

    #[test]
    fn a_lease_that_is_ours_after_a_lost_reply_is_confirmed() {
        assert_eq!(verdict(Some(&held(ME)), false, 3.0, None).0, Verdict::Renew);
    }

    #[test]
    fn every_renewal_changes_the_record_even_when_the_wall_clock_goes_back() {
        let timing = Timing::default();
        let first = held(ME);
        let hour_ago = first.renewed.unwrap() - SignedDuration::from_hours(1);
        let second = first.renewed(&timing, hour_ago);
        let third = second.renewed(&timing, hour_ago);
        assert!(first.renewed < second.renewed && second.renewed < third.renewed);
        assert_eq!((first.acquired, first.transitions), (third.acquired, third.transitions));
    }

    #[test]
    fn transitions_count_changes_of_the_holder() {
        let timing = Timing::default();
        let first = held("other");
        assert_eq!(first.transitions, 0);
        let second = Record::taken_by(Some(&first), ME, &timing, Timestamp::now());
        assert_eq!(second.transitions, 1);
        assert_eq!(second.released(Timestamp::now()).transitions, 1);
        assert_eq!(second.renewed(&timing, Timestamp::now()).transitions, 1);
    }
}
