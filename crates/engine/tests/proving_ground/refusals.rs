//! What the real server answers to each guard of a write, and that the engine takes it for what it is.

use aquifer_engine::cluster::{ApiError, Cluster as _, Verb};
use aquifer_engine::{Kind, Object, ObjectRef};
use serde_json::{Value, json};

use crate::control_plane::{admin, namespace, serve, write};
use crate::family::{CONFIG_MAP, Kinds};

const SOMEBODY: &str = "11111111-2222-3333-4444-555555555555";

/// A built-in kind and one of a CRD: their code in the server is not the same.
async fn both() -> Vec<(Kind, String)> {
    let api = admin().await;
    let kinds = Kinds::new();
    serve(&api, &kinds.spring).await;
    vec![(CONFIG_MAP, namespace("guards").await), (kinds.spring, namespace("guards").await)]
}

fn body(target: &ObjectRef, metadata: &Value, content: &str) -> Value {
    let mut body =
        json!({"apiVersion": target.kind.api_version(), "kind": target.kind.kind, "metadata": metadata});
    body["metadata"]["name"] = json!(target.key.name);
    body["metadata"]["namespace"] = json!(target.key.namespace);
    let field = if target.kind == CONFIG_MAP { "data" } else { "spec" };
    body[field] = json!({"a": content});
    body
}

fn content(object: &Object) -> &str {
    if object.text("/data/a").is_empty() { object.text("/spec/a") } else { object.text("/data/a") }
}

async fn made(target: &ObjectRef) -> Object {
    write(&admin().await, target, Verb::Create(body(target, &json!({}), "first"))).await.unwrap().unwrap()
}

fn is_conflict(answer: &Result<Option<Object>, ApiError>) -> bool {
    matches!(answer, Err(ApiError::Conflict(_)))
}

#[tokio::test]
async fn an_apply_for_what_was_absent_creates_or_conflicts() {
    let api = admin().await;
    for (kind, ns) in both().await {
        let target = kind.at(&ns, "x");
        let apply = |content: &str| Verb::Apply(body(&target, &json!({"resourceVersion": "1"}), content));
        assert!(write(&api, &target, apply("first")).await.unwrap().is_some(), "{kind}");
        for again in ["first", "second"] {
            let answer = write(&api, &target, apply(again)).await;
            assert!(is_conflict(&answer), "{kind}: {answer:?}");
        }
        assert_eq!(content(&api.get(&target).await.unwrap().unwrap()), "first");
    }
}

#[tokio::test]
async fn an_apply_for_what_was_seen_is_refused_when_it_is_another_object_or_gone() {
    let api = admin().await;
    for (kind, ns) in both().await {
        let target = kind.at(&ns, "x");
        let seen = made(&target).await;
        let apply = |uid: &str| Verb::Apply(body(&target, &json!({"uid": uid}), "second"));
        let answer = write(&api, &target, apply(SOMEBODY)).await;
        assert!(is_conflict(&answer), "{kind}, another object: {answer:?}");
        assert!(write(&api, &target, apply(seen.uid())).await.is_ok(), "{kind}, this object");
        let gone = kind.at(&ns, "gone");
        let answer =
            write(&api, &gone, Verb::Apply(body(&gone, &json!({"uid": seen.uid()}), "second"))).await;
        assert!(is_conflict(&answer), "{kind}, gone: {answer:?}");
    }
}

#[tokio::test]
async fn a_create_is_refused_when_anything_is_there() {
    let api = admin().await;
    for (kind, ns) in both().await {
        let target = kind.at(&ns, "x");
        made(&target).await;
        let answer = write(&api, &target, Verb::Create(body(&target, &json!({}), "second"))).await;
        assert_eq!(answer, Err(ApiError::AlreadyExists), "{kind}");
    }
}

#[tokio::test]
async fn a_finalizer_comes_off_only_where_it_was_seen() {
    let api = admin().await;
    for (kind, ns) in both().await {
        let target = kind.at(&ns, "x");
        let seen = made(&target).await;
        let off = |at, name: &str, uid: &str| Verb::Unfinalize {
            finalizers: vec![(at, name.to_owned())],
            uid: uid.to_owned(),
        };
        let held = json!({"uid": seen.uid(), "finalizers": ["a.b/one", "a.b/two"]});
        write(&api, &target, Verb::Apply(body(&target, &held, "first"))).await.unwrap();
        for (case, verb) in [
            ("another place", off(0, "a.b/two", seen.uid())),
            ("no such place", off(7, "a.b/two", seen.uid())),
            ("another object", off(1, "a.b/two", SOMEBODY)),
        ] {
            let answer = write(&api, &target, verb).await;
            assert!(is_conflict(&answer), "{kind}, {case}: {answer:?}");
        }
        let answer = write(&api, &kind.at(&ns, "gone"), off(0, "a.b/one", seen.uid())).await;
        assert_eq!(answer, Err(ApiError::NotFound), "{kind}");
        let left = write(&api, &target, off(1, "a.b/two", seen.uid())).await.unwrap().unwrap();
        assert_eq!(left.finalizers(), ["a.b/one"]);
    }
}

#[tokio::test]
async fn no_finalizer_can_be_put_on_what_is_being_deleted() {
    let api = admin().await;
    for (kind, ns) in both().await {
        let target = kind.at(&ns, "x");
        let seen = made(&target).await;
        let hold = |names: Value| {
            Verb::Apply(body(&target, &json!({"uid": seen.uid(), "finalizers": names}), "first"))
        };
        write(&api, &target, hold(json!(["a.b/one"]))).await.unwrap();
        let delete = Verb::Delete { uid: seen.uid().to_owned(), resource_version: None };
        assert!(write(&api, &target, delete).await.unwrap().unwrap().deleting());
        let answer = write(&api, &target, hold(json!(["a.b/one", "a.b/two"]))).await;
        assert!(
            is_conflict(&answer),
            "{kind}: our view is out of date, nothing is wrong with the object: {answer:?}"
        );
    }
}

#[tokio::test]
async fn a_patch_or_replacement_of_an_older_version_conflicts() {
    let api = admin().await;
    for (kind, ns) in both().await {
        let target = kind.at(&ns, "x");
        let old = made(&target).await;
        let newer = Verb::Apply(body(&target, &json!({"uid": old.uid()}), "second"));
        let new = write(&api, &target, newer).await.unwrap().unwrap();
        let patch = |version: &str, uid: &str| Verb::Merge {
            body: json!({"metadata": {"resourceVersion": version, "uid": uid, "labels": {"a": "b"}}}),
            status: false,
        };
        let put = |version: &str, uid: &str| {
            Verb::Replace(body(&target, &json!({"resourceVersion": version, "uid": uid}), "third"))
        };
        for (case, verb) in [
            ("patch of an older version", patch(old.resource_version(), old.uid())),
            ("patch of another object", patch(new.resource_version(), SOMEBODY)),
            ("replacement of an older version", put(old.resource_version(), old.uid())),
            ("replacement of another object", put(new.resource_version(), SOMEBODY)),
        ] {
            let answer = write(&api, &target, verb).await;
            assert!(is_conflict(&answer), "{kind}, {case}: {answer:?}");
        }
        assert!(write(&api, &target, patch(new.resource_version(), new.uid())).await.is_ok(), "{kind}");
    }
}

/// The server ignores the uid in a write to the status; the version alone guards it. That is enough: versions never repeat, so
/// the one that was seen can not be that of another object of the same name.
#[tokio::test]
async fn a_status_is_guarded_by_its_version() {
    let api = admin().await;
    let (kind, ns) = both().await.remove(1);
    let target = kind.at(&ns, "x");
    let old = made(&target).await;
    let say = |version: &str, uid: &str| Verb::Merge {
        body: json!({"metadata": {"resourceVersion": version, "uid": uid}, "status": {"said": true}}),
        status: true,
    };
    write(&api, &target, Verb::Delete { uid: old.uid().to_owned(), resource_version: None }).await.unwrap();
    let answer = write(&api, &target, say(old.resource_version(), old.uid())).await;
    assert_eq!(answer, Err(ApiError::NotFound));
    let new = made(&target).await;
    let answer = write(&api, &target, say(old.resource_version(), old.uid())).await;
    assert!(is_conflict(&answer), "{answer:?}");
    assert!(
        write(&api, &target, say(new.resource_version(), SOMEBODY)).await.is_ok(),
        "the uid is not looked at"
    );
}

#[tokio::test]
async fn a_deletion_of_another_object_or_version_conflicts() {
    let api = admin().await;
    for (kind, ns) in both().await {
        let target = kind.at(&ns, "x");
        let old = made(&target).await;
        let newer = Verb::Apply(body(&target, &json!({"uid": old.uid()}), "second"));
        write(&api, &target, newer).await.unwrap();
        let delete = |uid: &str, version: Option<&str>| Verb::Delete {
            uid: uid.to_owned(),
            resource_version: version.map(str::to_owned),
        };
        for (case, verb) in [
            ("another object", delete(SOMEBODY, None)),
            ("an older version", delete(old.uid(), Some(old.resource_version()))),
        ] {
            let answer = write(&api, &target, verb).await;
            assert!(is_conflict(&answer), "{kind}, {case}: {answer:?}");
        }
        assert_eq!(write(&api, &target, delete(old.uid(), None)).await, Ok(None), "{kind}");
        assert_eq!(write(&api, &target, delete(old.uid(), None)).await, Err(ApiError::NotFound), "{kind}");
    }
}

#[tokio::test]
async fn a_kind_or_a_namespace_that_is_missing_is_waited_for() {
    let api = admin().await;
    let unserved = Kind::namespaced("nobody.aquifer.storage", "v1", "Nothing", "nothings");
    let target = unserved.at("default", "x");
    for verb in [
        Verb::Create(body(&target, &json!({}), "")),
        Verb::Apply(body(&target, &json!({"resourceVersion": "1"}), "")),
    ] {
        assert_eq!(write(&api, &target, verb).await, Err(ApiError::NotServed));
    }
    let target = CONFIG_MAP.at("no-such-namespace", "x");
    for verb in [
        Verb::Create(body(&target, &json!({}), "")),
        Verb::Apply(body(&target, &json!({"resourceVersion": "1"}), "")),
    ] {
        let answer = write(&api, &target, verb).await;
        assert!(matches!(answer, Err(ApiError::Terminating(_))), "{answer:?}");
    }
}
