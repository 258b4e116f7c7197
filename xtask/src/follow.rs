//! Shows objects of ours until each is Ready: one line for each change. Changes nothing.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use k8s_openapi::{api::core::v1::PersistentVolumeClaim, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client, api::DynamicObject};
use serde_json::Value;

/// How often the objects are looked at. There are only a handful, so a watch each would be more code and not less work.
const PAUSE: Duration = Duration::from_millis(300);

/// An object that shall become Ready.
pub struct Followed {
    api: Api<DynamicObject>,
    kind: String,
    name: String,
    place: String,
}

impl Followed {
    /// Follows this object.
    pub fn new(api: Api<DynamicObject>, object: &DynamicObject) -> Self {
        Self {
            api,
            kind: object.types.clone().unwrap_or_default().kind,
            name: object.metadata.name.clone().unwrap_or_default(),
            place: place(&object.metadata),
        }
    }
}

/// What one look at an object showed.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    done: bool,
    text: String,
}

/// `namespace/name`, or the name alone.
pub fn place(metadata: &ObjectMeta) -> String {
    let name = metadata.name.as_deref().unwrap_or_default();
    metadata.namespace.as_ref().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

/// Waits until every object is Ready, and its claim Bound where it has one.
pub async fn until_ready(client: &Client, objects: Vec<Followed>, deadline: Duration) -> Result<()> {
    let start = Instant::now();
    let mut shown: BTreeMap<String, String> = BTreeMap::new();
    loop {
        let mut waiting = Vec::new();
        for followed in &objects {
            let object = followed.api.get(&followed.name).await?;
            let title = format!("{} {}", followed.kind, followed.place);
            let mut seen = judge(&object.data, object.metadata.generation);
            if let Some((line, bound)) = claim(client, &object).await? {
                show(&mut shown, start, line.0, line.1);
                seen.done &= bound;
            }
            if !seen.done {
                waiting.push(format!("{title}: {}", seen.text));
            }
            show(&mut shown, start, title, seen.text);
        }
        if waiting.is_empty() {
            return Ok(());
        }
        if start.elapsed() > deadline {
            bail!("after {} s still waiting for:\n  {}", deadline.as_secs(), waiting.join("\n  "));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Prints a line when it says something new.
fn show(shown: &mut BTreeMap<String, String>, start: Instant, title: String, text: String) {
    if shown.get(&title) != Some(&text) {
        println!("  {:>5.1} s  {title}: {text}", start.elapsed().as_secs_f64());
        shown.insert(title, text);
    }
}

/// Whether an object is Ready for its current generation, and what it says.
fn judge(data: &Value, generation: Option<i64>) -> Seen {
    let status = &data["status"];
    let phase = status["phase"].as_str().unwrap_or("no phase yet");
    let conditions = status["conditions"].as_array();
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    let Some(ready) = ready else { return Seen { done: false, text: phase.to_owned() } };
    let current = ready["observedGeneration"].as_i64().is_none_or(|seen| Some(seen) == generation);
    let done = ready["status"] == "True" && current;
    let word = |name: &str| ready[name].as_str().unwrap_or_default();
    let mut text = format!("{phase}, Ready={} ({})", word("status"), word("reason"));
    if !done && !word("message").is_empty() {
        text = format!("{text}: {}", word("message"));
    }
    Seen { done, text }
}

type Line = (String, String);

/// The claim that an object names in its status: what it says, and whether it is Bound.
async fn claim(client: &Client, object: &DynamicObject) -> Result<Option<(Line, bool)>> {
    let name =
        object.data.pointer("/status/claimRef/name").and_then(Value::as_str).filter(|name| !name.is_empty());
    let (Some(name), Some(namespace)) = (name, &object.metadata.namespace) else { return Ok(None) };
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let found = api.get_opt(name).await?;
    let phase = found.and_then(|claim| claim.status?.phase).unwrap_or_else(|| "missing".to_owned());
    let bound = phase == "Bound";
    Ok(Some(((format!("PersistentVolumeClaim {namespace}/{name}"), phase), bound)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(ready: &str, observed: i64) -> Value {
        json!({"status": {"phase": "Pending", "conditions": [
            {"type": "Ready", "status": ready, "reason": "Binding", "message": "waiting", "observedGeneration": observed},
        ]}})
    }

    #[test]
    fn an_object_without_conditions_is_not_ready() {
        assert_eq!(judge(&json!({}), Some(1)), Seen { done: false, text: "no phase yet".into() });
    }

    #[test]
    fn a_message_is_shown_until_the_object_is_ready() {
        assert_eq!(judge(&object("False", 1), Some(1)).text, "Pending, Ready=False (Binding): waiting");
        let ready = judge(&object("True", 1), Some(1));
        assert!(ready.done && !ready.text.contains("waiting"));
    }

    #[test]
    fn ready_for_an_older_generation_does_not_count() {
        assert!(!judge(&object("True", 1), Some(2)).done);
    }
}
