//! A Kubernetes API as the engine needs it: two reads and one write. The real client and the in-memory model implement it,
//! so that every write passes one place where it can be counted, fenced, or made to fail.

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::Class;
use crate::kept::reduced;
use crate::object::{Key, Kind, Object, ObjectRef};
use crate::secret::{StoredSecret, without_content};

/// One write to the API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Write {
    /// The object that is written.
    pub target: ObjectRef,
    /// What is done to it.
    pub verb: Verb,
    /// Who owns the fields.
    pub manager: String,
}

/// The ways to write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Verb {
    /// Server-side apply with force; the body carries `resourceVersion: "1"` (create only) or `uid` (this very object).
    Apply(Value),
    /// Create; refused when anything of that name exists.
    Create(Value),
    /// Asks whether the server would create it; nothing is made.
    TryCreate(Value),
    /// Replace the whole object; the body carries uid and resourceVersion.
    Replace(Value),
    /// Merge patch; the body carries resourceVersion, so it is a compare-and-swap.
    Merge {
        /// The patch.
        body: Value,
        /// Whether it goes to the status subresource.
        status: bool,
    },
    /// Take finalizers off, each only if it still stands where it was seen.
    Unfinalize {
        /// Positions and names, last position first.
        finalizers: Vec<(usize, String)>,
        /// The object that was seen.
        uid: String,
    },
    /// Delete this very object.
    Delete {
        /// The uid that was seen.
        uid: String,
        /// The version that was seen: anything newer must be looked at first.
        resource_version: Option<String>,
    },
}

impl Verb {
    /// The words for messages, as in "cannot … this object".
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Apply(_) => "apply",
            Self::Create(_) => "create",
            Self::TryCreate(_) => "try to create",
            Self::Replace(_) => "replace",
            Self::Merge { status: true, .. } => "update the status of",
            Self::Merge { .. } | Self::Unfinalize { .. } => "patch",
            Self::Delete { .. } => "delete",
        }
    }
}

/// Why the API refused or did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// No such object.
    #[error("not found")]
    NotFound,
    /// The server does not know this kind.
    #[error("the API server does not serve this kind")]
    NotServed,
    /// Create-only, and something is there.
    #[error("already exists")]
    AlreadyExists,
    /// Another object or version than the one that was seen.
    #[error("conflict: {0}")]
    Conflict(String),
    /// Refused by validation or admission.
    #[error("refused: {0}")]
    Invalid(String),
    /// Refused because a field cannot be changed.
    #[error("immutable: {0}")]
    Immutable(String),
    /// Refused by a webhook or policy of the cluster.
    #[error("refused by policy: {0}")]
    Policy(String),
    /// Refused by authorisation or quota.
    #[error("forbidden: {0}")]
    Forbidden(String),
    /// The namespace is going away, nothing can be made in it.
    #[error("the namespace is being deleted: {0}")]
    Terminating(String),
    /// No answer, or a server error: whether the write happened is not known.
    #[error("{0}")]
    Unavailable(String),
    /// We no longer lead; nothing was sent.
    #[error("this replica is not the leader any more")]
    NotLeader,
}

impl ApiError {
    /// The class of the trouble.
    pub fn class(&self) -> Class {
        match self {
            Self::NotFound
            | Self::AlreadyExists
            | Self::Conflict(_)
            | Self::Unavailable(_)
            | Self::NotLeader => Class::Transient,
            Self::NotServed | Self::Terminating(_) => Class::Waiting,
            Self::Invalid(_) | Self::Immutable(_) => Class::Invalid,
            Self::Policy(_) => Class::Policy,
            Self::Forbidden(_) => Class::Denied,
        }
    }

    /// The word for metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::NotServed => "not_served",
            Self::AlreadyExists => "already_exists",
            Self::Conflict(_) => "conflict",
            Self::Invalid(_) => "invalid",
            Self::Immutable(_) => "immutable",
            Self::Policy(_) => "policy",
            Self::Forbidden(_) => "forbidden",
            Self::Terminating(_) => "terminating",
            Self::Unavailable(_) => "unavailable",
            Self::NotLeader => "not_leader",
        }
    }

    /// Whether what we decided on is out of date: look again at once instead of waiting.
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::AlreadyExists | Self::Conflict(_) | Self::NotFound)
    }
}

/// Which objects a live list returns.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Listing {
    /// The kind.
    pub kind: Kind,
    /// One namespace; empty for all.
    pub namespace: String,
    /// Label selector; empty for all.
    pub labels: String,
    /// Only objects of this name; empty for all.
    pub name: String,
    /// Of each object nothing is kept but its identity, since when it is being deleted, and these parts (JSON pointers to fields, without
    /// `~`, with `*` for all elements of a list); empty for whole objects. For kinds that users write and that can be large. Of a kind that the same controller watches by labels,
    /// `/metadata/labels` must be among them.
    pub parts: Vec<String>,
}

impl Listing {
    /// All objects of a kind in a namespace; an empty namespace stands for all.
    pub fn all(kind: &Kind, namespace: &str) -> Self {
        let (labels, name) = (String::new(), String::new());
        Self { kind: kind.clone(), namespace: namespace.to_owned(), labels, name, parts: Vec::new() }
    }

    /// The same, of each object these parts only.
    #[must_use]
    pub fn parts(mut self, parts: &[&str]) -> Self {
        self.parts = parts.iter().map(|&part| part.to_owned()).collect();
        self
    }

    /// What the list has of an object.
    pub(crate) fn kept(&self, mut object: Object) -> Object {
        if !self.parts.is_empty() {
            return without_content(&self.kind, reduced(&object, &self.parts));
        }
        // Half of an object. Where they are compared, objects are read by name.
        if let Some(metadata) = object.0["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        without_content(&self.kind, object)
    }

    /// Whether an object is in it.
    pub fn shows(&self, object: &Object) -> bool {
        (self.namespace.is_empty() || self.namespace == object.namespace())
            && (self.name.is_empty() || self.name == object.name())
            && is_selected(&object.0["metadata"], &self.labels)
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind.plural)?;
        let parts = [("in", &self.namespace), ("with", &self.labels), ("named", &self.name)];
        parts
            .iter()
            .filter(|(_, part)| !part.is_empty())
            .try_for_each(|(word, part)| write!(f, " {word} {part}"))
    }
}

/// Whether an object with this metadata has the labels that a selector asks for: `name`, `name=value`, several with commas.
/// Others are not used here.
pub(crate) fn is_selected(metadata: &Value, selector: &str) -> bool {
    let labels = &metadata["labels"];
    selector.split(',').filter(|one| !one.is_empty()).all(|one| match one.split_once('=') {
        Some((name, value)) => labels[name] == value.trim_start_matches('='),
        None => labels.get(one).is_some(),
    })
}

/// A Kubernetes API.
#[async_trait]
pub trait Cluster: Send + Sync {
    /// Reads one object, from the source of truth. A Secret comes without its content.
    async fn get(&self, target: &ObjectRef) -> Result<Option<Object>, ApiError>;
    /// Reads a list, from the source of truth.
    async fn list(&self, listing: &Listing) -> Result<Vec<Object>, ApiError>;
    /// Reads a Secret with its content.
    async fn secret(&self, secret: &Key) -> Result<Option<StoredSecret>, ApiError>;
    /// Writes; answers with the object as it is now (none after a delete that completed).
    async fn write(&self, write: &Write) -> Result<Option<Object>, ApiError>;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::secret::SECRET;

    #[test]
    fn a_list_never_holds_the_content_of_a_secret_whatever_is_asked_for() {
        let secret =
            || Object(json!({"metadata": {"name": "s", "namespace": "ns"}, "data": {"key": "c2VjcmV0"}}));
        let whole = Listing::all(&SECRET, "ns");
        for listing in [whole.clone(), whole.parts(&["/data", "/data/key"])] {
            let kept = listing.kept(secret());
            assert_eq!((kept.name(), kept.0.to_string().contains("c2VjcmV0")), ("s", false), "{listing:?}");
        }
    }
}
