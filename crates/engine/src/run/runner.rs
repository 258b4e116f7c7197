//! Runs one controller: watches feed its caches, events wake keys, the queue says when, passes run bounded-concurrently.
//! Every replica keeps warm caches; only the leader has passes.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::cluster::{ApiError, Cluster, Verb};
use crate::controller::Controller;
use crate::events::Events;
use crate::failure::{Class, most_severe};
use crate::health::Health;
use crate::latest::Receiver;
use crate::lease::Leadership;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::object::{Key, Object, ObjectRef};
use crate::outside::Outside;
use crate::pass::{Environment, Erased, Outcome, Pass};
use crate::question::{Answers, Question};
use crate::queue::{PassEnd, Queue, Turn};
use crate::runtime::Runtime;
use crate::seen::Seen;
use crate::store::{Store, Woken};
use crate::stores::Stores;
use crate::streams::Streams;
use crate::writer::Writer;

/// Passes of one controller at the same time.
const CONCURRENT_PASSES: usize = 32;
/// A question to the outside that takes longer is given up.
const LOOK_DEADLINE: Duration = Duration::from_secs(30);
/// How long passes that run may take to finish when the process stops.
const DRAIN: Duration = Duration::from_secs(20);
/// How long until a controller that has stopped listening to its sources listens again; it grows from the first to the last.
const LISTEN_FIRST: Duration = Duration::from_secs(1);
const LISTEN_LAST: Duration = Duration::from_mins(1);
/// Answers that nobody asked for again are dropped after this.
const ANSWER_LIFE: Duration = Duration::from_hours(1);

/// What all controllers of a process share.
#[derive(Clone)]
pub struct Context {
    /// The client of the operator.
    pub client: Client,
    /// Its clock, randomness and tasks.
    pub runtime: Runtime,
    /// Whether we may write.
    pub leadership: Leadership,
    /// What it watches.
    pub streams: Streams,
    /// What is counted.
    pub metrics: Metrics,
    /// What makes us ready.
    pub health: Health,
    /// Ends everything.
    pub shutdown: CancellationToken,
    /// Controllers of the family that have begun and not ended in order. What one of them was doing may still happen, so the Lease is
    /// not given back then.
    pub working: Arc<AtomicUsize>,
    /// Each message makes every key have a pass.
    pub resync: Receiver<u64>,
}

/// Runs a controller until shutdown.
pub async fn run<C: Controller>(controller: C, context: Context) {
    run_erased(Arc::new(controller), context).await;
}

async fn run_erased(controller: Arc<dyn Erased>, context: Context) {
    let (wake, woken) = unbounded_channel();
    let mut stores = Stores::default();
    for watch in controller.watches() {
        let store = Store::new(watch);
        let store = if store.watch().kind == controller.kind() {
            context.metrics.subjects(controller.name(), store, &context.runtime)
        } else {
            Arc::new(store)
        };
        context.health.add(Arc::clone(&store));
        context.streams.subscribe(Arc::clone(&store), wake.clone());
        stores.add(store);
    }
    let live = Live::new(context.client.clone(), context.metrics.clone());
    let live = live.in_versions(context.streams.versions());
    let runtime = context.runtime.clone();
    let shared = Arc::new(Shared {
        events: Events::new(controller.name(), runtime.clone()),
        stores,
        outside: Outside::default(),
        live,
        wake,
        runtime,
        metrics: context.metrics.clone(),
        controller,
    });
    let queue = Queue::with_longest_backoff(shared.controller.longest_backoff());
    Runner { shared, context, queue, passes: JoinSet::new(), running: BTreeMap::new() }.run(woken).await;
}

struct Shared {
    controller: Arc<dyn Erased>,
    stores: Stores,
    outside: Outside,
    live: Live,
    events: Events,
    runtime: Runtime,
    metrics: Metrics,
    wake: UnboundedSender<Woken>,
}

impl Shared {
    fn writer<'a>(&'a self, leadership: &'a Leadership) -> Writer<'a> {
        Writer { cluster: &self.live, leadership, manager: self.controller.name() }
    }
}

struct Runner {
    shared: Arc<Shared>,
    context: Context,
    queue: Queue,
    passes: JoinSet<(Key, Outcome)>,
    running: BTreeMap<tokio::task::Id, Key>,
}

impl Runner {
    async fn run(mut self, mut events: UnboundedReceiver<Woken>) {
        self.context.working.fetch_add(1, Ordering::SeqCst);
        let mut leading = self.context.leadership.changes();
        let mut resync = self.context.resync.clone();
        let mut resync_timer = Runtime::instant() + self.shared.controller.resync();
        // Whether all keys have been woken since leadership began, or since a resync was due.
        let (mut all_woken, mut bootstrapped, mut listening) = (false, false, false);
        // Without a Lease nobody has led before: the first lists are new enough.
        let mut led = self.context.leadership.is_always();
        loop {
            let leads = self.context.leadership.is_current();
            let mut all_started = false;
            if leads {
                if !led {
                    self.require_lists();
                }
                if !std::mem::replace(&mut listening, true) {
                    self.shared.runtime.spawn(listen(Arc::clone(&self.shared)));
                }
                if !all_woken {
                    self.wake_all();
                }
                bootstrapped &= self.bootstrap_stands();
                if !bootstrapped && self.subjects_synced() {
                    bootstrapped = self.bootstrap().await;
                }
                all_started = self.start_passes();
            }
            (all_woken, led) = (leads, leads);
            self.context.metrics.depth(self.shared.controller.name(), self.queue.depth());
            #[cfg(any(test, feature = "simulation"))]
            if self.passes.is_empty() {
                let kept = self.queue.kept().into_iter().chain(self.shared.outside.kept());
                self.context.metrics.keeps(self.shared.controller.name(), kept);
            }
            let patience =
                if leads && bootstrapped { Duration::from_hours(1) } else { Duration::from_secs(2) };
            // A time that has come while no pass can start must not make this loop spin: the end of a pass goes on with it.
            let deadline = self.queue.deadline().filter(|_| all_started);
            let deadline = deadline.unwrap_or(resync_timer).min(resync_timer);
            let deadline = deadline.min(Runtime::instant() + patience);
            tokio::select! {
                biased;
                () = self.context.shutdown.cancelled() => break,
                Some(ended) = self.passes.join_next_with_id() => self.pass_ended(ended),
                Some(first) = events.recv() => {
                    // A burst of events is taken whole before the next pass starts. Without leadership it is dropped: a queue
                    // that nobody works off would only grow, and with leadership all keys are woken.
                    let mut all = false;
                    for woken in std::iter::once(first).chain(std::iter::from_fn(|| events.try_recv().ok())) {
                        if woken.panicked {
                            self.context.metrics.panicked(self.shared.controller.name());
                        }
                        all |= woken.all;
                        for key in woken.keys.iter().filter(|_| leads) {
                            self.wake(key);
                        }
                        for topic in woken.topics.iter().filter(|_| leads) {
                            self.wake_topic(topic);
                        }
                    }
                    if all && leads {
                        self.wake_all();
                    }
                }
                _ = leading.changed() => {} // the next round asks
                _ = resync.changed() => all_woken = false,
                () = tokio::time::sleep_until(deadline) => {
                    if Runtime::instant() >= resync_timer {
                        resync_timer = Runtime::instant() + self.shared.controller.resync();
                        self.shared.outside.forget_older_than(ANSWER_LIFE, self.shared.runtime.now());
                        all_woken = false;
                    }
                }
            }
        }
        // What has begun may finish, if it does so soon; the lease is given back only after this.
        let drain = async { while self.passes.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, drain).await.is_err() {
            tracing::warn!(controller = self.shared.controller.name(), "Stopping with passes unfinished");
            return;
        }
        self.context.working.fetch_sub(1, Ordering::SeqCst);
    }

    fn wake(&mut self, key: &Key) {
        if let Some(mark) = self.shared.stores.news_mark(&self.shared.controller.kind().key(key)) {
            self.queue.news(key, mark);
        }
        self.queue.wake(key);
    }

    fn wake_topic(&mut self, topic: &str) {
        match self.shared.stores.topic(&self.shared.controller.kind(), topic) {
            Seen::Known { value, .. } => value.iter().for_each(|key| self.wake(key)),
            // It is not known who that is.
            Seen::Unknown(_) => self.wake_all(),
        }
    }

    /// The caches may lack what the leader before us wrote last: nothing is decided before they have been listed anew.
    fn require_lists(&self) {
        for store in self.shared.stores.all() {
            store.require_list();
            self.context.streams.relist(&store.watch().scope());
        }
    }

    fn wake_all(&mut self) {
        let keys: BTreeSet<Key> = self.shared.stores.all().flat_map(|store| store.woken_keys()).collect();
        for key in &keys {
            self.wake(key);
        }
    }

    /// Starts passes; true when no key is left whose turn it is.
    fn start_passes(&mut self) -> bool {
        // Before the first lists are complete, nothing can be decided; their end wakes all keys.
        if !self.subjects_synced() || self.shared.stores.all().any(|store| !store.settled()) {
            return false;
        }
        while self.passes.len() < CONCURRENT_PASSES {
            let stores = &self.shared.stores;
            let reached = |target: &ObjectRef, progress: &_| stores.reached(target, progress);
            let Some(turn) = self.queue.next(Runtime::instant(), reached) else { return true };
            if !self.shared.stores.all().any(|store| store.wakes(&turn.key)) {
                // The object and all that named it are gone.
                self.shared.outside.read_by(&turn.key);
                self.shared.outside.polls.forget(&turn.key);
                self.queue.ended(
                    &turn.key,
                    Runtime::instant(),
                    PassEnd { forget: true, ..PassEnd::default() },
                );
                continue;
            }
            if !turn.lagging.is_empty() {
                self.context.metrics.live_pass(self.shared.controller.name());
            }
            let key = turn.key.clone();
            let span = tracing::info_span!("pass", controller = self.shared.controller.name(), %key);
            let pass = pass(Arc::clone(&self.shared), self.context.clone(), turn).instrument(span);
            let handle = self.passes.spawn(self.shared.runtime.counted(pass));
            self.running.insert(handle.id(), key);
        }
        false
    }

    fn pass_ended(&mut self, ended: Result<(tokio::task::Id, (Key, Outcome)), tokio::task::JoinError>) {
        let now = Runtime::instant();
        match ended {
            Ok((id, (key, outcome))) => {
                self.running.remove(&id);
                let unwatched = outcome.unwatched;
                let failure = most_severe(&outcome.failures);
                let ended = PassEnd {
                    failed: failure.is_some_and(|f| f.class != Class::Waiting),
                    progressed: failure.is_some_and(|f| f.class == Class::Transient)
                        && (!outcome.written.is_empty() || outcome.unwatched || outcome.effects > 0),
                    slow: failure
                        .is_some_and(|f| matches!(f.class, Class::Invalid | Class::Policy | Class::Altered)),
                    waits: outcome.unanswered || failure.is_some_and(|f| f.class == Class::Waiting),
                    wake_after: outcome.wake_after,
                    status: outcome.status,
                    parked: outcome.parked,
                    // Where an object is in both, what was seen is newer: see `Pass::note_seen`.
                    gate: outcome.written.into_iter().chain(outcome.seen).collect(),
                    forget: false,
                    jitter: self.shared.runtime.fraction(),
                };
                self.queue.ended(&key, now, ended);
                if unwatched {
                    self.queue.wake(&key); // no event will tell of it
                }
            }
            Err(error) => {
                // Passes catch their own panics, so this one came from the reporting around them.
                if let Some(key) = self.running.remove(&error.id()) {
                    tracing::error!(%key, %error, "A pass died");
                    self.context.metrics.panicked(self.shared.controller.name());
                    let jitter = self.shared.runtime.fraction();
                    self.queue.ended(&key, now, PassEnd { failed: true, jitter, ..PassEnd::default() });
                }
            }
        }
    }

    fn subjects_synced(&self) -> bool {
        self.shared.stores.synced(&self.shared.controller.kind())
    }

    /// Whether what was made at the start is still there: somebody may delete it.
    fn bootstrap_stands(&self) -> bool {
        let kind = self.shared.controller.kind();
        let gone = |body: &Value| self.shared.stores.get(&kind.key(&Object(body.clone()).key())).absent();
        !self.subjects_synced() || !self.shared.controller.bootstrap().iter().any(gone)
    }

    /// Makes what must exist for there to be subjects. False when it has to be tried again.
    async fn bootstrap(&self) -> bool {
        for body in self.shared.controller.bootstrap() {
            let object = Object(body.clone());
            let target = self.shared.controller.kind().key(&object.key());
            match self.shared.live.get(&target).await {
                Ok(Some(_)) => continue,
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(object = %target, %error, "Cannot read yet");
                    return false;
                }
            }
            let writer = self.shared.writer(&self.context.leadership);
            match writer.write(&target, Verb::Create(body), "it was absent").await {
                Ok(_) | Err(ApiError::AlreadyExists) => {}
                Err(error) => {
                    tracing::warn!(object = %target, %error, "Cannot create yet");
                    return false;
                }
            }
        }
        true
    }
}

struct PassEnvironment(Arc<Shared>);

#[async_trait]
impl Environment for PassEnvironment {
    fn now(&self) -> Timestamp {
        self.0.runtime.now()
    }

    /// The answer is never there at once: asking must not hold a worker. It wakes the key when it comes.
    async fn ask(&self, question: Question, key: &Key) -> bool {
        if self.0.outside.wait(&question, key, self.0.runtime.now()) {
            self.0.runtime.spawn(look(Arc::clone(&self.0), question));
        }
        false
    }

    fn poll(&self, key: &Key, questions: &BTreeMap<Question, Duration>) {
        for question in self.0.outside.polls.want(key, questions) {
            self.0.runtime.spawn(poll(Arc::clone(&self.0), question));
        }
    }
}

/// Puts a question again and again, until nobody wants to know any more.
async fn poll(shared: Arc<Shared>, question: Question) {
    loop {
        let permit = shared.outside.polls.permit(&question.source).await;
        let (asked_at, asked) = (shared.runtime.now(), Runtime::instant());
        let answer = answer(&shared, &question).await;
        drop(permit);
        let keys = shared.outside.polls.put(&question, answer, asked_at, asked);
        if !keys.is_empty() {
            let _ = shared.wake.send(Woken { keys, ..Woken::default() });
        }
        match shared.outside.polls.next(&question, shared.runtime.fraction()) {
            Some(pause) => tokio::time::sleep(pause).await,
            None => return,
        }
    }
}

/// Lets the family's code listen to sources that tell of changes by themselves, again whenever it ends.
async fn listen(shared: Arc<Shared>) {
    let mut pause = LISTEN_FIRST;
    loop {
        let begun = Runtime::instant();
        let heard = Arc::clone(&shared);
        let answers = Answers::new(move |question, value| {
            let (now, instant) = (heard.runtime.now(), Runtime::instant());
            let keys = heard.outside.polls.put(question, Ok(value), now, instant);
            if !keys.is_empty() {
                let _ = heard.wake.send(Woken { keys, ..Woken::default() });
            }
        });
        if AssertUnwindSafe(shared.controller.listen(answers)).catch_unwind().await.is_err() {
            shared.metrics.panicked(shared.controller.name());
        }
        if begun.elapsed() > LISTEN_LAST {
            pause = LISTEN_FIRST;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LISTEN_LAST);
    }
}

async fn pass(shared: Arc<Shared>, context: Context, turn: Turn) -> (Key, Outcome) {
    let started = Runtime::instant();
    let environment = PassEnvironment(Arc::clone(&shared));
    let name = shared.controller.name();
    let outcome = Pass {
        controller: &*shared.controller,
        cluster: &shared.live,
        stores: &shared.stores,
        outside: &shared.outside,
        leadership: &context.leadership,
        environment: &environment,
        key: &turn.key,
        lagging: &turn.lagging,
        failures: turn.failures,
        status_due: turn.status_due,
    }
    .run()
    .await;
    if !outcome.parked {
        shared.outside.read_by(&turn.key);
    }
    let failure = most_severe(&outcome.failures);
    let word = failure.map_or(if outcome.parked { "parked" } else { "ok" }, |failure| failure.class.as_str());
    if outcome.panicked {
        context.metrics.panicked(name);
    }
    context.metrics.pass(name, word, started.elapsed().as_secs_f64(), outcome.effects);
    for failure in &outcome.failures {
        match failure.class {
            Class::Bug => {
                tracing::error!(controller = name, key = %turn.key, error = %failure, "A pass failed by a bug");
            }
            Class::Waiting => {
                tracing::debug!(controller = name, key = %turn.key, error = %failure, "A pass waits");
            }
            _ => tracing::warn!(controller = name, key = %turn.key, error = %failure, "A pass failed"),
        }
    }
    if let Some(subject) = &outcome.subject {
        let writer = shared.writer(&context.leadership);
        for condition in &outcome.news {
            shared.events.publish(&writer, &shared.controller.kind(), subject, condition).await;
        }
    }
    (turn.key, outcome)
}

/// Puts a question outside, until the answer is good, and wakes whoever waits for it.
async fn look(shared: Arc<Shared>, question: Question) {
    let keys = loop {
        let answer = answer(&shared, &question).await;
        if let Some(keys) = shared.outside.put(&question, answer, shared.runtime.now()) {
            break keys;
        }
    };
    let _ = shared.wake.send(Woken { keys, ..Woken::default() });
}

/// What the family's code answers, within its time.
async fn answer(shared: &Shared, question: &Question) -> Result<Value, String> {
    let asked = AssertUnwindSafe(shared.controller.look(question)).catch_unwind();
    match tokio::time::timeout(LOOK_DEADLINE, asked).await {
        Ok(Ok(Ok(value))) => Ok(value),
        Ok(Ok(Err(failure))) => Err(failure.message),
        Ok(Err(_)) => {
            shared.metrics.panicked(shared.controller.name());
            Err("a mistake of Aquifer: asking panicked; its log says where".to_owned())
        }
        Err(_) => Err(format!("no answer within {} s", LOOK_DEADLINE.as_secs())),
    }
}
