//! What Rook does with a pool, a user, a file system, a group or a rados namespace, in Rook's order. The cluster
//! itself is in `cluster`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::ceph::Health;
use super::kind::Kind;
use super::shape;
use super::subject::{MANAGER, Subject};
use super::{cluster, csi};

/// How soon something that did not work is tried again.
pub(super) const RETRY: Duration = Duration::from_millis(500);

/// When to look at the object again without being asked.
pub(super) enum Next {
    /// When it changes, or when the test changes what it asks of the stand-in.
    Change,
    After(Duration),
}

pub(super) async fn reconcile(mut subject: Subject<'_>) -> Result<Next> {
    if subject.kind == Kind::CephCluster {
        return cluster::reconcile(subject).await;
    }
    let uid = subject.uid();
    let mut job = subject.state.lock().job(&uid, subject.generation());
    if job.finished {
        // Rook watches the Secrets of users: one that was deleted comes back.
        if subject.kind == Kind::CephClient && !subject.is_deleting() {
            write_secret(&subject, false).await?;
        }
        return Ok(Next::Change);
    }
    if !subject.is_deleting() {
        subject.add_finalizer().await?;
        job.generation = subject.generation();
        if subject.status().is_null() && !job.announced {
            subject.write_phase("Progressing", None).await?;
        }
        job.announced = true;
        subject.state.lock().keep(&uid, job);
    }
    match ceph_state(&subject).await? {
        CephState::Usable => {}
        CephState::Gone if subject.is_deleting() => return let_go(subject).await,
        CephState::Gone | CephState::Unusable => {
            // Rook reads the object anew when it comes back to it.
            subject.state.lock().drop_job(&uid);
            return Ok(Next::After(RETRY));
        }
    }
    let (hanging, left, failing) = {
        let inner = subject.state.lock();
        (inner.faults.hanging, inner.left(job), inner.faults.failing.get(&subject.name()).cloned())
    };
    if hanging {
        return Ok(Next::Change);
    }
    if let Some(left) = left {
        return Ok(Next::After(left));
    }
    if subject.is_deleting() {
        return delete(subject, failing).await;
    }
    if let Some(why) = shape::refusal(subject.kind, &subject.name(), subject.spec()) {
        return failed(&subject, &why).await;
    }
    if !owner_is_ready(&subject).await? {
        subject.state.lock().drop_job(&uid);
        return Ok(Next::After(RETRY));
    }
    let why = failing.or_else(|| shape::impossible(subject.kind, &subject.name(), subject.spec()));
    if let Some(why) = why {
        subject.write_phase("Failure", None).await?;
        return failed(&subject, &shape::making_failed(subject.kind, &subject.name(), &why)).await;
    }
    match subject.kind {
        Kind::CephClient => write_secret(&subject, true).await?,
        Kind::CephFilesystemSubVolumeGroup | Kind::CephBlockPoolRadosNamespace => {
            csi::add(&subject).await?;
        }
        _ => {}
    }
    subject.write_phase("Ready", Some(job.observed)).await?;
    job.finished = true;
    subject.state.lock().keep(&uid, job);
    subject.report_success().await?;
    Ok(Next::Change)
}

/// It did not work: Rook says so in an event, and comes back.
async fn failed(subject: &Subject<'_>, why: &str) -> Result<Next> {
    subject.state.lock().drop_job(&subject.uid());
    subject.report_failure(why).await?;
    Ok(Next::After(RETRY))
}

async fn delete(mut subject: Subject<'_>, failing: Option<String>) -> Result<Next> {
    let (kind, name, namespace) = (subject.kind, subject.name(), subject.namespace());
    let described = format!("{} \"{namespace}/{name}\"", kind.name());
    if matches!(kind, Kind::CephBlockPool | Kind::CephFilesystem) {
        let dependents = dependents(&subject).await?;
        let blocked = !dependents.is_empty();
        let (reason, message) = if blocked {
            let list: Vec<String> =
                dependents.iter().map(|(kind, names)| format!("{kind}: [{}]", names.join(" "))).collect();
            let message = format!(
                "{described} will not be deleted until all dependents are removed: {}",
                list.join(", ")
            );
            ("ObjectHasDependents", message)
        } else {
            ("ObjectHasNoDependents", format!("{described} can be deleted safely"))
        };
        let conditions = shape::with_condition(
            &subject.status()["conditions"],
            "DeletionIsBlocked",
            blocked,
            reason,
            &message,
        );
        if !same_but_for_times(&subject.status()["conditions"], &conditions) {
            subject.write_status(json!({ "conditions": conditions })).await?;
        }
        if blocked {
            return failed(&subject, &message).await;
        }
    }
    let why = failing.or_else(|| content(&subject));
    if let Some(why) = why {
        return failed(&subject, &shape::deleting_failed(kind, &name, &why)).await;
    }
    match kind {
        Kind::CephClient => subject.state.lock().ceph.forget(&user(&subject)),
        Kind::CephFilesystemSubVolumeGroup | Kind::CephBlockPoolRadosNamespace => {
            csi::remove(&subject).await?;
        }
        _ => {}
    }
    let_go(subject).await
}

async fn let_go(mut subject: Subject<'_>) -> Result<Next> {
    let uid = subject.uid();
    subject.remove_finalizer().await?;
    // The cache shows the object for a moment longer.
    subject.state.lock().end_job(&uid);
    Ok(Next::Change)
}

/// What is inside and would be lost: Ceph refuses.
fn content(subject: &Subject<'_>) -> Option<String> {
    let name = subject.name();
    let inner = subject.state.lock();
    let some =
        |counts: &std::collections::HashMap<String, u64>| counts.get(&name).is_some_and(|count| *count > 0);
    match subject.kind {
        Kind::CephBlockPool if some(&inner.ceph.images) => Some(format!(
            "failed to check if pool \"{name}\" has rbd images: pool \"{name}\" contains images/snapshots"
        )),
        Kind::CephFilesystemSubVolumeGroup if some(&inner.ceph.subvolumes) => Some(format!(
            "failed to delete ceph filesystem subvolume group \"{name}\", remove the subvolumes first"
        )),
        _ => None,
    }
}

/// Objects that refer to this one and keep it from being deleted: plural kind and names.
async fn dependents(subject: &Subject<'_>) -> Result<BTreeMap<String, Vec<String>>> {
    let (kind, field) = match subject.kind {
        Kind::CephBlockPool => (Kind::CephBlockPoolRadosNamespace, "blockPoolName"),
        _ => (Kind::CephFilesystemSubVolumeGroup, "filesystemName"),
    };
    let name = subject.name();
    let list = kind.api(subject.client, &subject.namespace()).list(&ListParams::default()).await?;
    let names: Vec<String> = list
        .iter()
        .filter(|object| object.data["spec"][field] == name.as_str())
        .map(ResourceExt::name_any)
        .collect();
    Ok((!names.is_empty()).then(|| (format!("{}s", kind.name()), names)).into_iter().collect())
}

/// Whether what this object lives in exists and is Ready.
async fn owner_is_ready(subject: &Subject<'_>) -> Result<bool> {
    let (kind, field) = match subject.kind {
        Kind::CephBlockPoolRadosNamespace => (Kind::CephBlockPool, "blockPoolName"),
        Kind::CephFilesystemSubVolumeGroup => (Kind::CephFilesystem, "filesystemName"),
        _ => return Ok(true),
    };
    let name = shape::text(subject.spec(), field).unwrap_or_default();
    let owner = kind.api(subject.client, &subject.namespace()).get_opt(name).await?;
    Ok(owner.is_some_and(|owner| owner.data["status"]["phase"] == "Ready"))
}

/// Whether there is a Ceph cluster to work with.
enum CephState {
    Usable,
    /// It is not up yet, or it is not healthy.
    Unusable,
    Gone,
}

async fn ceph_state(subject: &Subject<'_>) -> Result<CephState> {
    let clusters = Kind::CephCluster.api(subject.client, &subject.namespace());
    // Served from the API server's memory: a thousand pools ask at once.
    let list = clusters.list(&ListParams::default().match_any()).await?;
    let Some(cluster) = list.items.first() else { return Ok(CephState::Gone) };
    let ceph = &cluster.data["status"]["ceph"];
    let healthy = [Health::Ok, Health::Warn].iter().any(|health| ceph["health"] == health.name());
    let errors: Vec<&String> = ceph["details"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, check)| check["severity"] == Health::Err.name())
        .map(|(code, _)| code)
        .collect();
    Ok(if healthy || errors == ["MDS_ALL_DOWN"] { CephState::Usable } else { CephState::Unusable })
}

/// The user's name inside Ceph; those of two namespaces are different users.
fn user(subject: &Subject<'_>) -> String {
    format!("{}/client.{}", subject.namespace(), subject.name())
}

/// Writes the Secret of a user. `anew` also puts back what others changed in it.
async fn write_secret(subject: &Subject<'_>, anew: bool) -> Result<()> {
    let name = subject.name();
    let secrets: Api<Secret> = Api::namespaced(subject.client.clone(), &subject.namespace());
    let secret_name = shape::secret_name(&name);
    if !anew && secrets.get_metadata_opt(&secret_name).await?.is_some() {
        return Ok(());
    }
    let key = subject.state.lock().ceph.key(&user(subject));
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/rook",
        "metadata": { "name": secret_name, "ownerReferences": [subject.owner_reference()] },
        "stringData": { &name: key, "userID": name, "userKey": key, "adminID": name, "adminKey": key },
    });
    secrets
        .patch(&secret_name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&secret))
        .await
        .with_context(|| format!("cannot write the Secret of CephClient {name}"))?;
    Ok(())
}

pub(super) fn same_but_for_times(one: &Value, other: &Value) -> bool {
    fn timeless(value: &Value) -> Value {
        match value {
            Value::Array(items) => Value::Array(items.iter().map(timeless).collect()),
            Value::Object(fields) => Value::Object(
                fields
                    .iter()
                    .filter(|(name, _)| !name.ends_with("Time") && !name.starts_with("last"))
                    .map(|(name, value)| (name.clone(), timeless(value)))
                    .collect(),
            ),
            plain => plain.clone(),
        }
    }
    timeless(one) == timeless(other)
}
