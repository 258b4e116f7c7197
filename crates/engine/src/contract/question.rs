//! A question to the world outside Kubernetes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Something to ask outside: of which source, and what.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Question {
    /// The source in the family's words, such as `dns` or `file-system`.
    pub source: String,
    /// What is asked.
    pub about: String,
}

impl Question {
    /// A question.
    pub fn new(source: &str, about: impl Into<String>) -> Self {
        Self { source: source.into(), about: about.into() }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.source, self.about)
    }
}
