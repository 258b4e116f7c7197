//! The full intent of a child as it is sent: with the marks of ownership and a hash of itself, and the comparison with what
//! is live. A hash alone misses foreign edits, a comparison alone misses fields that we no longer want: it takes both.

use aquifer_base::Uid;
use aquifer_base::names::short_hash;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::compare::{Difference, difference};
use crate::object::{Key, Kind, Object};

/// What the names of all marks of ours begin with.
pub const PREFIX: &str = "aquifer.storage/";
/// Label on every child: the uid of its owner.
pub const OWNER_UID: &str = "aquifer.storage/owner-uid";
/// Annotation on every child: namespace and name of its owner (a label could not hold long names).
pub const OWNER: &str = "aquifer.storage/owner";
/// Annotation on every child: kind and group of its owner, because owners of two kinds may have the same name. Children from before there
/// was this mark lack it, and are left as they are.
pub(crate) const OWNER_KIND: &str = "aquifer.storage/owner-kind";
/// Annotation on every child: hash of the intent that was last written.
pub const INTENT: &str = "aquifer.storage/intent";

/// Annotation on any subject: while it is `true`, its controller writes nothing for it but the condition `Paused`.
pub const PAUSED: &str = "aquifer.storage/paused";

/// The full intent of an object: apiVersion, kind, metadata (name, labels, annotations) and content; no status, no nulls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Intent(Value);

impl Intent {
    /// The intent that a typed object states. Types of Kubernetes leave out what is not set, as an intent must.
    pub fn of(object: &impl Serialize) -> Self {
        // Only a map with keys that are no texts does not become JSON; the server refuses the null that it becomes here.
        Self(serde_json::to_value(object).unwrap_or_default())
    }

    /// As JSON.
    pub fn as_value(&self) -> &Value {
        &self.0
    }

    pub(crate) fn into_value(self) -> Value {
        self.0
    }
}

/// Puts the marks on an intent: owner, and the hash of everything else.
pub(crate) fn marked(mut intent: Value, owner: &Key, owner_uid: &Uid) -> Value {
    set(&mut intent, "labels", OWNER_UID, owner_uid.as_str());
    set(&mut intent, "annotations", OWNER, &owner.to_string());
    let hash = short_hash(intent.to_string().as_bytes());
    set(&mut intent, "annotations", INTENT, &hash);
    intent
}

fn set(intent: &mut Value, map: &str, name: &str, value: &str) {
    if !intent["metadata"][map].is_object() {
        intent["metadata"][map] = json!({});
    }
    intent["metadata"][map][name] = json!(value);
}

/// The first place where the live object is not what the (marked) intent says. The stored hash is one of the leaves.
pub(crate) fn drift(marked: &Value, live: &Object) -> Option<Difference> {
    difference(marked, &live.0)
}

/// A kind as the mark says it.
pub(crate) fn owner_kind(kind: &Kind) -> String {
    format!("{}.{}", kind.kind, kind.group)
}

/// Whether the owner that a child names can be of this kind. A child without the mark does not say.
pub(crate) fn may_be_owned_by(child: &Object, kind: &Kind) -> bool {
    child.annotation(OWNER_KIND).is_none_or(|mark| mark == owner_kind(kind))
}

/// The owner that a child names, as the key to wake.
pub fn owner_key(child: &Object) -> Option<Key> {
    child.annotation(OWNER).and_then(Key::parse)
}

/// The first field of the live object that another manager than `ours` wrote and that the intent does not have, outside the
/// tolerated places. Somebody who says the same as we do adds nothing: a replacement would not take the field from them.
pub(crate) fn foreign_additions(
    intent: &Value,
    live: &Object,
    ours: &str,
    tolerate: &[String],
) -> Option<String> {
    let entries = live.at("/metadata/managedFields")?.as_array()?;
    entries
        .iter()
        .filter(|entry| entry["manager"] != ours && entry.get("subresource").is_none_or(|s| s == ""))
        .filter_map(|entry| entry.get("fieldsV1"))
        .find_map(|fields| first_addition(fields, Some(intent), Some(&live.0), "", tolerate))
}

/// The first owned leaf of a `fieldsV1` tree that is neither ours nor tolerated, as a JSON-pointer-like path.
fn first_addition(
    fields: &Value,
    intent: Option<&Value>,
    live: Option<&Value>,
    path: &str,
    tolerate: &[String],
) -> Option<String> {
    let map = fields.as_object()?;
    if map.keys().all(|key| key == ".") {
        let tolerated =
            tolerate.iter().any(|t| path == t || path.starts_with(&format!("{t}/")) || wild(t, path));
        // A lone dot stands for the bare existence of a map or an element, nothing for a value with all that is in it.
        let ours =
            intent.is_some_and(|intent| !map.is_empty() || live.is_none_or(|live| !adds(live, intent)));
        return (!tolerated && !ours && !path.is_empty()).then(|| path.to_owned());
    }
    map.iter().filter(|(key, _)| *key != ".").find_map(|(key, below)| {
        let step = key.strip_prefix("f:").unwrap_or(key);
        let path = format!("{path}/{}", step.replace('~', "~0").replace('/', "~1"));
        let (intent, live) =
            (intent.and_then(|value| child(value, key)), live.and_then(|value| child(value, key)));
        first_addition(below, intent, live, &path, tolerate)
    })
}

/// What a key of a `fieldsV1` tree points at: a field, the element with these keys, or the element of this value.
fn child<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    let (how, what) = key.split_once(':')?;
    let parse = || serde_json::from_str::<Value>(what).ok();
    match how {
        "f" => value.get(what),
        "k" => {
            let keys = parse()?;
            // A key that an element leaves out has its default, which is all that we can compare it with.
            let keys = keys.as_object()?;
            let same = |element: &&Value| keys.iter().all(|(k, v)| element.get(k).is_none_or(|e| e == v));
            value.as_array()?.iter().find(same)
        }
        "v" => {
            let wanted = parse()?;
            value.as_array()?.iter().find(|element| **element == wanted)
        }
        "i" => value.get(what.parse::<usize>().ok()?),
        _ => None,
    }
}

/// Whether a live value holds anything that the intended one does not.
fn adds(live: &Value, intent: &Value) -> bool {
    match (live, intent) {
        (Value::Object(live), Value::Object(intent)) => {
            live.iter().any(|(key, value)| intent.get(key).is_none_or(|intent| adds(value, intent)))
        }
        (Value::Array(live), Value::Array(intent)) => {
            live.len() != intent.len() || live.iter().zip(intent).any(|(live, intent)| adds(live, intent))
        }
        _ => false,
    }
}

/// `/metadata/annotations/openshift.io~1*` tolerates every annotation with that prefix.
fn wild(pattern: &str, path: &str) -> bool {
    pattern.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_stable_and_depend_on_the_content() {
        let intent = |size: &str| json!({"metadata": {"name": "a"}, "spec": {"size": size}});
        let (owner, uid) = (Key::namespaced("ns", "owner"), Uid::new("u"));
        assert_eq!(marked(intent("1"), &owner, &uid), marked(intent("1"), &owner, &uid));
        assert_ne!(
            marked(intent("1"), &owner, &uid)["metadata"]["annotations"][INTENT],
            marked(intent("2"), &owner, &uid)["metadata"]["annotations"][INTENT]
        );
    }

    fn managed_by_kubectl(mut live: Value, fields: &Value) -> Object {
        live["metadata"]["managedFields"] = json!([
            {"manager": "us", "fieldsV1": {"f:spec": {"f:a": {}}}},
            {"manager": "kcm", "subresource": "status", "fieldsV1": {"f:status": {"f:x": {}}}},
            {"manager": "kubectl", "fieldsV1": fields},
        ]);
        Object(live)
    }

    #[test]
    fn foreign_fields_are_found_and_tolerated_ones_are_not() {
        let fields = json!({"f:metadata": {"f:annotations": {"f:openshift.io/scc": {}}}});
        let live =
            managed_by_kubectl(json!({"metadata": {"annotations": {"openshift.io/scc": "x"}}}), &fields);
        let tolerate = vec!["/metadata/annotations/openshift.io~1*".to_owned()];
        let found = foreign_additions(&json!({}), &live, "us", &[]);
        assert_eq!(found, Some("/metadata/annotations/openshift.io~1scc".into()));
        assert_eq!(foreign_additions(&json!({}), &live, "us", &tolerate), None);
    }

    #[test]
    fn a_field_that_we_intend_too_is_no_addition() {
        let intent = json!({
            "metadata": {"labels": {"a": "1"}},
            "rules": [{"verbs": ["get"]}],
            "containers": [{"name": "x", "image": "i", "ports": [{"containerPort": 1}]}],
        });
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:rules": {},
            "f:containers": {"k:{\"name\":\"x\"}": {".": {}, "f:image": {},
                "f:ports": {"k:{\"containerPort\":1,\"protocol\":\"TCP\"}": {".": {}}}}},
        });
        let found = |live: Value, fields: &Value| {
            foreign_additions(&intent, &managed_by_kubectl(live, fields), "us", &[])
        };
        assert_eq!(found(intent.clone(), &fields), None);

        let mut wider = intent.clone();
        wider["rules"][0]["verbs"] = json!(["get", "delete"]);
        assert_eq!(found(wider, &fields), Some("/rules".into()));

        let mut second = intent.clone();
        second["containers"] = json!([intent["containers"][0], {"name": "y"}]);
        let theirs = json!({"f:containers": {"k:{\"name\":\"y\"}": {".": {}, "f:name": {}}}});
        assert_eq!(found(second, &theirs), Some("/containers/k:{\"name\":\"y\"}/name".into()));

        let mut emptied = intent.clone();
        emptied["tolerations"] = json!([]);
        assert_eq!(found(emptied, &json!({"f:tolerations": {}})), Some("/tolerations".into()));
    }
}
