//! What a source knows: a value with the time it was read, or the reason why there is none. Never "empty" for "unknown".

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::object::Key;

/// A value of the world.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Seen<T> {
    /// The source has an answer.
    Known {
        /// The answer.
        value: T,
        /// When the source read it.
        read_at: Timestamp,
    },
    /// The source has no answer.
    Unknown(Why),
}

/// Who belongs to a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Group {
    /// All members, in order.
    Few(Vec<Key>),
    /// More than [`Group::NAMED`] members. Who they are is not said, so that one who comes or goes is no news for thousands of others.
    Many,
}

impl Group {
    /// The largest group of which all members are named.
    pub const NAMED: usize = 7;

    pub(crate) fn of(members: Vec<Key>) -> Self {
        if members.len() > Self::NAMED { Self::Many } else { Self::Few(members) }
    }
}

/// Why a source has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// The first list is not complete yet.
    NotSynced,
    /// The API server does not serve this kind (yet).
    NotServed,
    /// A read by name was asked for in this pass; the engine repeats the pass with its answer.
    Reading,
    /// The outside system did not answer, with what it said.
    Unreachable(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSynced => f.write_str("not read yet"),
            Self::NotServed => f.write_str("this kind is not installed in the cluster"),
            Self::Reading => f.write_str("being read"),
            Self::Unreachable(said) => write!(f, "unreachable: {said}"),
        }
    }
}

impl<T> Seen<T> {
    /// The value, when there is one.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known { value, .. } => Some(value),
            Self::Unknown(_) => None,
        }
    }

    /// The reason, when there is no value.
    pub fn why(&self) -> Option<&Why> {
        match self {
            Self::Known { .. } => None,
            Self::Unknown(why) => Some(why),
        }
    }

    /// The same knowledge about something made of the value.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Seen<U> {
        match self {
            Self::Known { value, read_at } => Seen::Known { value: make(value), read_at },
            Self::Unknown(why) => Seen::Unknown(why),
        }
    }
}

impl<T> Seen<Option<T>> {
    /// The object, when it is known to exist.
    pub fn present(&self) -> Option<&T> {
        self.known().and_then(Option::as_ref)
    }

    /// Whether it is known that there is none.
    pub fn absent(&self) -> bool {
        matches!(self, Self::Known { value: None, .. })
    }
}
