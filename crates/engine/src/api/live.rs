//! The real Kubernetes API as a [`Cluster`]. One attempt per call with a deadline: retrying is the task of the queue.

use std::time::Duration;

use async_trait::async_trait;
use http::{Method, Request};
use kube::Client;
use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::cluster::{ApiError, Cluster, Listing, Verb, Write};
use crate::metrics::Metrics;
use crate::object::{Key, Kind, Object, ObjectRef};
use crate::runtime::Runtime;
use crate::secret::{SECRET, StoredSecret, without_content};
use crate::versions::Versions;

/// A call that takes longer is given up; whether it happened is then not known.
const DEADLINE: Duration = Duration::from_secs(10);
/// Objects on one page of a list.
const PAGE: usize = 500;
/// The same where parts of objects are asked for: their kinds are those that users write and that can be large, and a page is in memory as a
/// whole.
const PAGE_OF_LARGE: usize = 25;

/// The API server behind a client.
#[derive(Clone)]
pub struct Live {
    client: Client,
    metrics: Metrics,
    versions: Versions,
}

/// Turns off what kube would do by itself: retrying for minutes, and waiting for ever.
pub fn client_config(mut config: kube::Config) -> kube::Config {
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    config.write_timeout = Some(DEADLINE);
    config
}

impl Live {
    /// The API server that `client` asks.
    pub fn new(client: Client, metrics: Metrics) -> Self {
        Self { client, metrics, versions: Versions::default() }
    }

    /// The same, in the versions that the cluster serves.
    pub(crate) fn in_versions(self, versions: Versions) -> Self {
        Self { versions, ..self }
    }

    fn path(&self, target: &ObjectRef) -> String {
        path(&self.versions.served(&target.kind).key(&target.key))
    }

    fn collection(&self, kind: &Kind, namespace: &str) -> String {
        collection(&self.versions.served(kind), namespace)
    }

    async fn call(&self, verb: &'static str, request: Request<Vec<u8>>) -> Result<Value, ApiError> {
        let text = self.text(verb, request).await?;
        serde_json::from_str(&text).map_err(|error| unreadable(&error))
    }

    /// The answer as it is sent.
    async fn text(&self, verb: &'static str, request: Request<Vec<u8>>) -> Result<String, ApiError> {
        let started = Runtime::instant();
        let result = match tokio::time::timeout(DEADLINE, self.client.request_text(request)).await {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(kube::Error::Api(status))) => Err(refusal(&status)),
            Ok(Err(error)) => Err(ApiError::Unavailable(chain(&error))),
            Err(_) => Err(ApiError::Unavailable(format!("no answer within {} s", DEADLINE.as_secs()))),
        };
        let word = result.as_ref().map_or_else(ApiError::as_str, |_| "ok");
        self.metrics.api_call(verb, word, started.elapsed().as_secs_f64());
        result
    }
}

#[async_trait]
impl Cluster for Live {
    async fn get(&self, target: &ObjectRef) -> Result<Option<Object>, ApiError> {
        match self.call("get", request(Method::GET, &self.path(target), "", Vec::new())?).await {
            Ok(value) => Ok(Some(without_content(&target.kind, Object::of_kind(&target.kind, value)))),
            // Not so when the kind is not served: then nothing is known.
            Err(ApiError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn list(&self, listing: &Listing) -> Result<Vec<Object>, ApiError> {
        let base = self.collection(&listing.kind, &listing.namespace);
        let mut objects = Vec::new();
        let mut next = String::new();
        let limit = if listing.parts.is_empty() { PAGE } else { PAGE_OF_LARGE };
        loop {
            let mut query = format!("{base}?limit={limit}&continue={}", encode(&next));
            if !listing.labels.is_empty() {
                query = format!("{query}&labelSelector={}", encode(&listing.labels));
            }
            if !listing.name.is_empty() {
                query =
                    format!("{query}&fieldSelector={}", encode(&format!("metadata.name={}", listing.name)));
            }
            let text = self.text("list", request(Method::GET, &query, "", Vec::new())?).await?;
            let page: Page<'_> = serde_json::from_str(&text).map_err(|error| unreadable(&error))?;
            for item in page.items.unwrap_or_default() {
                let item = serde_json::from_str(item.get()).map_err(|error| unreadable(&error))?;
                objects.push(listing.kept(Object::of_kind(&listing.kind, item)));
            }
            next = page.metadata.next.unwrap_or_default();
            if next.is_empty() {
                return Ok(objects);
            }
        }
    }

    async fn secret(&self, secret: &Key) -> Result<Option<StoredSecret>, ApiError> {
        let request = request(Method::GET, &path(&SECRET.key(secret)), "", Vec::new())?;
        match self.call("get", request).await {
            Ok(value) => Ok(Some(StoredSecret::of(&Object(value)))),
            Err(ApiError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn write(&self, write: &Write) -> Result<Option<Object>, ApiError> {
        let (verb, request) = self.write_request(write)?;
        let answer = self.call(verb, request).await.map_err(|error| match (&write.verb, error) {
            // What is made need not be there. Without a namespace it can only be what it refers to, such as the role of a binding.
            (Verb::Apply(_) | Verb::Create(_), ApiError::NotFound)
                if write.target.key.namespace.is_empty() =>
            {
                ApiError::Unavailable("what it refers to is not there yet".into())
            }
            // Else it is the namespace that is missing.
            (Verb::Apply(_) | Verb::Create(_), ApiError::NotFound) => {
                ApiError::Terminating(format!("there is no namespace {}", write.target.key.namespace))
            }
            // The server does not say which part of a JSON patch it did not like; ours can only fail in its tests.
            (Verb::Unfinalize { .. }, ApiError::Invalid(said)) if said.contains(PATCH_REFUSED) => {
                ApiError::Conflict(said)
            }
            (_, error) => error,
        })?;
        // The answer to a completed delete is a Status, or the object as it last was.
        let gone = matches!(write.verb, Verb::Delete { .. })
            && answer.pointer("/metadata/deletionTimestamp").is_none_or(Value::is_null);
        let kept = !gone && answer["kind"] != "Status";
        let kind = &write.target.kind;
        Ok(kept.then(|| without_content(kind, Object::of_kind(kind, answer))))
    }
}

impl Live {
    fn write_request(&self, write: &Write) -> Result<(&'static str, Request<Vec<u8>>), ApiError> {
        const MERGE: &str = "application/merge-patch+json";
        const APPLY: &str = "application/apply-patch+yaml";
        const JSON_PATCH: &str = "application/json-patch+json";
        const JSON: &str = "application/json";
        let target = self.path(&write.target);
        let bytes = |body: &Value| self.versions.translate(&write.target.kind, body).to_string().into_bytes();
        let manager = encode(&write.manager);
        let request = match &write.verb {
            Verb::Apply(body) => {
                let path = format!("{target}?fieldManager={manager}&force=true");
                ("apply", request(Method::PATCH, &path, APPLY, bytes(body))?)
            }
            Verb::Create(body) => {
                let path = self.collection(&write.target.kind, &write.target.key.namespace);
                let path = format!("{path}?fieldManager={manager}");
                ("create", request(Method::POST, &path, JSON, bytes(body))?)
            }
            Verb::TryCreate(body) => {
                let path = self.collection(&write.target.kind, &write.target.key.namespace);
                let path = format!("{path}?fieldManager={manager}&dryRun=All");
                ("dry-run", request(Method::POST, &path, JSON, bytes(body))?)
            }
            Verb::Replace(body) => {
                let path = format!("{target}?fieldManager={manager}");
                ("update", request(Method::PUT, &path, JSON, bytes(body))?)
            }
            Verb::Merge { body, status } => {
                let sub = if *status { "/status" } else { "" };
                let path = format!("{target}{sub}?fieldManager={manager}");
                (if *status { "status" } else { "patch" }, request(Method::PATCH, &path, MERGE, bytes(body))?)
            }
            Verb::Unfinalize { finalizers, uid } => {
                let mut operations = vec![json!({"op": "test", "path": "/metadata/uid", "value": uid})];
                for (at, name) in finalizers {
                    let place = format!("/metadata/finalizers/{at}");
                    operations.push(json!({"op": "test", "path": place, "value": name}));
                    operations.push(json!({"op": "remove", "path": place}));
                }
                let path = format!("{target}?fieldManager={manager}");
                ("patch", request(Method::PATCH, &path, JSON_PATCH, bytes(&json!(operations)))?)
            }
            Verb::Delete { uid, resource_version } => {
                let mut preconditions = json!({"uid": uid});
                if let Some(version) = resource_version {
                    preconditions["resourceVersion"] = json!(version);
                }
                let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
                "preconditions": preconditions});
                ("delete", request(Method::DELETE, &target, JSON, body.to_string().into_bytes())?)
            }
        };
        Ok(request)
    }
}

/// A page of a list, its objects unread.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
struct PageMetadata {
    #[serde(rename = "continue")]
    next: Option<String>,
}

fn unreadable(error: &serde_json::Error) -> ApiError {
    ApiError::Unavailable(format!("the API server's answer cannot be read: {error}"))
}

fn request(
    method: Method,
    path: &str,
    content_type: &str,
    body: Vec<u8>,
) -> Result<Request<Vec<u8>>, ApiError> {
    let mut builder = Request::builder().method(method).uri(path);
    if !content_type.is_empty() {
        builder = builder.header(http::header::CONTENT_TYPE, content_type);
    }
    builder.body(body).map_err(|error| ApiError::Invalid(format!("cannot be asked for as {path}: {error}")))
}

fn collection(kind: &Kind, namespace: &str) -> String {
    let root = if kind.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", kind.group) };
    let scope = if kind.namespaced && !namespace.is_empty() {
        format!("/namespaces/{}", encode(namespace))
    } else {
        String::new()
    };
    format!("{root}/{}{scope}/{}", kind.version, kind.plural)
}

fn path(target: &ObjectRef) -> String {
    format!("{}/{}", collection(&target.kind, &target.key.namespace), encode(&target.key.name))
}

/// Percent-encoding: names come from users, and RBAC objects may hold a colon or worse.
fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// All that the server says about a JSON patch whose `test` failed.
const PATCH_REFUSED: &str = "rejected our request";

fn refusal(status: &Status) -> ApiError {
    let said = status.message.clone();
    let causes = status.details.as_ref().map(|d| d.causes.as_slice()).unwrap_or_default();
    match status.code {
        // Before anything else: a webhook may answer with any code.
        400..500 if is_policy(&said) => ApiError::Policy(said),
        404 if status.details.as_ref().is_none_or(|d| d.name.is_empty()) => ApiError::NotServed,
        404 => ApiError::NotFound,
        409 if status.is_already_exists() => ApiError::AlreadyExists,
        409 => ApiError::Conflict(said),
        // A body whose uid is another object's.
        422 if causes.iter().any(|cause| cause.field == "metadata.uid") => ApiError::Conflict(said),
        // A finalizer for an object whose deletion we have not seen yet.
        422 if said.contains("no new finalizers can be added") => ApiError::Conflict(said),
        // Only what the server says of a field: any other text is somebody's, and may hold these words too.
        422 if causes.iter().any(|cause| !cause.field.is_empty() && is_immutable(&cause.message)) => {
            ApiError::Immutable(said)
        }
        400 | 413 | 415 | 422 => ApiError::Invalid(said),
        403 if said.contains("being terminated") => ApiError::Terminating(said),
        401 | 403 => ApiError::Forbidden(said),
        code => ApiError::Unavailable(format!("the API server answered {code}: {said}")),
    }
}

/// Kinds word it differently; none of them has a machine-readable mark for it.
fn is_immutable(said: &str) -> bool {
    let said = said.to_ascii_lowercase();
    ["immutable", "updates to", "cannot change roleref", "may not be changed"]
        .iter()
        .any(|words| said.contains(words))
}

/// Webhooks and policies may answer with any code; what the server puts before their text tells.
fn is_policy(said: &str) -> bool {
    said.contains("admission webhook \"")
        || (said.contains("ValidatingAdmissionPolicy '") && said.contains("denied request"))
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn paths_follow_group_and_scope() {
        const PV: Kind = Kind::cluster("", "v1", "PersistentVolume", "persistentvolumes");
        const ROLE: Kind = Kind::cluster("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles");
        const SV: Kind = Kind::namespaced("a.b", "v1alpha1", "SharedVolume", "sharedvolumes");
        assert_eq!(path(&PV.at("", "x")), "/api/v1/persistentvolumes/x");
        assert_eq!(path(&ROLE.at("", "a:b")), "/apis/rbac.authorization.k8s.io/v1/clusterroles/a%3Ab");
        assert_eq!(path(&SV.at("ns", "x")), "/apis/a.b/v1alpha1/namespaces/ns/sharedvolumes/x");
        assert_eq!(collection(&SV, ""), "/apis/a.b/v1alpha1/sharedvolumes");
    }

    /// An API server with as many pods, each with an annotation of that many bytes; says how long its pages were.
    async fn listed(pods: usize, bytes: usize, listing: &Listing) -> (Vec<Object>, Vec<usize>) {
        let pages = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = std::sync::Arc::clone(&pages);
        let server = tower::service_fn(move |request: Request<kube::client::Body>| {
            let query: BTreeMap<String, String> = request
                .uri()
                .query()
                .unwrap_or_default()
                .split('&')
                .filter_map(|pair| pair.split_once('='))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect();
            let from: usize = query["continue"].parse().unwrap_or_default();
            let to = pods.min(from + query["limit"].parse::<usize>().unwrap());
            seen.lock().unwrap().push(to - from);
            let items: Vec<Value> = (from..to)
                .map(|number| {
                    json!({"metadata": {"name": number.to_string(), "namespace": "ns", "uid": "u", "annotations": {"a": "x".repeat(bytes)},
                        "managedFields": []}, "spec": {"nodeName": "n", "containers": []}})
                })
                .collect();
            let next = if to < pods { json!(to.to_string()) } else { Value::Null };
            let body = json!({"kind": "PodList", "metadata": {"continue": next}, "items": items}).to_string();
            async move { http::Response::builder().body(kube::client::Body::from(body.into_bytes())) }
        });
        let live = Live::new(Client::new(server, "default"), Metrics::default());
        let objects = live.list(listing).await.unwrap();
        let pages = pages.lock().unwrap().clone();
        (objects, pages)
    }

    #[tokio::test]
    async fn of_large_objects_a_page_has_few_and_nothing_is_kept_but_what_is_asked_for() {
        const PODS: Kind = Kind::namespaced("", "v1", "Pod", "pods");
        let whole = Listing::all(&PODS, "ns");
        let (objects, pages) = listed(60, 200_000, &whole).await;
        assert_eq!((objects.len(), pages), (60, vec![60]));
        assert!(
            objects[0].at("/metadata/annotations").is_some()
                && objects[0].at("/metadata/managedFields").is_none()
        );
        let parts = whole.parts(&["/spec/nodeName"]);
        let (objects, pages) = listed(60, 200_000, &parts).await;
        assert_eq!((objects.len(), pages), (60, vec![25, 25, 10]));
        let only = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "0", "namespace": "ns", "uid": "u"},
            "spec": {"nodeName": "n"}});
        assert_eq!(objects[0].0, only);
        assert!(listed(0, 0, &parts).await.0.is_empty());
    }

    /// What is made of an answer with this code, text, and field that it blames.
    fn refused(code: u16, said: &str, field: &str) -> ApiError {
        let mut status: Status =
            serde_json::from_value(json!({"status": "Failure", "code": code, "message": said,
            "reason": "Invalid", "details": {"name": "x"}}))
            .unwrap();
        if !field.is_empty() {
            let causes = json!({"name": "x", "causes": [{"field": field, "message": said, "reason": "FieldValueInvalid"}]});
            status.details = serde_json::from_value(causes).unwrap();
        }
        refusal(&status)
    }

    #[test]
    fn only_what_the_server_says_of_a_field_cannot_be_changed_and_policies_are_known_by_its_words() {
        let immutable = "field is immutable";
        assert!(matches!(refused(422, immutable, "spec.selector"), ApiError::Immutable(_)));
        assert!(matches!(refused(422, immutable, ""), ApiError::Invalid(_)), "somebody's words");
        let webhook = "admission webhook \"images.example\" denied the request: use immutable digests";
        let policy = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: must be immutable";
        for code in [400, 403, 404, 409, 422] {
            for said in [webhook, policy] {
                assert!(matches!(refused(code, said, ""), ApiError::Policy(_)), "{code} {said}");
            }
        }
        assert!(matches!(refused(403, "secrets is forbidden", ""), ApiError::Forbidden(_)));
        assert!(matches!(refused(500, webhook, ""), ApiError::Unavailable(_)), "it may pass");
    }
}
