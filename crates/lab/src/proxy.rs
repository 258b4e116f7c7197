//! A proxy in front of the API server that makes things go wrong, always at the same place: crashes, lost and
//! late answers, errors, watches that lag or lie. Must not change what it forwards.
//!
//! The client under test uses plain HTTP to [`Proxy::url`]; the proxy uses TLS to the server. Everything is
//! counted, nothing is random. One proxy serves one client process: a crash closes all its connections.
//!
//! ```no_run
//! # use aquifer_lab::proxy::{Fault, Proxy, Upstream, Victim};
//! # use std::time::Duration;
//! # async fn walk(upstream: Upstream, start: impl Fn(&str) -> std::process::Child) -> anyhow::Result<()> {
//! let proxy = Proxy::start(upstream).await?;
//! let mut child = start(proxy.url());
//! proxy.set_victim(Victim::Pid(child.id()));
//! proxy.inject(Fault::CrashAfter(3));
//! proxy.wait_crash(Duration::from_secs(20)).await?;
//! child.wait()?;
//! proxy.revive().await?;
//! let child = start(proxy.url());
//! assert!(proxy.wait_idle(Duration::from_secs(1), Duration::from_secs(20)).await);
//! # Ok(())
//! # }
//! ```

mod admitted;
mod answer;
mod decide;
mod fault;
mod record;
mod serve;
mod state;
mod stream;
mod target;
#[cfg(test)]
mod tests;
mod upstream;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::json;
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::{Instant, timeout_at};

pub use fault::{Action, Fault, FaultId, Select, Victim};
pub use record::Write;
pub use target::Target;
pub use upstream::Upstream;

use crate::access::write_private;
use state::{Shared, State};

/// How long a revival waits for what the dead client had sent before it died.
const SETTLE: Duration = Duration::from_secs(30);

/// A running fault proxy. Dropped, it stops and closes its connections.
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
    url: String,
}

impl Proxy {
    /// Starts a proxy on a free port of the loopback interface.
    pub async fn start(upstream: Upstream) -> anyhow::Result<Self> {
        let server = Arc::new(upstream::Server::new(&upstream)?);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("the fault proxy cannot listen on 127.0.0.1")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::new(tokio::runtime::Handle::current()));
        shared.spawn(serve::accept(listener, Arc::clone(&shared), server));
        Ok(Self { shared, address, url: format!("http://{address}") })
    }

    /// Where clients connect.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Writes a kubeconfig for a client behind this proxy, readable only by its owner. Go clients ignore
    /// credentials of servers without TLS; clients in Rust use them.
    pub fn kubeconfig(&self, token: &str, path: &Path) -> anyhow::Result<()> {
        self.write_kubeconfig(&json!({ "token": token }), path)
    }

    /// The same, for a client that acts as another user.
    pub fn kubeconfig_as(&self, token: &str, user: &str, groups: &[&str], path: &Path) -> anyhow::Result<()> {
        let mut identity = json!({ "token": token, "as": user });
        if !groups.is_empty() {
            identity["as-groups"] = json!(groups);
        }
        self.write_kubeconfig(&identity, path)
    }

    fn write_kubeconfig(&self, identity: &serde_json::Value, path: &Path) -> anyhow::Result<()> {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "proxy", "cluster": { "server": self.url } }],
            "users": [{ "name": "client", "user": identity }],
            "contexts": [{ "name": "proxy", "context": { "cluster": "proxy", "user": "client" } }],
            "current-context": "proxy",
        });
        let text = serde_saphyr::to_string(&config)?;
        write_private(path, &text)
    }

    /// Says who dies in the next crash. Without a victim a crash only cuts the connections. A crash uses it up.
    pub fn set_victim(&self, victim: Victim) {
        self.shared.lock().victim = Some(victim);
    }

    /// Adds a fault; several may be active.
    pub fn inject(&self, fault: Fault) -> FaultId {
        self.shared.inject(fault)
    }

    /// Removes one fault.
    pub fn remove(&self, id: FaultId) {
        self.shared.remove(|other, _| other == id);
    }

    /// Removes all faults; held watch events are delivered. The dead stay dead: see [`Proxy::revive`].
    pub fn clear(&self) {
        self.shared.remove(|_, _| true);
    }

    /// Ends every [`Fault::HoldWatch`] of a resource (written as it was injected): its events are delivered in order.
    pub fn release(&self, resource: &str) {
        self.shared
            .remove(|_, fault| matches!(fault, Fault::HoldWatch { resource: held, .. } if held == resource));
    }

    /// How often a fault has struck; also after it has ended.
    pub fn fired(&self, id: FaultId) -> u64 {
        self.shared.lock().fired(id)
    }

    /// Numbers writes from 1 again, and forgets those recorded so far.
    pub fn reset(&self) {
        self.shared.lock().reset();
    }

    /// The writes since the start or the last reset, in the order of arrival.
    pub fn writes(&self) -> Vec<Write> {
        self.shared.lock().writes.clone()
    }

    /// How many writes have arrived and are not yet answered.
    pub fn in_flight(&self) -> usize {
        self.shared.lock().in_flight
    }

    /// Waits until no write has arrived for `quiet`, counted from now, and none is in flight. False when that did
    /// not happen within `deadline`.
    pub async fn wait_idle(&self, quiet: Duration, deadline: Duration) -> bool {
        let start = Instant::now();
        let end = start + deadline;
        let mut changed = self.shared.changed.subscribe();
        loop {
            let idle_at = {
                let state = self.shared.lock();
                (state.in_flight == 0).then(|| state.last_activity.max(start) + quiet)
            };
            let now = Instant::now();
            if idle_at.is_some_and(|at| at <= now) {
                return true;
            }
            if now >= end {
                return false;
            }
            // Ends early on every change; what it ends with does not matter, the state is read again.
            let _ = timeout_at(idle_at.unwrap_or(end).min(end), changed.changed()).await;
        }
    }

    /// Crashes the victim now: from the return on, nothing more of it is forwarded.
    pub fn crash(&self) {
        self.shared.crash_locked(&mut self.shared.lock());
    }

    /// Whether the victim is dead and not revived.
    pub fn crashed(&self) -> bool {
        self.shared.lock().dead
    }

    /// Waits for a crash, until the victim has been called and the server has answered all that was sent before:
    /// from then on the world stands still.
    pub async fn wait_crash(&self, deadline: Duration) -> anyhow::Result<()> {
        let crashed = self.wait_until(deadline, |state| state.dead && state.settled()).await;
        let state = self.shared.lock();
        if let Some(error) = &state.kill_failed {
            bail!("{error}");
        }
        if !crashed {
            bail!(
                "no crash within {deadline:?}: {} writes arrived, waiting faults: {:?}",
                state.writes.len(),
                state.active()
            );
        }
        Ok(())
    }

    /// Serves connections again after a crash, but only those that are made from now on. The victim must be gone
    /// (wait for the process first). Does nothing when there was no crash.
    pub async fn revive(&self) -> anyhow::Result<()> {
        if !self.crashed() {
            return Ok(());
        }
        if !self.wait_until(SETTLE, State::settled).await {
            bail!("the API server has not answered what was sent before the crash within {SETTLE:?}");
        }
        // The dead client may have left connections, with requests in them, that are not accepted yet. They are
        // accepted in order: once our own connection comes up, all of theirs have been closed.
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        {
            let mut state = self.shared.lock();
            state.marker = Some(socket.local_addr()?);
            state.kill_failed = None;
        }
        let _connection = tokio::time::timeout(SETTLE, socket.connect(self.address))
            .await
            .context("the fault proxy does not answer itself")??;
        if !self.wait_until(SETTLE, |state| state.marker.is_none()).await {
            bail!("the fault proxy did not come back within {SETTLE:?}");
        }
        Ok(())
    }

    async fn wait_until(&self, within: Duration, done: impl Fn(&State) -> bool) -> bool {
        let end = Instant::now() + within;
        let mut changed = self.shared.changed.subscribe();
        loop {
            if done(&self.shared.lock()) {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            let _ = timeout_at(end, changed.changed()).await;
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.root.cancel();
    }
}
