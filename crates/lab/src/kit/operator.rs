//! The operator inside a test: controllers in a thread and a runtime of their own, so that stopping it is as sudden as a crash.
//! The one file that knows how the engine runs controllers. Never runs as administrator unless it is given such an account.

use std::path::Path;
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, ensure};
use aquifer_engine::Controller;
use aquifer_engine::live::client_config;
use aquifer_engine::metrics::Metrics;
use aquifer_engine::process::{self, Family, Health, LeaseSettings, Runnable, Settings, Signal};
use aquifer_engine::runtime::Runtime;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::{DEADLINE, metrics};
use crate::eventually;
use crate::install::Account;

/// The family that an operator in a test runs; its Lease is `aquifer-test`.
const FAMILY: &str = "test";

/// A running operator. Dropping it ends it.
pub struct Operator {
    stop: CancellationToken,
    signals: UnboundedSender<Signal>,
    thread: Option<JoinHandle<()>>,
    /// What it is not ready for yet.
    pub health: Health,
    /// What it counts.
    pub metrics: Metrics,
}

/// What an operator is to run, while it starts.
pub struct Controllers {
    client: kube::Client,
    metrics: Metrics,
    added: Vec<Box<dyn Runnable>>,
    lease: Option<LeaseSettings>,
}

impl Controllers {
    /// Runs a controller.
    pub fn run<C: Controller>(&mut self, controller: C) {
        self.added.push(Box::new(controller));
    }

    /// It acts only while it holds the Lease. Without this it always may.
    pub fn elect(&mut self, lease: LeaseSettings) {
        self.lease = Some(lease);
    }

    /// The operator's client, for controllers that need one.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// The operator's counters.
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }
}

impl Operator {
    /// Starts what `set_up` says, under an account.
    pub fn start(account: &Account, set_up: impl FnOnce(&mut Controllers) + Send + 'static) -> Self {
        let stop = CancellationToken::new();
        let (signals, received) = unbounded_channel();
        let (health, metrics) = (Health::default(), Metrics::default());
        let work = {
            let (stop, kubeconfig) = (stop.clone(), account.kubeconfig.clone());
            let (health, metrics) = (health.clone(), metrics.clone());
            async move {
                let client = client_of(&kubeconfig).await?;
                let mut set =
                    Controllers { client, metrics: metrics.clone(), added: Vec::new(), lease: None };
                set_up(&mut set);
                ensure!(!set.added.is_empty(), "an operator without a controller");
                let family = Family { name: FAMILY.into(), controllers: set.added, servers: Vec::new() };
                let settings = Settings {
                    client: set.client,
                    runtime: Runtime::system(),
                    http_listen: None,
                    metrics_listen: None,
                    lease: set.lease,
                    families: vec![family],
                    metrics,
                    health,
                };
                // A crash is not announced: the process is dropped where it is.
                tokio::select! {
                    biased;
                    () = stop.cancelled() => Ok(()),
                    ended = process::run(settings, received) => ended.context("the process ended"),
                }
            }
        };
        let thread = std::thread::spawn(move || {
            let ended = tokio::runtime::Builder::new_current_thread().enable_all().build().map(|runtime| {
                let ended = runtime.block_on(work);
                runtime.shutdown_background();
                ended
            });
            // The test sees only that nothing happens; the reason is on its standard error.
            if let Err(error) = ended.context("cannot make a runtime").and_then(|ended| ended) {
                eprintln!("cannot run the operator: {error:#}");
            }
        });
        Self { stop, signals, thread: Some(thread), health, metrics }
    }

    /// Every object has another pass.
    pub fn resync(&self) {
        let _ = self.signals.send(Signal::Resync);
    }

    /// Every object has another pass; waits until this controller has had `n` of them.
    pub async fn resync_all(&self, controller: &str, n: u64) -> Result<()> {
        let before = self.passes(controller);
        self.resync();
        eventually(DEADLINE, &format!("{controller} has had {n} more passes"), || async {
            let passes = self.passes(controller) - before;
            ensure!(passes >= n, "{passes} of {n}");
            Ok(Some(()))
        })
        .await
    }

    /// How many passes of a controller have ended.
    pub fn passes(&self, controller: &str) -> u64 {
        metrics::sum(&self.metrics.text(), "aquifer_controller_passes_total", &[("controller", controller)])
    }

    /// Ends it when called, for the fault proxy: at once, whatever it was doing.
    pub fn killer(&self) -> impl Fn() + Send + Sync + 'static + use<> {
        let stop = self.stop.clone();
        move || stop.cancel()
    }

    /// Ends it at once, whatever it was doing, and waits until nothing of it runs.
    pub fn crash(mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A client as the operator makes it.
pub async fn client_of(kubeconfig: &Path) -> Result<kube::Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(client_config(config))?)
}
