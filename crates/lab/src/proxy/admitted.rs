//! Requests and watches that the proxy has admitted: they count as open until they are dropped.

use std::sync::Arc;

use http::StatusCode;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::decide::After;
use super::fault::Fault;
use super::state::{ClientRun, Dead, Pass, Seq, Shared};
use super::target::Target;

/// One request that was admitted. It counts as open until this is dropped.
pub(super) struct Admitted {
    pub(super) shared: Arc<Shared>,
    pub(super) client_run: ClientRun,
    pub(super) seq: Option<Seq>,
    pub(super) changes: bool,
    pub(super) at_server: bool,
}

impl Admitted {
    /// Waits for leave to forward, and takes it. Cancelled, nothing is taken.
    pub(super) async fn pass(&mut self) -> Result<(), Dead> {
        let shared = Arc::clone(&self.shared);
        let mut changed = shared.changed.subscribe();
        loop {
            {
                let mut state = shared.lock();
                if self.at_server {
                    return Ok(());
                }
                match state.pass(self) {
                    Pass::Go => {
                        state.forward(self);
                        return Ok(());
                    }
                    Pass::Dead => return Err(Dead),
                    Pass::Wait => {}
                }
            }
            // The sender lives as long as `shared`.
            let _ = changed.changed().await;
        }
    }

    /// The answer is known (or there will be none): records it, crashes when that is the plan, and says
    /// whether the client may hear of it.
    pub(super) fn answered(mut self, status: Option<StatusCode>, after: After) -> Result<(), Dead> {
        let shared = Arc::clone(&self.shared);
        let mut guard = shared.lock();
        let state = &mut *guard;
        if let Some(write) = self.seq.and_then(|seq| state.record(seq)) {
            write.status = status.map(|status| status.as_u16());
        }
        if std::mem::take(&mut self.at_server) {
            state.at_server -= 1;
        }
        if after == After::Crash {
            shared.crash_locked(state);
        }
        let alive = state.alive(&self.client_run);
        drop(guard);
        if alive { Ok(()) } else { Err(Dead) }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if !self.changes {
            return;
        }
        let mut state = self.shared.lock();
        if self.at_server {
            state.at_server -= 1;
        }
        if let Some(seq) = self.seq {
            state.in_flight -= 1;
            state.last_activity = Instant::now();
            if state.barrier == Some(seq) {
                state.barrier = None;
            }
        }
        drop(state);
        self.shared.changed.send_replace(());
    }
}

/// One watch that is open now.
pub(super) struct OpenWatch {
    pub(super) shared: Arc<Shared>,
    pub(super) id: u64,
    pub(super) target: Target,
    /// Cancelled when this watch has to end.
    pub(super) token: CancellationToken,
}

impl OpenWatch {
    pub(super) fn held(&self) -> bool {
        self.shared.lock().faults.iter().any(|active| {
            matches!(&active.fault, Fault::HoldWatch { resource, .. } if self.target.is_resource(resource))
        })
    }

    /// Counts an event of the server; says whether it is swallowed.
    pub(super) fn swallows(&self) -> bool {
        let mut swallowed = false;
        let mut guard = self.shared.lock();
        let state = &mut *guard;
        let fired = &mut state.fired;
        state.faults.retain_mut(|active| {
            let Fault::DropWatchEvent { resource, n } = &active.fault else {
                return true;
            };
            if !self.target.is_resource(resource) {
                return true;
            }
            active.seen += 1;
            if active.seen < *n {
                return true;
            }
            *fired.entry(active.id).or_default() += 1;
            swallowed = true;
            false
        });
        swallowed
    }

    pub(super) fn holds(&self) -> watch::Receiver<()> {
        self.shared.holds.subscribe()
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.shared.lock().watches.remove(&self.id);
    }
}
