//! What a cache or a live list keeps of an object, and the object that it gives back. Ten thousand objects must fit in a small process, and
//! what is not kept cannot wake anybody. Decides nothing.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::object::{Key, Kind, Object};

/// What a cache keeps. The identity of an object is always kept, beside the rest.
#[derive(Clone)]
pub(crate) enum Kept {
    /// Subjects and children: everything but metadata that is not ours.
    Content,
    /// Kinds that we apply, of which only these parts are compared or looked at: JSON pointers.
    Parts(&'static [&'static str]),
    /// Kinds that are only looked at: what the family makes of the object, and since when it is being deleted.
    Facts(Arc<dyn Fn(&Object) -> Value + Send + Sync>),
    /// Kinds that are replaced wholesale: everything, with `managedFields`, because it is judged who wrote what.
    Whole,
}

/// Metadata that decisions look at; the identity is kept elsewhere.
const METADATA: [&str; 4] = ["generation", "creationTimestamp", "deletionTimestamp", "finalizers"];
/// What says which object it is, and whether it goes.
const IDENTITY: [&str; 7] = [
    "/apiVersion",
    "/kind",
    "/metadata/namespace",
    "/metadata/name",
    "/metadata/uid",
    "/metadata/resourceVersion",
    "/metadata/deletionTimestamp",
];
/// A copy of the whole object that kubectl leaves in it.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

impl Kept {
    /// What is kept of an object. `is_ours` chooses its labels and annotations.
    pub fn of(&self, object: Object, is_ours: impl Fn(&str) -> bool) -> Value {
        let metadata = match self {
            Self::Whole => return whole(object),
            Self::Facts(_) => deletion(&object),
            Self::Content | Self::Parts(_) => metadata(&object, is_ours),
        };
        let kept = match self {
            Self::Parts(parts) => only(&object, parts),
            Self::Facts(facts) => facts(&object),
            Self::Content | Self::Whole => object.0,
        };
        let mut kept = if let Value::Object(kept) = kept { kept } else { Map::new() };
        kept.remove("apiVersion");
        kept.remove("kind");
        kept.insert("metadata".to_owned(), Value::Object(metadata));
        Value::Object(kept)
    }

    /// Whether everything is kept, with `managedFields`.
    pub fn is_whole(&self) -> bool {
        matches!(self, Self::Whole)
    }

    /// Whether an object of which nothing that is kept has changed is no news although its version has. Where we write, a
    /// new version is always news: a key may wait for the event of its own write.
    pub fn ignores_versions(&self) -> bool {
        matches!(self, Self::Facts(_))
    }
}

/// An object of which nothing is left but its identity, since when it is being deleted, and these parts.
pub(crate) fn reduced(object: &Object, parts: &[String]) -> Object {
    let mut left = only(object, parts);
    for path in IDENTITY {
        copy(&object.0, &mut left, path);
    }
    Object(left)
}

fn only(object: &Object, parts: &[impl AsRef<str>]) -> Value {
    let mut kept = Value::Object(Map::new());
    for part in parts {
        copy(&object.0, &mut kept, part.as_ref());
    }
    kept
}

/// Copies what is at a path, if something is there. `*` stands for all elements of a list.
fn copy(from: &Value, into: &mut Value, path: &str) {
    let Some((step, rest)) =
        path.strip_prefix('/').map(|path| path.split_at(path.find('/').unwrap_or(path.len())))
    else {
        *into = from.clone();
        return;
    };
    if step == "*" {
        let elements = from.as_array().map(Vec::as_slice).unwrap_or_default();
        let mut kept = if let Value::Array(kept) = into.take() { kept } else { Vec::new() };
        kept.resize(elements.len(), Value::Null);
        elements.iter().zip(&mut kept).for_each(|(element, kept)| copy(element, kept, rest));
        *into = Value::Array(kept);
    } else if let Some(found) = from.get(step) {
        copy(found, &mut into[step], rest);
    }
}

fn whole(object: Object) -> Value {
    let mut kept = object.0;
    if let Some(annotations) = kept.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    kept
}

fn deletion(object: &Object) -> Map<String, Value> {
    let since = object.at("/metadata/deletionTimestamp").filter(|since| !since.is_null());
    since.map(|since| ("deletionTimestamp".to_owned(), since.clone())).into_iter().collect()
}

fn metadata(object: &Object, is_ours: impl Fn(&str) -> bool) -> Map<String, Value> {
    let Some(all) = object.at("/metadata").and_then(Value::as_object) else { return Map::new() };
    let mut kept: Map<String, Value> =
        METADATA.iter().filter_map(|name| Some(((*name).to_owned(), all.get(*name)?.clone()))).collect();
    for name in ["labels", "annotations"] {
        let marks = all.get(name).and_then(Value::as_object).into_iter().flatten();
        let ours: Map<_, _> = marks
            .filter(|(mark, _)| is_ours(mark))
            .map(|(mark, value)| (mark.clone(), value.clone()))
            .collect();
        if !ours.is_empty() {
            kept.insert(name.to_owned(), Value::Object(ours));
        }
    }
    kept
}

/// The object that was kept, with its identity.
pub(crate) fn restored(kept: Value, kind: &Kind, key: &Key, uid: &str, version: &str) -> Object {
    let mut object = Object::of_kind(kind, kept);
    let metadata = &mut object.0["metadata"];
    metadata["name"] = Value::from(key.name.as_ref());
    if !key.namespace.is_empty() {
        metadata["namespace"] = Value::from(key.namespace.as_ref());
    }
    for (name, value) in [("uid", uid), ("resourceVersion", version)] {
        if !value.is_empty() {
            metadata[name] = Value::from(value);
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const KIND: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");

    fn object() -> Object {
        let marks = json!({"ours/a": "1", "theirs/b": "x".repeat(1000), LAST_APPLIED: "{}"});
        Object(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "ns", "name": "a", "uid": "u", "resourceVersion": "7", "generation": 2,
                "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
                "finalizers": ["f"], "labels": marks, "annotations": marks, "managedFields": [{"manager": "us"}]},
            "spec": {"size": 1}, "status": {"phase": "P", "other": 1},
        }))
    }

    fn kept(kept: &Kept) -> Value {
        kept.of(object(), |name| name.starts_with("ours/"))
    }

    #[test]
    fn of_others_labels_and_annotations_nothing_is_kept() {
        let ours = json!({"generation": 2, "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": ["f"],
            "labels": {"ours/a": "1"}, "annotations": {"ours/a": "1"}});
        let spec = json!({"size": 1});
        let content = json!({"metadata": ours, "spec": spec, "status": {"phase": "P", "other": 1}});
        assert_eq!(kept(&Kept::Content), content);
        let parts = json!({"metadata": ours, "spec": spec, "status": {"phase": "P"}});
        assert_eq!(kept(&Kept::Parts(&["/spec", "/status/phase", "/absent"])), parts);
    }

    #[test]
    fn what_is_only_looked_at_keeps_the_facts_and_since_when_it_is_being_deleted() {
        let facts = Kept::Facts(Arc::new(|object| json!({"phase": object.text("/status/phase")})));
        let wanted = json!({"metadata": {"deletionTimestamp": "2026-01-02T00:00:00Z"}, "phase": "P"});
        assert_eq!(kept(&facts), wanted);
        assert!(facts.ignores_versions() && !Kept::Content.ignores_versions());
    }

    #[test]
    fn only_what_is_replaced_wholesale_keeps_managed_fields_and_everybodys_marks() {
        let whole = Object(kept(&Kept::Whole));
        assert!(whole.at("/metadata/managedFields").is_some());
        assert!(whole.label("theirs/b").is_some() && whole.annotation(LAST_APPLIED).is_none());
    }

    #[test]
    fn a_reduced_object_is_known_and_has_the_parts_that_are_asked_for_and_no_more() {
        let parts = ["/spec", "/status/phase", "/metadata/finalizers", "/absent"].map(str::to_owned);
        let left = reduced(&object(), &parts);
        let metadata = json!({"namespace": "ns", "name": "a", "uid": "u", "resourceVersion": "7", "deletionTimestamp": "2026-01-02T00:00:00Z",
            "finalizers": ["f"]});
        let wanted = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "spec": {"size": 1}, "status": {"phase": "P"}});
        assert_eq!(left.0, wanted);
    }

    #[test]
    fn of_the_elements_of_a_list_only_what_is_asked_for_is_kept() {
        let volumes = json!([{"name": "a", "claim": {"name": "c", "more": 1}}, {"name": "b"}, {"claim": {"name": "d"}}]);
        let pod = Object(json!({"metadata": {"name": "p"}, "spec": {"volumes": volumes, "node": "n"}}));
        let parts = ["/spec/volumes/*/claim/name", "/spec/volumes/*/name", "/spec/none/*/x"];
        let left = reduced(&pod, &parts.map(str::to_owned));
        let kept = json!([{"claim": {"name": "c"}, "name": "a"}, {"name": "b"}, {"claim": {"name": "d"}}]);
        assert_eq!(left.0, json!({"metadata": {"name": "p"}, "spec": {"volumes": kept}}));
    }

    #[test]
    fn an_object_comes_back_with_its_identity() {
        let back = restored(kept(&Kept::Content), &KIND, &object().key(), "u", "7");
        assert_eq!((back.key(), back.identity()), (object().key(), object().identity()));
        assert_eq!((back.text("/kind"), back.text("/apiVersion")), ("ConfigMap", "v1"));
        assert_eq!(back.deleting_since(), object().deleting_since());
        let cluster = restored(json!({}), &KIND, &Key::cluster("a"), "u", "7");
        assert_eq!(cluster.at("/metadata/namespace"), None);
    }
}
