//! Types that all crates share: exact quantities, object names and identities, reasons, writers of fields, sealed bytes.
//!
//! This crate is plain values and pure functions. It must not know a Kubernetes client, a runtime or a storage system.

pub mod fields;
pub mod ids;
pub mod names;
pub mod quantity;
pub mod reason;
pub mod sealed;

pub use fields::{Field, Writer};
pub use ids::{NamespaceName, ResourceVersion, Uid};
pub use quantity::Quantity;
pub use reason::Reason;
pub use sealed::Sealed;
