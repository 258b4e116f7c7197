//! Real Kubernetes on one machine, for tests, benchmarks and people. Never shipped, and never a
//! dependency of what is shipped.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use aquifer_lab::Lab;
//!
//! let cluster = Lab::test_cluster().start().await?;
//! let client = cluster.client()?;
//! println!("kubectl --kubeconfig {}", cluster.kubeconfig().display());
//! # drop(client);
//! cluster.stop().await
//! # }
//! ```
//!
//! A cluster is etcd, kube-apiserver and kube-controller-manager, with RBAC and an audit log. It needs no
//! root, no fixed port and no network beyond loopback; any number can run side by side. With [`ClusterBuilder::nodes`] it also has
//! nodes that run pods, in network namespaces of its own, for which it needs root.
//!
//! | to | there is |
//! |---|---|
//! | start a cluster | [`cluster`]: the builder, and a running cluster with its clients and kubeconfigs; `control_plane`: its programs, keys and identities |
//! | give it nodes and storage | [`nodes`]: nodes that run pods, their faults, and the wide area between clusters; [`rook`]: the real Rook with a real Ceph, and a stand-in; [`efs`]: file systems of a stand-in for AWS EFS |
//! | build what it runs | `build`: [`programs`] of Kubernetes, and by [`recipe`] programs and images from `lab/`, once and cached |
//! | end it, whatever happens | `ownership`: supervisor, directory, leftovers; [`hold`]: running a cluster for another process |
//! | look and wait | [`audit`]: who called the API server, and what for; [`wait`]: waiting for a condition with a deadline |
//! | disturb | [`proxy`]: faults between a client and the API server |
//! | test controllers | [`install`]: what a cluster needs before the operator runs; [`etcd`]: what an earlier version left there; [`kit`]: operator, namespaces, waits, masks, the crash walk |
//!
//! # Nothing outlives its owner
//!
//! Each cluster has a *supervisor*, a small shell that starts its programs. The supervisor ends all of them when the
//! pipe from the owning process closes, which the kernel does however that process ends. When the supervisor itself is
//! killed, the kernel ends the programs (parent-death signal). What a crash still leaves (always the directory)
//! is swept by the next start of any cluster: a directory whose lock is free has no owner.
//!
//! # Environment
//!
//! - `KUBEBUILDER_ASSETS`: a directory with ready-made programs, used instead of building them.
//! - `AQUIFER_LAB_KEEP`: when set, the directories of clusters started now (logs, audit) are kept.
//! - `AQUIFER_LAB_AUDIT`: a directory; the audit logs of clusters started now are kept there, see [`audit::KEEP_IN`].
//! - `AQUIFER_LAB_ROOK`: the name of a cluster with Rook that another process runs, see [`rook::shared`].
//! - `XDG_CACHE_HOME`: where built programs are kept, below `aquifer/`; else `~/.cache`.
#![allow(clippy::disallowed_methods, reason = "never simulated: real clocks, tasks and threads")]

pub mod audit;
mod build;
pub mod cluster;
mod control_plane;
pub mod efs;
pub mod etcd;
pub mod hold;
pub mod install;
pub mod kit;
pub mod nodes;
mod ownership;
pub mod proxy;
pub mod rook;
pub mod wait;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use build::building;
pub use build::{programs, recipe};
use control_plane::{access, certificates};
use ownership::{directory, leftovers, processes, supervisor};

pub use audit::{Audit, Call, Mark};
pub use cluster::{Cluster, ClusterBuilder};
pub use nodes::{LineState, Node, WideArea};
pub use programs::Programs;
pub use recipe::Image;
pub use wait::eventually;

/// The entrance: everything that the lab can start.
#[derive(Debug)]
pub struct Lab;

impl Lab {
    /// A cluster with a name of its own; its files are in `target/lab/<name>`. Only one process at a time can run it.
    pub fn cluster(name: &str) -> ClusterBuilder {
        ClusterBuilder::new(name)
    }

    /// A cluster for one test or one test binary, with a name that no other has.
    pub fn test_cluster() -> ClusterBuilder {
        static COUNTER: AtomicU32 = AtomicU32::new(1);
        let n = COUNTER.fetch_add(1, Ordering::Relaxed);
        ClusterBuilder::new(&format!("test-{}-{n}", std::process::id()))
    }

    /// A fault proxy in front of a cluster's API server. Dropping it ends it.
    pub async fn proxy(cluster: &Cluster) -> anyhow::Result<proxy::Proxy> {
        let (url, ca_pem) = (cluster.url().to_owned(), cluster.ca_pem().as_bytes().to_vec());
        proxy::Proxy::start(proxy::Upstream { url, ca_pem }).await
    }

    /// A stand-in for Rook on this cluster, with a CephCluster and a file system that are Ready. It acts as the
    /// user `rook`. Dropping it ends it.
    pub async fn rook_stand_in(cluster: &Cluster) -> anyhow::Result<rook::StandIn> {
        rook::StandIn::start(cluster.client_as("rook", &["system:masters"])?).await
    }

    /// The directory that holds one directory per cluster: `target/lab` of this workspace.
    pub fn root() -> PathBuf {
        directory::root()
    }

    /// The process that runs the named cluster now, if any.
    pub fn owner(name: &str) -> Option<u32> {
        directory::owner_of(&directory::root(), name)
    }

    /// How many nodes the named cluster has at the moment.
    pub fn nodes_of(name: &str) -> usize {
        nodes::running_in(&directory::root().join(name))
    }

    /// Whether the named cluster has disks for Ceph at the moment.
    pub fn has_rook(name: &str) -> bool {
        let dir = directory::root().join(name).canonicalize();
        dir.is_ok_and(|dir| !leftovers::loop_devices(&dir).is_empty())
    }

    /// The user's cache for everything that the lab builds.
    pub fn cache() -> anyhow::Result<PathBuf> {
        programs::cache()
    }

    /// Ends and removes what crashed owners left. Every start of a cluster does this too. Blocks.
    pub fn sweep() -> anyhow::Result<()> {
        directory::sweep(&directory::root())
    }
}
