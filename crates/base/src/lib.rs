//! Words that everybody speaks: exact quantities, object names, sealed bytes.
//!
//! This crate is plain values and pure functions. It must not know a Kubernetes client, a runtime or a storage system.

pub mod names;
pub mod quantity;
pub mod sealed;

pub use quantity::Quantity;
pub use sealed::Sealed;
