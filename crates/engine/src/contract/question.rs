//! A question to the world outside Kubernetes.

use std::fmt;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

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

/// Where a controller hands in answers that it was not asked for just now, because a source tells of changes by itself.
#[derive(Clone)]
pub struct Answers(Arc<Put>);

type Put = dyn Fn(&Question, Value) + Send + Sync;

impl Answers {
    pub(crate) fn new(put: impl Fn(&Question, Value) + Send + Sync + 'static) -> Self {
        Self(Arc::new(put))
    }

    /// The answer to a polled question, as of now. When it is another one, whoever polls it is woken; when nobody does, it is dropped.
    pub fn put(&self, question: &Question, answer: &impl Serialize) {
        match serde_json::to_value(answer) {
            Ok(answer) => (self.0)(question, answer),
            Err(error) => tracing::error!(%question, %error, "An answer cannot be encoded and is dropped"),
        }
    }
}
