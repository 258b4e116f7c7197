//! Whether subjects are ready, since when they are not, and why: what the metrics of objects are made from. Decides nothing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use crate::object::Object;

/// What the condition Ready of a subject says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    /// Since then: when it was made, or when it stopped being ready.
    NotReady(Timestamp),
    /// No condition yet, or one that says Unknown.
    Unknown(Timestamp),
}

impl Readiness {
    /// Keeps the earlier time: what was already not ready has been so since then, whatever its new status says.
    pub fn after(self, old: Option<Self>) -> Self {
        let Some(Self::NotReady(since) | Self::Unknown(since)) = old else { return self };
        match self {
            Self::Ready => Self::Ready,
            Self::NotReady(_) => Self::NotReady(since),
            Self::Unknown(_) => Self::Unknown(since),
        }
    }

    /// What the object says.
    pub fn of(subject: &Object) -> Self {
        let time = |pointer: &str| subject.text(pointer).parse::<Timestamp>().ok();
        // An unreadable time counts as the latest, so that it does not look like an age.
        let made = time("/metadata/creationTimestamp").unwrap_or(Timestamp::MAX);
        let Some(ready) = subject.condition("Ready") else { return Self::Unknown(made) };
        let text = |field: &str| ready.get(field).and_then(Value::as_str).unwrap_or_default();
        let since = text("lastTransitionTime").parse().unwrap_or(made);
        match text("status") {
            "True" => Self::Ready,
            "False" => Self::NotReady(since),
            _ => Self::Unknown(since),
        }
    }
}

/// The reason that the condition Ready gives while it is not True; empty where there is none yet.
pub(crate) fn reason(subject: &Object) -> &str {
    subject.condition("Ready").and_then(|ready| ready.get("reason")?.as_str()).unwrap_or_default()
}

/// So many different reasons are counted one by one: each is a label, and their number must stay bounded whatever a status says.
const REASONS: usize = 30;
/// All others.
const OTHER: &str = "other";

/// How many subjects there are, why those are not ready that are not, and when the oldest deletion that is under way began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    pub ready: usize,
    pub not_ready: usize,
    pub unknown: usize,
    /// Of what is not ready, and of what is unknown.
    pub reasons: BTreeMap<String, usize>,
    pub oldest_deletion: Option<Timestamp>,
}

impl Census {
    /// The sum, and the older of the two deletions.
    pub fn and(mut self, other: Self) -> Self {
        for (reason, count) in other.reasons {
            self.because(&reason, count);
        }
        Self {
            ready: self.ready + other.ready,
            not_ready: self.not_ready + other.not_ready,
            unknown: self.unknown + other.unknown,
            reasons: self.reasons,
            oldest_deletion: [self.oldest_deletion, other.oldest_deletion].into_iter().flatten().min(),
        }
    }

    /// So many more are not ready for this reason.
    pub fn because(&mut self, reason: &str, count: usize) {
        let known = self.reasons.contains_key(reason) || self.reasons.len() < REASONS;
        *self.reasons.entry(if known { reason } else { OTHER }.to_owned()).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn very_many_reasons_are_counted_together() {
        let mut census = Census::default();
        for number in 0..100 {
            census.because(&format!("Reason{number}"), 1);
        }
        census.because("Reason1", 1);
        let census = Census::default().and(census);
        assert!(census.reasons.len() <= REASONS + 1, "{census:?}");
        assert_eq!(census.reasons["Reason1"], 2);
        assert_eq!(census.reasons.values().sum::<usize>(), 101);
    }
}
