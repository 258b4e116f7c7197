//! One process of the operator: its families, each under a Lease of its own, from start to exit. Decides nothing about
//! storage and reads no flags.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use kube::Client;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::controller::Controller;
use crate::health;
use crate::http::{self, Limits};
use crate::latest::latest;
use crate::lease::{self, Leadership, LostLease, Timing};
use crate::metrics::Metrics;
use crate::runner;
use crate::runtime::Runtime;
use crate::streams::Streams;

pub use crate::health::{Health, MAX_WATCH_SILENCE};
pub use crate::runner::Context;

/// What a process runs, and how.
pub struct Settings {
    /// The client of the operator.
    pub client: Client,
    /// Its clock, randomness and tasks.
    pub runtime: Runtime,
    /// Where `/livez` and `/readyz` are served; nowhere when left out.
    pub http_listen: Option<SocketAddr>,
    /// Where `/metrics` is served, apart from the others, so that who may read it can be limited; nowhere when left out.
    pub metrics_listen: Option<SocketAddr>,
    /// How replicas agree who works. None where there is one replica only, as in most tests: then it always leads.
    pub lease: Option<LeaseSettings>,
    /// The families.
    pub families: Vec<Family>,
    /// What it counts.
    pub metrics: Metrics,
    /// What it is not ready for yet.
    pub health: Health,
}

/// What all Leases of a process have in common.
#[derive(Clone, Debug)]
pub struct LeaseSettings {
    /// Their namespace.
    pub namespace: String,
    /// What people see as the holder, such as the pod's name.
    pub identity: String,
    /// Their durations.
    pub timing: Timing,
}

/// A family as a process runs it.
pub struct Family {
    /// Its name; its Lease is `aquifer-<name>`, whichever Deployment runs it, so that it never runs twice.
    pub name: String,
    /// Run by one replica at a time.
    pub controllers: Vec<Box<dyn Runnable>>,
    /// Run by every replica.
    pub servers: Vec<Box<dyn Runnable>>,
}

/// The name of a family's Lease.
pub fn lease_name(family: &str) -> String {
    format!("aquifer-{family}")
}

/// Something that runs until the context's shutdown.
pub trait Runnable: Send {
    /// Runs it.
    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ()>;
}

impl<C: Controller> Runnable for C {
    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ()> {
        Box::pin(runner::run(*self, context))
    }
}

/// What a process is told from outside while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Every object has a pass.
    Resync,
    /// Passes that run may finish, the Leases are given back, the process ends.
    Stop,
}

/// Why a process ended without being told to. It must be started again: what it holds in memory may be outdated.
#[derive(Debug, Error)]
pub enum Ended {
    /// The address is taken, or not ours.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// Another replica works now.
    #[error(transparent)]
    LostLease(#[from] LostLease),
    /// A bug: leader election does not end by itself.
    #[error("cannot go on: leader election of the family {0} ended by itself")]
    Election(String),
    /// A bug: controllers and servers do not end by themselves.
    #[error("cannot go on: a controller or server of the family {0} ended by itself")]
    Controller(String),
    /// Nobody can tell the process to stop any more.
    #[error("cannot go on: the channel of signals was closed")]
    Signals,
}

/// Runs until it is told to stop, or until a Lease is lost.
pub async fn run(settings: Settings, mut signals: mpsc::UnboundedReceiver<Signal>) -> Result<(), Ended> {
    let Settings { client, runtime, http_listen, metrics_listen, lease, families, metrics, health } =
        settings;
    let (shutdown, http_end) = (CancellationToken::new(), CancellationToken::new());
    let listen = async |address: Option<SocketAddr>, router, limits, paths: &str| {
        let Some(address) = address else { return Ok(()) };
        let served = http::serve(address, router, limits, &runtime, http_end.clone()).await;
        let taken = served.map_err(|source| Ended::Listen { address, source })?;
        tracing::info!(address = %taken, "Serving {paths}");
        Ok::<(), Ended>(())
    };
    listen(http_listen, health::router(health.clone()), Limits::PROBES, "/livez and /readyz").await?;
    listen(metrics_listen, metrics.router(), Limits::SCRAPERS, "/metrics").await?;
    let streams = Streams::new(client.clone(), runtime.clone(), metrics.clone(), health.clone());
    let (resync, resynced) = latest(0_u64);
    let mut running: JoinSet<String> = JoinSet::new();
    let mut elections: JoinSet<(String, Result<(), LostLease>)> = JoinSet::new();
    let mut leases: Vec<HeldLease> = Vec::new();
    for family in families {
        let mut leadership = Leadership::always();
        let mut held = HeldLease::default();
        if let Some(lease) = &lease {
            let (elected, election) = elect(&client, &runtime, lease, &family.name, &held.end);
            leadership = elected;
            held.election = Some(election.abort_handle());
            let name = family.name.clone();
            elections.spawn(async move {
                // A task that panicked or was aborted no longer renews, so its Lease is lost at its deadline.
                (name, election.await.unwrap_or(Ok(())))
            });
        }
        runtime.spawn(report_leadership(leadership.clone(), metrics.clone(), family.name.clone()));
        let context = |leadership: &Leadership| Context {
            client: client.clone(),
            runtime: runtime.clone(),
            streams: streams.clone(),
            leadership: leadership.clone(),
            metrics: metrics.clone(),
            health: health.clone(),
            shutdown: shutdown.clone(),
            working: Arc::clone(&held.working),
            resync: resynced.clone(),
        };
        let always = Leadership::always();
        let controllers = family.controllers.into_iter().map(|one| one.run(context(&leadership)));
        let servers = family.servers.into_iter().map(|one| one.run(context(&always)));
        for task in controllers.chain(servers) {
            let name = family.name.clone();
            running.spawn(runtime.counted(async move {
                task.await;
                name
            }));
        }
        leases.push(held);
    }
    let ended = loop {
        tokio::select! {
            biased;
            signal = signals.recv() => match signal {
                Some(Signal::Stop) => break Ok(()),
                Some(Signal::Resync) => {
                    tracing::info!("Looking at every object again");
                    resync.increment();
                }
                None => break Err(Ended::Signals),
            },
            Some(ended) = elections.join_next() => break Err(election_ended(ended)),
            Some(ended) = running.join_next() => {
                break Err(Ended::Controller(ended.unwrap_or_else(|error| format!("(unknown: {error})"))));
            }
        }
    };
    // Also when one family has lost its Lease: those of the others are given back in order.
    tracing::info!("Stopping");
    shutdown.cancel();
    while running.join_next().await.is_some() {}
    // Only now may another replica begin; where something that was given up may still happen, only when the Lease expires.
    for held in leases {
        match held.election {
            Some(election) if held.working.load(Ordering::SeqCst) > 0 => election.abort(),
            _ => held.end.cancel(),
        }
    }
    http_end.cancel();
    while let Some(ended) = elections.join_next().await {
        if let Ok((family, Err(lost))) = ended {
            tracing::warn!(family, %lost, "The Lease could not be given back");
        }
    }
    ended
}

/// The Lease of one family.
#[derive(Default)]
struct HeldLease {
    /// Gives it back.
    end: CancellationToken,
    /// The task that renews it.
    election: Option<AbortHandle>,
    /// Controllers that have begun and not ended in order.
    working: Arc<AtomicUsize>,
}

fn elect(
    client: &Client,
    runtime: &Runtime,
    lease: &LeaseSettings,
    family: &str,
    end: &CancellationToken,
) -> (Leadership, JoinHandle<Result<(), LostLease>>) {
    let config = lease::Config {
        namespace: lease.namespace.clone(),
        name: lease_name(family),
        identity: lease.identity.clone(),
        timing: lease.timing,
    };
    lease::elect(client.clone(), runtime, config, end.clone())
}

fn election_ended(ended: Result<(String, Result<(), LostLease>), tokio::task::JoinError>) -> Ended {
    match ended {
        // At once: what is in memory may be outdated, and another replica works already.
        Ok((_, Err(lost))) => Ended::LostLease(lost),
        Ok((family, Ok(()))) => Ended::Election(family),
        Err(error) => Ended::Election(format!("(unknown: {error})")),
    }
}

async fn report_leadership(leadership: Leadership, metrics: Metrics, family: String) {
    let mut changes = leadership.changes();
    let mut leads = changes.get();
    loop {
        metrics.leading(&family, leads);
        tracing::info!(family, leads, "Leadership");
        leads = changes.changed().await;
    }
}
