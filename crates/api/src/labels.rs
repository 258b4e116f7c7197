//! Labels that all families use. Names only: who sets them and why is said where they are used. The marks by which the engine knows its
//! children (owner uid, owner, intent) are the engine's own, and those of a family are in its crate.

/// `app.kubernetes.io/managed-by`, with the value [`MANAGER`].
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`] and of `app.kubernetes.io/part-of`.
pub const MANAGER: &str = "aquifer";
/// `app.kubernetes.io/part-of`, with the value [`MANAGER`]: an object of ours, whoever installed it.
pub const PART_OF: &str = "app.kubernetes.io/part-of";
