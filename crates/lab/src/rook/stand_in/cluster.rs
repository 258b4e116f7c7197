//! The CephCluster: its status, and the ConfigMap and Secret by which others find the monitors. No daemon runs.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::ceph::Ceph;
use super::kind::Kind;
use super::reconcile::{Next, RETRY, same_but_for_times};
use super::subject::{MANAGER, Subject, params};
use super::{csi, shape};

/// The monitors' addresses. No program listens there, and no packet to them leaves the machine.
pub(super) const MONITORS: [(&str, &str); 3] =
    [("a", "127.0.0.11:6789"), ("b", "127.0.0.12:6789"), ("c", "127.0.0.13:6789")];
const ENDPOINTS: &str = "rook-ceph-mon-endpoints";
const MON_SECRET: &str = "rook-ceph-mon";
const PROTECTION: &str = "ceph.rook.io/disaster-protection";
const VERSION: &str = "18.2.7";

/// The addresses alone.
pub(super) fn monitors(all: &[(&str, &str)]) -> Vec<String> {
    all.iter().map(|(_, address)| (*address).to_owned()).collect()
}

pub(super) async fn reconcile(mut subject: Subject<'_>) -> Result<Next> {
    if subject.is_deleting() {
        return delete(subject).await;
    }
    subject.add_finalizer().await?;
    if subject.status()["phase"].is_null() {
        let message = "Configuring the Ceph cluster";
        let conditions =
            shape::with_condition(&Value::Null, "Progressing", true, "ClusterProgressing", message);
        let status = json!({
            "phase": "Progressing", "state": "Creating", "message": message, "conditions": conditions,
        });
        subject.write_status(status).await?;
    }
    if subject.state.lock().faults.hanging {
        return Ok(Next::Change);
    }
    write_access(&subject).await?;
    csi::add(&subject).await?;
    let status = ready(&subject);
    if !same_but_for_times(subject.status(), &status) {
        let mut patch = status;
        // A merge keeps what a map had before, so what is no longer true is taken away by name.
        let old = subject.status()["ceph"]["details"].as_object().into_iter().flatten();
        match patch["ceph"]["details"].as_object_mut() {
            Some(new) => {
                for (code, _) in old {
                    new.entry(code).or_insert(Value::Null);
                }
            }
            None => patch["ceph"]["details"] = Value::Null,
        }
        let news = subject.status()["phase"] != "Ready";
        subject.write_status(patch).await?;
        if news {
            subject.report_success().await?;
        }
    }
    Ok(Next::Change)
}

/// The status of a cluster that works.
fn ready(subject: &Subject<'_>) -> Value {
    let message = "Cluster created successfully";
    let old = subject.status();
    let inner = subject.state.lock();
    let created: Vec<&Value> = old["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|is| is["reason"] == "ClusterCreated")
        .collect();
    json!({
        "phase": "Ready", "state": "Created", "message": message,
        "conditions": shape::with_condition(&json!(created), "Ready", true, "ClusterCreated", message),
        "observedGeneration": subject.generation(),
        "version": { "image": subject.spec()["cephVersion"]["image"], "version": format!("{VERSION}-0") },
        "storage": { "deviceClasses": [{ "name": "hdd" }], "osd": { "storeType": { "bluestore": 3 } } },
        "ceph": ceph_status(&inner.ceph, &old["ceph"]),
    })
}

fn ceph_status(ceph: &Ceph, old: &Value) -> Value {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let long = format!("ceph version {VERSION} (0000000000000000000000000000000000000000) reef (stable)");
    let running = |count: u32| json!({ &long: count });
    let details: BTreeMap<&String, Value> = ceph
        .checks
        .iter()
        .map(|(code, message)| (code, json!({ "severity": ceph.health.name(), "message": message })))
        .collect();
    let mut status = json!({
        "fsid": ceph.fsid, "health": ceph.health.name(), "lastChecked": now,
        "capacity": {
            "bytesTotal": ceph.bytes_total, "bytesUsed": ceph.bytes_used,
            "bytesAvailable": ceph.bytes_total.saturating_sub(ceph.bytes_used), "lastUpdated": now,
        },
        "versions": {
            "mon": running(3), "mgr": running(1), "osd": running(3), "mds": running(2), "overall": running(9),
        },
    });
    if !details.is_empty() {
        status["details"] = json!(details);
    }
    let before = &old["health"];
    if before.is_string() && *before != ceph.health.name() {
        status["previousHealth"] = before.clone();
        status["lastChanged"] = json!(now);
    } else if old["previousHealth"].is_string() {
        status["previousHealth"] = old["previousHealth"].clone();
        status["lastChanged"] = old["lastChanged"].clone();
    }
    status
}

/// What others need to talk to Ceph: addresses and the administrator's key.
async fn write_access(subject: &Subject<'_>) -> Result<()> {
    let flat: Vec<String> = MONITORS.iter().map(|(name, address)| format!("{name}={address}")).collect();
    let schedule: BTreeMap<&str, Value> = MONITORS.iter().map(|(name, _)| (*name, Value::Null)).collect();
    let clusters =
        json!([{ "clusterID": subject.namespace(), "monitors": monitors(&MONITORS), "namespace": "" }]);
    let metadata = |name: &str| json!({ "name": name, "finalizers": [PROTECTION], "ownerReferences": [subject.owner_reference()] });
    let endpoints = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(ENDPOINTS),
        "data": {
            "data": flat.join(","), "maxMonId": (MONITORS.len() - 1).to_string(), "outOfQuorum": "",
            "mapping": json!({ "node": schedule }).to_string(), csi::KEY: clusters.to_string(),
        },
    });
    let (fsid, mon, admin) = {
        let ceph = &mut subject.state.lock().ceph;
        (ceph.fsid.clone(), ceph.key("mon."), ceph.key("client.admin"))
    };
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/rook", "metadata": metadata(MON_SECRET),
        "stringData": { "fsid": fsid, "mon-secret": mon, "ceph-username": "client.admin", "ceph-secret": admin },
    });
    let namespace = subject.namespace();
    let maps: Api<ConfigMap> = Api::namespaced(subject.client.clone(), &namespace);
    let secrets: Api<Secret> = Api::namespaced(subject.client.clone(), &namespace);
    apply(&maps, ENDPOINTS, &endpoints).await?;
    apply(&secrets, MON_SECRET, &secret).await
}

async fn apply<K>(api: &Api<K>, name: &str, object: &Value) -> Result<()>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let params = PatchParams::apply(MANAGER).force();
    api.patch(name, &params, &Patch::Apply(object)).await.with_context(|| format!("cannot write {name}"))?;
    Ok(())
}

async fn delete(mut subject: Subject<'_>) -> Result<Next> {
    let described = format!("CephCluster \"{}/{}\"", subject.namespace(), subject.name());
    let message = "Deleting the CephCluster";
    let conditions =
        shape::with_condition(&subject.status()["conditions"], "Deleting", true, "ClusterDeleting", message);
    let dependents = dependents(&subject).await?;
    let (reason, why) = if dependents.is_empty() {
        ("ObjectHasNoDependents", format!("{described} can be deleted safely"))
    } else {
        let list = dependents.join(", ");
        (
            "ObjectHasDependents",
            format!("{described} will not be deleted until all dependents are removed: {list}"),
        )
    };
    let blocked = !dependents.is_empty();
    let conditions = shape::with_condition(&conditions, "DeletionIsBlocked", blocked, reason, &why);
    let status =
        json!({ "phase": "Deleting", "state": "Deleting", "message": message, "conditions": conditions });
    if !same_but_for_times(&subject.status()["conditions"], &status["conditions"]) {
        subject.write_status(status).await?;
    }
    if blocked {
        subject.report_failure(&why).await?;
        return Ok(Next::After(RETRY));
    }
    if subject.state.lock().faults.hanging {
        return Ok(Next::Change);
    }
    let namespace = subject.namespace();
    unprotect(&Api::<ConfigMap>::namespaced(subject.client.clone(), &namespace), ENDPOINTS).await?;
    unprotect(&Api::<Secret>::namespaced(subject.client.clone(), &namespace), MON_SECRET).await?;
    subject.remove_finalizer().await?;
    Ok(Next::Change)
}

/// What is still there and needs the cluster: kind and names.
async fn dependents(subject: &Subject<'_>) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::CephCluster) {
        let list = kind.api(subject.client, &subject.namespace()).list(&ListParams::default()).await?;
        let names: Vec<String> = list.iter().map(ResourceExt::name_any).collect();
        if !names.is_empty() {
            found.push(format!("{}: [{}]", kind.name(), names.join(" ")));
        }
    }
    found.sort();
    Ok(found)
}

async fn unprotect<K>(api: &Api<K>, name: &str) -> Result<()>
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
{
    if api.get_opt(name).await?.is_some() {
        let patch = json!({ "metadata": { "finalizers": null } });
        api.patch(name, &params(), &Patch::Merge(&patch)).await?;
    }
    Ok(())
}
