//! What is equal between two ends of a run: objects without versions, times and random values, with names in place of uids. Pure.

use std::collections::BTreeMap;

use aquifer_engine::intent::INTENT;
use serde_json::{Value, json};

/// Objects by a title that is the same in every run, with everything that differs between any two runs masked.
pub type State = BTreeMap<String, Value>;

/// Fields that never say anything about the outcome.
const VOLATILE: [&str; 6] = [
    "resourceVersion",
    "managedFields",
    "creationTimestamp",
    "lastTransitionTime",
    "lastPhaseTransitionTime",
    // A hash over objects with uids in them.
    INTENT,
];

/// Masks objects. `words` are texts of this run, such as its namespace, with what stands for them.
pub fn mask(objects: impl IntoIterator<Item = (String, Value)>, words: &[(&str, &str)]) -> State {
    let replace_words =
        |text: &str| words.iter().fold(text.to_owned(), |text, (word, by)| text.replace(word, by));
    let mut state: State =
        objects.into_iter().map(|(title, object)| (replace_words(&title), object)).collect();
    let uids: Vec<(String, String)> = state
        .iter()
        .filter_map(|(title, object)| {
            let uid = object.pointer("/metadata/uid")?.as_str()?;
            Some((uid.to_owned(), format!("uid of {title}")))
        })
        .collect();
    let replace =
        |text: &str| uids.iter().fold(replace_words(text), |text, (uid, by)| text.replace(uid.as_str(), by));
    for object in state.values_mut() {
        mask_value(object, &replace);
    }
    state
}

fn mask_value(value: &mut Value, replace: &impl Fn(&str) -> String) {
    match value {
        Value::Object(map) => {
            map.retain(|field, _| !VOLATILE.contains(&field.as_str()));
            if map.get("kind").is_some_and(|kind| kind == "Secret")
                && let Some(data) = map.get_mut("data").and_then(Value::as_object_mut)
            {
                data.values_mut().for_each(|secret| *secret = json!("masked"));
            }
            map.values_mut().for_each(|value| mask_value(value, replace));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| mask_value(value, replace)),
        Value::String(text) => *text = replace(text),
        _ => {}
    }
}

/// The differences between two states, one line each.
pub fn differences(wanted: &State, found: &State) -> Vec<String> {
    let names: std::collections::BTreeSet<&String> = wanted.keys().chain(found.keys()).collect();
    let show = |value: Option<&Value>| value.map_or_else(|| "absent".to_owned(), ToString::to_string);
    names
        .into_iter()
        .filter(|name| wanted.get(*name) != found.get(*name))
        .map(|name| format!("{name} is {} instead of {}", show(found.get(name)), show(wanted.get(name))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(namespace: &str, uid: &str, version: &str, size: u64) -> State {
        let claim = json!({"kind": "Claim", "metadata": {"uid": uid, "resourceVersion": version, "namespace": namespace},
            "spec": {"size": size, "volume": format!("pv-{namespace}")}});
        let volume = json!({"kind": "Volume", "metadata": {"uid": format!("v{uid}")}, "claim": uid});
        let secret = json!({"kind": "Secret", "data": {"key": uid}});
        mask(
            [
                ("claim".to_owned(), claim),
                (format!("volume of {namespace}"), volume),
                ("secret".to_owned(), secret),
            ],
            &[(namespace, "NS")],
        )
    }

    #[test]
    fn two_runs_with_the_same_outcome_are_equal() {
        let (one, two) = (run("t1", "aaa", "7", 1), run("t2", "bbb", "9", 1));
        assert_eq!(differences(&one, &two), Vec::<String>::new());
        assert_eq!(one["volume of NS"]["claim"], "uid of claim");
    }

    #[test]
    fn another_outcome_is_a_difference_and_is_named() {
        let (one, mut two) = (run("t1", "aaa", "7", 1), run("t2", "bbb", "9", 2));
        two.remove("secret");
        let found = differences(&one, &two);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("claim is") && found[1].starts_with("secret is absent"), "{found:?}");
    }
}
