//! What the process counts. Labels never hold the names of objects: their number must stay bounded.

mod objects;
mod process;
mod reference;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use jiff::Timestamp;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use objects::Objects;
pub use reference::{Described, described};

use crate::object::Kind;
use crate::runtime::Runtime;
use crate::store::Store;
use crate::watch::Scope;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PassLabels {
    controller: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ControllerLabels {
    controller: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ServerLabels {
    server: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ServerNameLabels {
    server: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CallLabels {
    verb: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FamilyLabels {
    family: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabels {
    kind: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct WatchLabels {
    kind: String,
    group: String,
    /// The part of the kind that is watched; empty for all of it.
    part: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct WatchFailureLabels {
    kind: String,
    group: String,
    why: &'static str,
}

/// The counters of one process; cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    inner: Arc<Inner>,
}

struct Inner {
    registry: Registry,
    passes: Family<PassLabels, Counter>,
    seconds: Family<ControllerLabels, Histogram>,
    depth: Family<ControllerLabels, Gauge>,
    effects: Family<ControllerLabels, Counter>,
    panics: Family<ControllerLabels, Counter>,
    served: Family<ServerLabels, Counter>,
    served_seconds: Family<ServerNameLabels, Histogram>,
    calls: Family<CallLabels, Counter>,
    call_seconds: Family<CallLabels, Histogram>,
    leading: Family<FamilyLabels, Gauge>,
    live_passes: Family<ControllerLabels, Counter<u64, AtomicU64>>,
    contact: Family<WatchLabels, Gauge<f64, AtomicU64>>,
    watch_failures: Family<WatchFailureLabels, Counter>,
    ready_seconds: Family<KindLabels, Histogram>,
    objects: Objects,
    /// What each controller keeps in memory, for a simulation.
    #[cfg(any(test, feature = "simulation"))]
    kept: std::sync::Mutex<std::collections::BTreeMap<(&'static str, &'static str), usize>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut inner = Inner {
            registry: Registry::default(),
            passes: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 16))),
            depth: Family::default(),
            effects: Family::default(),
            panics: Family::default(),
            served: Family::default(),
            served_seconds: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.001, 2.0, 16))
            }),
            calls: Family::default(),
            call_seconds: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.001, 2.0, 14))
            }),
            leading: Family::default(),
            live_passes: Family::default(),
            contact: Family::default(),
            watch_failures: Family::default(),
            // From a second to a little more than nine hours.
            ready_seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(1.0, 2.0, 16))),
            objects: Objects::default(),
            #[cfg(any(test, feature = "simulation"))]
            kept: std::sync::Mutex::default(),
        };
        inner.registry.register_collector(Box::new(process::Process));
        let registry = inner.registry.sub_registry_with_prefix("aquifer");
        registry.register("controller_passes", "Passes by outcome", inner.passes.clone());
        registry.register("controller_pass_seconds", "Duration of passes", inner.seconds.clone());
        registry.register(
            "controller_queue_depth",
            "Keys that wait for their turn; those that wait for a time or for the caches are not among them",
            inner.depth.clone(),
        );
        registry.register("controller_effects", "Outside effects carried out", inner.effects.clone());
        registry.register(
            "controller_panics",
            "Panics in the code of a controller or server: in passes, watches, listening and answers",
            inner.panics.clone(),
        );
        registry.register(
            "controller_live_passes",
            "Passes that read live because a cache fell behind",
            inner.live_passes.clone(),
        );
        registry.register("server_requests", "Requests by outcome", inner.served.clone());
        registry.register(
            "server_request_seconds",
            "From a request to its reply, with the time that it waits for a change",
            inner.served_seconds.clone(),
        );
        registry.register(
            "api_calls",
            "Calls to the Kubernetes API by verb and result, watches excepted",
            inner.calls.clone(),
        );
        registry.register(
            "api_call_seconds",
            "Duration of calls to the Kubernetes API by verb and result, watches excepted",
            inner.call_seconds.clone(),
        );
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The version of the program", build);
        registry.register_collector(Box::new(inner.objects.clone()));
        registry.register(
            "time_to_ready_seconds",
            "How long objects were not Ready before they became so: since they were made, or since they stopped being Ready. Every replica counts all of them",
            inner.ready_seconds.clone(),
        );
        registry.register(
            "watch_last_contact_timestamp_seconds",
            "When the API server was last heard on a watch, in seconds since 1970",
            inner.contact.clone(),
        );
        registry.register(
            "watch_failures",
            "Watches and their lists that failed and were begun again: refused or broken (error), or without a word for too long (silent)",
            inner.watch_failures.clone(),
        );
        registry.register("leader", "1 while this replica leads the family", inner.leading.clone());
        Self { inner: Arc::new(inner) }
    }
}

impl Metrics {
    pub(crate) fn pass(&self, controller: &'static str, outcome: &'static str, seconds: f64, effects: u32) {
        self.inner.passes.get_or_create(&PassLabels { controller, outcome }).inc();
        self.inner.seconds.get_or_create(&ControllerLabels { controller }).observe(seconds);
        if effects > 0 {
            self.inner.effects.get_or_create(&ControllerLabels { controller }).inc_by(u64::from(effects));
        }
    }

    pub(crate) fn live_pass(&self, controller: &'static str) {
        self.inner.live_passes.get_or_create(&ControllerLabels { controller }).inc();
    }

    pub(crate) fn panicked(&self, controller: &'static str) {
        self.inner.panics.get_or_create(&ControllerLabels { controller }).inc();
    }

    /// A request was answered.
    pub(crate) fn served(&self, server: &'static str, outcome: &'static str, seconds: f64) {
        self.inner.served.get_or_create(&ServerLabels { server, outcome }).inc();
        self.inner.served_seconds.get_or_create(&ServerNameLabels { server }).observe(seconds);
    }

    pub(crate) fn depth(&self, controller: &'static str, depth: usize) {
        let depth = i64::try_from(depth).unwrap_or(i64::MAX);
        self.inner.depth.get_or_create(&ControllerLabels { controller }).set(depth);
    }

    pub(crate) fn api_call(&self, verb: &'static str, result: &'static str, seconds: f64) {
        let labels = CallLabels { verb, result };
        self.inner.calls.get_or_create(&labels).inc();
        self.inner.call_seconds.get_or_create(&labels).observe(seconds);
    }

    /// Whether this replica leads a family.
    pub(crate) fn leading(&self, family: &str, leading: bool) {
        let labels = FamilyLabels { family: family.to_owned() };
        self.inner.leading.get_or_create(&labels).set(leading.into());
    }

    /// The API server was heard on a watch.
    pub(crate) fn contact(&self, scope: &Scope, now: Timestamp) {
        let labels = WatchLabels {
            kind: scope.kind.kind.to_string(),
            group: scope.kind.group.to_string(),
            part: scope.part(),
        };
        self.inner.contact.get_or_create(&labels).set(now.as_duration().as_secs_f64());
    }

    /// A watch failed and is begun again.
    pub(crate) fn watch_failed(&self, kind: &Kind, why: &'static str) {
        let (kind, group) = (kind.kind.to_string(), kind.group.to_string());
        self.inner.watch_failures.get_or_create(&WatchFailureLabels { kind, group, why }).inc();
    }

    /// A cache that holds the subjects of a controller: they are counted from now on.
    pub(crate) fn subjects(&self, controller: &'static str, store: Store, runtime: &Runtime) -> Arc<Store> {
        let kind = store.watch().kind.kind.to_string();
        if !self.inner.objects.counts(&kind, controller) {
            return Arc::new(store);
        }
        let labels = KindLabels { kind: kind.clone() };
        let store = Arc::new(store.timed(self.inner.ready_seconds.get_or_create(&labels).clone()));
        self.inner.objects.add(&kind, controller, Arc::clone(&store), runtime);
        store
    }

    /// A controller keeps so many things of this kind in memory.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn keeps(
        &self,
        controller: &'static str,
        things: impl IntoIterator<Item = (&'static str, usize)>,
    ) {
        let mut kept = crate::lock::lock(&self.inner.kept);
        kept.extend(things.into_iter().map(|(what, number)| ((controller, what), number)));
    }

    /// What the controllers kept in memory when they last had nothing to do: by controller and what it is.
    #[cfg(any(test, feature = "simulation"))]
    pub fn kept(&self) -> std::collections::BTreeMap<String, usize> {
        let kept = crate::lock::lock(&self.inner.kept);
        kept.iter().map(|((controller, what), number)| (format!("{controller}: {what}"), *number)).collect()
    }

    /// `/metrics`.
    pub(crate) fn router(&self) -> Router {
        let metrics = self.clone();
        let scrape = move || async move { ([(CONTENT_TYPE, Metrics::CONTENT_TYPE)], metrics.text()) };
        Router::new().route("/metrics", get(scrape))
    }

    /// The type of [`Metrics::text`].
    pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

    /// The text that a scraper reads.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut text, &self.inner.registry);
        text
    }
}
