//! Servers in the shape of controllers: `answer(request, snapshot, now) -> steps and a reply`. They hold no lease, every
//! replica answers; so their steps may only create, or compare and swap.

use std::sync::Arc;

use aquifer_base::Uid;
use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::mpsc::unbounded_channel;

use crate::cluster::Cluster;
use crate::failure::{Class, Failure};
use crate::lease::Leadership;
use crate::live::Live;
use crate::object::Key;
use crate::outside::Outside;
use crate::pass::{Done, Executor, StepCode, read_list, refresh};
use crate::plan::{Effect, Expect, Stage, Step};
use crate::runner::Context;
use crate::runtime::Runtime;
use crate::secret::{Composition, SecretContent};
use crate::store::Store;
use crate::stores::Stores;
use crate::view::{Fresh, View, Want};
use crate::watch::Watch;
use crate::writer::Writer;

/// Answers before a request is given up because the world keeps changing.
const ROUNDS: usize = 8;

/// What a server does.
#[async_trait]
pub trait Service: Send + Sync + 'static {
    /// What it is asked.
    type Request: Send + Sync;
    /// What it answers.
    type Reply: Send;

    /// Its name as field manager.
    fn name(&self) -> &'static str;
    /// In whose name objects are made: key and uid of the owner.
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
pub struct Answer<R> {
    /// Created or compared and swapped before the reply.
    pub steps: Vec<Step>,
    /// What the caller gets when all of them succeeded. While steps write, the reply is decided again afterwards.
    pub reply: R,
}

/// A service on a cluster.
pub struct Server<S> {
    service: S,
    cluster: Arc<dyn Cluster>,
    stores: Stores,
    outside: Outside,
    runtime: Runtime,
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
    /// A service that looks at these caches and writes to this cluster.
    pub fn new(service: S, cluster: Arc<dyn Cluster>, stores: Stores, runtime: Runtime) -> Self {
        Self { service, cluster, stores, outside: Outside::default(), runtime }
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
        // Changes wake nothing here, but a cache is kept only while its changes are taken.
        context.runtime.spawn(async move { while woken.recv().await.is_some() {} });
        let cluster = Arc::new(Live::new(context.client.clone(), context.metrics.clone()));
        Self::new(service, cluster, stores, context.runtime.clone())
    }

    /// Answers one request.
    pub async fn handle(&self, request: &S::Request) -> Result<S::Reply, Failure> {
        let (owner, owner_uid) = self.service.owner(request);
        let leadership = Leadership::always(); // servers hold no lease
        let code = ServiceCode(&self.service);
        let executor = Executor {
            writer: Writer { cluster: &*self.cluster, leadership: &leadership, manager: self.service.name() },
            code: &code,
            stores: &self.stores,
            outside: &self.outside,
            owner: &owner,
            owner_uid: owner_uid.as_ref(),
            owner_version: None,
        };
        let mut fresh = Fresh::default();
        for _ in 0..ROUNDS {
            let Some(answer) = self.look(request, &owner, &mut fresh).await? else { continue };
            if let Some(step) = answer.steps.iter().find(|step| !allowed(step)) {
                return Err(Failure::bug(format!(
                    "a server may only create or compare and swap, not {step:?}"
                )));
            }
            let mut settled = true;
            for done in executor.stage(&Stage { steps: answer.steps }, &fresh).await {
                match done {
                    Done::Unchanged | Done::Acted => {}
                    Done::Wrote(target, object, _) => {
                        fresh.objects.insert(target, (object, self.runtime.now()));
                        settled = false;
                    }
                    Done::Stale(target) => {
                        refresh(&*self.cluster, &mut fresh, target, self.runtime.now()).await?;
                        settled = false;
                    }
                    Done::NeedsFirmGround => {
                        return Err(Failure::bug("a server may not destroy anything"));
                    }
                    Done::Failed(failure) | Done::Panicked(failure) | Done::Altered(_, _, failure) => {
                        return Err(failure);
                    }
                }
            }
            if settled {
                return Ok(answer.reply);
            }
        }
        Err(Failure::new(Class::Transient, format!("the world around {owner} keeps changing; ask again")))
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
            let answer = self.service.answer(request, &view, now);
            (answer, view.noted().wants)
        };
        if wants.is_empty() {
            return Ok(Some(answer));
        }
        for want in wants {
            match want {
                Want::Object(target) => refresh(&*self.cluster, fresh, target, now).await?,
                Want::List(listing) => read_list(&*self.cluster, &self.outside, fresh, listing, now).await?,
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
}

fn allowed(step: &Step) -> bool {
    match step {
        Step::Apply(child) => child.expect == Expect::Absent,
        Step::Mint(_) | Step::Seal(_) | Step::Record(_) | Step::Amend(_) => true,
        Step::Replace { .. } | Step::Delete(_) | Step::Effect(_) => false,
    }
}
