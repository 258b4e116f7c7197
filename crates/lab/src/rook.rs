//! Rook for the lab: the real one with a real Ceph, a stand-in, and its definitions from the Go module. Copies nothing of Rook into this
//! repository.
//!
//! [`crate::ClusterBuilder::rook`] installs the real one on a cluster with nodes. [`crate::Lab::rook_stand_in`] runs the
//! stand-in against any cluster, for scale and faults; one scenario keeps the two alike.

mod ceph;
mod disks;
mod idle;
mod image;
pub(crate) mod installation;
pub mod module;
mod objects;
pub mod stand_in;

use std::time::Instant;

use anyhow::{Result, anyhow};
use tokio::sync::OnceCell;

use crate::{Cluster, ClusterBuilder, Lab};

pub use ceph::{CephClient, admin_command};
pub use image::TOOLS;
pub use module::install_crds;
pub use objects::{CLUSTER, FILE_SYSTEM, NAMESPACE};
pub use stand_in::{Health, Kind, StandIn};

/// Names a cluster with Rook that another process starts, for [`shared`].
pub const SHARED: &str = "AQUIFER_LAB_ROOK";

/// How a cluster with Rook is started that tests share: three nodes in three zones.
pub fn shared_builder(name: &str) -> ClusterBuilder {
    Lab::cluster(name).nodes(3).zones(["a", "b", "c"]).rook()
}

/// The cluster with Rook that tests share: the one that [`SHARED`] names, or else one of this process. It is the most expensive
/// thing of the whole lab, so when it fails it is not tried again.
pub async fn shared() -> Result<&'static Cluster> {
    static CLUSTER: OnceCell<Result<Cluster, String>> = OnceCell::const_new();
    let start = || async {
        let began = Instant::now();
        let cluster = match std::env::var(SHARED) {
            Ok(name) => Cluster::of_another_process(&name).await,
            Err(_) => shared_builder(&format!("test-{}-rook", std::process::id())).start().await,
        };
        println!("3 nodes with Rook and Ceph after {:.1} s", began.elapsed().as_secs_f64());
        cluster.map_err(|error| format!("{error:#}"))
    };
    CLUSTER.get_or_init(start).await.as_ref().map_err(|error| anyhow!("{error}"))
}

/// Builds what Rook and Ceph are made of, unless it is cached. A start does it too; here the wait can be explained. Blocks.
pub fn prepare() -> anyhow::Result<()> {
    installation::prepare().map(drop)
}
