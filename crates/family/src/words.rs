//! Words that a family writes into statuses, for the documentation.

use aquifer_base::Reason;
use serde::Serialize;

/// One word.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Word {
    /// The kind of the object.
    pub kind: &'static str,
    /// Where in its status.
    pub field: WordField,
    /// The word.
    pub word: String,
    /// What it means; empty where the description of the field says it.
    pub meaning: String,
}

/// A field of a status that holds one of a few words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WordField {
    /// The reason of a condition.
    Reason,
    /// The state of an object that the subject consists of.
    State,
}

impl Word {
    /// All reasons of one type, as words of a kind.
    pub fn reasons<R: Reason>(kind: &'static str) -> impl Iterator<Item = Self> {
        R::ALL.iter().map(move |reason| Self {
            kind,
            field: WordField::Reason,
            word: reason.as_str().to_owned(),
            meaning: reason.meaning().to_owned(),
        })
    }
}
