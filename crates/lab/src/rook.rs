//! Rook for the lab: the real one with a real Ceph, and its definitions from the Go module. Copies nothing of Rook into this repository.
//!
//! [`crate::ClusterBuilder::rook`] raises the real one on a cluster with nodes: the third floor.

mod ceph;
mod disks;
pub(crate) mod floor;
mod image;
pub mod module;
mod objects;

pub use ceph::{CephClient, admin_command};
pub use image::TOOLS;
pub use module::install_crds;
pub use objects::{CLUSTER, FILE_SYSTEM, NAMESPACE};

/// Builds what Rook and Ceph are made of, unless it is cached. A start does it too; here the wait can be explained. Blocks.
pub fn prepare() -> anyhow::Result<()> {
    floor::prepare().map(drop)
}
