//! Clusters that tests of controllers run on: our kinds, the users' roles and the operator's account are installed; no operator runs yet.

use std::ops::Deref;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::sync::{Mutex, MutexGuard, OnceCell, Semaphore, SemaphorePermit};

use super::DEADLINE;
use super::writes::writes_since;
use crate::install::{self, Account};
use crate::{Call, Cluster, ClusterBuilder, Lab, Mark, eventually};

/// A cluster that is ready for an operator.
pub struct TestCluster {
    /// The cluster.
    pub cluster: Cluster,
    /// What the operator runs as.
    pub account: Account,
}

impl TestCluster {
    /// Starts one.
    pub async fn start() -> Result<Self> {
        Self::on(Lab::test_cluster()).await
    }

    /// Starts one for a test that uses the operator's account for what an operator never does: the check of rights hears nothing of it.
    pub async fn unrecorded() -> Result<Self> {
        Self::on(Lab::test_cluster().unrecorded()).await
    }

    async fn on(cluster: ClusterBuilder) -> Result<Self> {
        let cluster = cluster.start().await?;
        let client = cluster.client()?;
        install::crds(&client).await?;
        install::user_roles(&client).await?;
        let account = install::identity(&cluster).await?;
        Ok(Self { cluster, account })
    }

    /// Writes of the operator since a mark, Leases and Events apart.
    pub fn writes_since(&self, mark: Mark) -> Result<Vec<Call>> {
        writes_since(&self.cluster, mark)
    }

    /// Waits until the operator has not written for longer than a status that can wait does wait; gives the mark of that moment.
    pub async fn settled(&self) -> Result<Mark> {
        eventually(DEADLINE, "the operator stops writing", || async {
            let mark = self.cluster.audit().mark()?;
            tokio::time::sleep(Duration::from_millis(1500)).await;
            let writes = self.writes_since(mark)?;
            ensure!(writes.is_empty(), "{writes:?}");
            Ok(Some(mark))
        })
        .await
    }
}

/// Two clusters for all tests of a program that start and stop an operator of their own: each test has one for itself while it runs.
pub struct Pool {
    turns: Semaphore,
    clusters: [OnceCell<Mutex<TestCluster>>; 2],
}

/// A cluster of a [`Pool`], for as long as this lives.
pub struct Exclusive {
    cluster: MutexGuard<'static, TestCluster>,
    // After the cluster: who comes next finds it free.
    _turn: SemaphorePermit<'static>,
}

impl Pool {
    /// For a `static`.
    #[expect(clippy::new_without_default, reason = "a default could not be const")]
    pub const fn new() -> Self {
        Self { turns: Semaphore::const_new(2), clusters: [OnceCell::const_new(), OnceCell::const_new()] }
    }

    /// Waits for a cluster.
    pub async fn take(&'static self) -> Result<Exclusive> {
        let turn = self.turns.acquire().await.context("the pool is closed")?;
        for cluster in &self.clusters {
            let start = || async { TestCluster::start().await.map(Mutex::new) };
            if let Ok(cluster) = cluster.get_or_try_init(start).await?.try_lock() {
                return Ok(Exclusive { cluster, _turn: turn });
            }
        }
        bail!("two turns, two clusters, and both are taken")
    }
}

impl Deref for Exclusive {
    type Target = TestCluster;

    fn deref(&self) -> &TestCluster {
        &self.cluster
    }
}
