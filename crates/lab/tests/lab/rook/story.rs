//! What happens to one object, step by step, from a watch that misses no version. Writes nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use aquifer_lab::eventually;
use aquifer_lab::rook::Kind;
use futures::StreamExt;
use kube::api::{DynamicObject, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Rook itself comes back to what did not work after 10 s or more.
pub const PATIENCE: Duration = Duration::from_mins(3);

/// A watch on one object that writes down what changed. Dropping it ends the watch.
pub struct Story {
    what: String,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    steps: Vec<String>,
    /// What was true of the last version.
    facts: [Option<String>; 6],
    last: Value,
}

impl Story {
    /// Begins before the object exists, so that its first version is seen.
    pub async fn of(client: &Client, kind: Kind, namespace: &str, name: &str) -> Result<Self> {
        let api = kind.api(client, namespace);
        ensure!(api.get_opt(name).await?.is_none(), "{} {name} is there already", kind.name());
        let start = api.list(&kube::api::ListParams::default()).await?.metadata.resource_version;
        let params = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(290);
        let mut events = api.watch(&params, &start.context("a list without a version")?).await?.boxed();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let task = tokio::spawn({
            let (seen, finalizer) = (seen.clone(), kind.finalizer());
            async move {
                while let Some(Ok(event)) = events.next().await {
                    seen.lock().unwrap().take(&event, &finalizer);
                }
            }
        });
        Ok(Self { what: format!("{} {name}", kind.name()), seen, task })
    }

    pub fn steps(&self) -> Value {
        json!(self.seen.lock().unwrap().steps)
    }

    /// Waits for a step, and gives the object as it is then.
    pub async fn until(&self, step: &str) -> Result<Value> {
        self.until_it(&format!("the step {step}"), |seen| seen.steps.iter().any(|is| is == step)).await
    }

    /// Waits until the newest generation is the one that Rook says it has seen.
    pub async fn until_observed(&self, generation: i64) -> Result<Value> {
        self.until_it(&format!("generation {generation} is observed"), |seen| {
            seen.last["status"]["observedGeneration"] == generation
        })
        .await
    }

    async fn until_it(&self, what: &str, is: impl Fn(&Seen) -> bool) -> Result<Value> {
        eventually(PATIENCE, &format!("{}: {what}", self.what), || async {
            let seen = self.seen.lock().unwrap();
            ensure!(is(&seen), "so far: {:?}, {}", seen.steps, seen.last["status"]);
            Ok(Some(seen.last.clone()))
        })
        .await
    }
}

impl Drop for Story {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Seen {
    fn take(&mut self, event: &WatchEvent<DynamicObject>, finalizer: &str) {
        let (object, gone) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
            WatchEvent::Deleted(object) => (object, true),
            WatchEvent::Bookmark(_) | WatchEvent::Error(_) => return,
        };
        let blocked = object.data["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|is| is["type"] == "DeletionIsBlocked");
        let facts = [
            Some("created".to_owned()),
            object.finalizers().iter().any(|is| is == finalizer).then(|| "finalizer".to_owned()),
            object.data["status"]["phase"].as_str().map(str::to_owned),
            object.metadata.deletion_timestamp.as_ref().map(|_| "deleting".to_owned()),
            blocked.map(|is| if is["status"] == "True" { "blocked" } else { "not blocked" }.to_owned()),
            gone.then(|| "gone".to_owned()),
        ];
        let news =
            facts.iter().zip(&self.facts).filter(|(is, was)| is != was).filter_map(|(is, _)| is.clone());
        self.steps.extend(news);
        // The version that is deleted has lost its finalizer, which is how it could be deleted.
        self.facts = facts;
        self.last = serde_json::to_value(object).unwrap();
    }
}
