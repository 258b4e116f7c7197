//! Keeps a [`Store`] equal to the cluster: lists, watches, and goes on after every kind of trouble.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;

use crate::object::{Kind, Object};
use crate::runtime::Runtime;
use crate::store::{Store, Woken};

/// How long until a kind that is not served is looked for again: the family starts when it appears.
const NOT_SERVED: Duration = Duration::from_secs(2);
const TROUBLE_FIRST: Duration = Duration::from_millis(250);
const TROUBLE_CAP: Duration = Duration::from_secs(15);

/// Runs until it is dropped.
pub(crate) async fn watch(
    client: Client,
    runtime: Runtime,
    store: Arc<Store>,
    wakes: UnboundedSender<Woken>,
) {
    let kind = store.watch().kind.clone();
    let api: Api<DynamicObject> = Api::all_with(client, &resource(&kind));
    let mut config = watcher::Config::default();
    if let Some(labels) = &store.watch().labels {
        config = config.labels(labels);
    }
    if let Some(name) = &store.watch().name {
        config = config.fields(&format!("metadata.name={name}"));
    }
    let mut events = watcher::watcher(api, config).boxed();
    let mut trouble = TROUBLE_FIRST;
    while let Some(event) = events.next().await {
        let now = runtime.now();
        let woken = match event {
            Ok(event) => {
                trouble = TROUBLE_FIRST;
                take(&store, event, now)
            }
            Err(error) if is_not_served(&error) => {
                let woken = store.not_served();
                if woken.everybody {
                    tracing::info!(kind = %kind.plural, group = %kind.group, "The cluster does not serve this kind; waiting for it");
                }
                let _ = wakes.send(woken);
                tokio::time::sleep(NOT_SERVED).await;
                continue;
            }
            Err(error) => {
                tracing::warn!(kind = %kind.plural, %error, "Watching failed; trying again");
                tokio::time::sleep(trouble).await;
                trouble = (trouble * 2).min(TROUBLE_CAP);
                continue;
            }
        };
        if (woken.everybody || !woken.keys.is_empty()) && wakes.send(woken).is_err() {
            return;
        }
    }
}

fn take(store: &Store, event: Event<DynamicObject>, now: Timestamp) -> Woken {
    match event {
        Event::Init => {
            store.relist_begins();
            Woken::default()
        }
        Event::InitApply(object) | Event::Apply(object) => {
            to_object(&store.watch().kind, object).map(|object| store.upsert(object, now)).unwrap_or_default()
        }
        Event::InitDone => store.relist_ends(now),
        Event::Delete(object) => to_object(&store.watch().kind, object)
            .map(|object| store.remove(&object, now))
            .unwrap_or_default(),
    }
}

/// Lists leave apiVersion and kind out of their items; an object that we hand on always says what it is.
fn to_object(kind: &Kind, object: DynamicObject) -> Option<Object> {
    let mut value = serde_json::to_value(object).ok()?;
    value["apiVersion"] = Value::from(kind.api_version());
    value["kind"] = Value::from(kind.kind.as_ref());
    Some(Object(value))
}

pub(crate) fn resource(kind: &Kind) -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind),
        &kind.plural,
    )
}

fn is_not_served(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) = error else {
        return false;
    };
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
