//! Names of the EFS driver's objects, shared by the code that makes them and the roles that limit us to them.

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
/// The [`Component`](crate::component::Component) that the driver reports through.
pub const COMPONENT: &str = "efs-driver";
