//! What happens to one object, step by step, from a watch that misses no version. Writes nothing.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use aquifer_lab::eventually;
use aquifer_lab::rook::{Kind, NAMESPACE};
use futures::{StreamExt, stream};
use kube::api::{DynamicObject, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::faults::stage;

/// Rook itself comes back to what did not work after 10 s or more.
pub const PATIENCE: Duration = Duration::from_mins(3);

/// The API server ends a watch after so many seconds, and the next one goes on from there.
const WATCH: u32 = 60;
/// So often in a row a watch may fail, with a pause each time.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(500);

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
    /// Why nothing more will be seen.
    ended: Option<String>,
}

impl Story {
    /// Begins before the object exists, so that its first version is seen.
    pub async fn of(client: &Client, kind: Kind, namespace: &str, name: &str) -> Result<Self> {
        Self::in_pieces(client, kind, namespace, name, WATCH).await
    }

    /// The same with watches that end after so many seconds.
    async fn in_pieces(
        client: &Client,
        kind: Kind,
        namespace: &str,
        name: &str,
        seconds: u32,
    ) -> Result<Self> {
        let api = kind.api(client, namespace);
        ensure!(api.get_opt(name).await?.is_none(), "{} {name} is there already", kind.name());
        let start = api.list(&kube::api::ListParams::default()).await?.metadata.resource_version;
        Ok(Self::since(start.context("a list without a version")?, api, kind, name, seconds))
    }

    /// Sees all that comes after a version.
    fn since(version: String, api: Api<DynamicObject>, kind: Kind, name: &str, seconds: u32) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let params = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(seconds);
        let task = tokio::spawn({
            let (seen, finalizer) = (seen.clone(), kind.finalizer());
            async move {
                let why = watch(api, params, version, |event| seen.lock().unwrap().take(event, &finalizer));
                let why = why.await.unwrap_err();
                seen.lock().unwrap().ended = Some(format!("{why:#}"));
            }
        });
        Self { what: format!("{} {name}", kind.name()), seen, task }
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

    async fn until_it(&self, step: &str, is: impl Fn(&Seen) -> bool) -> Result<Value> {
        eventually(PATIENCE, &format!("{}: {step}", self.what), || async {
            let seen = self.seen.lock().unwrap();
            let so_far = format!("so far: {:?}, {}", seen.steps, seen.last["status"]);
            match &seen.ended {
                _ if is(&seen) => Ok(Some(Ok(seen.last.clone()))),
                // Nothing is to be waited for any more.
                Some(why) => {
                    let what = &self.what;
                    Ok(Some(Err(anyhow!("the watch on {what} ended before {step}: {why}; {so_far}"))))
                }
                None => bail!(so_far),
            }
        })
        .await?
    }
}

/// Watches again and again, each time from the last version that was seen: none is missed. Ends with an error only.
async fn watch(
    api: Api<DynamicObject>,
    params: WatchParams,
    mut version: String,
    mut see: impl FnMut(&WatchEvent<DynamicObject>),
) -> Result<Infallible> {
    let mut failures = 0;
    loop {
        let mut events = match api.watch(&params, &version).await {
            Ok(events) => events.boxed(),
            Err(error) => stream::iter([Err(error)]).boxed(),
        };
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(WatchEvent::Error(status)) => bail!("{status:?}"),
                Ok(event) => event,
                // The connection, not the API server's history: what was missed will come.
                Err(error) if failures < TRIES => {
                    failures += 1;
                    println!("a watch failed: {error}");
                    tokio::time::sleep(PAUSE).await;
                    break;
                }
                Err(error) => return Err(error).context(format!("it failed {TRIES} times in a row")),
            };
            failures = 0;
            version = match &event {
                WatchEvent::Added(is) | WatchEvent::Modified(is) | WatchEvent::Deleted(is) => {
                    is.resource_version().unwrap_or(version)
                }
                WatchEvent::Bookmark(mark) => mark.metadata.resource_version.clone(),
                WatchEvent::Error(_) => version,
            };
            see(&event);
        }
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

#[tokio::test]
async fn a_story_goes_on_when_its_watch_ends() -> Result<()> {
    let stage = stage().await?;
    let mark = stage.cluster.audit().mark()?;
    let story = Story::in_pieces(&stage.client, Kind::CephBlockPool, NAMESPACE, "pieces", 1).await?;
    stage.rook.slow(Duration::from_secs(3));
    stage.create("pieces").await?;
    story.until("Ready").await?;
    ensure!(story.steps() == json!(["created", "finalizer", "Progressing", "Ready"]), "{}", story.steps());
    let calls = stage.cluster.audit().since(mark)?;
    let ended = calls.iter().filter(|is| is.verb == "watch" && is.uri.contains("metadata.name%3Dpieces"));
    ensure!(ended.count() >= 2, "the watch did not end meanwhile");
    stage.end().await
}

#[tokio::test]
async fn a_story_that_can_not_go_on_says_so_at_once() -> Result<()> {
    let stage = stage().await?;
    // Older than what the API server remembers.
    let story = Story::since("1".to_owned(), stage.pools.clone(), Kind::CephBlockPool, "lost", WATCH);
    let began = Instant::now();
    let error = format!("{:#}", story.until("Ready").await.unwrap_err());
    ensure!(error.contains("the watch on CephBlockPool lost ended before the step Ready"), "{error}");
    ensure!(error.contains("too old resource version"), "{error}");
    ensure!(began.elapsed() < PATIENCE / 4, "it took {:?}", began.elapsed());
    stage.end().await
}
