//! What the real server answers to each guard of a write, and that the engine takes it for what it is.

use aquifer_engine::Kind;
use aquifer_engine::cluster::Verb;
use serde_json::{Value, json};

use crate::ground::{admin, namespace, serve, write};

const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");
const WELL: Kind = Kind::namespaced("spike.aquifer.storage", "v1", "Well", "wells");

fn map(ns: &str, name: &str, extra: Value, data: &str) -> Value {
    let mut m = json!({"name": name, "namespace": ns});
    for (k, v) in extra.as_object().unwrap() { m[k] = v.clone(); }
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": m, "data": {"a": data}})
}
fn well(ns: &str, name: &str, extra: Value) -> Value {
    let mut m = json!({"name": name, "namespace": ns});
    for (k, v) in extra.as_object().unwrap() { m[k] = v.clone(); }
    json!({"apiVersion": WELL.api_version(), "kind": "Well", "metadata": m, "spec": {"a": 1}})
}

#[tokio::test]
async fn spike() {
    let api = admin().await;
    let ns = namespace(&api, "spike").await;
    serve(&api, &WELL).await;
    for (kind, body) in [(&CONFIG_MAP, map as fn(&str, &str, Value, &str) -> Value), (&WELL, |n: &str, name: &str, e: Value, _: &str| well(n, name, e))] {
        println!("##### {kind}");
        let t = kind.at(&ns, "x");
        let first = write(&api, &t, Verb::Apply(body(&ns, "x", json!({"resourceVersion": "1"}), "1"))).await;
        println!("create-only on absent: {:?}", first.as_ref().map(|_| ()));
        let first = first.unwrap().unwrap();
        println!("create-only on present, same: {:?}", write(&api, &t, Verb::Apply(body(&ns, "x", json!({"resourceVersion": "1"}), "1"))).await);
        println!("create-only on present, other: {:?}", write(&api, &t, Verb::Apply(body(&ns, "x", json!({"resourceVersion": "1"}), "2"))).await);
        println!("apply other uid: {:?}", write(&api, &t, Verb::Apply(body(&ns, "x", json!({"uid": "11111111-2222-3333-4444-555555555555"}), "2"))).await);
        println!("apply uid on absent: {:?}", write(&api, &kind.at(&ns, "y"), Verb::Apply(body(&ns, "y", json!({"uid": first.uid()}), "2"))).await);
        println!("apply own uid: {:?}", write(&api, &t, Verb::Apply(body(&ns, "x", json!({"uid": first.uid()}), "2"))).await.map(|_| ()));
        println!("unfinalize none: {:?}", write(&api, &t, Verb::Unfinalize{finalizers: vec![(0, "a/b".into())], uid: first.uid().into()}).await);
        println!("unfinalize other uid: {:?}", write(&api, &t, Verb::Unfinalize{finalizers: vec![(0, "a/b".into())], uid: "other".into()}).await);
        let held = write(&api, &t, Verb::Apply(body(&ns, "x", json!({"uid": first.uid(), "finalizers": ["a/c"]}), "2"))).await.unwrap().unwrap();
        println!("unfinalize wrong name: {:?}", write(&api, &t, Verb::Unfinalize{finalizers: vec![(0, "a/b".into())], uid: first.uid().into()}).await);
        println!("unfinalize absent: {:?}", write(&api, &kind.at(&ns, "y"), Verb::Unfinalize{finalizers: vec![(0, "a/b".into())], uid: first.uid().into()}).await);
        println!("merge stale: {:?}", write(&api, &t, Verb::Merge{body: json!({"metadata": {"resourceVersion": first.resource_version(), "uid": first.uid()}, "data": {"q": "1"}}), status: false}).await);
        println!("merge other uid: {:?}", write(&api, &t, Verb::Merge{body: json!({"metadata": {"resourceVersion": held.resource_version(), "uid": "nope"}, "data": {"q": "1"}}), status: false}).await);
        println!("merge absent: {:?}", write(&api, &kind.at(&ns, "y"), Verb::Merge{body: json!({"metadata": {"resourceVersion": held.resource_version(), "uid": "nope"}, "data": {"q": "1"}}), status: false}).await);
        if kind.kind == "Well" {
        println!("status stale: {:?}", write(&api, &t, Verb::Merge{body: json!({"metadata": {"resourceVersion": first.resource_version(), "uid": first.uid()}, "status": {"q": "1"}}), status: true}).await);
        println!("status other uid: {:?}", write(&api, &t, Verb::Merge{body: json!({"metadata": {"resourceVersion": held.resource_version(), "uid": "nope"}, "status": {"q": "1"}}), status: true}).await);
        println!("status absent: {:?}", write(&api, &kind.at(&ns, "y"), Verb::Merge{body: json!({"metadata": {"resourceVersion": held.resource_version(), "uid": "nope"}, "status": {"q": "1"}}), status: true}).await);
        }
        println!("replace stale: {:?}", write(&api, &t, Verb::Replace(body(&ns, "x", json!({"uid": first.uid(), "resourceVersion": first.resource_version()}), "3"))).await);
        println!("replace other uid: {:?}", write(&api, &t, Verb::Replace(body(&ns, "x", json!({"uid": "nope", "resourceVersion": held.resource_version()}), "3"))).await);
        println!("replace absent: {:?}", write(&api, &kind.at(&ns, "y"), Verb::Replace(body(&ns, "y", json!({"uid": "nope", "resourceVersion": held.resource_version()}), "3"))).await);
        println!("create present: {:?}", write(&api, &t, Verb::Create(body(&ns, "x", json!({}), "3"))).await);
        println!("delete other uid: {:?}", write(&api, &t, Verb::Delete{uid: "nope".into(), resource_version: None}).await);
        println!("delete stale: {:?}", write(&api, &t, Verb::Delete{uid: first.uid().into(), resource_version: Some(first.resource_version().into())}).await);
        println!("delete held: {:?}", write(&api, &t, Verb::Delete{uid: first.uid().into(), resource_version: None}).await.map(|o| o.is_some()));
        println!("apply finalizer on deleting: {:?}", write(&api, &t, Verb::Apply(body(&ns, "x", json!({"uid": first.uid(), "finalizers": ["a/c", "a/d"]}), "2"))).await);
        println!("unfinalize ok: {:?}", write(&api, &t, Verb::Unfinalize{finalizers: vec![(0, "a/c".into())], uid: first.uid().into()}).await.map(|o| o.is_some()));
        println!("delete absent: {:?}", write(&api, &t, Verb::Delete{uid: first.uid().into(), resource_version: None}).await);
        let b = write(&api, &t, Verb::Create(body(&ns, "x", json!({}), "3"))).await.unwrap().unwrap();
        println!("delete now: {:?}", write(&api, &t, Verb::Delete{uid: b.uid().into(), resource_version: None}).await);
    }
    let none = Kind::namespaced("none.aquifer.storage", "v1", "None", "nones");
    println!("unserved create: {:?}", write(&api, &none.at(&ns, "y"), Verb::Create(json!({"apiVersion": "none.aquifer.storage/v1", "kind": "None", "metadata": {"name": "y"}}))).await);
    println!("unserved apply: {:?}", write(&api, &none.at(&ns, "y"), Verb::Apply(json!({"apiVersion": "none.aquifer.storage/v1", "kind": "None", "metadata": {"name": "y", "resourceVersion": "1"}}))).await);
    println!("apply in absent ns: {:?}", write(&api, &CONFIG_MAP.at("nons", "y"), Verb::Apply(map("nons", "y", json!({"resourceVersion": "1"}), ""))).await);
    println!("create in absent ns: {:?}", write(&api, &CONFIG_MAP.at("nons", "y"), Verb::Create(map("nons", "y", json!({}), ""))).await);
}
