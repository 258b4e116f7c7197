//! Errors in seven classes. The class alone decides what a user sees and when the next try comes.

use serde::{Deserialize, Serialize};

use crate::cluster::ApiError;

/// What kind of trouble it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Class {
    /// Goes away by itself: time-outs, conflicts, an overloaded server. Retried with backoff, reported after the third time.
    Transient,
    /// Something else must happen first; its event wakes us.
    Waiting,
    /// The object asks for something impossible; only a change of the object helps.
    Invalid,
    /// We are not allowed to; somebody must grant it.
    Denied,
    /// A webhook or policy of the cluster refuses it; somebody must change the policy or the object.
    Policy,
    /// A webhook or policy of the cluster changes what we write.
    Altered,
    /// Our own mistake.
    Bug,
}

impl Class {
    /// The word for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Waiting => "waiting",
            Self::Invalid => "invalid",
            Self::Denied => "denied",
            Self::Policy => "policy",
            Self::Altered => "altered",
            Self::Bug => "bug",
        }
    }

    /// The condition reason that a user sees when the family has no better word.
    pub fn reason(self) -> FailureReason {
        match self {
            Self::Transient => FailureReason::Retrying,
            Self::Waiting => FailureReason::Waiting,
            Self::Invalid => FailureReason::Invalid,
            Self::Denied => FailureReason::AccessDenied,
            Self::Policy => FailureReason::RefusedByPolicy,
            Self::Altered => FailureReason::ChangedByAdmission,
            Self::Bug => FailureReason::InternalError,
        }
    }
}

aquifer_base::reasons! {
    /// The reasons by which failures show in the conditions of every kind.
    pub enum FailureReason {
        /// Something that goes away by itself has failed several times.
        Retrying,
        /// Something else must happen first.
        Waiting,
        /// The object asks for something impossible, or cannot be read.
        Invalid,
        /// We are not allowed to.
        AccessDenied,
        /// A webhook or policy of the cluster refuses what we write.
        RefusedByPolicy,
        /// A webhook or policy of the cluster changes what we write.
        ChangedByAdmission,
        /// Our own mistake.
        InternalError,
    }
}

/// One failed step, classified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Its class.
    pub class: Class,
    /// What failed, where, and what to do.
    pub message: String,
}

impl Failure {
    /// A failure of a class.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self { class, message: message.into() }
    }

    /// A failure of our own making.
    pub fn bug(message: impl Into<String>) -> Self {
        Self::new(Class::Bug, message)
    }

    /// An API error met while doing something to an object.
    pub fn api(doing: &str, error: &ApiError) -> Self {
        Self::new(error.class(), format!("cannot {doing}: {error}"))
    }
}

/// The most severe of several: what the object as a whole suffers from.
pub(crate) fn most_severe(failures: &[Failure]) -> Option<&Failure> {
    failures.iter().max_by_key(|failure| match failure.class {
        Class::Waiting => 0,
        Class::Transient => 1,
        Class::Invalid => 2,
        Class::Altered => 3,
        Class::Policy => 4,
        Class::Denied => 5,
        Class::Bug => 6,
    })
}

/// All of them as one: the class of the most severe, and what each says.
pub(crate) fn combined(failures: &[Failure]) -> Option<Failure> {
    let class = most_severe(failures)?.class;
    let mut said: Vec<&str> = failures.iter().map(|failure| failure.message.as_str()).collect();
    said.sort_unstable();
    said.dedup();
    Some(Failure::new(class, said.join("; ")))
}
