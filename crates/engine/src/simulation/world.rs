//! A simulated world: one API server, the processes that run on it, and other programs of the cluster.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use super::network::{Delays, Network};
use super::server::ApiServer;
use crate::lease::Timing;
use crate::metrics::Metrics;
use crate::model::Model;
use crate::object::Kind;
use crate::process::{self, Ended, Family, Health, LeaseSettings, Settings, Signal};
use crate::runtime::Runtime;

const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease", "leases");
const EVENT: Kind = Kind::namespaced("events.k8s.io", "v1", "Event", "events");
/// Between two looks at whether the world has come to rest.
const LOOK: Duration = Duration::from_millis(500);
/// The world's clock when it begins.
const BEGINS: i64 = 1_800_000_000;

/// A world, while its script runs.
pub struct World {
    /// What the API server holds. Users act on it directly.
    pub model: Arc<Model>,
    server: Arc<ApiServer>,
    network: Arc<Network>,
    /// The clock and the tasks of everything but the operator's processes.
    runtime: Runtime,
    seed: u64,
}

/// One process of the operator.
pub struct Process {
    runtime: Runtime,
    signals: UnboundedSender<Signal>,
    running: JoinHandle<Result<(), Ended>>,
}

/// Plays a script in a fresh world and gives its result and the whole history. The same seed gives the same history.
pub fn run<T>(
    seed: u64,
    delays: Delays,
    kinds: &[Kind],
    script: impl AsyncFnOnce(&World) -> T,
) -> std::io::Result<(T, Vec<String>)> {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let played = tokio.block_on(async {
        let world = World::new(seed, delays, kinds);
        let result = script(&world).await;
        (result, world.server.history())
    });
    Ok(played)
}

impl World {
    fn new(seed: u64, delays: Delays, kinds: &[Kind]) -> Self {
        let runtime = Runtime::simulated(Timestamp::from_second(BEGINS).unwrap_or_default(), seed);
        let model = Arc::new(Model::default());
        model.set_clock(&runtime);
        let network = Arc::new(Network::new(delays, seed));
        let kinds: Vec<Kind> = kinds.iter().cloned().chain([LEASE, EVENT]).collect();
        let server = ApiServer::new(Arc::clone(&model), Arc::clone(&network), runtime.clone(), &kinds);
        Self { model, server: Arc::new(server), network, runtime, seed }
    }

    /// The clock of the world.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// A client, as it is named in the history.
    pub fn client(&self, caller: &str) -> kube::Client {
        self.server.client(caller)
    }

    /// Starts a process. `families` gets its client and its runtime.
    pub fn start(
        &self,
        name: &str,
        families: impl FnOnce(&kube::Client, &Runtime) -> Vec<Family>,
    ) -> Process {
        let own = name.bytes().fold(self.seed, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
        let runtime = Runtime::simulated(self.runtime.now(), own);
        let client = self.client(name);
        let settings = Settings {
            families: families(&client, &runtime),
            client,
            runtime: runtime.clone(),
            http_listen: None,
            lease: Some(LeaseSettings {
                namespace: "aquifer-system".into(),
                identity: name.into(),
                timing: Timing::default(),
            }),
            metrics: Metrics::default(),
            health: Health::default(),
        };
        let (signals, told) = unbounded_channel();
        let running = runtime.spawn(process::run(settings, told));
        Process { runtime, signals, running }
    }

    /// Another program of the cluster: called after every change, when its reaction time has passed.
    pub fn react(&self, program: impl Fn(&Model) + Send + 'static) {
        let (model, network) = (Arc::clone(&self.model), Arc::clone(&self.network));
        let mut versions = model.versions();
        self.runtime.spawn(async move {
            loop {
                versions.changed().await;
                tokio::time::sleep(network.reaction()).await;
                versions = model.versions();
                program(&model);
            }
        });
    }

    /// Waits until nothing but Leases and Events has changed for a while. False when that did not happen in time.
    pub async fn rests(&self, quiet: Duration, within: Duration) -> bool {
        let deadline = Runtime::instant() + within;
        let (mut seen, mut since) = (self.model.version(), Runtime::instant());
        while Runtime::instant() < deadline {
            tokio::time::sleep(LOOK).await;
            let changes = self.model.changes_since(seen);
            if let Some(last) = changes.last() {
                seen = last.version;
            }
            if changes.iter().any(|change| change.target.kind != LEASE && change.target.kind != EVENT) {
                since = Runtime::instant();
            }
            if since.elapsed() >= quiet {
                return true;
            }
        }
        false
    }
}

impl Process {
    /// Ends it where it is, as a crash would.
    pub fn crash(self) {
        self.runtime.end();
    }

    /// Asks it to look at everything again.
    pub fn resync(&self) {
        let _ = self.signals.send(Signal::Resync);
    }

    /// Stops it in order.
    pub async fn stop(self) -> Result<(), Ended> {
        let _ = self.signals.send(Signal::Stop);
        self.running.await.unwrap_or(Err(Ended::Signals))
    }
}
