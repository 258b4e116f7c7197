//! `SharedFileSystem`: the administrator says which namespaces may use an EFS file system through SharedVolumes, and how. Which
//! SharedVolumes it allows is decided with each of them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the administrator allows.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "aws-efs.managed.openshift.io",
    version = "v1alpha1",
    kind = "SharedFileSystem",
    plural = "sharedfilesystems",
    singular = "sharedfilesystem",
    shortname = "sfs",
    category = "aquifer",
    status = "SharedFileSystemStatus",
    derive = "PartialEq",
    doc = "Which namespaces may use an EFS file system through SharedVolumes, and how. Where several name one file system, one that allows the namespace and the access point is enough.",
    printcolumn(name = "File System", type_ = "string", json_path = ".spec.fileSystemID"),
    printcolumn(name = "Root", type_ = "boolean", json_path = ".spec.allowRoot"),
    printcolumn(name = "Shared Volumes", type_ = "integer", json_path = ".status.sharedVolumes"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct SharedFileSystemSpec {
    /// The EFS file system that this is about, for example fs-0123456789abcdef0.
    #[serde(rename = "fileSystemID")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = Rule::new("self.matches('^fs-[0-9a-f]{8,40}$')").message(
        "must be an EFS file system ID: fs- followed by 8 to 40 lower-case hexadecimal digits, for example fs-0123456789abcdef0"
    ))]
    pub file_system_id: String,

    /// The namespaces that may use it: those that are named, and those that the selector selects. Left out, none may.
    #[serde(default, skip_serializing_if = "AllowedNamespaces::is_empty")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub allowed_namespaces: AllowedNamespaces,

    /// Which access points these namespaces may use: all, or for each namespace those that are listed for it. Left out or empty, they may
    /// use none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub allowed_access_points: Option<AllowedAccessPoints>,

    /// Whether a SharedVolume may leave out the access point, and so mount the root of the file system, with all data of everybody.
    /// Left out, it may not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_root: Option<bool>,
}

/// Namespaces by name, by label, or both.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AllowedNamespaces {
    /// Names of namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), inner(length(max = 63)))]
    #[x_kube(
        merge_strategy = ListMerge::Atomic,
        validation = Rule::new("self.all(name, name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))").message(
            "must be names of namespaces: lower-case letters, digits and dashes, for example team-a"
        )
    )]
    pub names: Vec<String>,
    /// Labels of namespaces. An empty selector selects all; left out, none is selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

impl AllowedNamespaces {
    /// Whether it allows none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.selector.is_none()
    }
}

/// Access points: all of them, or a list for each namespace.
//
// "All" is a word of its own, and what holds lists is atomic: what remains when the last entry of a list is taken away must not allow more.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.all) || !self.all || !has(self.perNamespace)").message(
    "set either all or perNamespace, not both"
))]
pub struct AllowedAccessPoints {
    /// Whether every access point may be used. Then perNamespace must be left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// The access points of each namespace. A namespace without an entry may use none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 500))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub per_namespace: Vec<NamespaceAccessPoints>,
}

/// The access points of one namespace.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceAccessPoints {
    /// The namespace.
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message(
        "must be the name of a namespace: lower-case letters, digits and dashes, for example team-a"
    ))]
    pub namespace: String,
    /// Their IDs, for example fsap-0123456789abcdef0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), inner(length(max = 64)))]
    #[x_kube(
        merge_strategy = ListMerge::Atomic,
        validation = Rule::new("self.all(id, id.matches('^fsap-[0-9a-f]{8,40}$'))").message(
            "must be EFS access point IDs: fsap- followed by 8 to 40 lower-case hexadecimal digits, for example fsap-0123456789abcdef0"
        )
    )]
    pub access_points: Vec<String>,
}

/// Who uses it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SharedFileSystemStatus {
    /// The message of the condition Ready, for the printed column.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// How many SharedVolumes name the file system, allowed or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub shared_volumes: Option<usize>,

    /// The namespaces of these SharedVolumes, the first hundred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<NamespaceUse>,

    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Ready and, while it holds, Progressing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// What one namespace uses.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceUse {
    /// The namespace.
    pub namespace: String,
    /// How many of its SharedVolumes name the file system.
    #[schemars(with = "i64")]
    pub shared_volumes: usize,
}

aquifer_base::reasons! {
    /// The reasons in the conditions of a SharedFileSystem.
    pub enum SharedFileSystemReason {
        /// Ready: SharedVolumes are judged by it.
        Enforced,
        /// Not Ready: the selector cannot be read, and selects nothing.
        BadSelector,
    }
}
