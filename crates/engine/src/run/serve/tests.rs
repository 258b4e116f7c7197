//! What a server goes on with between two looks.

use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::model::Model;
use crate::object::{Kind, Object};

const KIND: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");

struct Silent;

impl Service for Silent {
    type Request = ();
    type Reply = ();

    fn name(&self) -> &'static str {
        "silent"
    }
    fn owner(&self, (): &()) -> (Key, Option<Uid>) {
        (Key::cluster("x"), None)
    }
    fn answer(&self, (): &(), _: &View<'_>, _: Timestamp) -> Answer<()> {
        Answer::now(())
    }
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
        let server = Server::new(Silent, Arc::new(Model::default()), stores, Runtime::system());
        let mut fresh = Fresh::default();
        fresh.objects.insert(KIND.at("ns", "x"), (Some(object(100)), Timestamp::UNIX_EPOCH));
        assert_eq!(server.not_shown_yet(fresh).objects.len(), kept, "the cache is at {shown}");
    }
}
