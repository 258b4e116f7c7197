//! Rook for the lab: the real one with a real Ceph, a stand-in, and its definitions from the Go module. Copies nothing of Rook into this
//! repository.
//!
//! [`crate::ClusterBuilder::rook`] raises the real one on a cluster with nodes: the third floor. [`crate::Lab::rook_stand_in`] runs the
//! stand-in against any cluster, for scale and faults; one scenario keeps the two alike.

mod ceph;
mod disks;
pub(crate) mod floor;
mod image;
pub mod module;
mod objects;
mod rest;
pub mod stand_in;

pub use ceph::{CephClient, admin_command};
pub use image::TOOLS;
pub use module::install_crds;
pub use objects::{CLUSTER, FILE_SYSTEM, NAMESPACE};
pub use stand_in::{Health, Kind, StandIn};

/// Builds what Rook and Ceph are made of, unless it is cached. A start does it too; here the wait can be explained. Blocks.
pub fn prepare() -> anyhow::Result<()> {
    floor::prepare().map(drop)
}
