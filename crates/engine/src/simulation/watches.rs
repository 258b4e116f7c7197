//! Watches: every change of a kind after a version, in order, each after its delay; bookmarks; an end after a while.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http_body::Frame;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::address::Query;
use super::faults::Fault;
use super::network::{Network, OF_EVENTS};
use super::requests::{selected, status};
use crate::model::{Change, Model};
use crate::object::{Kind, Object};
use crate::runtime::Runtime;

/// How often a watch says how far it is.
const BOOKMARKS: Duration = Duration::from_mins(1);
/// How long a watch lasts when it is not said.
const LASTS: u64 = 300;
/// How long a watch shows nothing that stalls.
const STALLS: Duration = Duration::from_mins(4);

struct Watch {
    model: Arc<Model>,
    network: Arc<Network>,
    kind: Kind,
    namespace: String,
    query: Query,
    version: u64,
    ends: Instant,
    ended: bool,
    /// When the last event was shown; none overtakes another.
    shown: Instant,
    next_bookmark: Instant,
}

/// What a watch sends until it ends.
pub(super) fn stream(
    model: Arc<Model>,
    network: Arc<Network>,
    kind: Kind,
    namespace: String,
    query: Query,
) -> impl Stream<Item = Result<Frame<Bytes>, std::convert::Infallible>> + Send {
    let version = query.number("resourceVersion").unwrap_or_default();
    let ends = Runtime::instant() + Duration::from_secs(query.number("timeoutSeconds").unwrap_or(LASTS));
    let shown = Runtime::instant();
    let next_bookmark = shown + BOOKMARKS;
    let watch =
        Watch { model, network, kind, namespace, query, version, ends, ended: false, shown, next_bookmark };
    futures::stream::unfold(watch, |mut watch| async move {
        let event = watch.next().await?;
        let mut line = event.to_string();
        line.push('\n');
        Some((Ok(Frame::data(Bytes::from(line))), watch))
    })
}

impl Watch {
    async fn next(&mut self) -> Option<Value> {
        let event = self.next_event().await;
        if self.network.silent() {
            std::future::pending::<()>().await; // it never says anything again
        }
        event
    }

    async fn next_event(&mut self) -> Option<Value> {
        if self.ended {
            return None;
        }
        if self.version < self.model.oldest_version() {
            self.ended = true;
            let (_, gone) = status(410, "Expired", "too old resource version", "");
            return Some(json!({"type": "ERROR", "object": gone}));
        }
        let mut versions = self.model.versions();
        loop {
            if !self.model.serves(&self.kind) {
                return None;
            }
            let (change, latest) = self.model.next_change_of(&self.kind, self.version);
            if let Some(change) = change {
                self.version = change.version;
                if let Some(event) = self.event(&change) {
                    match self.network.strike(OF_EVENTS) {
                        Some(Fault::WatchEnds) => return None,
                        Some(_) => self.shown = self.shown.max(Runtime::instant()) + STALLS,
                        None => {}
                    }
                    self.shown = self.shown.max(change.at + self.network.event());
                    tokio::time::sleep_until(self.shown).await;
                    return Some(event);
                }
                continue;
            }
            self.version = latest;
            let next = self.next_bookmark.min(self.ends);
            if tokio::time::timeout_at(next, versions.changed()).await.is_err() {
                if Runtime::instant() >= self.ends {
                    return None;
                }
                self.next_bookmark = Runtime::instant() + BOOKMARKS;
                if self.query.is_true("allowWatchBookmarks") {
                    return Some(self.bookmark());
                }
            }
        }
    }

    fn event(&self, change: &Change) -> Option<Value> {
        let here = |object: Option<Object>| {
            object.filter(|object| selected(&object.0["metadata"], &self.namespace, &self.query))
        };
        let (kind, mut object) = match (here(change.before()), here(change.after())) {
            (None, None) => return None,
            (None, Some(new)) => ("ADDED", new),
            (Some(_), Some(new)) => ("MODIFIED", new),
            (Some(old), None) => ("DELETED", old),
        };
        object.0["metadata"]["resourceVersion"] = json!(change.version.to_string());
        Some(json!({"type": kind, "object": object.0}))
    }

    fn bookmark(&self) -> Value {
        json!({"type": "BOOKMARK", "object": {"kind": self.kind.kind, "apiVersion": self.kind.api_version(),
            "metadata": {"resourceVersion": self.version.to_string()}}})
    }
}
