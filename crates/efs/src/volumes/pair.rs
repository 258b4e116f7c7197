//! Volume and claim of a SharedVolume: their names, their content, and how to tell whose they are. Pure.

use crate::names::{driver, labels};
use aquifer_base::names;
use aquifer_engine::intent::{OWNER, OWNER_UID};
use aquifer_engine::{Key, Object};
use jiff::Timestamp;
use serde_json::{Value, json};

/// Counted against quotas, and of no other meaning: EFS has no size.
const SIZE: &str = "1Gi";

/// Name of the volume that we make. Volumes belong to the cluster, so namespace and name both go into it; a dash in either
/// could make two of them equal (`a-b/c` and `a/b-c`), then a hash tells them apart.
pub fn volume_name(key: &Key) -> String {
    let parts = ["pv", &key.namespace, &key.name];
    if key.namespace.contains('-') || key.name.contains('-') {
        names::hashed(&parts, names::SUBDOMAIN_MAX)
    } else {
        names::child(&parts, names::SUBDOMAIN_MAX)
    }
}

/// Name of the claim.
pub fn claim_name(key: &Key) -> String {
    names::child(&["pvc", &key.name], names::SUBDOMAIN_MAX)
}

/// The data that a SharedVolume means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Data {
    pub file_system: String,
    pub access_point: Option<String>,
}

impl Data {
    /// What the spec asks for; none when it is not readable.
    pub fn wanted(shared: &Object) -> Option<Self> {
        let file_system = shared.text("/spec/fileSystemID");
        let access_point = shared.text("/spec/accessPointID");
        (!file_system.is_empty()).then(|| Self {
            file_system: file_system.to_owned(),
            access_point: Some(access_point.to_owned()).filter(|ap| !ap.is_empty()),
        })
    }

    /// What a volume holds. aws-efs-operator once wrote the access point as a mount option.
    pub fn held(volume: &Object) -> Self {
        let handle = volume.text("/spec/csi/volumeHandle");
        let mut parts = handle.splitn(3, ':');
        let file_system = parts.next().unwrap_or_default().to_owned();
        let in_handle = parts.nth(1).map(str::to_owned).filter(|ap| !ap.is_empty());
        let option = || {
            let options = volume.at("/spec/mountOptions")?.as_array()?;
            options
                .iter()
                .filter_map(Value::as_str)
                .find_map(|o| o.strip_prefix("accesspoint=").map(str::to_owned))
        };
        Self { file_system, access_point: in_handle.or_else(option) }
    }

    fn handle(&self) -> String {
        match &self.access_point {
            Some(access_point) => format!("{}::{access_point}", self.file_system),
            None => self.file_system.clone(),
        }
    }
}

/// The volume, pre-bound to the claim. An adopted one keeps the handle that it was made with, if it means the same.
pub(super) fn volume_intent(key: &Key, name: &str, data: &Data, adopted: Option<&Object>) -> Value {
    let handle = adopted.map_or_else(|| data.handle(), |live| live.text("/spec/csi/volumeHandle").to_owned());
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": owner_labels(key)},
        "spec": {
            "capacity": {"storage": SIZE},
            "volumeMode": "Filesystem",
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": driver::STORAGE_CLASS,
            "claimRef": {"namespace": key.namespace, "name": claim_name(key)},
            "csi": {"driver": driver::DRIVER_NAME, "volumeHandle": handle},
        },
    })
}

/// The claim on that volume.
pub(super) fn claim_intent(key: &Key, volume: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": key.namespace, "name": claim_name(key), "labels": owner_labels(key)},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": SIZE}},
            "storageClassName": driver::STORAGE_CLASS,
            "volumeMode": "Filesystem",
            "volumeName": volume,
        },
    })
}

fn owner_labels(key: &Key) -> Value {
    let mut all = json!({labels::OWNED: "true", labels::OWNER_NAMESPACE: key.namespace});
    // A label cannot hold a longer name; the owner annotation does.
    if key.name.len() <= names::LABEL_MAX {
        all[labels::OWNER_NAME] = json!(key.name);
    }
    all
}

/// Whose a volume or claim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Belongs {
    /// To this SharedVolume: by its uid, or because its status or the other half of the pair vouches for it.
    Ours,
    /// To an earlier SharedVolume of this name, or to aws-efs-operator in its name.
    Predecessors,
    /// To somebody else.
    Foreign,
}

/// Whose an object is. `proofs` are uids that are known to be ours although the object's own marks may be damaged.
pub(super) fn belongs(object: &Object, key: &Key, uid: Option<&str>, proofs: &[&str]) -> Belongs {
    let marked = object.label(OWNER_UID).filter(|mark| !mark.is_empty());
    if proofs.contains(&object.uid()) || (marked.is_some() && marked == uid) {
        return Belongs::Ours;
    }
    let named = object.annotation(OWNER) == Some(&key.to_string());
    let upstream = object.label(labels::OWNED) == Some("true")
        && object.label(labels::OWNER_NAMESPACE) == Some(&key.namespace)
        && object.label(labels::OWNER_NAME) == Some(&key.name);
    // aws-efs-operator mixed up `a-b/c` and `a/b-c`; a volume tells by the claim it is for.
    let claim = object.at("/spec/claimRef");
    let other_claim = claim.is_some()
        && (object.text("/spec/claimRef/namespace") != &*key.namespace
            || object.text("/spec/claimRef/name") != claim_name(key));
    if (named || upstream) && !other_claim { Belongs::Predecessors } else { Belongs::Foreign }
}

/// Seconds after which something that was deleted is worth asking for the pods that hold it.
pub(super) const LINGERING: i64 = 3;
/// Seconds after which it is worth telling that it stays although nothing is known to hold it.
pub(super) const OVERDUE: i64 = 120;

/// Whether an object was deleted this many seconds ago and is still there.
pub(super) fn lingers(object: &Object, now: Timestamp, seconds: i64) -> bool {
    let since = object.text("/metadata/deletionTimestamp").parse::<Timestamp>();
    since.is_ok_and(|since| now.duration_since(since).as_secs() >= seconds)
}

/// Whether the claim has been bound: then it can never be bound to another volume.
pub(super) fn was_bound(claim: &Object) -> bool {
    claim.annotation("pv.kubernetes.io/bind-completed").is_some()
        || ["Bound", "Lost"].contains(&claim.text("/status/phase"))
}

/// Whether the two are for each other, alive, and hold the wanted data.
pub(super) fn is_pair(key: &Key, volume: &Object, claim: &Object, data: &Data) -> bool {
    let bound_to = volume.text("/spec/claimRef/uid");
    let for_claim = volume.at("/spec/claimRef").is_none()
        || (volume.text("/spec/claimRef/namespace") == &*key.namespace
            && volume.text("/spec/claimRef/name") == claim.name());
    !volume.deleting()
        && !claim.deleting()
        && Data::held(volume) == *data
        && claim.text("/spec/volumeName") == volume.name()
        && for_claim
        && (bound_to == claim.uid() || (bound_to.is_empty() && !was_bound(claim)))
        && claim.text("/status/phase") != "Lost"
}
