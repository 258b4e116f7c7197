//! An operator whose calls go through the fault proxy, and who is the one that its crashes kill. Injects nothing by itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Controllers, DEADLINE, Operator};
use crate::install::Account;
use crate::proxy::{Proxy, Victim};
use crate::{Cluster, Lab};

/// A fault proxy in front of a cluster, and the account of an operator behind it.
pub struct Proxied {
    /// Where faults are injected.
    pub proxy: Proxy,
    account: Account,
}

impl Proxied {
    /// A proxy for operators of this account.
    pub async fn new(cluster: &Cluster, account: &Account) -> Result<Self> {
        let proxy = Lab::proxy(cluster).await?;
        let account = account.behind(&proxy, &kubeconfig(cluster, &proxy))?;
        Ok(Self { proxy, account })
    }

    /// Starts an operator behind the proxy.
    pub fn operator(&self, set_up: impl FnOnce(&mut Controllers) + Send + 'static) -> Operator {
        let operator = Operator::start(&self.account, set_up);
        self.proxy.set_victim(Victim::Call(Arc::new(operator.killer())));
        operator
    }

    /// Waits until no write has come for this long.
    pub async fn quiet(&self, quiet: Duration) -> Result<()> {
        let is_quiet = self.proxy.wait_idle(quiet, DEADLINE).await;
        ensure!(is_quiet, "the operator does not stop writing: {:?}", self.proxy.writes().last());
        Ok(())
    }
}

/// Each proxy of a cluster has its own file.
fn kubeconfig(cluster: &Cluster, proxy: &Proxy) -> PathBuf {
    let port = proxy.url().rsplit(':').next().unwrap_or_default();
    cluster.dir().join(format!("kubeconfig-proxy-{port}"))
}
