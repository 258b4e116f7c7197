//! The ConfigMap from which the CSI driver learns where each cluster, group and rados namespace is. Only that.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::cluster::{MONITORS, monitors};
use super::kind::Kind;
use super::shape;
use super::subject::{MANAGER, Subject};
use crate::rook::NAMESPACE;

const NAME: &str = "rook-ceph-csi-config";
pub(super) const KEY: &str = "csi-cluster-config-json";
/// Labels of nodes that Rook names when the cluster names none.
const PLACES: [&str; 10] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.rook.io/chassis",
    "topology.rook.io/rack",
    "topology.rook.io/row",
    "topology.rook.io/pdu",
    "topology.rook.io/pod",
    "topology.rook.io/room",
    "topology.rook.io/datacenter",
];

/// One writer at a time: the list is read, changed and written as a whole.
static WRITING: Mutex<()> = Mutex::const_new(());

/// Lists a cluster, a group or a rados namespace.
pub(super) async fn add(subject: &Subject<'_>) -> Result<()> {
    let id = id(subject);
    let (name, spec) = (subject.name(), subject.spec());
    let inner = shape::inner_name(&name, spec);
    let group = if subject.kind == Kind::CephFilesystemSubVolumeGroup { inner } else { "" };
    let rados = if subject.kind == Kind::CephBlockPoolRadosNamespace { inner } else { "" };
    let entry = json!({
        "clusterID": id,
        "namespace": subject.namespace(),
        "monitors": monitors(&MONITORS),
        "cephFS": {
            "netNamespaceFilePath": "", "subvolumeGroup": group, "kernelMountOptions": "", "fuseMountOptions": "",
        },
        "rbd": { "netNamespaceFilePath": "", "radosNamespace": rados },
        "nfs": { "netNamespaceFilePath": "" },
        "readAffinity": { "enabled": false, "crushLocationLabels": PLACES },
    });
    change(subject, |entries| match entries.iter_mut().find(|is| is["clusterID"] == entry["clusterID"]) {
        Some(is) => *is = entry.clone(),
        None => entries.push(entry.clone()),
    })
    .await
}

/// Takes it from the list.
pub(super) async fn remove(subject: &Subject<'_>) -> Result<()> {
    let id = id(subject);
    change(subject, |entries| entries.retain(|is| is["clusterID"] != id.as_str())).await
}

fn id(subject: &Subject<'_>) -> String {
    match subject.kind {
        Kind::CephCluster => subject.namespace(),
        kind => shape::cluster_id(kind, &subject.namespace(), &subject.name(), subject.spec()),
    }
}

async fn change(subject: &Subject<'_>, change: impl Fn(&mut Vec<Value>)) -> Result<()> {
    let _one = WRITING.lock().await;
    let maps: Api<ConfigMap> = Api::namespaced(subject.client.clone(), NAMESPACE);
    let map = maps.get_opt(NAME).await?;
    let text = map.as_ref().and_then(|map| map.data.as_ref()?.get(KEY)).map_or("[]", String::as_str);
    let before: Vec<Value> = serde_json::from_str(text).with_context(|| format!("{NAME} is not JSON"))?;
    let mut entries = before.clone();
    change(&mut entries);
    if entries == before && map.is_some() {
        return Ok(());
    }
    let text = serde_json::to_string(&entries)?;
    let owner = match (&map, subject.kind) {
        (Some(map), _) => json!(map.owner_references()),
        (None, Kind::CephCluster) => json!([subject.owner_reference()]),
        (None, _) => json!([]),
    };
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": NAME, "ownerReferences": owner },
        "data": { KEY: text },
    });
    maps.patch(NAME, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&map))
        .await
        .with_context(|| format!("cannot write ConfigMap {NAME}"))?;
    Ok(())
}
