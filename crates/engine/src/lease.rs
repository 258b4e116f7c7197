//! Leader election by a Kubernetes Lease. Decides who may write; must not know what is written.
//!
//! Three rules keep two replicas from leading at the same time, whatever clocks and networks do:
//!
//! 1. Every write to the Lease is a compare-and-swap on its resourceVersion.
//! 2. Nobody compares wall clocks. A standby measures, on its own monotonic clock, how long the record has not
//!    *changed*, and takes over only after the full lease duration.
//! 3. The leader counts from the *start* of its last successful renewal request and stops at the renew deadline,
//!    which is shorter than the lease. [`Leadership::is_current`] turns false by itself, also when the task that
//!    renews is starved or the process was stopped for a while.
//!
//! The margin between the two (4 s of 10 s by default) covers clocks that run at different speeds. Machines whose
//! monotonic clock stands still while others' runs (a frozen virtual machine) can still be late for one check: for
//! that case every write of the engine carries its own precondition. Deleting the Lease by hand is survived too, except
//! by a replica that starts in that very moment and knows nothing of the holder: two may then lead for one retry.

mod elector;
mod kubernetes;
mod leadership;
mod record;
#[cfg(test)]
mod simulation;
mod storage;
mod timing;

use std::time::Duration;

use thiserror::Error;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::runtime::Runtime;

pub use elector::Elector;
pub use kubernetes::KubeStorage;
pub use leadership::Leadership;
pub use record::{Candidate, Record, Verdict, evaluate};
pub use storage::{Storage, StorageError, Stored};
pub use timing::{BadTiming, Timing};

/// Which Lease to compete for, and as whom.
#[derive(Clone, Debug)]
pub struct Config {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// What people should see as the holder, such as the pod's name. [`elect`] makes it unique.
    pub identity: String,
    /// The durations; the default is 10 s lease, 6 s renew deadline, 1.5 s between attempts.
    pub timing: Timing,
}

/// Leadership ended without being asked to. The process should exit: what it holds in memory may be outdated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LostLease {
    /// Another replica holds the lease now.
    #[error("cannot go on: the Lease {lease} is now held by {holder}; this process must restart")]
    TakenOver {
        /// Namespace and name of the Lease.
        lease: String,
        /// Who holds it.
        holder: String,
    },
    /// Somebody cleared the holder.
    #[error(
        "cannot go on: the holder of the Lease {lease} was cleared by somebody else; this process must restart"
    )]
    Cleared {
        /// Namespace and name of the Lease.
        lease: String,
    },
    /// No renewal succeeded in time.
    #[error(
        "cannot go on: the Lease {lease} was not renewed within {within:?} (last answer: {last}); this process must restart"
    )]
    NotRenewed {
        /// Namespace and name of the Lease.
        lease: String,
        /// The renew deadline.
        within: Duration,
        /// What the last attempt met.
        last: String,
    },
}

/// Competes for the lease in a task of its own until `cancel`, which gives the lease back so that a standby can take
/// over at once. Cancel only after all work that needs leadership has ended.
///
/// The holder in the Lease is `identity` and a few random characters: two processes with the same identity, such as a
/// container and its restart, must not mistake the other's lease for their own.
///
/// The task ends with an error when a lease that was held is lost; the caller then ends the process.
pub fn elect(
    client: kube::Client,
    runtime: &Runtime,
    mut config: Config,
    cancel: CancellationToken,
) -> (Leadership, JoinHandle<Result<(), LostLease>>) {
    config.identity = format!("{}_{:016x}", config.identity, runtime.random());
    let storage = KubeStorage::new(client, &config.namespace, &config.name);
    let elector = Elector::new(storage, config, runtime.clone());
    let leadership = elector.leadership();
    (leadership, runtime.spawn(elector.run(cancel)))
}
