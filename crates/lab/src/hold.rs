//! Runs a cluster for another process: until standard input ends, which the kernel brings about however that process ends.

use std::io::Read as _;

use anyhow::{Result, bail};

use crate::{Cluster, ClusterBuilder};

/// Starts a cluster, calls `ready`, and stops it when standard input ends. When that happens during the start, the start is given up.
pub async fn hold(builder: ClusterBuilder, ready: impl FnOnce(&Cluster)) -> Result<()> {
    let (ended, mut owner_is_gone) = tokio::sync::oneshot::channel();
    // A thread of its own and not the runtime's: nothing waits for it at the end.
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = ended.send(());
    });
    let cluster = tokio::select! {
        cluster = builder.start() => cluster?,
        _ = &mut owner_is_gone => bail!("the process that wanted the cluster has ended"),
    };
    ready(&cluster);
    // An error says that the thread is gone, which it is only after standard input.
    let _ = owner_is_gone.await;
    cluster.stop().await
}
