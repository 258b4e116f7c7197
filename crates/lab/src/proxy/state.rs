//! The one place where it is decided what happens to a request: numbering, faults, and who is dead. All of it
//! under one lock and without waiting, so that "the n-th write" and "after the crash" have one meaning. No IO
//! except the kill itself.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::admitted::{Admitted, OpenWatch};
use super::decide::{After, Decision, Verdict};
use super::fault::{Action, Fault, FaultId, Victim};
use super::record::Write;
use super::target::{Call, CallKind, Target};

pub(super) struct Shared {
    state: Mutex<State>,
    /// Wakes whoever waits for a write, an answer, a crash or its end.
    pub(super) changed: watch::Sender<()>,
    /// Wakes the watches: something may have been released.
    pub(super) holds: watch::Sender<()>,
    /// Cancelled when the proxy is dropped.
    pub(super) root: CancellationToken,
    handle: Handle,
}

pub(super) struct State {
    pub(super) dead: bool,
    client_run: ClientRun,
    pub(super) victim: Option<Victim>,
    /// The victim is being called; its connections are still open.
    dying: bool,
    pub(super) kill_failed: Option<String>,
    /// The address from which a revival is announced; see `Proxy::revive`.
    pub(super) marker: Option<SocketAddr>,
    next_id: u64,
    pub(super) faults: Vec<Active>,
    pub(super) fired: HashMap<FaultId, u64>,
    round: u64,
    pub(super) writes: Vec<Write>,
    /// Later writes wait for this one, which ends in a crash.
    pub(super) barrier: Option<Seq>,
    pub(super) in_flight: usize,
    /// Requests that change something and are at the server now.
    pub(super) at_server: usize,
    pub(super) last_activity: Instant,
    pub(super) watches: HashMap<u64, (Target, CancellationToken)>,
}

/// One run of the client: the time between two crashes. A connection belongs to the run in which it was accepted.
#[derive(Clone)]
pub(super) struct ClientRun {
    number: u64,
    /// Cancelled at the instant of the crash.
    pub(super) over: CancellationToken,
    /// Cancelled when the victim has been called: connections close.
    pub(super) close: CancellationToken,
}

pub(super) struct Active {
    pub(super) id: FaultId,
    pub(super) fault: Fault,
    /// Events seen so far, for faults that count them.
    pub(super) seen: u64,
}

/// The number of a write, and the round (between two resets) in which it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seq {
    round: u64,
    n: u64,
}

/// What to do with a request that has arrived.
pub(super) struct Plan {
    pub(super) admitted: Admitted,
    pub(super) actions: Vec<Action>,
    pub(super) delay: Duration,
    pub(super) verdict: Verdict,
    pub(super) after: After,
    /// As recorded, for the actions.
    pub(super) write: Option<Write>,
    pub(super) lists_as_of: Option<String>,
}

/// The client of this request is dead: nothing is forwarded, nothing is answered.
#[derive(Debug)]
pub(super) struct Dead;

impl Shared {
    pub(super) fn new(handle: Handle) -> Self {
        let root = CancellationToken::new();
        Self {
            state: Mutex::new(State {
                dead: false,
                client_run: ClientRun::new(0, &root),
                victim: None,
                dying: false,
                kill_failed: None,
                marker: None,
                next_id: 0,
                faults: Vec::new(),
                fired: HashMap::new(),
                round: 0,
                writes: Vec::new(),
                barrier: None,
                in_flight: 0,
                at_server: 0,
                last_activity: Instant::now(),
                watches: HashMap::new(),
            }),
            changed: watch::Sender::new(()),
            holds: watch::Sender::new(()),
            root,
            handle,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn spawn<F>(&self, future: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(future)
    }

    /// A connection was accepted: the run of the client that it belongs to, or `None` when it must be closed.
    pub(super) fn accepted(&self, peer: SocketAddr) -> Option<ClientRun> {
        let mut state = self.lock();
        if state.marker == Some(peer) {
            state.marker = None;
            state.dead = false;
            state.barrier = None;
            state.client_run = ClientRun::new(state.client_run.number + 1, &self.root);
            self.changed.send_replace(());
            return None;
        }
        (!state.dead).then(|| state.client_run.clone())
    }

    /// A whole request has arrived: numbers it and decides everything that can be decided now.
    pub(super) fn arrive(
        self: &Arc<Self>,
        call: &Call,
        body_digest: impl FnOnce() -> String,
        client_run: &ClientRun,
    ) -> Result<Plan, Dead> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if !state.alive(client_run) {
            return Err(Dead);
        }
        let seq = (call.kind == CallKind::Write).then(|| state.number(call, body_digest()));
        if seq.is_some() {
            self.changed.send_replace(());
        }
        let mut admitted = Admitted {
            shared: Arc::clone(self),
            client_run: client_run.clone(),
            seq,
            changes: matches!(call.kind, CallKind::Write | CallKind::Uncounted),
            at_server: false,
        };
        let (decision, crash_now) = state.decide(call, seq);
        if crash_now {
            self.crash_locked(state);
            // The guard goes first: dropping the admitted request takes the lock.
            drop(guard);
            drop(admitted);
            return Err(Dead);
        }
        if decision.after == After::Crash {
            state.barrier = seq;
        }
        // Forwarded in the same breath as numbered: a crash before write n then leaves exactly n - 1 forwarded.
        if decision.verdict == Verdict::Forward
            && decision.actions.is_empty()
            && decision.delay.is_zero()
            && matches!(state.pass(&admitted), Pass::Go)
        {
            state.forward(&mut admitted);
        }
        let write = seq.and_then(|seq| state.record(seq).cloned());
        drop(guard);
        Ok(Plan {
            admitted,
            actions: decision.actions,
            delay: decision.delay,
            verdict: decision.verdict,
            after: decision.after,
            write,
            lists_as_of: decision.lists_as_of,
        })
    }

    /// Ends the present run of the client: from here on nothing of the victim is forwarded.
    pub(super) fn crash_locked(self: &Arc<Self>, state: &mut State) {
        if state.dead {
            return;
        }
        state.dead = true;
        state.client_run.over.cancel();
        let close = state.client_run.close.clone();
        // The victim goes before its connections, so that it cannot react to their end.
        match state.victim.take() {
            None => close.cancel(),
            Some(Victim::Pid(pid)) => {
                if let Err(error) = kill(pid) {
                    state.kill_failed = Some(format!("process {pid} was not killed: {error}"));
                }
                close.cancel();
            }
            Some(Victim::Call(call)) => {
                state.dying = true;
                let shared = Arc::clone(self);
                let called = self.handle.spawn_blocking(move || call());
                self.spawn(async move {
                    let result = called.await;
                    close.cancel();
                    let mut state = shared.lock();
                    state.dying = false;
                    if let Err(error) = result {
                        state.kill_failed = Some(format!("the victim's call failed: {error}"));
                    }
                    shared.changed.send_replace(());
                });
            }
        }
        self.changed.send_replace(());
    }

    /// Opens the books on one watch; dropping the result closes them.
    pub(super) fn open_watch(self: &Arc<Self>, target: Target, client_run: &ClientRun) -> OpenWatch {
        let token = client_run.close.child_token();
        let mut state = self.lock();
        let id = state.fresh_id();
        state.watches.insert(id, (target.clone(), token.clone()));
        OpenWatch { shared: Arc::clone(self), id, target, token }
    }

    pub(super) fn inject(&self, fault: Fault) -> FaultId {
        let mut guard = self.lock();
        let state = &mut *guard;
        let id = FaultId(state.fresh_id());
        let mut fired = 0;
        if let Fault::CloseWatch { resource } = &fault {
            for (target, token) in state.watches.values() {
                if target.is_resource(resource) {
                    token.cancel();
                    fired += 1;
                }
            }
        } else {
            state.faults.push(Active { id, fault, seen: 0 });
        }
        state.fired.insert(id, fired);
        id
    }

    /// Removes the faults that match, and wakes what they held.
    pub(super) fn remove(&self, matches: impl Fn(FaultId, &Fault) -> bool) {
        self.lock().faults.retain(|active| !matches(active.id, &active.fault));
        self.holds.send_replace(());
    }
}

impl State {
    fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(super) fn alive(&self, client_run: &ClientRun) -> bool {
        !self.dead && client_run.number == self.client_run.number
    }

    /// Nothing of the dead client can reach the server any more.
    pub(super) fn settled(&self) -> bool {
        !self.dying && self.at_server == 0
    }

    pub(super) fn fired(&self, id: FaultId) -> u64 {
        self.fired.get(&id).copied().unwrap_or_default()
    }

    pub(super) fn active(&self) -> Vec<String> {
        self.faults.iter().map(|active| format!("{:?}", active.fault)).collect()
    }

    pub(super) fn reset(&mut self) {
        self.round += 1;
        self.writes.clear();
    }

    fn number(&mut self, call: &Call, body_digest: String) -> Seq {
        let n = self.writes.len() as u64 + 1;
        self.writes.push(Write {
            n,
            method: call.method.clone(),
            path: call.path.clone(),
            query: call.query.clone(),
            object: call.object.clone(),
            body_digest,
            forwarded: false,
            status: None,
        });
        self.in_flight += 1;
        self.last_activity = Instant::now();
        Seq { round: self.round, n }
    }

    pub(super) fn record(&mut self, seq: Seq) -> Option<&mut Write> {
        if seq.round != self.round {
            return None;
        }
        let index = usize::try_from(seq.n - 1).ok()?;
        self.writes.get_mut(index)
    }

    /// Which faults hit this request. The second value says that the victim dies now.
    fn decide(&mut self, call: &Call, seq: Option<Seq>) -> (Decision, bool) {
        let mut decision = Decision::default();
        let mut crash_now = false;
        let n = seq.map(|seq| seq.n);
        let fired = &mut self.fired;
        self.faults.retain_mut(|active| {
            let (hit, keep) = decision.apply(&mut active.fault, call, n, &mut crash_now);
            if hit {
                *fired.entry(active.id).or_default() += 1;
            }
            keep
        });
        (decision, crash_now)
    }

    pub(super) fn pass(&self, admitted: &Admitted) -> Pass {
        if !self.alive(&admitted.client_run) {
            return Pass::Dead;
        }
        match (self.barrier, admitted.seq) {
            (Some(barrier), Some(seq)) if seq > barrier => Pass::Wait,
            _ => Pass::Go,
        }
    }

    pub(super) fn forward(&mut self, admitted: &mut Admitted) {
        if !admitted.changes {
            return;
        }
        admitted.at_server = true;
        self.at_server += 1;
        if let Some(write) = admitted.seq.and_then(|seq| self.record(seq)) {
            write.forwarded = true;
        }
    }
}

/// Whether a request may go to the server now.
pub(super) enum Pass {
    Go,
    Wait,
    Dead,
}

impl ClientRun {
    fn new(number: u64, root: &CancellationToken) -> Self {
        Self { number, over: root.child_token(), close: root.child_token() }
    }
}

fn kill(pid: u32) -> std::io::Result<()> {
    let pid = i32::try_from(pid)
        .ok()
        .filter(|pid| *pid > 1)
        .and_then(Pid::from_raw)
        .ok_or_else(|| std::io::Error::from(Errno::INVAL))?;
    match kill_process(pid, Signal::KILL) {
        // Already gone is as good as killed.
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
