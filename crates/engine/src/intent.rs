//! The full intent of a child as it is sent: with the marks of ownership and a hash of itself, and the comparison with what
//! is live. A hash alone misses foreign edits, a comparison alone misses fields that we no longer want: it takes both.

use aquifer_base::names::short_hash;
use serde_json::{Value, json};

use crate::compare::{Difference, difference};
use crate::object::{Key, Object};

/// Label on every child: the uid of its owner.
pub const OWNER_UID: &str = "aquifer.storage/owner-uid";
/// Annotation on every child: namespace and name of its owner (a label could not hold long names).
pub const OWNER: &str = "aquifer.storage/owner";
/// Annotation on every child: hash of the intent that was last written.
pub const INTENT: &str = "aquifer.storage/intent";

/// Puts the marks on an intent: owner, and the hash of everything else.
pub(crate) fn marked(mut intent: Value, owner: &Key, owner_uid: &str) -> Value {
    set(&mut intent, "labels", OWNER_UID, owner_uid);
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

/// The owner that a child names, as the key to wake.
pub fn owner_key(child: &Object) -> Option<Key> {
    child.annotation(OWNER).map(Key::parse)
}

/// Fields of the live object that another manager than `ours` wrote, outside the tolerated places.
pub(crate) fn foreign_additions(live: &Object, ours: &str, tolerate: &[String]) -> Option<String> {
    let entries = live.at("/metadata/managedFields")?.as_array()?;
    entries
        .iter()
        .filter(|entry| entry["manager"] != ours && entry.get("subresource").is_none_or(|s| s == ""))
        .filter_map(|entry| entry.get("fieldsV1"))
        .find_map(|fields| first_path(fields, "", tolerate))
}

/// The first owned leaf of a `fieldsV1` tree that is not tolerated, as a JSON-pointer-like path.
fn first_path(fields: &Value, path: &str, tolerate: &[String]) -> Option<String> {
    let map = fields.as_object()?;
    if map.is_empty() {
        let tolerated = tolerate.iter().any(|t| path == t || path.starts_with(&format!("{t}/")) || wild(t, path));
        return (!tolerated && !path.is_empty()).then(|| path.to_owned());
    }
    map.iter().find_map(|(key, below)| match key.as_str() {
        // The element itself; what is below it names the leaves.
        "." if map.len() > 1 => None,
        "." => first_path(&json!({}), path, tolerate),
        _ => {
            let step = key.strip_prefix("f:").unwrap_or(key);
            first_path(below, &format!("{path}/{}", step.replace('~', "~0").replace('/', "~1")), tolerate)
        }
    })
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
        let owner = Key::namespaced("ns", "owner");
        assert_eq!(marked(intent("1"), &owner, "u"), marked(intent("1"), &owner, "u"));
        assert_ne!(
            marked(intent("1"), &owner, "u")["metadata"]["annotations"][INTENT],
            marked(intent("2"), &owner, "u")["metadata"]["annotations"][INTENT]
        );
    }

    #[test]
    fn foreign_fields_are_found_and_tolerated_ones_are_not() {
        let live = Object(json!({"metadata": {"managedFields": [
            {"manager": "us", "fieldsV1": {"f:spec": {"f:a": {}}}},
            {"manager": "kcm", "subresource": "status", "fieldsV1": {"f:status": {"f:x": {}}}},
            {"manager": "kubectl", "fieldsV1": {"f:metadata": {"f:annotations": {"f:openshift.io/scc": {}}}}},
        ]}}));
        let tolerate = vec!["/metadata/annotations/openshift.io~1*".to_owned()];
        assert_eq!(foreign_additions(&live, "us", &[]), Some("/metadata/annotations/openshift.io~1scc".into()));
        assert_eq!(foreign_additions(&live, "us", &tolerate), None);
    }
}
