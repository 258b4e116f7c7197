//! Names that are fixed: of the driver's objects, and of the labels and finalizers of this family. Names only: who sets them and why is
//! said where they are used.

/// The driver's objects, shared by the code that makes them and the rights that are limited to them.
pub mod driver {
    /// Name of the CSI driver, of its CSIDriver object, and the provisioner of the storage class.
    pub const DRIVER_NAME: &str = "efs.csi.aws.com";
    /// Storage class of every volume and claim that belongs to a SharedVolume.
    pub const STORAGE_CLASS: &str = "efs-sc";
    /// Namespace of the node plugin unless configured otherwise.
    pub const DEFAULT_NAMESPACE: &str = "aquifer-efs";
    /// The node plugin.
    pub const DAEMON_SET: &str = "efs-csi-node";
    /// Service account of the node plugin.
    pub const SERVICE_ACCOUNT: &str = "efs-csi-node-sa";
    /// What the node plugin may do in the Kubernetes API.
    pub const CLUSTER_ROLE: &str = "efs-csi-node-role";
    /// Binds [`CLUSTER_ROLE`] to [`SERVICE_ACCOUNT`].
    pub const CLUSTER_ROLE_BINDING: &str = "efs-csi-node-binding";
    /// What the node plugin may do on its host, on OpenShift.
    pub const SECURITY_CONTEXT_CONSTRAINTS: &str = "efs-csi-scc";
    /// The [`Component`](aquifer_api::component::Component) that the driver reports through.
    pub const COMPONENT: &str = "efs-driver";
}

/// Labels and finalizers.
pub mod labels {
    pub use aquifer_api::labels::{MANAGED_BY, MANAGER, PART_OF};

    /// On every object that belongs to a SharedVolume or to the driver; value `"true"`. aws-efs-operator's name.
    pub const OWNED: &str = "openshift.io/aws-efs-operator-owned";
    /// Namespace of the SharedVolume that a volume or claim belongs to. aws-efs-operator's name.
    pub const OWNER_NAMESPACE: &str = "openshift.io/aws-efs-operator-shared-volume-owner-namespace";
    /// Name of the SharedVolume that a volume or claim belongs to. aws-efs-operator's name.
    ///
    /// Label values end at 63 bytes and object names at 253, so this can never be the proof of ownership.
    pub const OWNER_NAME: &str = "openshift.io/aws-efs-operator-shared-volume-owner-name";
    /// The finalizer that aws-efs-operator put on SharedVolumes; removed when we take one over.
    pub const UPSTREAM_FINALIZER: &str = "finalizer.awsefs.managed.openshift.io";

    /// Our finalizer on SharedVolumes: held until claim and volume are really gone.
    pub const SHARED_VOLUME_FINALIZER: &str = "aquifer.storage/shared-volume";
}
