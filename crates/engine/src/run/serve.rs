//! Servers in the shape of controllers: `answer(request, snapshot, now) -> steps and a reply`. They hold no lease, every
//! replica answers; so their steps may only create, or compare and swap. What must end in a deletion is recorded, and a controller
//! deletes.

mod absent;
mod changes;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use aquifer_base::Uid;
use async_trait::async_trait;
use futures::Stream;
use futures::stream::unfold;
use jiff::Timestamp;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::Instant;

use crate::bounds;
use crate::cluster::{Cluster, Listing};
use crate::failure::{Class, Failure};
use crate::lease::Leadership;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::object::{Key, ObjectRef, revision};
use crate::outside::Outside;
use crate::panic_text::panic_text;
use crate::pass::{Done, Executor, StepCode, read_list, refresh};
use crate::plan::{Effect, Expect, Stage, Step};
use crate::runner::Context;
use crate::runtime::Runtime;
use crate::secret::{Composition, SecretContent};
use crate::store::{Progress, Store};
use crate::stores::Stores;
use crate::view::{Fresh, View, Want};
use crate::watch::Watch;
use crate::writer::Writer;
use absent::{Absent, Looked};
use changes::{Changes, Following};

/// Answers before a request is given up because the world keeps changing.
const ROUNDS: usize = 8;
/// How often a server forgets what it no longer needs.
const TIDY: Duration = Duration::from_mins(10);
/// Changes that come close together are answered once.
const PAUSE: Duration = Duration::from_millis(100);
/// What was read or written is read again when the caches do not show it after so long; all of it together, and as often at most.
const LAG: Duration = Duration::from_secs(5);

/// What a server does.
#[async_trait]
pub trait Service: Send + Sync + 'static {
    /// What it is asked.
    type Request: Send + Sync;
    /// What it answers.
    type Reply: Send;

    /// Its name as field manager.
    fn name(&self) -> &'static str;
    /// In whose name objects are made: key and uid of the owner. What wakes this key among the server's watches is what a reply
    /// waits for.
    fn owner(&self, request: &Self::Request) -> (Key, Option<Uid>);
    /// Decides on an answer. Pure. Steps are carried out before the reply is sent; absence is asked of [`View::get`].
    fn answer(&self, request: &Self::Request, view: &View<'_>, now: Timestamp) -> Answer<Self::Reply>;
    /// Makes the content of a Secret.
    fn mint(&self, recipe: &str) -> Result<SecretContent, Failure> {
        Err(Failure::bug(format!("{} has no recipe named {recipe}", self.name())))
    }
    /// Composes the content of a Secret from others, as that of a controller does.
    fn compose(&self, composition: Composition<'_>) -> Result<SecretContent, Failure> {
        Err(Failure::bug(format!("{} has no recipe named {}", self.name(), composition.recipe)))
    }
}

/// Steps, then a reply.
#[must_use]
pub struct Answer<R> {
    /// Created or compared and swapped before the reply.
    pub steps: Vec<Step>,
    /// What the caller gets when all of them succeeded. While steps write, the reply is decided again afterwards.
    pub reply: Reply<R>,
}

/// When the caller gets which reply.
pub enum Reply<R> {
    /// This one, as soon as the steps have succeeded.
    Now(R),
    /// None yet: the answer is decided again when something changes, such as a grant that a controller stores. This one when the
    /// request's time is over before.
    Later {
        /// The reply then.
        otherwise: R,
    },
}

impl<R> Answer<R> {
    /// A reply without steps.
    pub fn now(reply: R) -> Self {
        Self { steps: Vec::new(), reply: Reply::Now(reply) }
    }

    /// Something must change before there is a reply; this one when the request's time is over before.
    pub fn later(otherwise: R) -> Self {
        Self { steps: Vec::new(), reply: Reply::Later { otherwise } }
    }

    /// With these steps first.
    pub fn after(mut self, steps: Vec<Step>) -> Self {
        self.steps = steps;
        self
    }
}

/// A service on a cluster.
pub struct Server<S> {
    service: S,
    cluster: Arc<dyn Cluster>,
    stores: Stores,
    outside: Arc<Outside>,
    runtime: Runtime,
    metrics: Metrics,
    changes: Arc<Changes>,
    /// Names of watched kinds that were read and not found, and how many such reads may still be made.
    absent: Absent,
    /// How many reads of kinds that are not watched, which are always read, may still find nothing: who invents names of theirs takes
    /// nothing from the others.
    unwatched: Absent,
    /// How many lists may still find nothing.
    lists: Absent,
}

struct ServiceCode<'a, S>(&'a S);

#[async_trait]
impl<S: Service> StepCode for ServiceCode<'_, S> {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn mint(&self, recipe: &str) -> Result<SecretContent, Failure> {
        self.0.mint(recipe)
    }
    fn compose(&self, composition: Composition<'_>) -> Result<SecretContent, Failure> {
        self.0.compose(composition)
    }
    async fn effect(&self, effect: &Effect) -> Result<(), Failure> {
        Err(Failure::bug(format!("a server has no effects, not even {}", effect.operation)))
    }
}

impl<S: Service> Server<S> {
    /// A service that looks at these caches and writes to this cluster. Nobody tells it of changes.
    pub fn new(service: S, cluster: Arc<dyn Cluster>, stores: Stores, runtime: Runtime) -> Self {
        Self {
            service,
            cluster,
            stores,
            outside: Arc::default(),
            runtime,
            metrics: Metrics::default(),
            changes: Arc::default(),
            absent: Absent::default(),
            unwatched: Absent::default(),
            lists: Absent::default(),
        }
    }

    /// A service of a process. It looks at caches of its own, which the watches of the process fill from now on.
    pub fn start(service: S, watches: Vec<Watch>, context: &Context) -> Self {
        let (wake, mut woken) = unbounded_channel();
        let mut stores = Stores::default();
        for watch in watches {
            let store = Arc::new(Store::new(watch));
            context.health.add(Arc::clone(&store));
            context.streams.subscribe(Arc::clone(&store), wake.clone());
            stores.add(store);
        }
        let live = Live::new(context.client.clone(), context.metrics.clone());
        let cluster = Arc::new(live.in_versions(context.streams.versions()));
        let server = Self {
            metrics: context.metrics.clone(),
            ..Self::new(service, cluster, stores, context.runtime.clone())
        };
        let (changes, metrics, name) =
            (Arc::clone(&server.changes), context.metrics.clone(), server.service.name());
        context.runtime.spawn(async move {
            while let Some(woken) = woken.recv().await {
                if woken.panicked {
                    metrics.panicked(name);
                }
                changes.tell(&woken);
            }
        });
        let (outside, runtime) = (Arc::downgrade(&server.outside), context.runtime.clone());
        context.runtime.spawn(async move {
            while let Some(outside) = outside.upgrade() {
                outside.forget_older_than(TIDY, runtime.now());
                drop(outside);
                tokio::time::sleep(TIDY).await;
            }
        });
        server
    }

    /// Answers one request. A reply that must wait for something waits so long at most.
    pub async fn handle(&self, request: &S::Request, within: Duration) -> Result<S::Reply, Failure> {
        let started = Runtime::instant();
        let mut changes = self.changes.follow(&self.service.owner(request).0);
        let replied = self.reply(request, &mut changes, &mut Fresh::default(), within).await;
        self.count(&replied, started);
        replied
    }

    /// Answers a request, and again whenever the reply is another one. A failure ends the feed: who asked begins a new one. Every
    /// reply is the latest, not all that there were. It counts as one request, answered by its first reply.
    pub fn feed(
        self: Arc<Self>,
        request: S::Request,
    ) -> impl Stream<Item = Result<S::Reply, Failure>> + Send + use<S>
    where
        S::Reply: Clone + PartialEq + Sync,
    {
        struct Feed<S: Service> {
            server: Arc<Server<S>>,
            request: S::Request,
            changes: Following,
            /// What it has written and the caches do not show yet: a feed never goes back.
            fresh: Fresh,
            last: Option<S::Reply>,
        }
        let started = Runtime::instant();
        let changes = self.changes.follow(&self.service.owner(&request).0);
        let begin = Feed { server: self, request, changes, fresh: Fresh::default(), last: None };
        unfold(Some(begin), move |feed| async move {
            let mut feed = feed?;
            loop {
                let first = feed.last.is_none();
                let Feed { server, request, changes, fresh, .. } = &mut feed;
                if !first {
                    server.wait(changes, fresh, Duration::MAX).await;
                    tokio::time::sleep(PAUSE).await;
                    server.catch_up(fresh).await;
                }
                let replied = server.reply(request, changes, fresh, Duration::MAX).await;
                if first {
                    server.count(&replied, started);
                }
                match replied {
                    Ok(reply) if feed.last.as_ref() == Some(&reply) => {}
                    Ok(reply) => {
                        feed.last = Some(reply.clone());
                        return Some((Ok(reply), Some(feed)));
                    }
                    Err(failure) => return Some((Err(failure), None)),
                }
            }
        })
    }

    fn count(&self, replied: &Result<S::Reply, Failure>, started: Instant) {
        let outcome = replied.as_ref().map_or_else(|failure| failure.class.as_str(), |_| "ok");
        self.metrics.served(self.service.name(), outcome, started.elapsed().as_secs_f64());
    }

    /// Answers a request.
    async fn reply(
        &self,
        request: &S::Request,
        changes: &mut Following,
        fresh: &mut Fresh,
        within: Duration,
    ) -> Result<S::Reply, Failure> {
        let started = Runtime::instant();
        let (owner, owner_uid) = self.service.owner(request);
        let leadership = Leadership::always(); // servers hold no lease
        let code = ServiceCode(&self.service);
        let executor = Executor {
            writer: Writer { cluster: &*self.cluster, leadership: &leadership, manager: self.service.name() },
            code: &code,
            stores: &self.stores,
            outside: &self.outside,
            owner: &owner,
            owner_kind: None,
            owner_uid: owner_uid.as_ref(),
            owner_version: None,
        };
        let mut pause = Duration::ZERO;
        loop {
            let otherwise = match self.settle(request, &executor, fresh).await? {
                Reply::Now(reply) => return Ok(reply),
                Reply::Later { otherwise } => otherwise,
            };
            // It ends a moment early and looks once more, because not every change is announced.
            let left = || within.saturating_sub(PAUSE).saturating_sub(started.elapsed());
            if left().is_zero() {
                return Ok(otherwise);
            }
            self.wait(changes, fresh, left()).await;
            // The first change is answered at once; many are not worth a look each.
            tokio::time::sleep(std::mem::replace(&mut pause, PAUSE).min(left())).await;
            if left().is_zero() {
                *fresh = self.not_shown_yet(std::mem::take(fresh));
            } else {
                self.catch_up(fresh).await;
            }
        }
    }

    /// Waits for a change, and no longer than this. While something is not shown yet, it may be that no change ever tells of it.
    async fn wait(&self, changes: &mut Following, fresh: &mut Fresh, longest: Duration) {
        *fresh = self.not_shown_yet(std::mem::take(fresh));
        let longest = if fresh.objects.is_empty() { longest } else { longest.min(LAG) };
        let _ = tokio::time::timeout(longest, changes.changed()).await;
    }

    /// Keeps of what was read or written what the caches do not show yet; the rest may have changed. What they do not show for long is
    /// read again: they may never show it, when it is gone. What cannot be read stays as it was, and is tried again after as long.
    async fn catch_up(&self, fresh: &mut Fresh) {
        *fresh = self.not_shown_yet(std::mem::take(fresh));
        let now = self.runtime.now();
        let is_old = |read_at: Timestamp| now.duration_since(read_at).unsigned_abs() >= LAG;
        let old: Vec<ObjectRef> = fresh
            .objects
            .iter()
            .filter(|(_, (_, read_at))| is_old(*read_at))
            .map(|(target, _)| target.clone())
            .collect();
        if old.is_empty() || fresh.reread_at.is_some_and(|at| !is_old(at)) {
            return;
        }
        fresh.reread_at = Some(now);
        for target in old {
            let _ = refresh(&*self.cluster, fresh, target, now).await;
        }
    }

    /// Decides and carries out until there is nothing more to do.
    async fn settle(
        &self,
        request: &S::Request,
        executor: &Executor<'_>,
        fresh: &mut Fresh,
    ) -> Result<Reply<S::Reply>, Failure> {
        for _ in 0..ROUNDS {
            let Some(answer) = self.look(request, executor.owner, fresh).await? else { continue };
            if let Some(step) = answer.steps.iter().find(|step| !allowed(step)) {
                return Err(Failure::bug(format!(
                    "a server may only create or compare and swap what has a name, not {step:?}"
                )));
            }
            let (mut settled, mut stale, mut failed) = (true, Vec::new(), None);
            for done in executor.stage(&Stage { steps: answer.steps }, fresh).await {
                match done {
                    Done::Unchanged | Done::Acted => {}
                    Done::Wrote(target, object, _) => {
                        self.absent.forget(&target);
                        fresh.objects.insert(target, (object, self.runtime.now()));
                        settled = false;
                    }
                    Done::Stale(target) => {
                        self.absent.forget(&target);
                        stale.push(target);
                    }
                    Done::NeedsFirmGround => {
                        failed = Some(Failure::bug("a server may not destroy anything"));
                    }
                    Done::Failed(failure) | Done::Panicked(failure) | Done::Altered(_, _, failure) => {
                        failed = Some(failure);
                    }
                }
            }
            // Only now: what the other steps have written must be known, whatever one of them came to.
            if let Some(failure) = failed {
                return Err(failure);
            }
            if settled && stale.is_empty() {
                return Ok(answer.reply);
            }
            for target in stale {
                refresh(&*self.cluster, fresh, target, self.runtime.now()).await?;
            }
        }
        let owner = executor.owner;
        Err(Failure::new(Class::Transient, format!("the world around {owner} keeps changing; ask again")))
    }

    /// What was read or written and the caches do not show yet.
    fn not_shown_yet(&self, mut fresh: Fresh) -> Fresh {
        fresh.objects.retain(|target, (object, _)| match object {
            Some(object) => {
                let written = Progress::Revision(revision(object.resource_version()));
                let mut showing = self.stores.of(&target.kind).iter();
                showing
                    .any(|store| store.watch().scope().shows(object) && !store.reached(&target.key, &written))
            }
            None => self.stores.get(target).present().is_some(),
        });
        Fresh { objects: fresh.objects, reread_at: fresh.reread_at, ..Fresh::default() }
    }

    async fn look(
        &self,
        request: &S::Request,
        owner: &Key,
        fresh: &mut Fresh,
    ) -> Result<Option<Answer<S::Reply>>, Failure> {
        let now = self.runtime.now();
        let (answer, wants) = {
            let view = View::new(&self.stores, fresh, &self.outside, owner, None, now);
            let answered = AssertUnwindSafe(|| self.service.answer(request, &view, now));
            let answer = std::panic::catch_unwind(answered).map_err(|panic| {
                self.metrics.panicked(self.service.name());
                Failure::bug(format!("answering for {owner} panicked: {}", panic_text(&*panic)))
            })?;
            (answer, view.noted().wants)
        };
        if wants.is_empty() {
            return Ok(Some(answer));
        }
        for want in wants {
            match want {
                Want::Object(target) => self.read(fresh, target, now).await?,
                Want::List(listing) => self.list(fresh, listing, now).await?,
                // A caller waits: what takes long is asked by a controller, which puts the answer into a status.
                Want::Answer(question) => {
                    return Err(Failure::bug(format!(
                        "a server cannot ask the outside, not even {question}"
                    )));
                }
            }
        }
        Ok(None)
    }

    /// Reads an object. What no cache shows mostly does not exist: only so many such reads are made, and of kinds that are watched it is
    /// remembered.
    async fn read(&self, fresh: &mut Fresh, target: ObjectRef, now: Timestamp) -> Result<(), Failure> {
        let watched = !self.stores.of(&target.kind).is_empty();
        if self.stores.get(&target).present().is_some() || !bounds::is_address(&target) {
            return refresh(&*self.cluster, fresh, target, now).await;
        }
        let absent = if watched { &self.absent } else { &self.unwatched };
        let reading = match absent.look(&target).await? {
            Looked::Absent { since } => {
                fresh.objects.insert(target, (None, since));
                return Ok(());
            }
            Looked::Unknown(reading) => reading,
        };
        let read = refresh(&*self.cluster, fresh, target.clone(), now).await;
        match fresh.objects.get(&target) {
            Some((Some(_), _)) => reading.found(),
            Some((None, _)) if watched => reading.absent(&target, now),
            _ => drop(reading),
        }
        read
    }

    /// Reads a list, only so often: its namespace may be anything that somebody sends.
    async fn list(&self, fresh: &mut Fresh, listing: Listing, now: Timestamp) -> Result<(), Failure> {
        if !bounds::is_listing(&listing) {
            return Err(Failure::new(Class::Invalid, format!("{listing} cannot be listed")));
        }
        let reading = self.lists.begin(&listing).await?;
        let read = read_list(&*self.cluster, &self.outside, fresh, listing.clone(), now).await;
        match fresh.lists.get(&listing) {
            Some(list) if !list.objects.is_empty() => reading.found(),
            _ => drop(reading),
        }
        read
    }
}

#[cfg(test)]
mod tests;

fn allowed(step: &Step) -> bool {
    if !bounds::is_named(step) || bounds::amends_ownership(step).is_some() {
        return false;
    }
    match step {
        Step::Apply(child) => child.expect == Expect::Absent,
        Step::Mint(_) | Step::Seal(_) | Step::Record(_) | Step::Amend(_) => true,
        Step::Replace { .. } | Step::Delete(_) | Step::Effect(_) => false,
    }
}
