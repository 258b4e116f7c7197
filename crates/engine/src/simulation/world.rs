//! A simulated world: one API server, the processes that run on it, and other programs of the cluster.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use super::faults::{Fault, Faults};
use super::network::{Delays, Network, Skew};
use super::server::ApiServer;
use super::tape::Tape;
use crate::latest::{Sender, latest};
use crate::lease::Timing;
use crate::lock::lock;
use crate::metrics::Metrics;
use crate::model::Model;
use crate::object::Kind;
use crate::panic_text::panic_text;
use crate::process::{self, Ended, Family, Health, LeaseSettings, Settings, Signal};
use crate::runtime::{EVEN, Runtime};
use crate::standstill::Standstill;

const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease", "leases");
const EVENT: Kind = Kind::namespaced("events.k8s.io", "v1", "Event", "events");
/// Between two looks at whether the world has come to rest.
const LOOK: Duration = Duration::from_millis(500);
/// After a history with faults nothing changes for so long when it is over: longer than any pause after a failure.
pub const QUIET: Duration = Duration::from_mins(7);
/// So long it may take until then.
pub const PATIENCE: Duration = Duration::from_hours(2);
/// The world's clock when it begins.
const BEGINS: i64 = 1_800_000_000;
/// Between two moments at which a kind may vanish or be denied, at most, in milliseconds.
const KIND_PAUSE: u64 = 20_000;
/// How long it is away at most, in milliseconds.
const KIND_AWAY: u64 = 240_000;
/// So many polls without the clock moving are a busy loop: a history does not do so much at one time.
const POLLS: u64 = 100_000;
/// The same in a world without faults, in which thousands of objects may be worked on at one time.
const POLLS_OF_MANY: u64 = 10_000_000;

/// A world, while its script runs. Copies are the same world.
#[derive(Clone)]
pub struct World {
    /// What the API server holds. Users act on it directly.
    pub model: Arc<Model>,
    server: Arc<ApiServer>,
    network: Arc<Network>,
    /// The clock and the tasks of everything but the operator's processes.
    runtime: Runtime,
    standstill: Arc<Standstill>,
    /// The kinds of the family, without those that every process needs.
    kinds: Arc<[Kind]>,
    /// What each process that was started counts, by its name.
    counted: Arc<Mutex<BTreeMap<String, Metrics>>>,
    seed: u64,
}

/// A process that is started again whenever it ends.
pub struct Kept {
    stop: Sender<bool>,
    task: JoinHandle<()>,
}

impl Kept {
    /// Stops it in order, for good.
    pub async fn stop(self) {
        self.stop.modify(|stop| !std::mem::replace(stop, true));
        let _ = self.task.await;
    }
}

/// One process of the operator.
pub struct Process {
    runtime: Runtime,
    metrics: Metrics,
    health: Health,
    signals: UnboundedSender<Signal>,
    running: JoinHandle<Result<(), Ended>>,
}

/// Plays a script in a fresh world and gives its result and the whole history. The same seed gives the same history. A busy loop
/// is an error.
pub fn run<T>(
    seed: u64,
    delays: Delays,
    kinds: &[Kind],
    script: impl AsyncFnOnce(&World) -> T,
) -> std::io::Result<(T, Vec<String>)> {
    paused()?.block_on(async {
        let world = World::new(seed, Network::without_faults(delays, seed), kinds, POLLS_OF_MANY);
        let result = world.go_through(script(&world)).await.map_err(std::io::Error::other)?;
        Ok((result, world.server.history()))
    })
}

/// A history that was played.
pub struct Played {
    /// How it ended: what should have been otherwise, if something.
    pub end: Result<(), String>,
    /// Every request, and what else happened.
    pub history: Vec<String>,
    /// All choices.
    pub choices: Vec<u64>,
    /// How often each kind of fault has happened.
    pub faults: BTreeMap<Fault, usize>,
}

/// Plays a script in a fresh world in which things go wrong, as the tape says.
pub fn play(
    tape: Tape,
    kinds: &[Kind],
    script: impl AsyncFnOnce(&World) -> Result<(), String>,
) -> std::io::Result<Played> {
    let seed = tape.below(u64::MAX);
    let faults = Faults::draw(&tape);
    play_in(seed, Network::with_faults(tape, faults), kinds, script)
}

/// The same with every kind of fault.
pub fn play_with_all_faults(
    tape: Tape,
    kinds: &[Kind],
    script: impl AsyncFnOnce(&World) -> Result<(), String>,
) -> std::io::Result<Played> {
    let seed = tape.below(u64::MAX);
    play_in(seed, Network::with_faults(tape, Faults::all()), kinds, script)
}

fn play_in(
    seed: u64,
    network: Network,
    kinds: &[Kind],
    script: impl AsyncFnOnce(&World) -> Result<(), String>,
) -> std::io::Result<Played> {
    let tokio = paused()?;
    let world = tokio.block_on(async { World::new(seed, network, kinds, POLLS) });
    let played = AssertUnwindSafe(|| tokio.block_on(world.go_through(script(&world))).flatten());
    let end = std::panic::catch_unwind(played)
        .unwrap_or_else(|panic| Err(format!("a panic: {}", panic_text(&*panic))));
    world.runtime.end();
    Ok(Played {
        end,
        history: world.server.history(),
        choices: world.network.tape().entries(),
        faults: world.network.struck(),
    })
}

fn paused() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()
}

impl World {
    fn new(seed: u64, network: Network, kinds: &[Kind], polls: u64) -> Self {
        let (standstill, begins) = (Arc::new(Standstill::new(polls)), Timestamp::from_second(BEGINS));
        let runtime = Runtime::watched(begins.unwrap_or_default(), EVEN, seed, "the world", &standstill);
        let model = Arc::new(Model::default());
        model.set_clock(&runtime);
        let network = Arc::new(network);
        let all: Vec<Kind> = kinds.iter().cloned().chain([LEASE, EVENT]).collect();
        let server = ApiServer::new(Arc::clone(&model), Arc::clone(&network), runtime.clone(), &all);
        Self {
            model,
            server: Arc::new(server),
            network,
            runtime,
            standstill,
            kinds: kinds.into(),
            counted: Arc::default(),
            seed,
        }
    }

    /// Plays a script until its end, or until there is a busy loop.
    async fn go_through<T>(&self, script: impl Future<Output = T>) -> Result<T, String> {
        tokio::select! {
            biased;
            found = self.standstill.found() => Err(found),
            end = self.standstill.count("the script", script) => Ok(end),
        }
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
        let Skew { rate, offset } = self.network.skew();
        let wall = self.runtime.now().saturating_add(offset).unwrap_or_default();
        let runtime = Runtime::watched(wall, rate, own, name, &self.standstill);
        self.server.process_began(name, &runtime);
        let client = self.client(name);
        let metrics = Metrics::default();
        lock(&self.counted).insert(name.to_owned(), metrics.clone());
        let health = Health::default();
        let settings = Settings {
            families: families(&client, &runtime),
            client,
            runtime: runtime.clone(),
            http_listen: None,
            metrics_listen: None,
            lease: Some(LeaseSettings {
                namespace: "aquifer-system".into(),
                identity: name.into(),
                timing: Timing::default().by_clock(rate),
            }),
            metrics: metrics.clone(),
            health: health.clone(),
        };
        let (signals, told) = unbounded_channel();
        let running = runtime.spawn(process::run(settings, told));
        Process { runtime, metrics, health, signals, running }
    }

    /// Keeps a process running: when it ends, by itself or by a fault, it is started again after a while.
    pub fn keep(
        &self,
        name: &str,
        families: impl Fn(&kube::Client, &Runtime) -> Vec<Family> + Send + 'static,
    ) -> Kept {
        let (world, name) = (self.clone(), name.to_owned());
        let (stop, mut stopped) = latest(false);
        let task = self.runtime.spawn(async move {
            for life in 1_u64.. {
                let name = format!("{name}-{life}");
                let mut process = world.start(&name, &families);
                let lifeline = process.runtime.clone();
                let end = loop {
                    let pause = Duration::from_secs(1 + world.choose(20));
                    let look = async {
                        tokio::time::sleep(pause).await;
                        world.network.strike(&[Fault::Crash, Fault::Stop])
                    };
                    tokio::select! {
                        biased;
                        _ = stopped.changed() => {
                            let _ = process.stop().await;
                            return;
                        }
                        ended = &mut process.running => break match ended {
                            Ok(ended) => format!("ends by itself: {ended:?}"),
                            Err(_) => "crashes".to_owned(),
                        },
                        fault = look => match fault {
                            Some(Fault::Crash) => {
                                process.crash();
                                break "crashes".to_owned();
                            }
                            Some(_) => break format!("was told to stop: {:?}", process.stop().await),
                            None => {}
                        }
                    }
                };
                lifeline.end(); // nothing of a process goes on when it has ended
                world.server.process_ended(&name);
                lock(&world.counted).remove(&name);
                world.server.note(&format!("{name} {end}"));
                tokio::time::sleep(Duration::from_millis(world.choose(20_000))).await;
            }
        });
        Kept { stop, task }
    }

    /// A choice of this history, below `limit`; 0 is the least eventful one.
    pub fn choose(&self, limit: u64) -> u64 {
        self.network.tape().below(limit)
    }

    /// From now on the API server answers nobody, or answers again. What was asked meanwhile is never answered.
    pub fn silence(&self, silent: bool) {
        self.network.set_silent(silent);
        self.server.note(if silent { "the server falls silent" } else { "the server answers again" });
    }

    /// From now on everything about a kind is refused, as where the right to it is missing, or no longer.
    pub fn deny(&self, kind: &Kind, denied: bool) {
        self.server.deny(kind, denied);
        self.note(&format!("{kind}: {}", if denied { "the right is missing" } else { "the right is there" }));
    }

    /// Every request so far, and what else happened.
    pub fn history(&self) -> Vec<String> {
        self.server.history()
    }

    /// From now on kinds vanish and are denied for a while, where the history has such faults.
    pub fn disturb_kinds(&self) {
        let world = self.clone();
        self.runtime.spawn(async move {
            while !world.network.are_faults_over() {
                tokio::time::sleep(Duration::from_millis(world.choose(KIND_PAUSE))).await;
                let Some(fault) = world.network.strike(&[Fault::KindVanishes, Fault::KindDenied]) else {
                    // A choice of 0 is no pause at all.
                    tokio::time::sleep(LOOK).await;
                    continue;
                };
                let at = usize::try_from(world.choose(world.kinds.len() as u64)).unwrap_or_default();
                let Some(kind) = world.kinds.get(at) else { return };
                world.note(&format!("{kind}: {fault:?}"));
                match fault {
                    Fault::KindDenied => world.server.deny(kind, true),
                    _ => world.model.serve(kind, false),
                }
                tokio::time::sleep(Duration::from_millis(world.choose(KIND_AWAY))).await;
                world.bring_back(kind);
            }
        });
    }

    fn bring_back(&self, kind: &Kind) {
        self.server.deny(kind, false);
        if !self.model.serves(kind) {
            self.model.serve(kind, true);
        }
        self.note(&format!("{kind}: it can be used"));
    }

    /// What the processes keep in memory that were started with names that begin so, by process, controller and what it is.
    pub fn kept(&self, name: &str) -> BTreeMap<String, usize> {
        let counted = lock(&self.counted);
        let ours = counted.iter().filter(|(process, _)| process.starts_with(name));
        let kept = ours.map(|(process, metrics)| {
            metrics.kept().into_iter().map(move |(what, number)| (format!("{process} {what}"), number))
        });
        kept.flatten().collect()
    }

    /// From now on nothing goes wrong.
    pub fn end_faults(&self) {
        self.network.end_faults();
        for kind in self.kinds.iter() {
            self.bring_back(kind);
        }
        self.server.note("no more faults");
    }

    /// Whether this fault happens now, where the history has it.
    pub fn strikes(&self, fault: Fault) -> bool {
        let strikes = self.network.strike(&[fault]).is_some();
        if strikes {
            self.server.note(&format!("{fault:?}"));
        }
        strikes
    }

    /// Notes in the history what somebody does.
    pub fn note(&self, what: &str) {
        self.server.note(what);
    }

    /// Has something done outside Kubernetes, as a task of its own that goes on when whoever asked is gone. One of these faults may
    /// happen. None when the caller does not learn what came of it.
    pub async fn outside<T: Send + 'static>(
        &self,
        faults: &[Fault],
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let fault = self.network.strike(faults);
        if let Some(fault) = fault {
            self.server.note(&format!("the outside: {fault:?}"));
        }
        let world = self.clone();
        let (answered, answer) = tokio::sync::oneshot::channel();
        self.runtime.spawn(async move {
            let longest = if fault == Some(Fault::OutsideSlow) { 60_000 } else { 1_000 };
            let pause = || Duration::from_millis(world.choose(longest));
            match fault {
                Some(Fault::OutsideRefuses) => {
                    tokio::time::sleep(pause()).await;
                    drop(answered.send(None));
                }
                Some(Fault::OutsideLandsLater) => {
                    drop(answered.send(None));
                    tokio::time::sleep(world.network.late()).await;
                    work();
                }
                _ => {
                    tokio::time::sleep(pause()).await;
                    let done = work();
                    tokio::time::sleep(pause()).await;
                    let told = fault != Some(Fault::OutsideReplyLost);
                    drop(answered.send(told.then_some(done)));
                }
            }
        });
        answer.await.ok().flatten()
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

    /// One of these, by choice.
    pub fn pick<'a, T>(&self, among: &'a [T]) -> Option<&'a T> {
        among.get(usize::try_from(self.choose(among.len() as u64)).ok()?)
    }

    /// A new process finds nothing to write.
    pub async fn is_nothing_left_to_do(
        &self,
        families: impl FnOnce(&kube::Client, &Runtime) -> Vec<Family>,
    ) -> Result<(), String> {
        let fresh = self.start("fresh", families);
        let written = self.written_within(Duration::from_mins(2)).await;
        let counted = fresh.metrics.text();
        let leads = counted.lines().any(|line| line.starts_with("aquifer_leader{") && line.ends_with(" 1"));
        fresh.crash();
        match (leads, written.is_empty()) {
            (false, _) => Err("a fresh process does not lead".to_owned()),
            (true, false) => Err(format!("a fresh process writes {written:?}")),
            (true, true) => Ok(()),
        }
    }

    /// What is written from now on within this time, Leases and Events excepted.
    async fn written_within(&self, time: Duration) -> Vec<String> {
        let before = self.model.version();
        tokio::time::sleep(time).await;
        let changes = self.model.changes_since(before).into_iter();
        let others = changes.filter(|change| ![&LEASE, &EVENT].contains(&&change.target.kind));
        others.map(|change| format!("{} by {}", change.target, change.by)).collect()
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

    /// What it counts.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// What it is not ready for.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Asks it to look at everything again.
    pub fn resync(&self) {
        let _ = self.signals.send(Signal::Resync);
    }

    /// Stops it in order.
    pub async fn stop(self) -> Result<(), Ended> {
        let _ = self.signals.send(Signal::Stop);
        let ended = self.running.await.unwrap_or(Err(Ended::Signals));
        self.runtime.end();
        ended
    }
}
