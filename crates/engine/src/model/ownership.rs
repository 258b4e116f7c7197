//! Who wrote which field of an object in the model, as far as the engine depends on it: server-side apply removes what a
//! manager no longer says, and `managedFields` shows what others added.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::compare::LIST_KEYS;

/// The way to one field, in the notation of `fieldsV1`: `f:name`, `k:{"name":"x"}` or `v:"x"`.
pub(super) type Path = Vec<String>;

/// How a manager wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// The owners of the fields of one object.
#[derive(Clone, Debug, Default)]
pub(super) struct Owners(BTreeMap<(String, Operation), BTreeSet<Path>>);

impl Owners {
    /// A write by any means but apply: what changed is the manager's.
    pub fn updated(&mut self, manager: &str, old: &Value, new: &Value) {
        let (old, new) = (leaves(old), leaves(new));
        let changed: BTreeSet<Path> = new
            .iter()
            .filter(|(path, value)| old.get(*path) != Some(value))
            .map(|(p, _)| p.clone())
            .collect();
        for owned in self.0.values_mut() {
            owned.retain(|path| new.contains_key(path) && !changed.contains(path));
        }
        self.0.entry((manager.to_owned(), Operation::Update)).or_default().extend(changed);
        self.0.retain(|_, owned| !owned.is_empty());
    }

    /// A forced apply: changes the document, and takes what it says from others who said something else.
    pub fn apply(&mut self, manager: &str, doc: &mut Value, intent: &Value) {
        let wanted = leaves(intent);
        let before = self.0.remove(&(manager.to_owned(), Operation::Apply)).unwrap_or_default();
        for path in before.iter().filter(|path| !wanted.contains_key(*path)) {
            if !self.0.values().any(|owned| owned.contains(path)) {
                remove(doc, path);
            }
        }
        let found = leaves(doc);
        for owned in self.0.values_mut() {
            owned.retain(|path| wanted.get(path).is_none_or(|value| found.get(path) == Some(value)));
        }
        self.0.retain(|_, owned| !owned.is_empty());
        merge(doc, intent, "");
        self.0.insert((manager.to_owned(), Operation::Apply), wanted.into_keys().collect());
    }

    /// As the API server shows it.
    pub fn managed_fields(&self, api_version: &str) -> Value {
        let entries = self.0.iter().map(|((manager, operation), owned)| {
            json!({"manager": manager, "operation": format!("{operation:?}"), "apiVersion": api_version,
                "fieldsType": "FieldsV1", "fieldsV1": tree(owned)})
        });
        Value::Array(entries.collect())
    }
}

fn tree(owned: &BTreeSet<Path>) -> Value {
    let mut root = Map::new();
    for path in owned {
        let mut at = &mut root;
        for (depth, step) in path.iter().enumerate() {
            let below = at.entry(step.clone()).or_insert_with(|| {
                // An element of a list is owned as such, besides its fields.
                let element = step.starts_with("k:") && depth + 1 < path.len();
                if element { json!({".": {}}) } else { json!({}) }
            });
            let Value::Object(below) = below else { break };
            at = below;
        }
    }
    Value::Object(root)
}

/// What identifies the object or the write, and what the server alone sets, is nobody's.
const UNOWNED: [&str; 8] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "managedFields",
];

fn leaves(doc: &Value) -> BTreeMap<Path, Value> {
    let mut found = BTreeMap::new();
    for (name, value) in doc.as_object().into_iter().flatten() {
        match name.as_str() {
            "apiVersion" | "kind" | "status" => {}
            "metadata" => {
                for (field, value) in value.as_object().into_iter().flatten() {
                    if !UNOWNED.contains(&field.as_str()) {
                        collect(
                            value,
                            field,
                            vec!["f:metadata".to_owned(), format!("f:{field}")],
                            &mut found,
                        );
                    }
                }
            }
            _ => collect(value, name, vec![format!("f:{name}")], &mut found),
        }
    }
    found
}

fn collect(value: &Value, name: &str, path: Path, found: &mut BTreeMap<Path, Value>) {
    let below = |step: String| path.iter().cloned().chain([step]).collect::<Path>();
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                collect(value, key, below(format!("f:{key}")), found);
            }
        }
        Value::Array(list) if !list.is_empty() && name == "finalizers" => {
            for element in list {
                found.insert(below(format!("v:{element}")), element.clone());
            }
        }
        Value::Array(list) => match list_key(list) {
            Some(key) => {
                for element in list {
                    collect(element, "", below(format!("k:{}", json!({key: element[key]}))), found);
                }
            }
            None => drop(found.insert(path, value.clone())),
        },
        _ => drop(found.insert(path, value.clone())),
    }
}

/// The key by which the elements of a list are told apart; none when the list is one value.
fn list_key(list: &[Value]) -> Option<&'static str> {
    LIST_KEYS
        .into_iter()
        .find(|key| !list.is_empty() && list.iter().all(|element| element.get(key).is_some()))
}

fn element_of(list: &[Value], step: &str) -> Option<usize> {
    if let Some(keys) = step.strip_prefix("k:") {
        let keys: Value = serde_json::from_str(keys).ok()?;
        let keys = keys.as_object()?;
        return list.iter().position(|element| keys.iter().all(|(k, v)| element.get(k) == Some(v)));
    }
    let wanted: Value = serde_json::from_str(step.strip_prefix("v:")?).ok()?;
    list.iter().position(|element| *element == wanted)
}

fn remove(doc: &mut Value, path: &[String]) {
    let Some((step, rest)) = path.split_first() else { return };
    match doc {
        Value::Object(map) => {
            let Some(name) = step.strip_prefix("f:") else { return };
            if rest.is_empty() {
                map.remove(name);
            } else if let Some(below) = map.get_mut(name) {
                remove(below, rest);
                if is_empty(below) {
                    map.remove(name);
                }
            }
        }
        Value::Array(list) => {
            let Some(at) = element_of(list, step) else { return };
            remove(&mut list[at], rest);
            // What is left of an element that nobody wants any more is its key.
            if rest.is_empty() || list[at].as_object().is_some_and(|left| left.len() <= 1) {
                list.remove(at);
            }
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// Merges an intent into a document as apply does: lists with keys element by element, sets as a union.
fn merge(doc: &mut Value, intent: &Value, name: &str) {
    match (doc, intent) {
        (Value::Object(doc), Value::Object(intent)) => {
            for (key, value) in intent {
                merge(doc.entry(key.clone()).or_insert(Value::Null), value, key);
            }
        }
        (Value::Array(doc), Value::Array(intent)) if name == "finalizers" => {
            for element in intent {
                if !doc.contains(element) {
                    doc.push(element.clone());
                }
            }
        }
        (Value::Array(doc), Value::Array(intent)) if list_key(intent).is_some() => {
            let key = list_key(intent).unwrap_or_default();
            for element in intent {
                match doc.iter_mut().find(|found| found.get(key) == element.get(key)) {
                    Some(found) => merge(found, element, ""),
                    None => doc.push(element.clone()),
                }
            }
        }
        (doc, intent) => *doc = intent.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_apply_takes_away_what_it_no_longer_says_unless_another_manager_says_it_too() {
        let mut owners = Owners::default();
        let mut doc = json!({});
        owners.apply(
            "us",
            &mut doc,
            &json!({"spec": {"a": 1, "b": 2, "list": [{"name": "x", "v": 1}, {"name": "y"}]}}),
        );
        owners.apply("them", &mut doc, &json!({"spec": {"b": 2}}));
        owners.apply("us", &mut doc, &json!({"spec": {"a": 3, "list": [{"name": "x", "v": 2}]}}));
        assert_eq!(doc, json!({"spec": {"a": 3, "b": 2, "list": [{"name": "x", "v": 2}]}}));
    }

    #[test]
    fn an_edit_moves_what_it_changes_to_its_manager() {
        let mut owners = Owners::default();
        let mut doc = json!({});
        owners.apply("us", &mut doc, &json!({"spec": {"a": 1}, "metadata": {"labels": {"l": "1"}}}));
        let mut edited = doc.clone();
        edited["spec"]["a"] = json!(2);
        edited["metadata"]["labels"]["theirs"] = json!("x");
        owners.updated("kubectl", &doc, &edited);
        let shown = owners.managed_fields("v1");
        assert_eq!(shown[0]["manager"], "kubectl");
        let theirs = json!({"f:spec": {"f:a": {}}, "f:metadata": {"f:labels": {"f:theirs": {}}}});
        assert_eq!(shown[0]["fieldsV1"], theirs);
        assert_eq!(shown[1]["fieldsV1"], json!({"f:metadata": {"f:labels": {"f:l": {}}}}));
    }

    #[test]
    fn finalizers_are_a_set_that_several_share() {
        let mut owners = Owners::default();
        let mut doc = json!({"metadata": {"finalizers": ["theirs"]}});
        owners.apply("us", &mut doc, &json!({"metadata": {"finalizers": ["ours"]}}));
        assert_eq!(doc["metadata"]["finalizers"], json!(["theirs", "ours"]));
    }
}
