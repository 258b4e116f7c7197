//! What decisions need to know of a volume, a claim and the driver, read from their objects. Reads, does not judge.

use aquifer_api::component::ComponentReason;
use aquifer_base::{Reason, Uid};
use aquifer_engine::{Identity, Key, Object, State};
use aquifer_engine::{OWNER, OWNER_UID};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::claim::VOLUME_MADE;
use super::data::Data;
use super::nodes::Nodes;
use super::volume::{MOUNT_OPTIONS, SEPARATOR};
use super::wish::Wish;
use crate::names::labels;

/// The annotation that Kubernetes puts on a claim when it has bound it.
pub(super) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// What the Component of a driver asks for that shall go.
const REMOVED: &str = "Removed";

/// The annotation that Kubernetes puts on a claim when it has chosen the volume: the claim had not asked for it.
pub(super) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// By which marks a volume or claim says whose it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerMarks {
    /// The uid of the SharedVolume that it was made for.
    pub owner_uid: Option<Uid>,
    /// Namespace and name of that SharedVolume.
    pub owner: Option<String>,
    /// The SharedVolume that the labels of aws-efs-operator name.
    pub upstream: Option<Key>,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeFacts {
    /// Its name.
    pub name: String,
    /// Its uid and version.
    pub identity: Identity,
    /// The handle that it was made with.
    pub handle: String,
    /// What it holds.
    pub data: Data,
    /// The options that it is mounted with, sorted.
    pub options: Vec<String>,
    /// The options that we have made it with, sorted.
    pub made_with: Vec<String>,
    /// The claim that it is for.
    pub claim: Option<ClaimReference>,
    /// Whether Kubernetes calls it bound.
    pub called_bound: bool,
    /// Whose it is.
    pub marks: OwnerMarks,
    /// Since when it is made, bound or released; Kubernetes notes it. None for one that an old Kubernetes has made.
    pub since: Option<Timestamp>,
    /// Since when it is being deleted.
    pub deleting: Option<Timestamp>,
    /// What keeps it from vanishing.
    pub finalizers: Vec<String>,
}

/// The claim that a volume is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimReference {
    /// Namespace and name.
    pub key: Key,
    /// Its uid, when no other claim of that name will do.
    pub uid: Option<Uid>,
    /// Whether the volume was made for this very claim. Kubernetes notes the version of the claim where it has bound the two itself, as it does
    /// with what is restored and what earlier versions have made.
    pub since_creation: bool,
}

/// A claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimFacts {
    /// Namespace and name.
    pub key: Key,
    /// Its uid and version.
    pub identity: Identity,
    /// The volume that it asks for; empty when it asks for none.
    pub volume: String,
    /// Whether it had asked for no certain volume, and Kubernetes has chosen: then it is not one that we made.
    pub volume_chosen: bool,
    /// Its storage class; empty when it has none.
    pub class: String,
    /// When it was made.
    pub made: Option<Timestamp>,
    /// How far its binding is.
    pub phase: ClaimPhase,
    /// Whether Kubernetes has noted that it was bound.
    pub bind_completed: bool,
    /// The uid of the volume that was noted on it, see [`VOLUME_MADE`].
    pub noted_volume: Option<Uid>,
    /// Whose it is.
    pub marks: OwnerMarks,
    /// Since when it is being deleted.
    pub deleting: Option<Timestamp>,
    /// What keeps it from vanishing.
    pub finalizers: Vec<String>,
}

/// How far the binding of a claim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimPhase {
    /// Not bound yet.
    Pending,
    /// Bound.
    Bound,
    /// Its volume is gone.
    Lost,
}

/// What is known of the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverFacts {
    /// Whether it shall go.
    pub unwanted: bool,
    /// Whether it is installed; none while it has not reported.
    pub installed: Option<State>,
    /// Why; none when the reason is unknown to us.
    pub reason: Option<ComponentReason>,
    /// Whether the node plugin serves on all nodes.
    pub nodes_ready: Option<ComponentReason>,
    /// On how many nodes it serves, where it says so.
    pub nodes: Option<Nodes>,
}

impl OwnerMarks {
    fn of(object: &Object) -> Self {
        let upstream = || {
            let (namespace, name) =
                (object.label(labels::OWNER_NAMESPACE)?, object.label(labels::OWNER_NAME)?);
            (object.label(labels::OWNED) == Some("true")).then(|| Key::namespaced(namespace, name))
        };
        Self {
            owner_uid: object.label(OWNER_UID).map(Uid::new),
            owner: object.annotation(OWNER).map(str::to_owned),
            upstream: upstream(),
        }
    }
}

impl VolumeFacts {
    /// Reads a PersistentVolume.
    pub(super) fn of(object: &Object) -> Self {
        let handle = object.text("/spec/csi/volumeHandle");
        let options = object.at("/spec/mountOptions").and_then(Value::as_array);
        let options = options.into_iter().flatten().filter_map(Value::as_str);
        let made_with = object.annotation(MOUNT_OPTIONS).unwrap_or_default();
        let made_with = made_with.split(SEPARATOR).filter(|option| !option.is_empty());
        let claim = object.at("/spec/claimRef").map(|_| ClaimReference {
            key: Key::namespaced(object.text("/spec/claimRef/namespace"), object.text("/spec/claimRef/name")),
            uid: Some(object.text("/spec/claimRef/uid")).filter(|uid| !uid.is_empty()).map(Uid::new),
            since_creation: !object.text("/spec/claimRef/uid").is_empty()
                && object.text("/spec/claimRef/resourceVersion").is_empty(),
        });
        Self {
            name: object.name().to_owned(),
            identity: object.identity(),
            handle: handle.to_owned(),
            data: Data::held(handle, options.clone()),
            options: sorted(options),
            made_with: sorted(made_with),
            claim,
            called_bound: object.text("/status/phase") == "Bound",
            marks: OwnerMarks::of(object),
            since: object.text("/status/lastPhaseTransitionTime").parse().ok(),
            deleting: object.deleting_since(),
            finalizers: finalizers(object),
        }
    }

    /// Whether it is as the wish says, the claim that it is for apart. Who asks for no options gets what is there, unless we have made it
    /// with some: the options of a volume that was taken over are not ours to judge.
    pub(super) fn fits(&self, wish: &Wish) -> bool {
        let as_asked = self.made_with == wish.options;
        // The mark may be damaged.
        let as_mounted = !wish.options.is_empty() && self.options == wish.options;
        self.data == wish.data && (as_asked || as_mounted)
    }

    /// Whether it is for the claim of this name, or for no certain one.
    pub(super) fn may_be_for(&self, key: &Key, claim: &str) -> bool {
        let is_it = |reference: &ClaimReference| {
            reference.key.namespace == key.namespace && *reference.key.name == *claim
        };
        self.claim.as_ref().is_none_or(is_it)
    }

    /// The uid of the only claim that it can be bound to; none while any claim of the name will do.
    pub(super) fn claim_uid(&self) -> Option<&Uid> {
        self.claim.as_ref()?.uid.as_ref()
    }
}

impl ClaimFacts {
    /// Reads a PersistentVolumeClaim.
    pub(super) fn of(object: &Object) -> Self {
        let phase = match object.text("/status/phase") {
            "Bound" => ClaimPhase::Bound,
            "Lost" => ClaimPhase::Lost,
            _ => ClaimPhase::Pending,
        };
        Self {
            key: object.key(),
            identity: object.identity(),
            volume: object.text("/spec/volumeName").to_owned(),
            volume_chosen: object.annotation(BOUND_BY_CONTROLLER).is_some(),
            class: object.text("/spec/storageClassName").to_owned(),
            made: object.text("/metadata/creationTimestamp").parse().ok(),
            phase,
            bind_completed: object.annotation(BIND_COMPLETED).is_some(),
            noted_volume: object.annotation(VOLUME_MADE).map(Uid::new),
            marks: OwnerMarks::of(object),
            deleting: object.deleting_since(),
            finalizers: finalizers(object),
        }
    }

    /// Whether the claim has been bound: then it can never be bound to another volume.
    pub(super) fn was_bound(&self) -> bool {
        self.bind_completed || self.phase != ClaimPhase::Pending
    }
}

impl DriverFacts {
    /// Reads the driver's Component as [`kept`] leaves it.
    ///
    /// [`kept`]: Self::kept
    pub(super) fn of(component: &Object) -> Self {
        let text = |condition: &str, field: &str| {
            let found = component.condition(condition).and_then(|found| found.get(field)?.as_str());
            found.map(str::to_owned)
        };
        let reason = |condition: &str| text(condition, "reason").as_deref().and_then(ComponentReason::parse);
        Self {
            unwanted: component.text("/spec/desired") == REMOVED,
            installed: text("Ready", "status").as_deref().map(State::parse),
            reason: reason("Ready"),
            nodes_ready: reason("NodesReady"),
            nodes: Nodes::of(component),
        }
    }

    /// What a cache keeps of the driver's Component. Every SharedVolume looks at it: nothing else about it may wake them all, and no text
    /// that names objects of other tenants is in it.
    pub(super) fn kept(component: &Object) -> Value {
        let condition = |name: &str| {
            let found = component.condition(name)?;
            Some(json!({"type": name, "status": found["status"], "reason": found["reason"]}))
        };
        let conditions: Vec<Value> = condition("Ready")
            .into_iter()
            // Whether all nodes are served is told by their rounded number, where there is one.
            .chain(condition("NodesReady").filter(|_| Nodes::of(component).is_none()))
            .collect();
        json!({"spec": {"desired": component.0["spec"]["desired"]},
            "status": {"conditions": conditions, "nodes": Nodes::kept(component)}})
    }
}

fn sorted<'a>(options: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut options: Vec<String> = options.map(str::to_owned).collect();
    options.sort_unstable();
    options.dedup();
    options
}

fn finalizers(object: &Object) -> Vec<String> {
    object.finalizers().into_iter().map(str::to_owned).collect()
}

/// Whether something was deleted this many seconds ago and is still there.
pub(super) fn lingers(deleting: Option<Timestamp>, now: Timestamp, seconds: i64) -> bool {
    deleting.is_some_and(|since| now.duration_since(since).as_secs() >= seconds)
}
