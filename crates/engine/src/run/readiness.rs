//! Whether subjects are ready, and since when they are not: what the metrics of objects are made from. Decides nothing.

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

/// How many subjects there are, and when the oldest deletion that is under way began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    pub ready: usize,
    pub not_ready: usize,
    pub unknown: usize,
    pub oldest_deletion: Option<Timestamp>,
}

impl Census {
    /// The sum, and the older of the two deletions.
    pub fn and(self, other: Self) -> Self {
        Self {
            ready: self.ready + other.ready,
            not_ready: self.not_ready + other.not_ready,
            unknown: self.unknown + other.unknown,
            oldest_deletion: [self.oldest_deletion, other.oldest_deletion].into_iter().flatten().min(),
        }
    }
}
