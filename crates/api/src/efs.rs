//! `SharedVolume`: a namespace asks for a shared, writable volume on AWS EFS. Drop-in compatible with
//! aws-efs-operator: same group, kind, field names and printed columns. What it causes is decided elsewhere.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// API group of [`SharedVolume`].
pub const GROUP: &str = "aws-efs.managed.openshift.io";
/// Name of the definition of [`SharedVolume`].
pub const CRD_NAME: &str = "sharedvolumes.aws-efs.managed.openshift.io";
/// API version of [`SharedVolume`].
pub const VERSION: &str = "v1alpha1";

/// What the user asks for.
//
// The IDs are checked by CEL and not by `pattern`: a failed pattern prints a regular expression and also stops
// the rules from running. The maximum length bounds the cost of the rule and leaves room for its message.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[kube(
    group = "aws-efs.managed.openshift.io",
    version = "v1alpha1",
    kind = "SharedVolume",
    plural = "sharedvolumes",
    singular = "sharedvolume",
    shortname = "sv",
    category = "aquifer",
    namespaced,
    status = "SharedVolumeStatus",
    derive = "PartialEq",
    doc = "A shared, writable volume on AWS EFS for the pods of one namespace, used through the claim named in status.claimRef.",
    printcolumn(name = "File System", type_ = "string", json_path = ".spec.fileSystemID"),
    printcolumn(name = "Access Point", type_ = "string", json_path = ".spec.accessPointID"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Claim", type_ = "string", json_path = ".status.claimRef.name"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct SharedVolumeSpec {
    /// The EFS file system to mount, for example fs-0123456789abcdef0. A change replaces volume and claim.
    #[serde(rename = "fileSystemID")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = Rule::new("self.matches('^fs-[0-9a-f]{8,40}$')").message(
        "must be an EFS file system ID: fs- followed by 8 to 40 lower-case hexadecimal digits, for example fs-0123456789abcdef0"
    ))]
    pub file_system_id: String,

    /// The access point of that file system to mount, for example fsap-0123456789abcdef0. It decides the directory
    /// and the user that the pods see. Without it the root of the file system is mounted. A change replaces volume
    /// and claim.
    #[serde(rename = "accessPointID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = Rule::new("self.matches('^fsap-[0-9a-f]{8,40}$')").message(
        "must be an EFS access point ID: fsap- followed by 8 to 40 lower-case hexadecimal digits, for example fsap-0123456789abcdef0; leave the field out to mount the root of the file system"
    ))]
    pub access_point_id: Option<String>,

    /// Whether pods can only read: the volume is mounted read-only on every node. A change replaces volume and claim.
    #[serde(rename = "readOnly", skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,

    /// Options of the mount, for example [noatime, "timeo=600"]; only such that concern nobody but the pods that mount it. Left out,
    /// those of the driver are used. A change replaces volume and claim.
    // The limits bound the cost of the rules.
    #[serde(rename = "mountOptions", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), inner(length(max = 64)))]
    #[x_kube(
        merge_strategy = ListMerge::Atomic,
        validation = Rule::new(MOUNT_OPTIONS_RULE).message(MOUNT_OPTIONS_MESSAGE),
        validation = Rule::new(
            "self.all(one, self.exists_one(other, other.split('=')[0] == one.split('=')[0]))"
        ).message("must name each option once")
    )]
    pub mount_options: Vec<String>,

    /// Name of the claim, for workloads that expect a certain one. Left out, it is pvc- and the name of the SharedVolume. A change
    /// replaces volume and claim.
    #[serde(rename = "claimName", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new(
        "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')"
    ).message(
        "must be a name that a PersistentVolumeClaim can have: lower-case letters, digits, dashes and dots, for example data; leave the field out for pvc- and the name of the SharedVolume"
    ))]
    pub claim_name: Option<String>,
}

/// The mount options that a user may choose; docs/decisions/0021 says why these.
const MOUNT_OPTIONS_RULE: &str = "self.all(one, one.matches('^(tls|hard|noresvport|noatime|nodiratime|relatime|nosuid|nodev|noexec|sync|noac|nocto|lookupcache=(all|none|pos|positive)|(rsize|wsize|timeo|retrans|actimeo|acregmin|acregmax|acdirmin|acdirmax)=[0-9]{1,7})$'))";
const MOUNT_OPTIONS_MESSAGE: &str = "may hold only: tls, hard, noresvport, noatime, nodiratime, relatime, nosuid, nodev, noexec, sync, noac, nocto, lookupcache=all|none|pos|positive, and rsize, wsize, timeo, retrans, actimeo, acregmin, acregmax, acdirmin, acdirmax with a number. For a read-only volume set spec.readOnly, for an access point spec.accessPointID";

/// What the world shows. Everything here is derived; nothing is read back as a wish.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SharedVolumeStatus {
    /// Pending, Ready, Deleting or Failed: a summary of the conditions.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub phase: Option<Phase>,

    /// The message of the condition that explains the phase; empty when there is nothing to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// The claim that pods of this namespace mount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim_ref: Option<ClaimRef>,

    /// uid of the claim; it proves that the claim is ours when its labels are damaged.
    #[serde(rename = "claimUID", skip_serializing_if = "Option::is_none")]
    pub claim_uid: Option<String>,

    /// The volume that the claim is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_ref: Option<VolumeRef>,

    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Ready, Allowed, DriverReady and, while it holds, Duplicate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// A summary for people and for readers of aws-efs-operator's API.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Volume and claim are being made or replaced.
    Pending,
    /// The claim of the current generation is bound to our volume.
    Ready,
    /// Volume and claim are going away.
    Deleting,
    /// Somebody has to act; the message says who and how.
    Failed,
    /// Written by another program. We never write it.
    #[serde(other)]
    Unknown,
}

/// A reference to the claim, in the shape that aws-efs-operator writes (it leaves name empty until it is known).
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClaimRef {
    /// Empty: the claim is of the core group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Always PersistentVolumeClaim.
    pub kind: String,
    /// Name of the claim, in the namespace of the SharedVolume.
    pub name: String,
}

impl ClaimRef {
    /// The reference to a claim of this name, as aws-efs-operator would write it.
    pub fn to(name: impl Into<String>) -> Self {
        Self { api_group: Some(String::new()), kind: CLAIM_KIND.into(), name: name.into() }
    }
}

/// A reference to the volume.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRef {
    /// Name of the PersistentVolume.
    pub name: String,
    /// uid of the volume; it proves that the volume is ours when its labels are damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

const CLAIM_KIND: &str = "PersistentVolumeClaim";

aquifer_base::reasons! {
    /// The reasons in the conditions of a SharedVolume.
    pub enum SharedVolumeReason {
        /// Ready: the claim is bound to our volume.
        Bound,
        /// Not Ready: volume and claim are being made.
        Provisioning,
        /// Not Ready: volume and claim are being deleted and will be made again.
        Replacing,
        /// Not Ready: volume and claim must go, and something holds them.
        InUse,
        /// Not Ready: the SharedVolume is being deleted.
        Deleting,
        /// Not Ready: an object of another owner has a name that we need.
        Conflict,
        /// Not Ready, and not Allowed: the administrator does not allow it.
        NotAllowed,
        /// Allowed: a SharedFileSystem says so.
        Allowed,
        /// Allowed: no SharedFileSystem names the file system, so that every namespace may use it.
        Unrestricted,
        /// Not Allowed any more: the volume and claim that are there stay, new ones would not be made.
        Revoked,
        /// Whether it is allowed is not known: SharedFileSystems cannot be read.
        AllowedUnknown,
        /// Not Ready: the driver is being removed, so that nothing new is made.
        DriverRemoved,
        /// Not Ready: the namespace is being deleted.
        Terminating,
        /// Ready is not known: volumes, claims or SharedFileSystems cannot be read.
        Unknown,
        /// Duplicate: another SharedVolume of the namespace means the same data.
        SameAccessPoint,
        /// DriverReady: the node plugin serves on all nodes that it is meant for.
        DriverRunning,
        /// DriverReady: the node plugin serves on some nodes; pods on the others wait.
        DriverPartlyRunning,
        /// Whether the driver is ready is not known: another owner manages it.
        DriverExternal,
        /// Not DriverReady.
        DriverNotReady,
        /// Whether the driver is ready is not known: it has not reported.
        DriverUnknown,
    }
}
