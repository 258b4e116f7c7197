//! Answers every request but watches, by asking the model.

use std::collections::BTreeMap;
use std::sync::Mutex;

use http::Method;
use serde_json::{Value, json};

use super::address::{Address, Query};
use crate::cluster::{ApiError, Cluster as _, Verb, Write, is_selected};
use crate::lock::lock;
use crate::model::Model;
use crate::object::{Kind, Object, ObjectRef};

/// Code and body of an answer.
pub(super) type Answer = (u16, Value);

/// One request.
pub(super) struct Request<'a> {
    pub method: &'a Method,
    pub address: &'a Address,
    pub query: &'a Query,
    pub content_type: &'a str,
    pub body: &'a Value,
    pub caller: &'a str,
}

/// The rest of lists that are read in pages, by the number in their continue token.
#[derive(Default)]
pub(super) struct Pages {
    inner: Mutex<(u64, BTreeMap<u64, Rest>)>,
}

/// What is left of a list, and the version that all its pages show.
type Rest = (u64, Vec<Object>);

/// Whether an object with this metadata is in a namespace, has the labels, and the name that a list or watch asks for.
pub(super) fn selected(metadata: &Value, namespace: &str, query: &Query) -> bool {
    let here = namespace.is_empty() || metadata["namespace"] == namespace;
    let named = query.get("fieldSelector").is_none_or(|selector| {
        selector.strip_prefix("metadata.name=").is_some_and(|name| metadata["name"] == name)
    });
    let labelled = query.get("labelSelector").is_none_or(|selector| is_selected(metadata, selector));
    here && named && labelled
}

/// Answers a request about objects of a kind.
pub(super) async fn answer(model: &Model, pages: &Pages, kind: &Kind, request: &Request<'_>) -> Answer {
    let result = match (request.method.as_str(), request.address.object(kind)) {
        ("GET", Some(target)) => model.shown(&target).map(|object| object.0).ok_or(ApiError::NotFound),
        ("GET", None) => return list(model, pages, kind, request),
        ("POST", None) => create(model, kind, request).await,
        ("PUT" | "PATCH" | "DELETE", Some(target)) => change(model, &target, request).await,
        _ => return status(405, "MethodNotAllowed", "this verb is not simulated", ""),
    };
    let name = request.address.name.as_deref().unwrap_or_default();
    match result {
        Ok(value) if request.method == Method::POST => (201, value),
        Ok(value) => (200, value),
        Err(error) => refusal(&error, name),
    }
}

async fn create(model: &Model, kind: &Kind, request: &Request<'_>) -> Result<Value, ApiError> {
    let mut body = request.body.clone();
    if kind.namespaced {
        body["metadata"]["namespace"] = json!(request.address.namespace);
    }
    let target = kind.key(&Object(body.clone()).key());
    let dry = request.query.get("dryRun").is_some();
    write(model, target, if dry { Verb::TryCreate(body) } else { Verb::Create(body) }, request).await
}

async fn change(model: &Model, target: &ObjectRef, request: &Request<'_>) -> Result<Value, ApiError> {
    let body = request.body.clone();
    let on_status = request.address.subresource.as_deref() == Some("status");
    let verb = match (request.method.as_str(), request.content_type) {
        ("PUT", _) => Verb::Replace(body),
        ("DELETE", _) => {
            let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
            let live = || model.object(target).map(|object| object.uid().to_owned()).unwrap_or_default();
            Verb::Delete {
                uid: text("/preconditions/uid").unwrap_or_else(live),
                resource_version: text("/preconditions/resourceVersion"),
            }
        }
        (_, "application/apply-patch+yaml") => Verb::Apply(body),
        (_, "application/merge-patch+json") => Verb::Merge { body, status: on_status },
        (_, "application/json-patch+json") => unfinalize(&body)?,
        (_, other) => return Err(ApiError::Invalid(format!("a patch of type {other} is not simulated"))),
    };
    write(model, target.clone(), verb, request).await
}

/// The only JSON patch that we send: tests of the uid and of finalizers, and their removal.
fn unfinalize(body: &Value) -> Result<Verb, ApiError> {
    let refused = || ApiError::Invalid("this JSON patch is not simulated".into());
    let operations = body.as_array().ok_or_else(refused)?;
    let (mut uid, mut finalizers) = (String::new(), Vec::new());
    for operation in operations {
        let text = |field: &str| operation[field].as_str().unwrap_or_default();
        match (text("op"), text("path")) {
            ("test", "/metadata/uid") => text("value").clone_into(&mut uid),
            ("test", path) => {
                let at = path.strip_prefix("/metadata/finalizers/").and_then(|at| at.parse().ok());
                finalizers.push((at.ok_or_else(refused)?, text("value").to_owned()));
            }
            ("remove", _) => {}
            _ => return Err(refused()),
        }
    }
    Ok(Verb::Unfinalize { finalizers, uid })
}

async fn write(
    model: &Model,
    target: ObjectRef,
    verb: Verb,
    request: &Request<'_>,
) -> Result<Value, ApiError> {
    let by_json_patch = matches!(verb, Verb::Unfinalize { .. });
    let deleted = matches!(verb, Verb::Delete { .. });
    let manager = request.query.get("fieldManager").unwrap_or(request.caller).to_owned();
    let written = model.write(&Write { target: target.clone(), verb, manager }).await;
    match written {
        // The real server does not say more.
        Err(ApiError::Conflict(_)) if by_json_patch => {
            Err(ApiError::Invalid("the server rejected our request due to an error in our request".into()))
        }
        Err(error) => Err(error),
        Ok(Some(object)) => Ok(model.shown(&target).unwrap_or(object).0),
        Ok(None) if deleted => Ok(json!({"kind": "Status", "apiVersion": "v1", "status": "Success"})),
        Ok(None) => Err(ApiError::NotFound),
    }
}

fn list(model: &Model, pages: &Pages, kind: &Kind, request: &Request<'_>) -> Answer {
    let mut inner = lock(&pages.inner);
    let (version, mut objects) = match request.query.get("continue") {
        None => {
            let wanted = |metadata: &Value| selected(metadata, &request.address.namespace, request.query);
            (model.version(), model.all_shown(kind, wanted))
        }
        Some(token) => match token.parse().ok().and_then(|number| inner.1.remove(&number)) {
            Some(rest) => rest,
            None => return status(410, "Expired", "the continue token is too old", ""),
        },
    };
    let mut metadata = json!({"resourceVersion": version.to_string()});
    let limit = request.query.number("limit").and_then(|limit| usize::try_from(limit).ok());
    if let Some(limit) = limit.filter(|limit| *limit > 0 && *limit < objects.len()) {
        let rest = objects.split_off(limit);
        inner.0 += 1;
        let token = inner.0;
        inner.1.insert(token, (version, rest));
        metadata["continue"] = json!(token.to_string());
    }
    let items: Vec<Value> = objects.into_iter().map(|object| object.0).collect();
    let body = json!({"kind": format!("{}List", kind.kind), "apiVersion": kind.api_version(),
        "metadata": metadata, "items": items});
    (200, body)
}

fn refusal(error: &ApiError, name: &str) -> Answer {
    let said = error.to_string();
    match error {
        ApiError::NotFound => status(404, "NotFound", &said, name),
        ApiError::NotServed => not_served(),
        ApiError::AlreadyExists => status(409, "AlreadyExists", &said, name),
        ApiError::Conflict(_) => status(409, "Conflict", &said, name),
        ApiError::Invalid(said) => status(422, "Invalid", said, name),
        ApiError::Immutable(said) => {
            let (code, mut body) = status(422, "Invalid", said, name);
            body["details"]["causes"] = json!([{"field": "spec", "message": "field is immutable"}]);
            (code, body)
        }
        ApiError::Policy(said) => {
            let said = format!("admission webhook \"simulated\" denied the request: {said}");
            status(403, "Forbidden", &said, name)
        }
        ApiError::Forbidden(said) | ApiError::Terminating(said) => status(403, "Forbidden", said, name),
        ApiError::Unavailable(said) => status(503, "ServiceUnavailable", said, name),
        ApiError::NotLeader => status(500, "InternalError", &said, name),
    }
}

/// The answer to a request for a kind that does not exist.
pub(super) fn not_served() -> Answer {
    status(404, "NotFound", "the server could not find the requested resource", "")
}

/// A `Status`. A name says that the object is missing; without one it is the kind.
pub(super) fn status(code: u16, reason: &str, message: &str, name: &str) -> Answer {
    let mut body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code});
    if !name.is_empty() {
        body["details"] = json!({"name": name});
    }
    (code, body)
}
