//! Label, annotation and finalizer names. Names only: who sets them and why is said where they are used.
//! The marks by which the engine knows its children (owner uid, owner, intent) are the engine's own.

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

/// `app.kubernetes.io/managed-by`, with the value [`MANAGER`].
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`] and of `app.kubernetes.io/part-of`.
pub const MANAGER: &str = "aquifer";
