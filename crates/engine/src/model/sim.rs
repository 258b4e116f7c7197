//! Runs a controller against the model until nothing changes, and walks through every crash point.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;

use super::api::Model;
use super::fault::Mode;
use crate::controller::Controller;
use crate::lock::lock;

use crate::failure::Failure;
use crate::lease::Leadership;
use crate::object::{Key, Kind, Object};
use crate::outside::Outside;
use crate::pass::{Environment, Erased, Outcome, Pass, StatusOutcome};
use crate::plan::Plan;
use crate::question::Question;
use crate::store::Store;
use crate::stores::Stores;

/// Sweeps over all keys before it is called an endless loop.
const SWEEPS: usize = 60;

/// A controller and its world.
pub struct Sim<C> {
    /// The controller.
    pub controller: C,
    /// The API server.
    pub model: Arc<Model>,
    seconds: AtomicI64,
    /// Kinds whose caches stand still, with what they hold.
    frozen: Mutex<BTreeMap<Kind, Vec<Object>>>,
    /// The caches as of a revision: most passes of a walk find nothing new.
    caches: Mutex<Option<(u64, Stores)>>,
}

/// How a run came to rest.
#[derive(Debug, Default)]
pub struct Settled {
    /// Writes that changed something.
    pub writes: usize,
    /// Failures on the way.
    pub failures: Vec<Failure>,
}

impl<C: Controller> Sim<C> {
    /// A controller on an API server.
    pub fn new(controller: C, model: Arc<Model>) -> Self {
        Self {
            controller,
            model,
            seconds: AtomicI64::new(1_000_000),
            frozen: Mutex::default(),
            caches: Mutex::default(),
        }
    }

    /// Time goes on.
    pub fn advance(&self, seconds: i64) {
        self.seconds.fetch_add(seconds, Ordering::SeqCst);
    }

    /// The time of its world.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_second(self.seconds.load(Ordering::SeqCst)).unwrap_or_default()
    }

    /// The cache of a kind stands still from now on.
    pub fn freeze(&self, kind: &Kind) {
        let objects = self.model.objects(kind);
        lock(&self.frozen).insert(kind.clone(), objects);
        *lock(&self.caches) = None;
    }

    /// All caches are up to date again.
    pub fn thaw(&self) {
        lock(&self.frozen).clear();
        *lock(&self.caches) = None;
    }

    /// Passes over every key until a whole sweep changes nothing.
    pub async fn settle(&self) -> Settled {
        let mut settled = Settled::default();
        let mut status_due = false;
        for _ in 0..SWEEPS {
            let before = self.model.log().len();
            let (mut again, mut waits) = (false, false);
            for key in self.keys() {
                let outcome = self.pass(&key, status_due).await;
                again |= !outcome.failures.is_empty();
                waits |= outcome.status == StatusOutcome::Waits;
                settled.failures.extend(outcome.failures);
                if self.model.fault.crashed() {
                    self.model.fault.restart(); // it starts again, remembering nothing
                    again = true;
                    break;
                }
            }
            self.advance(1);
            let writes = self.model.log().len() - before;
            settled.writes += writes;
            if writes == 0 && !again && !waits {
                return settled;
            }
            // A status that can wait is written when nothing else is left to do.
            status_due = writes == 0 && waits;
        }
        settled
            .failures
            .push(Failure::bug(format!("not settled after {SWEEPS} sweeps; last writes: {:?}", self.tail())));
        settled
    }

    /// What would be decided for a key now.
    pub async fn plan(&self, key: &Key) -> Option<Plan> {
        let mut plan = None;
        self.with_pass(key, true, async |pass| plan = pass.plan().await.ok().flatten()).await;
        plan
    }

    async fn pass(&self, key: &Key, status_due: bool) -> Outcome {
        let mut outcome = Outcome::default();
        self.with_pass(key, status_due, async |pass| outcome = pass.run().await).await;
        outcome
    }

    async fn with_pass(&self, key: &Key, status_due: bool, work: impl AsyncFnOnce(Pass<'_>)) {
        let outside = Outside::default();
        let stores = self.stores();
        let leadership = Leadership::always();
        let environment = PassEnvironment { sim: self, outside: &outside };
        work(Pass {
            controller: &self.controller,
            cluster: &*self.model,
            stores: &stores,
            outside: &outside,
            leadership: &leadership,
            environment: &environment,
            key,
            lagging: &[],
            failures: 3,
            status_due,
        })
        .await;
    }

    fn tail(&self) -> Vec<String> {
        let log = self.model.log();
        log.iter().rev().take(5).cloned().collect()
    }

    fn keys(&self) -> BTreeSet<Key> {
        self.stores().all().flat_map(|store| store.woken_keys()).collect()
    }

    fn stores(&self) -> Stores {
        let revision = self.model.revision();
        let mut caches = lock(&self.caches);
        match &*caches {
            Some((as_of, stores)) if *as_of == revision => stores.clone(),
            _ => caches.insert((revision, self.read_stores())).1.clone(),
        }
    }

    fn read_stores(&self) -> Stores {
        let frozen = lock(&self.frozen);
        let mut stores = Stores::default();
        for watch in Erased::watches(&self.controller) {
            let kind = watch.kind.clone();
            let store = Store::new(watch.clone());
            if self.model.serves(&kind) {
                let objects = frozen.get(&kind).cloned().unwrap_or_else(|| self.model.objects(&kind));
                store.relist_begins();
                let shown = |o: &Object| watch.scope().shows(o);
                for object in objects.into_iter().filter(shown) {
                    store.upsert(object, self.now());
                }
                store.relist_ends(self.now());
            } else {
                store.not_served();
            }
            stores.add(Arc::new(store));
        }
        stores
    }
}

struct PassEnvironment<'a, C> {
    sim: &'a Sim<C>,
    outside: &'a Outside,
}

#[async_trait]
impl<C: Controller> Environment for PassEnvironment<'_, C> {
    fn now(&self) -> Timestamp {
        self.sim.now()
    }

    async fn ask(&self, question: Question, key: &Key) -> bool {
        self.outside.wait(&question, key, self.sim.now());
        let answer: Result<Value, String> =
            Erased::look(&self.sim.controller, &question).await.map_err(|failure| failure.message);
        self.outside.put(&question, answer, self.sim.now());
        true
    }

    // There is no time between two passes here in which anything could be asked.
    fn poll(&self, _: &Key, _: &BTreeMap<Question, std::time::Duration>) {}
}

/// What a walk found.
#[derive(Debug, Default)]
pub struct WalkReport {
    /// Write points of the undisturbed run.
    pub points: usize,
    /// Runs made.
    pub runs: usize,
    /// What went differently, as text; empty is good.
    pub divergent: Vec<String>,
}

/// What a walk runs in: one controller, or several of a family, around one model.
pub trait Scene {
    /// The API server.
    fn model(&self) -> &Model;
    /// Lets the controllers work until none has anything left to do.
    fn settle(&self) -> impl Future<Output = Settled>;
}

impl<C: Controller> Scene for Sim<C> {
    fn model(&self) -> &Model {
        &self.model
    }
    fn settle(&self) -> impl Future<Output = Settled> {
        Self::settle(self)
    }
}

/// Runs a scenario undisturbed, then once for every write point and every mode, and compares the ends.
///
/// `start` makes a fresh world; `script` plays the users and calls [`Scene::settle`] in between (a process that dies in there
/// starts again). `judge` adds what else must be equal, such as the outside world.
pub async fn walk<S, N, F, J>(start: N, script: F, judge: J) -> WalkReport
where
    S: Scene,
    N: Fn() -> S,
    F: AsyncFn(&S),
    J: Fn(&S) -> Value,
{
    let reference = start();
    script(&reference).await;
    let end = reference.settle().await;
    let mut report = WalkReport { points: reference.model().fault.count(), ..WalkReport::default() };
    if !end.failures.is_empty() || end.writes > 0 {
        report.divergent.push(format!("the undisturbed run does not settle: {end:?}"));
    }
    let (picture, judged, created) =
        (reference.model().picture(), judge(&reference), reference.model().created());
    for n in 1..=report.points {
        for mode in Mode::ALL {
            report.runs += 1;
            let sim = start();
            sim.model().fault.set(n, mode);
            script(&sim).await;
            let last = sim.settle().await;
            let at = format!("{mode:?} at write {n}");
            if last.writes > 0 || !last.failures.is_empty() {
                report.divergent.push(format!("{at}: does not come to rest: {last:?}"));
            }
            compare(&mut report, &at, &picture, &sim.model().picture());
            if judge(&sim) != judged {
                report
                    .divergent
                    .push(format!("{at}: the outside differs: {} instead of {judged}", judge(&sim)));
            }
            let twice: Vec<_> =
                sim.model().created().into_iter().filter(|(k, n)| created.get(k) != Some(n)).collect();
            if !twice.is_empty() {
                report.divergent.push(format!("{at}: created another number of times: {twice:?}"));
            }
        }
    }
    report
}

fn compare(
    report: &mut WalkReport,
    at: &str,
    wanted: &BTreeMap<String, Value>,
    found: &BTreeMap<String, Value>,
) {
    for name in wanted.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
        let (wanted, found) = (wanted.get(name), found.get(name));
        if wanted != found {
            let text = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
            report.divergent.push(format!("{at}: {name} is {} instead of {}", text(found), text(wanted)));
        }
    }
}
