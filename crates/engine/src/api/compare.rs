//! Is the live object what the intent says? Leaf by leaf: what the intent does not mention does not count.

use std::fmt;

use aquifer_base::Quantity;
use serde_json::Value;

/// The first leaf that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Where, as a JSON-pointer-like path.
    pub path: String,
    /// What the intent says.
    pub wanted: Value,
    /// What is there.
    pub found: Value,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: wanted {}, found {}", self.path, self.wanted, self.found)
    }
}

/// Keys by which the API server merges lists of maps; the first that all elements carry identifies an element.
pub(crate) const LIST_KEYS: [&str; 7] = ["name", "type", "key", "mountPath", "containerPort", "port", "uid"];
/// Maps whose values are quantities.
const QUANTITIES: [&str; 8] =
    ["requests", "limits", "capacity", "hard", "used", "allocatable", "default", "defaultRequest"];

/// The first leaf of `intent` that `live` does not have. Metadata that identifies the write itself does not count.
pub fn difference(intent: &Value, live: &Value) -> Option<Difference> {
    walk(intent, live, &mut Vec::new())
}

fn walk<'a>(wanted: &'a Value, found: &Value, path: &mut Vec<&'a str>) -> Option<Difference> {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => wanted.iter().find_map(|(key, value)| {
            path.push(key);
            let result = walk(value, found.get(key).unwrap_or(&Value::Null), path);
            path.pop();
            result
        }),
        (wanted, Value::Null) if is_nothing(wanted) => None,
        (Value::Array(wanted_list), Value::Array(found_list)) => lists(wanted_list, found_list, path)
            .map(|at| if at.path.is_empty() { here(path, wanted, found) } else { at }),
        _ if same(wanted, found, path) => None,
        _ => Some(here(path, wanted, found)),
    }
}

/// Whether it is the same as nothing: the server drops empty maps and lists, and what a patch takes away.
fn is_nothing(wanted: &Value) -> bool {
    match wanted {
        Value::Null => true,
        Value::Object(fields) => fields.values().all(is_nothing),
        Value::Array(elements) => elements.is_empty(),
        _ => false,
    }
}

fn here(path: &[&str], wanted: &Value, found: &Value) -> Difference {
    let path = path.iter().flat_map(|step| ["/", *step]).collect();
    Difference { path, wanted: wanted.clone(), found: found.clone() }
}

fn lists<'a>(wanted: &'a [Value], found: &[Value], path: &mut Vec<&'a str>) -> Option<Difference> {
    let key =
        LIST_KEYS.into_iter().find(|key| !wanted.is_empty() && wanted.iter().all(|w| w.get(key).is_some()));
    if let Some(key) = key {
        return wanted.iter().find_map(|element| {
            let same_key = found.iter().filter(|f| f.get(key) == element.get(key));
            let step = element.get(key).and_then(Value::as_str).unwrap_or(key);
            path.push(step);
            // Two elements may share the key (a port with two protocols): any that fits will do.
            let mut first = None;
            let mut fits = false;
            for candidate in same_key {
                match walk(element, candidate, path) {
                    None => fits = true,
                    Some(difference) => first = first.or(Some(difference)),
                }
            }
            let result =
                if fits { None } else { Some(first.unwrap_or_else(|| here(path, element, &Value::Null))) };
            path.pop();
            result
        });
    }
    let element_wise = wanted.len() == found.len()
        && wanted.iter().zip(found).all(|(wanted, found)| walk(wanted, found, path).is_none());
    // An empty path asks the caller to report the list as a whole.
    (!element_wise).then(|| Difference { path: String::new(), wanted: Value::Null, found: Value::Null })
}

fn same(wanted: &Value, found: &Value, path: &[&str]) -> bool {
    if wanted == found {
        return true;
    }
    let in_quantities =
        path.len() >= 2 && path.get(path.len() - 2).is_some_and(|parent| QUANTITIES.contains(parent));
    in_quantities && quantity(wanted).is_some_and(|w| quantity(found).is_some_and(|f| w == f))
}

fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn path(intent: &Value, live: &Value) -> Option<String> {
        difference(intent, live).map(|d| d.path)
    }

    #[test]
    fn what_the_intent_does_not_mention_does_not_count() {
        assert_eq!(path(&json!({"a": 1}), &json!({"a": 1, "b": 2})), None);
        assert_eq!(path(&json!({"a": {"b": 1}}), &json!({"a": {"b": 2}})), Some("/a/b".into()));
        assert_eq!(path(&json!({"a": {"b": 1}}), &json!({})), Some("/a".into()));
    }

    #[test]
    fn quantities_are_equal_by_value_and_only_where_quantities_stand() {
        let at = |field: &str, value: &str| json!({field: {"storage": value}});
        assert_eq!(path(&at("requests", "1024Mi"), &at("requests", "1Gi")), None);
        assert_eq!(path(&at("requests", "1"), &at("requests", "1Gi")), Some("/requests/storage".into()));
        assert_eq!(path(&at("labels", "1.0"), &at("labels", "1")), Some("/labels/storage".into()));
    }

    #[test]
    fn list_maps_match_by_key_and_plain_lists_by_position() {
        let intent = json!({"env": [{"name": "B", "value": "2"}]});
        assert_eq!(
            path(&intent, &json!({"env": [{"name": "A"}, {"name": "B", "value": "2", "x": 1}]})),
            None
        );
        assert_eq!(path(&intent, &json!({"env": [{"name": "A"}]})), Some("/env/B".into()));
        assert_eq!(path(&json!({"args": ["a", "b"]}), &json!({"args": ["b", "a"]})), Some("/args".into()));
        assert_eq!(path(&json!({"args": ["a"]}), &json!({"args": ["a", "b"]})), Some("/args".into()));
    }

    #[test]
    fn empty_maps_and_lists_that_the_server_drops_are_no_difference() {
        assert_eq!(path(&json!({"a": {}, "b": []}), &json!({})), None);
    }

    #[test]
    fn what_is_taken_away_is_no_difference_when_nothing_is_left_of_the_map_that_it_was_in() {
        let patch = json!({"metadata": {"labels": {"x": null}}});
        assert_eq!(path(&patch, &json!({"metadata": {}})), None);
        assert_eq!(
            path(&patch, &json!({"metadata": {"labels": {"x": "1"}}})),
            Some("/metadata/labels/x".into())
        );
        let more = json!({"metadata": {"labels": {"x": null, "y": "1"}}});
        assert_eq!(path(&more, &json!({"metadata": {}})), Some("/metadata/labels".into()));
    }

    #[test]
    fn two_elements_may_share_a_list_key() {
        let ports = json!({"ports": [{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]});
        assert_eq!(path(&ports, &ports), None);
    }
    #[test]
    fn a_list_that_is_wanted_and_not_there_is_a_difference_and_so_is_one_that_should_be_empty() {
        assert_eq!(path(&json!({"args": ["a"]}), &json!({})), Some("/args".into()));
        assert_eq!(path(&json!({"args": []}), &json!({"args": ["a"]})), Some("/args".into()));
    }

    #[test]
    fn a_quantity_may_be_a_number_and_nothing_else_than_a_quantity_is_compared_by_value() {
        let at = |value: Value| json!({"limits": {"cpu": value}});
        assert_eq!(path(&at(json!(2)), &at(json!("2"))), None);
        for (wanted, found) in
            [(json!(2), json!("3")), (json!("much"), json!("more")), (json!(true), json!("1"))]
        {
            assert_eq!(path(&at(wanted), &at(found)), Some("/limits/cpu".into()));
        }
    }

    #[test]
    fn a_difference_says_where_and_what() {
        let found = difference(&json!({"a": {"b": 1}}), &json!({"a": {"b": 2}}));
        assert_eq!(found.map(|found| found.to_string()).as_deref(), Some("/a/b: wanted 1, found 2"));
    }
}
