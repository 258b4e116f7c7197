//! The watches of a process: one stream for each part of a kind that is watched, whatever the number of controllers that look at
//! it. Each subscriber has a cache of its own with what it keeps. Lists, watches, and goes on after every kind of trouble.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use crate::contact;
use crate::lock::lock;
use crate::metrics::Metrics;
use crate::object::{Kind, Object};
use crate::runtime::Runtime;
use crate::store::{Store, Woken};
use crate::watch::Scope;

/// How long until a kind that is not served is looked for again: the family starts when it appears.
const NOT_SERVED: Duration = Duration::from_secs(2);
const RETRY_FIRST: Duration = Duration::from_millis(250);
const RETRY_LAST: Duration = Duration::from_secs(15);

/// The watches of one process. Copies share them.
#[derive(Clone)]
pub struct Streams {
    client: Client,
    runtime: Runtime,
    metrics: Metrics,
    by_scope: Arc<Mutex<BTreeMap<Scope, Arc<Stream>>>>,
}

/// One watch and those who look at it.
#[derive(Default)]
struct Stream {
    subscribers: Mutex<Vec<Subscriber>>,
    /// A cache has joined after the watch began: it must list again.
    joined: Notify,
    /// Whether a task keeps it; changed only under the lock of all streams.
    kept: AtomicBool,
}

/// A cache that a stream fills, and whom its changes wake.
#[derive(Clone)]
struct Subscriber {
    store: Arc<Store>,
    wakes: UnboundedSender<Woken>,
}

impl Streams {
    /// No watch yet.
    pub fn new(client: Client, runtime: Runtime, metrics: Metrics) -> Self {
        Self { client, runtime, metrics, by_scope: Arc::default() }
    }

    /// Keeps a cache equal to the cluster from now on, as long as somebody listens to what it wakes.
    pub(crate) fn subscribe(&self, store: Arc<Store>, wakes: UnboundedSender<Woken>) {
        let scope = store.watch().scope();
        let mut streams = lock(&self.by_scope);
        let stream = streams.entry(scope.clone()).or_default();
        lock(&stream.subscribers).push(Subscriber { store, wakes });
        if stream.kept.swap(true, Ordering::SeqCst) {
            stream.joined.notify_one();
            return;
        }
        let (all, stream) = (Arc::clone(&self.by_scope), Arc::clone(stream));
        let (runtime, metrics) = (self.runtime.clone(), self.metrics.clone());
        let heard = {
            let (runtime, scope) = (runtime.clone(), scope.clone());
            move || metrics.contact(&scope, runtime.now())
        };
        let client = contact::noting(self.client.clone(), heard);
        self.runtime.spawn(async move {
            loop {
                stream.run(client.clone(), &runtime, &scope).await;
                let mut streams = lock(&all);
                if lock(&stream.subscribers).is_empty() {
                    streams.remove(&scope);
                    return;
                }
            }
        });
    }
}

impl Stream {
    /// Runs until nobody listens any more.
    async fn run(&self, client: Client, runtime: &Runtime, scope: &Scope) {
        while self.watch(client.clone(), runtime, scope).await {}
    }

    /// Watches until somebody joins. False when nobody listens any more.
    async fn watch(&self, client: Client, runtime: &Runtime, scope: &Scope) -> bool {
        let mut events = watcher::watcher(api(client, scope), config(scope)).boxed();
        let mut retry = RETRY_FIRST;
        loop {
            let event = tokio::select! {
                biased;
                () = self.joined.notified() => return true,
                event = events.next() => event,
            };
            let now = runtime.now();
            match event {
                None => return true,
                Some(Ok(event)) => {
                    retry = RETRY_FIRST;
                    if !self.tell(event, scope, now) {
                        return false;
                    }
                }
                Some(Err(error)) if is_not_served(&error) => {
                    if self.not_served(scope) {
                        tokio::time::sleep(NOT_SERVED).await;
                    } else {
                        return false;
                    }
                }
                Some(Err(error)) => {
                    tracing::warn!(kind = %scope.kind.plural, %error, "Watching failed; trying again");
                    tokio::time::sleep(retry).await;
                    retry = (retry * 2).min(RETRY_LAST);
                }
            }
        }
    }

    /// Brings an event to all caches. False when nobody listens any more.
    fn tell(&self, event: Event<DynamicObject>, scope: &Scope, now: Timestamp) -> bool {
        let object = |object| Some(Object::of_kind(&scope.kind, serde_json::to_value(object).ok()?));
        match event {
            Event::Init => self.each(|store| {
                store.relist_begins();
                Woken::default()
            }),
            Event::InitApply(new) | Event::Apply(new) => match object(new) {
                Some(new) => self.each(|store| store.upsert(new.clone(), now)),
                None => true,
            },
            Event::InitDone => self.each(|store| store.relist_ends(now)),
            Event::Delete(old) => match object(old) {
                Some(old) => self.each(|store| store.remove(&old, now)),
                None => true,
            },
        }
    }

    fn not_served(&self, scope: &Scope) -> bool {
        let mut news = false;
        let listening = self.each(|store| {
            let woken = store.not_served();
            news |= woken.all;
            woken
        });
        if news {
            tracing::info!(kind = %scope.kind.plural, group = %scope.kind.group, "The cluster does not serve this kind; waiting for it");
        }
        listening
    }

    fn each(&self, mut change: impl FnMut(&Store) -> Woken) -> bool {
        let mut subscribers = lock(&self.subscribers);
        subscribers.retain(|subscriber| {
            let woken = change(&subscriber.store);
            let quiet = !woken.all && woken.keys.is_empty();
            if quiet { !subscriber.wakes.is_closed() } else { subscriber.wakes.send(woken).is_ok() }
        });
        !subscribers.is_empty()
    }
}

fn api(client: Client, scope: &Scope) -> Api<DynamicObject> {
    let resource = resource(&scope.kind);
    match &scope.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    }
}

fn config(scope: &Scope) -> watcher::Config {
    let mut config = watcher::Config::default();
    if let Some(labels) = &scope.labels {
        config = config.labels(labels);
    }
    if let Some(name) = &scope.name {
        config = config.fields(&format!("metadata.name={name}"));
    }
    config
}

fn resource(kind: &Kind) -> ApiResource {
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
