//! `Component`: the named status object of things that no user object owns, such as the EFS driver.
//! It says what is installed and carries the durable wish to remove it. What it consists of is decided elsewhere.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// API group of [`Component`].
pub const GROUP: &str = "aquifer.storage";
/// API version of [`Component`].
pub const VERSION: &str = "v1alpha1";

/// What the administrator asks for.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[kube(
    group = "aquifer.storage",
    version = "v1alpha1",
    kind = "Component",
    plural = "components",
    singular = "component",
    category = "aquifer",
    status = "ComponentStatus",
    derive = "PartialEq",
    doc = "A part of Aquifer that serves the whole cluster, such as the EFS driver: whether it shall be there, and what is there.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Desired", type_ = "string", json_path = ".spec.desired"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ComponentSpec {
    /// Whether the component shall be there; see [`Desired`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired: Option<Desired>,
}

impl ComponentSpec {
    /// The wish, with the meaning of a left out field filled in.
    pub fn desired(&self) -> Desired {
        self.desired.unwrap_or(Desired::Installed)
    }
}

/// Whether the component shall be there. Left out means Installed. Removed takes it away, stops its repair, and
/// lasts until it is changed back; it is what an uninstall writes first.
//
// This text, not that of the field, ends up in the definition.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Desired {
    /// Made, watched and repaired.
    Installed,
    /// Taken away and not made again.
    Removed,
}

/// What the world shows.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ComponentStatus {
    /// The message of the condition Ready, for the printed column.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The objects that the component consists of, in the order in which they are made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ComponentObject>,

    /// On how many nodes the component runs, where it runs on nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodeCounts>,

    /// What is being given away of a supply that the component stands for: written before it is given, so that no leader gives it
    /// twice. Empty when nothing is under way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserved: Vec<ComponentReservation>,

    /// Ready and more specific types.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// On how many nodes a component runs.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct NodeCounts {
    /// Nodes that it is meant for.
    pub wanted: i64,
    /// Nodes on which it is ready.
    pub ready: i64,
}

/// A part of a supply that is being given to somebody.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ComponentReservation {
    /// The uid of whoever gets it.
    pub uid: String,
    /// What it will have in all, in the unit of the supply.
    // The API server has no unsigned numbers.
    #[schemars(with = "i64")]
    pub amount: u64,
}

/// One object of a component.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ComponentObject {
    /// Kind of the object.
    pub kind: String,
    /// Its namespace; left out for a cluster-wide object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its uid, once it exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// How it stands.
    pub state: ObjectState,
    /// What is wrong and what to do about it; left out when nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How one object of a component stands.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectState {
    /// There, and as it should be.
    Current,
    /// There, and made by whoever installed Aquifer: it is only looked at.
    Provided,
    /// Not there.
    Missing,
    /// An object of that name exists that is not ours; it is left alone.
    Foreign,
    /// Going away.
    Deleting,
    /// Written by another version. We never write it, and no definition of ours allows it.
    #[schemars(skip)]
    #[serde(other)]
    Unknown,
}

impl ObjectState {
    /// Every one of them: the documentation is checked against this list.
    pub const ALL: [Self; 5] = [Self::Current, Self::Provided, Self::Missing, Self::Foreign, Self::Deleting];
}

aquifer_base::reasons! {
    /// The reasons in the conditions of a Component.
    #[derive(Serialize, Deserialize)]
    pub enum ComponentReason {
        /// Ready: every object is there.
        Installed,
        /// Not Ready: objects are being made.
        Installing,
        /// Not Ready: objects of another owner are in the way, or ours are where they should not be.
        Conflict,
        /// Not Ready: what an installation makes for the component is missing.
        NotPrepared,
        /// Ready is not known: another owner manages the component.
        External,
        /// Not Ready: the component is being removed.
        Removing,
        /// Not Ready: the component is gone, as it was asked for.
        Removed,
        /// NodesReady is not known: the node plugin is not there.
        NotInstalled,
        /// NodesReady is not known: no node is selected.
        NoNodes,
        /// NodesReady.
        Running,
        /// Not NodesReady.
        NotRunning,
    }
}
