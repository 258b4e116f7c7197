//! The subject of a pass as decisions see it: identity, our marks, the spec parsed or the path that does not parse, the status.
//! Parses objects; decides nothing.

use std::collections::BTreeMap;
use std::fmt;

use aquifer_base::{ResourceVersion, Uid};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::object::{Identity, Key, Object};

/// What a pass is about: a key, and the object if there is one. Children whose owner is gone are decided with none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Subject<Spec, Status> {
    /// Namespace and name.
    pub key: Key,
    /// The object, when there is one.
    pub object: Option<Present<Spec, Status>>,
}

/// A subject that exists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Present<Spec, Status> {
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub version: ResourceVersion,
    /// `metadata.generation`; 0 when the kind has none.
    pub generation: i64,
    /// Since when it is being deleted.
    pub deleting: Option<Timestamp>,
    /// `metadata.finalizers`, in their order.
    pub finalizers: Vec<String>,
    /// Our labels and annotations. Those of others are not looked at.
    pub marks: Marks,
    /// The spec, or where it cannot be read. A decision that is not about deletion is asked for only when it can.
    pub spec: Result<Spec, Unreadable>,
    /// The status; one that cannot be read counts as absent.
    pub status: Status,
}

/// Labels and annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// By name.
    pub labels: BTreeMap<String, String>,
    /// By name.
    pub annotations: BTreeMap<String, String>,
}

/// Why a spec cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreadable {
    /// Where, such as `spec.taps[0]`.
    pub path: String,
    /// What is wrong there.
    pub why: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read {}: {}", self.path, self.why)
    }
}

impl<Spec, Status> Present<Spec, Status> {
    /// Which object it is, in which version.
    pub fn identity(&self) -> Identity {
        Identity { uid: self.uid.clone(), version: self.version.clone() }
    }
}

impl<Spec: DeserializeOwned, Status: DeserializeOwned + Default> Present<Spec, Status> {
    /// Reads an object. `is_ours` chooses the labels and annotations to keep.
    pub(crate) fn read(object: &Object, is_ours: impl Fn(&str) -> bool) -> Self {
        let Identity { uid, version } = object.identity();
        let marks = |pointer: &str| {
            let all = object.at(pointer).and_then(Value::as_object).into_iter().flatten();
            let ours = all.filter(|(name, _)| is_ours(name));
            ours.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
        };
        Self {
            uid,
            version,
            generation: object.generation(),
            deleting: object.deleting_since(),
            finalizers: object.finalizers().into_iter().map(str::to_owned).collect(),
            marks: Marks { labels: marks("/metadata/labels"), annotations: marks("/metadata/annotations") },
            spec: spec(object),
            status: object.at("/status").map(status).unwrap_or_default(),
        }
    }
}

/// A status field by field: one that cannot be read counts as absent and takes no other along.
fn status<Status: DeserializeOwned + Default>(value: &Value) -> Status {
    if let Ok(status) = Status::deserialize(value) {
        return status;
    }
    let one = |name: &String, value: &Value| Value::Object(Map::from_iter([(name.clone(), value.clone())]));
    let readable = value.as_object().into_iter().flatten();
    let readable = readable.filter(|(name, value)| Status::deserialize(one(name, value)).is_ok());
    let readable: Map<_, _> = readable.map(|(name, value)| (name.clone(), value.clone())).collect();
    Status::deserialize(Value::Object(readable)).unwrap_or_default()
}

fn spec<Spec: DeserializeOwned>(object: &Object) -> Result<Spec, Unreadable> {
    // An absent spec is one without fields: the error then names the field that is missing.
    let empty = Value::Object(Map::new());
    let value = object.at("/spec").unwrap_or(&empty);
    serde_path_to_error::deserialize(value).map_err(|error| {
        let below = error.path().to_string();
        let path = if below == "." { "spec".to_owned() } else { format!("spec.{below}") };
        Unreadable { path, why: error.into_inner().to_string() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Spec {
        size: u64,
        names: Vec<String>,
    }

    fn read(object: Value) -> Present<Spec, Option<u64>> {
        Present::read(&Object(object), |name| name.starts_with("ours/"))
    }

    #[test]
    fn a_spec_that_does_not_parse_names_the_path() {
        let path = |spec: Value| read(json!({"spec": spec})).spec.unwrap_err().path;
        assert_eq!(path(json!({"size": "large", "names": []})), "spec.size");
        assert_eq!(path(json!({"size": 1, "names": ["a", 2]})), "spec.names[1]");
        let missing = read(json!({})).spec.unwrap_err();
        assert_eq!(missing.to_string(), "cannot read spec: missing field `size`");
        assert_eq!(read(json!({"spec": {"size": 1, "names": []}})).spec.unwrap().size, 1);
    }

    #[test]
    fn a_status_that_does_not_parse_counts_as_absent() {
        assert_eq!(read(json!({"status": 3})).status, Some(3));
        assert_eq!(read(json!({"status": "three"})).status, None);
        assert_eq!(read(json!({})).status, None);
    }

    #[test]
    fn one_field_of_a_status_that_cannot_be_read_takes_no_other_along() {
        #[derive(Debug, Default, PartialEq, Deserialize)]
        #[serde(default)]
        struct Status {
            claim: Option<String>,
            count: Option<u64>,
        }
        let found: Status = status(&json!({"claim": "c", "count": "many"}));
        assert_eq!(found, Status { claim: Some("c".into()), count: None });
    }

    #[test]
    fn labels_and_annotations_of_others_are_not_seen() {
        let both = json!({"ours/a": "1", "theirs/b": "2"});
        let marks = read(json!({"metadata": {"labels": both, "annotations": both}})).marks;
        let ours = BTreeMap::from([("ours/a".to_owned(), "1".to_owned())]);
        assert_eq!(marks, Marks { labels: ours.clone(), annotations: ours });
    }
}
