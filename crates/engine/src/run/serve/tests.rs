//! What a server goes on with between two looks.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::cluster::{ApiError, Listing, Write};
use crate::model::Model;
use crate::object::{Kind, Object};

const KIND: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");

/// Says whether there is an object with this name. At one name it makes a mistake.
struct Finds;

const MISTAKE: &str = "mistake";

impl Service for Finds {
    type Request = String;
    type Reply = bool;

    fn name(&self) -> &'static str {
        "finds"
    }
    fn owner(&self, name: &String) -> (Key, Option<Uid>) {
        (Key::namespaced("ns", name), None)
    }
    fn answer(&self, name: &String, view: &View<'_>, _: Timestamp) -> Answer<bool> {
        assert_ne!(name, MISTAKE, "a mistake in the code of a server");
        Answer::now(view.get(&KIND.at("ns", name)).present().is_some())
    }
}

fn server(stores: Stores) -> Server<Finds> {
    let model = Model::default();
    model.serve(&KIND, true);
    Server::new(Finds, Arc::new(model), stores, Runtime::system())
}

fn object(revision: u64) -> Object {
    Object(json!({"metadata": {"namespace": "ns", "name": "x", "uid": "u", "labels": {"a": "1"},
        "resourceVersion": revision.to_string()}}))
}

/// A cache of the objects with a label, which has come as far as this revision.
fn store(label: &str, shown: &Object) -> Arc<Store> {
    let store = Store::new(Watch::subjects(KIND).labelled(label));
    store.relist_begins();
    store.upsert(shown.clone(), Timestamp::UNIX_EPOCH);
    store.relist_ends(Timestamp::UNIX_EPOCH);
    Arc::new(store)
}

#[tokio::test]
async fn what_a_cache_shows_is_taken_from_it_although_a_cache_of_other_objects_is_behind() {
    let mut other = object(90);
    (other.0["metadata"]["name"], other.0["metadata"]["labels"]) = (json!("y"), json!({"b": "1"}));
    for (shown, kept) in [(105, 0), (95, 1)] {
        let mut stores = Stores::default();
        stores.add(store("a=1", &object(shown)));
        stores.add(store("b=1", &other));
        let server = server(stores);
        let mut fresh = Fresh::default();
        fresh.objects.insert(KIND.at("ns", "x"), (Some(object(100)), Timestamp::UNIX_EPOCH));
        assert_eq!(server.not_shown_yet(fresh).objects.len(), kept, "the cache is at {shown}");
    }
}

#[tokio::test]
async fn an_answer_that_panics_is_a_failure_and_others_are_answered() {
    let server = server(Stores::default());
    let failed = server.handle(&MISTAKE.to_owned(), Duration::ZERO).await.unwrap_err();
    assert_eq!(failed.class, Class::Bug);
    assert!(failed.message.contains("a mistake in the code of a server"), "{failed}");
    assert_eq!(server.handle(&"x".to_owned(), Duration::ZERO).await, Ok(false));
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_one_namespace_does_not_open_the_others_to_whoever_invents_names() {
    let elsewhere = Store::new(Watch::subjects(KIND).in_namespace("elsewhere"));
    elsewhere.relist_begins();
    elsewhere.relist_ends(Timestamp::UNIX_EPOCH);
    let mut stores = Stores::default();
    stores.add(Arc::new(elsewhere));
    let server = server(stores);
    let mut answered = 0;
    for number in 0..500 {
        answered += usize::from(server.handle(&format!("invented-{number}"), Duration::ZERO).await.is_ok());
    }
    assert_eq!(answered, 100, "each of them is a request to the API server");
}

#[tokio::test(start_paused = true)]
async fn what_the_caches_never_show_is_read_again_and_what_they_still_show_of_the_deleted_is_not_believed() {
    // The cache missed a deletion: it is at revision 90 and was told of nothing since.
    let mut stores = Stores::default();
    let mut other = object(90);
    other.0["metadata"]["name"] = json!("y");
    stores.add(store("a=1", &other));
    let behind = server(stores);
    let mut fresh = Fresh::default();
    let written = behind.runtime.now();
    fresh.objects.insert(KIND.at("ns", "x"), (Some(object(100)), written));
    behind.catch_up(&mut fresh).await;
    assert_eq!(fresh.objects.len(), 1, "the caches may still show it");
    fresh.objects.insert(KIND.at("ns", "x"), (Some(object(100)), written - LAG));
    behind.catch_up(&mut fresh).await;
    assert_eq!(fresh.objects.get(&KIND.at("ns", "x")).and_then(|(object, _)| object.clone()), None);

    let mut stores = Stores::default();
    stores.add(store("a=1", &object(100)));
    let shows = server(stores);
    let mut fresh = Fresh::default();
    fresh.objects.insert(KIND.at("ns", "x"), (None, written));
    shows.catch_up(&mut fresh).await;
    assert_eq!(fresh.objects.len(), 1, "it is gone, whatever the cache shows");
}

/// Waits for what never comes.
struct Waits;

impl Service for Waits {
    type Request = ();
    type Reply = ();

    fn name(&self) -> &'static str {
        "waits"
    }
    fn owner(&self, (): &()) -> (Key, Option<Uid>) {
        (Key::namespaced("ns", "x"), None)
    }
    fn answer(&self, (): &(), _: &View<'_>, _: Timestamp) -> Answer<()> {
        Answer::later(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_does_not_outlive_its_time_however_much_changes() {
    let cluster: Arc<dyn Cluster> = Arc::new(Model::default());
    let server = Server::new(Waits, cluster, Stores::default(), Runtime::system());
    let changes = Arc::clone(&server.changes);
    let begun = tokio::time::Instant::now();
    let busy = async {
        loop {
            changes.tell(&crate::store::Woken { all: true, ..crate::store::Woken::default() });
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let within = Duration::from_secs(2);
    tokio::select! {
        () = busy => {}
        replied = server.handle(&(), within) => assert_eq!(replied, Ok(())),
    }
    assert!(begun.elapsed() < within + Duration::from_secs(1), "{:?}", begun.elapsed());
}

/// Waits for a sign that nobody tells of.
struct WaitsForSign(AtomicBool);

impl Service for WaitsForSign {
    type Request = ();
    type Reply = bool;

    fn name(&self) -> &'static str {
        "waits-for-sign"
    }
    fn owner(&self, (): &()) -> (Key, Option<Uid>) {
        (Key::namespaced("ns", "x"), None)
    }
    fn answer(&self, (): &(), _: &View<'_>, _: Timestamp) -> Answer<bool> {
        let there = self.0.load(Ordering::Relaxed);
        if there { Answer::now(true) } else { Answer::later(false) }
    }
}

#[tokio::test(start_paused = true)]
async fn there_is_a_last_look_before_the_time_is_over_although_nothing_told_of_a_change() {
    let cluster: Arc<dyn Cluster> = Arc::new(Model::default());
    let server = Server::new(WaitsForSign(false.into()), cluster, Stores::default(), Runtime::system());
    let within = Duration::from_secs(2);
    let begun = tokio::time::Instant::now();
    let sign = async {
        tokio::time::sleep(within / 2).await;
        server.service.0.store(true, Ordering::Relaxed);
    };
    let (replied, ()) = tokio::join!(server.handle(&(), within), sign);
    assert_eq!(replied, Ok(true));
    assert!(begun.elapsed() <= within, "{:?}", begun.elapsed());
}

/// Counts reads, which all fail.
#[derive(Default)]
struct Silent(AtomicUsize);

#[async_trait]
impl Cluster for Silent {
    async fn get(&self, _: &ObjectRef) -> Result<Option<Object>, ApiError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(ApiError::Unavailable("no answer".into()))
    }
    async fn list(&self, _: &Listing) -> Result<Vec<Object>, ApiError> {
        Err(ApiError::Unavailable("no answer".into()))
    }
    async fn secret(&self, _: &Key) -> Result<Option<crate::secret::StoredSecret>, ApiError> {
        Err(ApiError::Unavailable("no answer".into()))
    }
    async fn write(&self, _: &Write) -> Result<Option<Object>, ApiError> {
        Err(ApiError::Unavailable("no answer".into()))
    }
}

#[tokio::test]
async fn what_cannot_be_read_again_is_not_read_at_every_change() {
    let mut stores = Stores::default();
    stores.add(store("a=1", &object(90)));
    let cluster = Arc::new(Silent::default());
    let server = Server::new(Finds, Arc::clone(&cluster) as Arc<dyn Cluster>, stores, Runtime::system());
    let mut fresh = Fresh::default();
    fresh.objects.insert(KIND.at("ns", "x"), (Some(object(100)), Timestamp::UNIX_EPOCH));
    for _ in 0..10 {
        server.catch_up(&mut fresh).await;
    }
    assert_eq!(cluster.0.load(Ordering::Relaxed), 1);
    fresh.reread_at = Some(server.runtime.now() - LAG);
    server.catch_up(&mut fresh).await;
    assert_eq!(cluster.0.load(Ordering::Relaxed), 2, "it is tried again");
    assert_eq!(fresh.objects.len(), 1, "what cannot be read stays as it was");
}

/// Amends what decides whether an object goes.
struct Frees;

impl Service for Frees {
    type Request = ();
    type Reply = ();

    fn name(&self) -> &'static str {
        "frees"
    }
    fn owner(&self, (): &()) -> (Key, Option<Uid>) {
        (Key::namespaced("ns", "x"), None)
    }
    fn answer(&self, (): &(), _: &View<'_>, _: Timestamp) -> Answer<()> {
        let patch = json!({"metadata": {"finalizers": null}}).as_object().cloned().unwrap_or_default();
        let amend = crate::plan::Amend {
            target: KIND.at("ns", "x"),
            seen: object(1).identity(),
            patch,
            status: false,
            optional: false,
        };
        Answer::now(()).after(vec![Step::Amend(amend)])
    }
}

#[tokio::test]
async fn a_server_takes_no_finalizer_off() {
    let cluster: Arc<dyn Cluster> = Arc::new(Model::default());
    let server = Server::new(Frees, cluster, Stores::default(), Runtime::system());
    let refused = server.handle(&(), Duration::ZERO).await.unwrap_err();
    assert!(refused.message.contains("may only create or compare and swap"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn names_of_kinds_that_are_not_watched_are_read_only_so_often_too() {
    let server = server(Stores::default());
    let mut read = 0;
    for _ in 0..500 {
        read += usize::from(server.handle(&"x".to_owned(), Duration::ZERO).await.is_ok());
    }
    assert_eq!(read, 100, "each of them is a request to the API server");
}
