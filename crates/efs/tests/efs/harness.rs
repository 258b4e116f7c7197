//! What runs in these tests: the family's controllers on the kit's clusters. Holds no machinery of its own.

use anyhow::Result;
use aquifer_efs::driver::{Driver, Management};
use aquifer_efs::file_systems::FileSystems;
use aquifer_efs::volumes::{self, Volumes};
use aquifer_lab::install::Account;
use aquifer_lab::kit::{Exclusive, Pool, Proxied, TestCluster};
use tokio::sync::OnceCell;

pub use aquifer_lab::kit::operator::client_of;
pub use aquifer_lab::kit::{DEADLINE, Operator, absent, condition, edit, show, until};

/// Starts the family under an account.
pub fn start(account: &Account, driver: Driver) -> Operator {
    Operator::start(account, |controllers| {
        controllers.run(Volumes::default());
        controllers.run(FileSystems);
        controllers.run(driver);
    })
}

/// Starts the family with these settings of SharedVolumes.
pub fn operator_with(test: &TestCluster, volumes: Volumes) -> Operator {
    Operator::start(&test.account, move |controllers| {
        controllers.run(volumes);
        controllers.run(FileSystems);
        controllers.run(Driver::default());
    })
}

/// Starts the family as it is installed.
pub fn installed_operator(test: &TestCluster) -> Operator {
    start(&test.account, Driver::default())
}

/// Starts, behind a fault proxy, an operator for SharedVolumes only, so that every write that it makes is about them.
pub fn volumes_operator(proxied: &Proxied) -> Operator {
    proxied.operator(|controllers| {
        controllers.run(Volumes::default());
        controllers.run(Driver { management: Management::External, ..Driver::default() });
    })
}

/// The cluster that most tests share, with an operator that runs as long as the program.
pub async fn shared() -> &'static TestCluster {
    static SHARED: OnceCell<(TestCluster, Operator)> = OnceCell::const_new();
    let start = || async {
        let test = TestCluster::start().await.expect("the shared cluster starts");
        let operator = installed_operator(&test);
        (test, operator)
    };
    &SHARED.get_or_init(start).await.0
}

/// A cluster for tests that start and stop their own operator.
pub async fn exclusive() -> Result<Exclusive> {
    static POOL: Pool = Pool::new();
    POOL.take().await
}

/// A cluster for one test alone, and a fault proxy for its operator.
pub async fn proxied(test: &TestCluster) -> Result<Proxied> {
    Proxied::new(&test.cluster, &test.account).await
}

/// How many passes over SharedVolumes have ended.
pub fn passes(operator: &Operator) -> u64 {
    operator.passes(volumes::NAME)
}

/// Looks at all `n` SharedVolumes again.
pub async fn resync_volumes(operator: &Operator, n: u64) -> Result<()> {
    operator.resync_all(volumes::NAME, n).await
}
