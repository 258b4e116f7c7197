//! The real control plane under the tests: one cluster for the whole binary, and writes of a person who may do everything.

use aquifer_engine::Kind;
use aquifer_engine::cluster::{ApiError, Cluster as _, Verb, Write};
use aquifer_engine::live::Live;
use aquifer_engine::metrics::Metrics;
use aquifer_engine::{Object, ObjectRef};
use aquifer_lab::kit::TestNamespace;
use aquifer_lab::{Cluster, Lab, eventually};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

pub use aquifer_lab::kit::DEADLINE;

pub const CRD: Kind =
    Kind::cluster("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");

/// The cluster of this binary. It ends with the process.
pub async fn cluster() -> &'static Cluster {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    CLUSTER.get_or_init(|| async { Lab::test_cluster().start().await.expect("the lab starts") }).await
}

/// The API as an administrator sees it.
pub async fn admin() -> Live {
    Live::new(cluster().await.client().unwrap(), Metrics::default())
}

/// Writes as an administrator.
pub async fn write(api: &Live, target: &ObjectRef, verb: Verb) -> Result<Option<Object>, ApiError> {
    api.write(&Write { target: target.clone(), verb, manager: "admin".into() }).await
}

/// A fresh namespace.
pub async fn namespace(purpose: &str) -> String {
    TestNamespace::new(cluster().await, purpose).await.unwrap().name
}

/// Serves a kind of the family: anything goes in spec and status, and status is a subresource.
pub async fn serve(api: &Live, kind: &Kind) {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let name = format!("{}.{}", kind.plural, kind.group);
    let body: Value = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": name}, "spec": {
            "group": kind.group, "scope": "Namespaced",
            "names": {"plural": kind.plural, "singular": kind.kind.to_lowercase(), "kind": kind.kind},
            "versions": [{"name": kind.version, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}}}],
    }});
    match write(api, &CRD.at("", &name), Verb::Create(body)).await {
        Ok(_) | Err(ApiError::AlreadyExists) => {}
        Err(error) => panic!("{name} is not served: {error}"),
    }
    let listing = aquifer_engine::cluster::Listing::all(kind, "default");
    eventually(DEADLINE, "the kind is served", || async { Ok(api.list(&listing).await.map(Some)?) })
        .await
        .unwrap();
}
