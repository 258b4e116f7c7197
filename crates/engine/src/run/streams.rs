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
use tokio::time::Instant;

use crate::contact;
use crate::health::Health;
use crate::lock::lock;
use crate::metrics::Metrics;
use crate::object::{Kind, Object};
use crate::runtime::Runtime;
use crate::store::{Store, Woken};
use crate::versions::Versions;
use crate::watch::Scope;

/// How long until a kind that is not served is looked for again: the family starts when it appears. It grows, because some kinds
/// never appear.
const NOT_SERVED: Duration = Duration::from_secs(2);
const NOT_SERVED_LAST: Duration = Duration::from_secs(16);
const RETRY_FIRST: Duration = Duration::from_millis(250);
const RETRY_LAST: Duration = Duration::from_secs(15);
/// A list of which nothing comes for so long is begun again.
const LIST_IDLE: Duration = Duration::from_secs(20);
/// The same for a watch.
const WATCH_IDLE: Duration = Duration::from_secs(80);
/// After so many seconds the API server ends a watch, and it is taken up where it ended. So something is heard of it even where
/// there are no bookmarks.
const WATCH_LASTS: u32 = 60;
/// How long lists may fail before that is an answer: that nothing can be known.
const FAILING: Duration = Duration::from_secs(10);
/// Objects on one page of a list. A page is in memory as a whole, and each object may carry a quarter of a megabyte of annotations.
const WATCHED_PAGE: u32 = 100;
/// So many errors in a row, and the list is begun anew.
const ERRORS: u32 = 5;

/// The watches of one process. Copies share them.
#[derive(Clone)]
pub struct Streams {
    client: Client,
    runtime: Runtime,
    metrics: Metrics,
    health: Health,
    versions: Versions,
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
    /// When the server last said anything.
    heard: Mutex<Option<Instant>>,
}

/// What has gone wrong with a watch since it last worked.
#[derive(Default)]
struct Trouble {
    since: Option<Instant>,
    errors: u32,
    /// How often in a row the kind was not served.
    unserved: u32,
    /// Another version was tried since a list was last complete.
    switched: bool,
}

impl Trouble {
    /// Counts an error; says how long to wait before the next attempt.
    fn pause(&mut self) -> Duration {
        self.since.get_or_insert_with(Runtime::instant);
        self.errors = self.errors.saturating_add(1);
        RETRY_FIRST.saturating_mul(2_u32.saturating_pow(self.errors - 1)).min(RETRY_LAST)
    }

    /// Counts that the kind is not served; says when to look again.
    fn not_served(&mut self) -> Duration {
        self.unserved = self.unserved.saturating_add(1);
        NOT_SERVED.saturating_mul(2_u32.saturating_pow((self.unserved - 1).min(8))).min(NOT_SERVED_LAST)
    }

    /// A list is complete. Only what the watch shows then proves that it works too.
    fn listed(&mut self) {
        (self.since, self.unserved, self.switched) = (None, 0, false);
    }

    fn is_lasting(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= FAILING)
    }
}

/// A cache that a stream fills, and whom its changes wake.
#[derive(Clone)]
struct Subscriber {
    store: Arc<Store>,
    wakes: UnboundedSender<Woken>,
}

impl Streams {
    /// No watch yet.
    pub fn new(client: Client, runtime: Runtime, metrics: Metrics, health: Health) -> Self {
        Self { client, runtime, metrics, health, versions: Versions::default(), by_scope: Arc::default() }
    }

    /// In which versions the cluster serves what is watched.
    pub(crate) fn versions(&self) -> Versions {
        self.versions.clone()
    }

    /// Keeps a cache equal to the cluster from now on, as long as somebody listens to what it wakes.
    pub(crate) fn subscribe(&self, store: Arc<Store>, wakes: UnboundedSender<Woken>) {
        let scope = store.watch().scope();
        self.versions.add(&scope.kind, &store.watch().versions);
        let mut streams = lock(&self.by_scope);
        let stream = streams.entry(scope.clone()).or_default();
        lock(&stream.subscribers).push(Subscriber { store, wakes });
        if stream.kept.swap(true, Ordering::SeqCst) {
            stream.joined.notify_one();
            return;
        }
        let (all, stream) = (Arc::clone(&self.by_scope), Arc::clone(stream));
        let (runtime, metrics, versions) =
            (self.runtime.clone(), self.metrics.clone(), self.versions.clone());
        let heard = {
            let (runtime, scope, stream) = (runtime.clone(), scope.clone(), Arc::clone(&stream));
            let health = self.health.clone();
            move || {
                *lock(&stream.heard) = Some(Runtime::instant());
                health.heard(&scope);
                metrics.contact(&scope, runtime.now());
            }
        };
        let client = contact::noting(self.client.clone(), heard);
        let metrics = self.metrics.clone();
        self.runtime.spawn(async move {
            loop {
                stream.run(client.clone(), &runtime, &versions, &scope, &metrics).await;
                let mut streams = lock(&all);
                if lock(&stream.subscribers).is_empty() {
                    streams.remove(&scope);
                    return;
                }
            }
        });
    }

    /// Lists a watched part again.
    pub(crate) fn relist(&self, scope: &Scope) {
        if let Some(stream) = lock(&self.by_scope).get(scope) {
            stream.joined.notify_one();
        }
    }
}

impl Stream {
    /// Runs until nobody listens any more.
    async fn run(
        &self,
        client: Client,
        runtime: &Runtime,
        versions: &Versions,
        scope: &Scope,
        metrics: &Metrics,
    ) {
        let mut trouble = Trouble::default();
        while self.watch(client.clone(), runtime, versions, scope, metrics, &mut trouble).await {}
    }

    /// Lists and watches until that must be begun anew. False when nobody listens any more.
    async fn watch(
        &self,
        client: Client,
        runtime: &Runtime,
        versions: &Versions,
        scope: &Scope,
        metrics: &Metrics,
        trouble: &mut Trouble,
    ) -> bool {
        let served = versions.served(&scope.kind).into_owned();
        let mut events = watcher::watcher(api(client.clone(), &served, scope), config(scope)).boxed();
        *lock(&self.heard) = None;
        let begun = Runtime::instant();
        let mut listed: Option<Instant> = None;
        loop {
            let idle_at = || {
                let idle = if listed.is_some() { WATCH_IDLE } else { LIST_IDLE };
                (*lock(&self.heard)).unwrap_or(begun) + idle
            };
            let event = tokio::select! {
                biased;
                () = self.joined.notified() => return true,
                event = events.next() => event,
                () = tokio::time::sleep_until(idle_at()) => {
                    if idle_at() > Runtime::instant() {
                        continue;
                    }
                    tracing::warn!(kind = %scope.kind.plural, "The API server says nothing; listing again");
                    metrics.watch_failed(&scope.kind, "silent");
                    let pause = trouble.pause();
                    if trouble.is_lasting() && !self.failing("the API server does not answer") {
                        return false;
                    }
                    tokio::time::sleep(pause).await;
                    return true;
                }
            };
            match event {
                None => return true,
                Some(Ok(event)) => {
                    match event {
                        Event::Init => listed = None,
                        Event::InitDone => {
                            listed = Some(Runtime::instant());
                            trouble.listed();
                        }
                        Event::Apply(_) | Event::Delete(_) => *trouble = Trouble::default(),
                        Event::InitApply(_) => {}
                    }
                    if !self.tell(event, scope, runtime.now()) {
                        return false;
                    }
                }
                Some(Err(error)) if is_not_served(&error) => {
                    // Servers of one cluster may disagree for a while: then this goes by the pauses of a kind that is not served.
                    if versions.look(&client, &scope.kind, &served.version).await && !trouble.switched {
                        trouble.switched = true;
                        return true;
                    }
                    // From here on kube's watcher only watches: it would never list what appears.
                    let listening = self.not_served(scope);
                    tokio::select! {
                        biased;
                        // Somebody waits for an answer, and it may be there now.
                        () = self.joined.notified() => {}
                        () = tokio::time::sleep(trouble.not_served()) => {}
                    }
                    return listening;
                }
                Some(Err(error)) => {
                    tracing::warn!(kind = %scope.kind.plural, %error, "Watching failed; trying again");
                    metrics.watch_failed(&scope.kind, "error");
                    if listed.is_some_and(|listed| listed.elapsed() >= WATCH_IDLE) {
                        *trouble = Trouble::default(); // it has worked for long
                    }
                    let pause = trouble.pause();
                    if trouble.is_lasting() && !self.failing(&error.to_string()) {
                        return false;
                    }
                    tokio::time::sleep(pause).await;
                    if trouble.errors.is_multiple_of(ERRORS) {
                        return true;
                    }
                }
            }
        }
    }

    fn failing(&self, said: &str) -> bool {
        self.each(|store| store.failing(said))
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
            let quiet = woken == Woken::default();
            if quiet { !subscriber.wakes.is_closed() } else { subscriber.wakes.send(woken).is_ok() }
        });
        !subscribers.is_empty()
    }
}

fn api(client: Client, kind: &Kind, scope: &Scope) -> Api<DynamicObject> {
    let resource = resource(kind);
    match &scope.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    }
}

fn config(scope: &Scope) -> watcher::Config {
    let mut config = watcher::Config::default().timeout(WATCH_LASTS).page_size(WATCHED_PAGE);
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
