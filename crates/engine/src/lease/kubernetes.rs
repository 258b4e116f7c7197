//! The record in a real `coordination.k8s.io/v1` Lease. Translation only.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;

use super::{Record, Storage, StorageError, Stored};

const FIELD_MANAGER: &str = "aquifer/lease";

/// One Lease object.
pub struct KubeStorage {
    api: Api<Lease>,
    namespace: String,
    name: String,
}

impl KubeStorage {
    /// The Lease with this name, which need not exist yet.
    pub fn new(client: kube::Client, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    fn failed(&self, doing: &str, error: &kube::Error) -> StorageError {
        StorageError::Failed(format!("cannot {doing} Lease {}/{}: {error}", self.namespace, self.name))
    }
}

impl Storage for KubeStorage {
    async fn read(&self) -> Result<Option<Stored>, StorageError> {
        let lease = self.api.get_opt(&self.name).await.map_err(|e| self.failed("get", &e))?;
        Ok(lease.map(stored))
    }

    async fn create(&self, record: &Record) -> Result<Stored, StorageError> {
        let lease = Lease {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            spec: Some(spec_of(record)),
        };
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        match self.api.create(&params, &lease).await {
            Ok(lease) => Ok(stored(lease)),
            Err(kube::Error::Api(status)) if status.is_already_exists() || status.is_conflict() => {
                Err(StorageError::Conflict)
            }
            Err(error) => Err(self.failed("create", &error)),
        }
    }

    async fn swap(&self, version: &str, record: &Record) -> Result<Stored, StorageError> {
        // A merge patch that names the resourceVersion is a compare-and-swap, and unlike a replace it keeps the
        // fields that this version of the type does not know. All five fields are named: null clears the holder.
        let spec = spec_of(record);
        let patch = json!({
            "metadata": { "resourceVersion": version },
            "spec": {
                "holderIdentity": spec.holder_identity,
                "leaseDurationSeconds": spec.lease_duration_seconds,
                "acquireTime": spec.acquire_time,
                "renewTime": spec.renew_time,
                "leaseTransitions": spec.lease_transitions,
            },
        });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        match self.api.patch(&self.name, &params, &Patch::Merge(patch)).await {
            Ok(lease) => Ok(stored(lease)),
            // Not found: somebody deleted it, so this version is not the current one either.
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                Err(StorageError::Conflict)
            }
            Err(error) => Err(self.failed("patch", &error)),
        }
    }
}

fn spec_of(record: &Record) -> LeaseSpec {
    // Rounded up: others may wait longer than we need, never shorter. Kubernetes refuses zero.
    let seconds = record.duration.as_secs() + u64::from(record.duration.subsec_nanos() > 0);
    LeaseSpec {
        holder_identity: record.holder.clone(),
        lease_duration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX).max(1)),
        acquire_time: record.acquired.map(MicroTime),
        renew_time: record.renewed.map(MicroTime),
        lease_transitions: Some(record.transitions),
        ..LeaseSpec::default()
    }
}

fn stored(lease: Lease) -> Stored {
    let spec = lease.spec.unwrap_or_default();
    let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
    Stored {
        record: Record {
            // Some clients clear the holder with an empty text.
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            duration: Duration::from_secs(seconds),
            acquired: spec.acquire_time.map(|time| time.0),
            renewed: spec.renew_time.map(|time| time.0),
            transitions: spec.lease_transitions.unwrap_or(0),
        },
        version: lease.metadata.resource_version.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Config, Elector, Timing};
    use http::{Method, Request, Response};
    use http_body_util::BodyExt;
    use kube::client::Body;
    use serde_json::Value;
    use std::sync::{Arc, Mutex};
    use tokio_util::sync::CancellationToken;

    /// As much of an API server as one Lease needs; keeps every request.
    #[derive(Default)]
    struct Server {
        lease: Option<Value>,
        version: u64,
        requests: Vec<(Method, String, Value)>,
    }

    impl Server {
        fn answer(&mut self, method: &Method, uri: &str, body: Value) -> (u16, Value) {
            self.requests.push((method.clone(), uri.to_owned(), body.clone()));
            let status = |code: u16, reason: &str| {
                (
                    code,
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}),
                )
            };
            let current = self.lease.clone();
            match (method.as_str(), current) {
                ("GET", Some(lease)) => (200, lease),
                ("GET" | "PATCH", None) => status(404, "NotFound"),
                ("POST", Some(_)) => status(409, "AlreadyExists"),
                ("POST", None) => (201, self.store(body)),
                ("PATCH", Some(lease))
                    if body["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"] =>
                {
                    status(409, "Conflict")
                }
                ("PATCH", Some(mut lease)) => {
                    for (key, value) in body["spec"].as_object().unwrap() {
                        lease["spec"][key] = value.clone();
                    }
                    (200, self.store(lease))
                }
                other => panic!("unexpected request {other:?}"),
            }
        }

        fn store(&mut self, mut lease: Value) -> Value {
            self.version += 1;
            lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.lease = Some(lease.clone());
            lease
        }
    }

    fn client(server: &Arc<Mutex<Server>>) -> kube::Client {
        let server = server.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let bytes = body.collect().await.unwrap().to_bytes();
                let body =
                    if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
                if parts.method == Method::PATCH {
                    assert_eq!(parts.headers["content-type"], "application/merge-patch+json");
                }
                let (code, value) =
                    server.lock().unwrap().answer(&parts.method, &parts.uri.to_string(), body);
                let reply = Response::builder().status(code).body(Body::from(value.to_string().into_bytes()));
                Ok::<_, std::convert::Infallible>(reply.unwrap())
            }
        });
        kube::Client::new(service, "default")
    }

    fn record(holder: &str) -> Record {
        let wall = "2026-01-02T03:04:05.123456Z".parse().unwrap();
        Record::taken_by(None, holder, &Timing::default(), wall)
    }

    #[tokio::test]
    async fn a_record_survives_the_way_through_kubernetes() {
        let server = Arc::new(Mutex::new(Server::default()));
        let storage = KubeStorage::new(client(&server), "ns", "leader");
        assert_eq!(storage.read().await, Ok(None));
        let made = storage.create(&record("me")).await.unwrap();
        assert_eq!(made.record, record("me"));
        assert_eq!(storage.read().await, Ok(Some(made.clone())));
        let next = made.record.renewed(&Timing::default(), "2026-01-02T03:04:06.5Z".parse().unwrap());
        assert_eq!(storage.swap(&made.version, &next).await.unwrap().record, next);

        let server = server.lock().unwrap();
        let (method, uri, body) = server.requests.last().unwrap();
        assert_eq!(*method, Method::PATCH);
        assert!(uri.starts_with("/apis/coordination.k8s.io/v1/namespaces/ns/leases/leader?"), "{uri}");
        let expected = json!({
            "metadata": { "resourceVersion": "1" },
            "spec": {
                "holderIdentity": "me",
                "leaseDurationSeconds": 10,
                "acquireTime": "2026-01-02T03:04:05.123456Z",
                "renewTime": "2026-01-02T03:04:06.500000Z",
                "leaseTransitions": 0,
            },
        });
        assert_eq!(*body, expected);
    }

    #[tokio::test]
    async fn a_released_lease_has_no_holder_and_is_valid_for_kubernetes() {
        let server = Arc::new(Mutex::new(Server::default()));
        let storage = KubeStorage::new(client(&server), "ns", "leader");
        let made = storage.create(&record("me")).await.unwrap();
        let released =
            storage.swap(&made.version, &made.record.released(made.record.renewed.unwrap())).await.unwrap();
        assert_eq!(released.record.holder, None);
        let spec = server.lock().unwrap().lease.clone().unwrap()["spec"].clone();
        assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&Value::Null, &json!(1)));
    }

    #[tokio::test]
    async fn an_outdated_or_second_write_is_a_conflict() {
        let server = Arc::new(Mutex::new(Server::default()));
        let storage = KubeStorage::new(client(&server), "ns", "leader");
        assert_eq!(storage.swap("1", &record("me")).await, Err(StorageError::Conflict), "there is no lease");
        let made = storage.create(&record("me")).await.unwrap();
        assert_eq!(storage.create(&record("other")).await, Err(StorageError::Conflict));
        storage.swap(&made.version, &record("me")).await.unwrap();
        assert_eq!(storage.swap(&made.version, &record("other")).await, Err(StorageError::Conflict));
    }

    #[tokio::test]
    async fn foreign_leases_with_little_in_them_are_understood() {
        let server = Arc::new(Mutex::new(Server::default()));
        let bare = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "leader"},
            "spec": {"holderIdentity": ""}});
        server.lock().unwrap().store(bare);
        let storage = KubeStorage::new(client(&server), "ns", "leader");
        assert_eq!(storage.read().await.unwrap().unwrap().record, Record::default());
    }

    #[tokio::test]
    async fn a_whole_election_runs_through_the_client() {
        let server = Arc::new(Mutex::new(Server::default()));
        let config = Config {
            namespace: "ns".into(),
            name: "leader".into(),
            identity: "pod-0".into(),
            timing: Timing::default(),
        };
        let cancel = CancellationToken::new();
        let storage = KubeStorage::new(client(&server), "ns", "leader");
        let elector = Elector::new(storage, config, crate::runtime::Runtime::system());
        let leadership = elector.leadership();
        let task = tokio::spawn(elector.run(cancel.clone()));
        let mut changes = leadership.changes();
        assert!(tokio::time::timeout(Duration::from_secs(5), changes.changed()).await.unwrap());
        assert!(leadership.is_current());
        assert_eq!(server.lock().unwrap().lease.clone().unwrap()["spec"]["holderIdentity"], "pod-0");
        cancel.cancel();
        tokio::time::timeout(Duration::from_secs(5), task).await.unwrap().unwrap().unwrap();
        assert!(!leadership.is_current());
        assert_eq!(server.lock().unwrap().lease.clone().unwrap()["spec"]["holderIdentity"], Value::Null);
    }
}
