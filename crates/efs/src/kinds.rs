//! The kinds that this family watches or writes.

use aquifer_engine::Kind;

/// A namespace's wish for a volume.
pub const SHARED_VOLUME: Kind =
    Kind::namespaced(aquifer_api::efs::GROUP, aquifer_api::efs::VERSION, "SharedVolume", "sharedvolumes");
/// What an administrator allows of a file system.
pub const SHARED_FILE_SYSTEM: Kind = Kind::cluster(
    aquifer_api::efs::GROUP,
    aquifer_api::efs::VERSION,
    "SharedFileSystem",
    "sharedfilesystems",
);
/// The status object of the driver.
pub const COMPONENT: Kind =
    Kind::cluster(aquifer_api::component::GROUP, aquifer_api::component::VERSION, "Component", "components");
/// The cluster's side of a volume.
pub const VOLUME: Kind = Kind::cluster("", "v1", "PersistentVolume", "persistentvolumes");
/// The namespace's side of a volume.
pub const CLAIM: Kind = Kind::namespaced("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims");
/// What holds a claim.
pub const POD: Kind = Kind::namespaced("", "v1", "Pod", "pods");
/// Where claims live.
pub const NAMESPACE: Kind = Kind::cluster("", "v1", "Namespace", "namespaces");
/// The node plugin's identity.
pub const SERVICE_ACCOUNT: Kind = Kind::namespaced("", "v1", "ServiceAccount", "serviceaccounts");
/// The node plugin.
pub const DAEMON_SET: Kind = Kind::namespaced("apps", "v1", "DaemonSet", "daemonsets");
/// Makes the driver known.
pub const CSI_DRIVER: Kind = Kind::cluster("storage.k8s.io", "v1", "CSIDriver", "csidrivers");
/// The class of our volumes.
pub const STORAGE_CLASS: Kind = Kind::cluster("storage.k8s.io", "v1", "StorageClass", "storageclasses");
/// Whether the cluster still wants SharedVolumes at all.
pub const CRD: Kind =
    Kind::cluster("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
