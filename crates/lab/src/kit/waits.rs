//! Waiting for objects, and what conditions say. Each wait has a deadline and prints the object when it passes.

use std::fmt::Debug;
use std::future::Future;

use anyhow::{Result, anyhow};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::DEADLINE;
use crate::eventually;

/// Waits until an object is as wanted.
pub async fn until<K>(api: &Api<K>, name: &str, what: &str, is: impl Fn(&K) -> bool) -> Result<K>
where
    K: Clone + Serialize + DeserializeOwned + Debug,
{
    eventually(DEADLINE, &format!("{name} {what}"), || async {
        let object = api.get(name).await?;
        if is(&object) { Ok(Some(object)) } else { Err(anyhow!("{}", show(&object))) }
    })
    .await
}

/// Waits until an object is gone.
pub async fn gone<K>(api: &Api<K>, name: &str) -> Result<()>
where
    K: Clone + Serialize + DeserializeOwned + Debug,
{
    absent(name, || async { Ok(api.get_opt(name).await?.map(|object| show(&object))) }).await
}

/// Waits until something is gone; `look` gives what is still there.
pub async fn absent<F: Future<Output = Result<Option<String>>>>(
    what: &str,
    look: impl Fn() -> F,
) -> Result<()> {
    eventually(DEADLINE, &format!("{what} is gone"), || async {
        match look().await? {
            None => Ok(Some(())),
            Some(there) => Err(anyhow!("{there}")),
        }
    })
    .await
}

/// Changes an object in place, as another program would.
pub async fn edit<K>(api: &Api<K>, name: &str, patch: &Value) -> Result<K>
where
    K: Clone + DeserializeOwned + Debug,
{
    Ok(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
}

/// A condition of an object, as JSON.
pub fn condition(object: &impl Serialize, kind: &str) -> Option<Value> {
    let object = serde_json::to_value(object).ok()?;
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind).cloned()
}

/// Whether a condition is true, and of the object's current generation.
pub fn is_true(object: &impl Serialize, kind: &str) -> bool {
    let value = serde_json::to_value(object).unwrap_or_default();
    let (of, now) = (value.pointer("/status/observedGeneration"), value.pointer("/metadata/generation"));
    of == now && condition(&value, kind).is_some_and(|condition| condition["status"] == "True")
}

/// An object as one line, for messages.
pub fn show(object: &impl Serialize) -> String {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(status: &str, observed: i64) -> Value {
        json!({"metadata": {"generation": 2}, "status": {"observedGeneration": observed,
            "conditions": [{"type": "Ready", "status": status, "reason": "Because"}]}})
    }

    #[test]
    fn a_condition_is_true_only_for_the_current_generation() {
        assert!(is_true(&object("True", 2), "Ready"));
        assert!(!is_true(&object("True", 1), "Ready"));
        assert!(!is_true(&object("False", 2), "Ready"));
        assert!(!is_true(&object("True", 2), "Other"));
        assert!(!is_true(&json!({}), "Ready"));
    }
}
