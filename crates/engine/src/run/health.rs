//! `/livez` and `/readyz`. Ready means that every cache has answered once and that its watch is still heard, not that this
//! replica leads: a standby with warm caches is ready to take over.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::time::Instant;

use crate::lock::lock;
use crate::runtime::Runtime;
use crate::store::Store;
use crate::watch::Scope;

/// How long a watch may be silent while the process is ready, unless something else is chosen. The API server says something on
/// every watch at least every minute, and one that is silent is begun anew long before.
pub const MAX_WATCH_SILENCE: Duration = Duration::from_mins(5);

/// The caches that make the process ready. Copies share them.
#[derive(Clone)]
pub struct Health {
    max_silence: Duration,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    stores: Vec<Arc<Store>>,
    /// When the API server was last heard on a watch; those that were never heard are not in it.
    heard: BTreeMap<Scope, Instant>,
}

impl Default for Health {
    fn default() -> Self {
        Self::new(MAX_WATCH_SILENCE)
    }
}

impl Health {
    /// Not ready any more when a watch is silent for so long.
    pub fn new(max_silence: Duration) -> Self {
        Self { max_silence, inner: Arc::default() }
    }

    pub(crate) fn add(&self, store: Arc<Store>) {
        lock(&self.inner).stores.push(store);
    }

    /// The API server was heard on a watch.
    pub(crate) fn heard(&self, scope: &Scope) {
        let (now, mut inner) = (Runtime::instant(), lock(&self.inner));
        match inner.heard.get_mut(scope) {
            Some(last) => *last = now,
            None => {
                inner.heard.insert(scope.clone(), now);
            }
        }
    }

    /// The kinds that were not listed yet.
    pub fn missing(&self) -> Vec<String> {
        let inner = lock(&self.inner);
        let missing = inner.stores.iter().filter(|store| !store.answered());
        missing.map(|store| store.watch().kind.plural.to_string()).collect()
    }

    /// The watches that were heard once and have been silent for too long, with the time. A kind that is not served has no
    /// watch.
    pub fn silent(&self) -> BTreeMap<String, Duration> {
        let (now, inner) = (Runtime::instant(), lock(&self.inner));
        let watches = inner.stores.iter().filter(|store| store.served()).map(|store| store.watch().scope());
        let silent = watches.filter_map(|scope| {
            let silence = now.duration_since(*inner.heard.get(&scope)?);
            (silence > self.max_silence).then(|| (name(&scope), silence))
        });
        silent.collect()
    }

    /// Status and body of `/readyz`.
    fn ready(&self) -> (StatusCode, String) {
        let (missing, silent) = (self.missing(), self.silent());
        let mut why = String::new();
        if !missing.is_empty() {
            let _ = writeln!(why, "waiting for the first list of: {}", missing.join(", "));
        }
        if !silent.is_empty() {
            let each = silent.iter().map(|(name, silence)| format!("{name} for {} s", silence.as_secs()));
            let each = each.collect::<Vec<_>>().join(", ");
            let _ = writeln!(
                why,
                "the API server was not heard on the watch of: {each}; what is cached may be out of date until it is"
            );
        }
        if why.is_empty() {
            (StatusCode::OK, "ready\n".to_owned())
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, why)
        }
    }
}

fn name(scope: &Scope) -> String {
    let (kind, part) = (&scope.kind.plural, scope.part());
    if part.is_empty() { kind.to_string() } else { format!("{kind} ({part})") }
}

/// The routes.
pub(crate) fn router(health: Health) -> Router {
    let ready = move || std::future::ready(health.ready());
    Router::new().route("/livez", get(|| async { "alive\n" })).route("/readyz", get(ready))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::object::Kind;
    use crate::watch::Watch;

    fn store(health: &Health, kind: &'static str, plural: &'static str) -> Arc<Store> {
        let store = Arc::new(Store::new(Watch::children(Kind::namespaced("", "v1", kind, plural))));
        health.add(Arc::clone(&store));
        store
    }

    fn listed(health: &Health, store: &Store) {
        health.heard(&store.watch().scope());
        store.relist_begins();
        store.relist_ends(Timestamp::UNIX_EPOCH);
    }

    async fn pass(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn readiness_falls_while_a_watch_is_silent_and_names_it_and_comes_back_by_itself() {
        let health = Health::new(Duration::from_mins(5));
        let (pods, claims) =
            (store(&health, "Pod", "pods"), store(&health, "Claim", "persistentvolumeclaims"));
        listed(&health, &pods);
        let (code, said) = health.ready();
        assert_eq!(code, 503);
        assert_eq!(said, "waiting for the first list of: persistentvolumeclaims\n");
        listed(&health, &claims);
        assert_eq!(health.ready(), (StatusCode::OK, "ready\n".into()));
        pass(290).await;
        health.heard(&claims.watch().scope());
        assert_eq!(health.ready().0, 200);
        pass(20).await;
        let (code, said) = health.ready();
        assert_eq!(code, 503);
        assert!(said.contains("pods for 310 s;") && !said.contains("claims"), "{said}");
        health.heard(&pods.watch().scope());
        assert_eq!(health.ready().0, 200);
        pass(3600).await;
        let (_, said) = health.ready();
        assert!(said.contains("persistentvolumeclaims for 3620 s, pods for 3600 s;"), "{said}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_is_not_served_or_was_never_heard_does_not_count() {
        let health = Health::new(Duration::from_mins(5));
        let (gone, denied) = (store(&health, "Gone", "gone"), store(&health, "Denied", "denied"));
        listed(&health, &gone);
        gone.not_served();
        denied.failing("forbidden");
        pass(3600).await;
        assert_eq!(health.ready().0, 200);
        // It is served again, and then its watch dies.
        listed(&health, &gone);
        pass(3600).await;
        assert_eq!(health.silent().keys().collect::<Vec<_>>(), ["gone"]);
    }
}
