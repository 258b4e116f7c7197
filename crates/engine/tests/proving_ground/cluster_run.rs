//! One run on the real control plane: a namespace, a fault proxy, a pump house behind HTTP, and an operator that can be killed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result, ensure};
use aquifer_engine::cluster::{Cluster as _, Listing, Verb};
use aquifer_engine::live::Live;
use aquifer_engine::model::WriteFault;
use aquifer_engine::process::LeaseSettings;
use aquifer_engine::remote::Remote;
use aquifer_engine::runtime::Runtime;
use aquifer_engine::{Kind, Object};
use aquifer_lab::eventually;
use aquifer_lab::install::Account;
use aquifer_lab::kit::mask::{State, mask};
use aquifer_lab::kit::walk::{Mode, Run};
use aquifer_lab::kit::writes::created;
use aquifer_lab::kit::{Operator, Proxied};
use aquifer_lab::proxy::{Proxy, Victim};
use serde_json::{Value, json};

use crate::control_plane::{DEADLINE, admin, cluster, namespace, serve, write};
use crate::family::{CLAIM, CONFIG_MAP, Kinds, SECRET, WellSpec, condition, spring, well, well_status};
use crate::house::{House, HouseServer, Killer, Line};
use crate::springs::Springs;
use crate::story::{Action, actions, expected};
use crate::wells::Wells;

/// The controllers, as metrics name them.
const WELLS: &str = "proving-wells";
const SPRINGS: &str = "proving-springs";

pub struct ClusterRun {
    pub namespace: String,
    pub run: String,
    pub kinds: Kinds,
    pub api: Live,
    pub proxied: Arc<Proxied>,
    pub house: HouseServer,
    pub decider: Option<Remote>,
    operator: Mutex<Option<Operator>>,
}

impl ClusterRun {
    /// A fresh run; the family's kinds are served.
    pub async fn new(purpose: &str) -> Self {
        let kinds = Kinds::new();
        let api = admin().await;
        for kind in [&kinds.well, &kinds.spring, &kinds.meter] {
            serve(&api, kind).await;
        }
        Self::with(purpose, kinds).await
    }

    /// A fresh run with kinds that may not be served.
    pub async fn with(purpose: &str, kinds: Kinds) -> Self {
        let namespace = namespace(purpose).await;
        let proxied = Arc::new(proxied().await);
        let house = House::new(Arc::new(WriteFault::default()), false);
        let killer: Killer = Arc::default();
        let crash = Arc::clone(&proxied);
        *killer.lock().unwrap() = Some(Box::new(move || crash.proxy.crash()));
        let house = HouseServer::start(house, killer).await;
        Self {
            run: namespace.clone(),
            namespace,
            kinds,
            api: admin().await,
            proxied,
            house,
            decider: None,
            operator: Mutex::default(),
        }
    }

    /// An operator of the family behind a proxy, which dies in the proxy's crashes. With a lease it acts only while it holds it.
    pub fn operator(&self, behind: &Proxied, lease: Option<LeaseSettings>) -> Operator {
        let alive = Arc::new(AtomicBool::new(true));
        let (kinds, run) = (self.kinds.clone(), self.run.clone());
        let (house, decider) = (Line::new(&self.house.url, Arc::clone(&alive)), self.decider.clone());
        let operator = behind.operator(move |controllers| {
            if let Some(lease) = lease {
                controllers.elect(lease);
            }
            let keys = Arc::new(Live::new(controllers.client(), controllers.metrics()));
            controllers.run(Springs { kinds: kinds.clone(), run: run.clone(), decider: decider.clone() });
            let runtime = Runtime::system();
            controllers.run(Wells { kinds, run, house: Arc::new(house), keys, decider, runtime });
        });
        let kill = operator.killer();
        behind.proxy.set_victim(Victim::Call(Arc::new(move || {
            // What it says to the house must end as suddenly as what it says to Kubernetes.
            alive.store(false, Ordering::SeqCst);
            kill();
        })));
        operator
    }

    /// Starts the operator; it is the one that crashes kill.
    #[allow(clippy::unused_async, reason = "as the other steps of a run")]
    pub async fn start(&self) {
        let operator = self.operator(&self.proxied, None);
        *self.operator.lock().unwrap() = Some(operator);
    }

    #[allow(clippy::unused_async, reason = "as the other steps of a run")]
    pub async fn stop(&self) {
        let operator = self.operator.lock().unwrap().take();
        if let Some(operator) = operator {
            operator.crash();
        }
    }

    /// What stands between the operator and the API server.
    pub fn proxy(&self) -> &Proxy {
        &self.proxied.proxy
    }

    /// Every key has a pass.
    pub fn resync(&self) {
        if let Some(operator) = self.operator.lock().unwrap().as_ref() {
            operator.resync();
        }
    }

    pub fn metrics(&self) -> String {
        self.operator.lock().unwrap().as_ref().map(|operator| operator.metrics.text()).unwrap_or_default()
    }

    pub fn missing(&self) -> Vec<String> {
        self.operator.lock().unwrap().as_ref().map(|operator| operator.health.missing()).unwrap_or_default()
    }

    /// Waits for something.
    pub async fn until<T>(&self, what: &str, look: impl AsyncFn() -> Result<Option<T>>) -> Result<T> {
        eventually(DEADLINE, what, || look()).await
    }

    pub async fn act(&self, action: &Action) {
        match action {
            Action::Spring(capacity) => {
                self.create(&self.kinds.spring, spring(&self.kinds, &self.namespace, &self.run, *capacity))
                    .await;
            }
            Action::Well(name, spec) => self.well(name, spec).await,
            Action::Delete(name) => self.delete(name).await,
        }
    }

    async fn create(&self, kind: &Kind, body: Value) {
        let target = kind.key(&Object(body.clone()).key());
        write(&self.api, &target, Verb::Create(body)).await.unwrap();
    }

    /// A user writes a well.
    pub async fn well(&self, name: &str, spec: &WellSpec) {
        let body = well(&self.kinds, &self.namespace, name, &self.run, spec);
        let target = self.kinds.well.at(&self.namespace, name);
        if self.api.get(&target).await.unwrap().is_some() {
            write(&self.api, &target, Verb::Merge { body: json!({"spec": spec}), status: false })
                .await
                .unwrap();
        } else {
            self.create(&self.kinds.well, body).await;
        }
    }

    pub async fn delete(&self, name: &str) {
        let target = self.kinds.well.at(&self.namespace, name);
        let seen = self.api.get(&target).await.unwrap().expect("the well is there");
        let verb = Verb::Delete { uid: seen.uid().to_owned(), resource_version: None };
        write(&self.api, &target, verb).await.unwrap();
    }

    pub async fn the_well(&self, name: &str) -> anyhow::Result<Object> {
        let target = self.kinds.well.at(&self.namespace, name);
        self.api.get(&target).await?.with_context(|| format!("there is no {target}"))
    }

    pub async fn objects(&self, kind: &Kind) -> Vec<Object> {
        let listing = Listing::all(kind, &self.namespace);
        let mut objects = self.api.list(&listing).await.unwrap_or_default();
        objects.retain(|object| object.name() != "kube-root-ca.crt");
        objects
    }

    pub async fn names(&self, kind: &Kind) -> Vec<String> {
        self.objects(kind).await.iter().map(|object| object.name().to_owned()).collect()
    }

    /// Whether the wells are as a step of the story leaves them.
    pub async fn arrived(&self, step: usize) -> anyhow::Result<Option<()>> {
        let wells = self.objects(&self.kinds.well).await;
        let wanted = expected(step);
        ensure!(wells.len() == wanted.len(), "there are {} wells", wells.len());
        for expected in wanted {
            ready(&self.the_well(expected.well).await?, expected.size)?;
        }
        Ok(Some(()))
    }

    /// Everything there is in the namespace, and what is true outside: equal when the outcome is.
    pub async fn picture(&self) -> State {
        let kinds = [&self.kinds.well, &self.kinds.spring, &self.kinds.meter, &CONFIG_MAP, &CLAIM, &SECRET];
        let mut objects = vec![("outside".to_owned(), self.outside())];
        for kind in kinds {
            for object in self.objects(kind).await {
                objects.push((format!("{kind} {}", object.name()), object.0));
            }
        }
        mask(objects, &[(&self.namespace, "NS")])
    }

    /// What is true outside.
    pub fn outside(&self) -> Value {
        let mut sizes: Vec<u64> = self.house.house.pumps().iter().map(|pump| pump.size).collect();
        sizes.sort_unstable();
        let made: Vec<usize> = self.house.house.made().into_values().collect();
        json!({"made": made, "sizes": sizes, "too much": self.house.house.most() > 10})
    }

    /// How often each object was created.
    pub fn created(&self) -> BTreeMap<String, usize> {
        created(self.proxy(), &self.namespace)
    }

    /// Plays a step of the story.
    pub async fn play(&self, step: usize) {
        for action in actions(step) {
            self.act(&action).await;
        }
    }
}

/// Ready for its current generation, with this much water.
pub fn ready(well: &Object, size: u64) -> anyhow::Result<()> {
    let status = well_status(well);
    let (state, reason) = condition(well, "Ready");
    let current = well.at("/status/observedGeneration") == well.at("/metadata/generation");
    let flows = status.allotted == Some(size) && status.using == size && status.order.is_none();
    ensure!(state == "True" && current && flows, "{} is {state} {reason}, {status:?}", well.name());
    Ok(())
}

/// A fault proxy of its own in front of the cluster. The family is not shipped, so it runs as administrator.
pub async fn proxied() -> Proxied {
    let cluster = cluster().await;
    Proxied::new(cluster, &Account::administrator(cluster)).await.unwrap()
}

impl Run for ClusterRun {
    fn proxy(&self) -> &Proxy {
        &self.proxied.proxy
    }

    fn name(&self) -> &str {
        &self.namespace
    }

    async fn act(&self, step: usize) -> Result<()> {
        self.play(step).await;
        Ok(())
    }

    async fn arrived(&self, step: usize) -> Result<()> {
        ClusterRun::arrived(self, step).await.map(drop)
    }

    async fn state(&self) -> Result<State> {
        Ok(self.picture().await)
    }

    async fn restart(&self) -> Result<()> {
        self.stop().await;
        self.house.house.fault.restart();
        self.proxied.proxy.revive().await?;
        self.start().await;
        Ok(())
    }

    async fn resync(&self, step: usize) -> Result<()> {
        let operator = self.operator.lock().unwrap().take().context("no operator")?;
        let springs = operator.passes(SPRINGS);
        let mut looked = operator.resync_all(WELLS, expected(step).len() as u64).await;
        if looked.is_ok() {
            looked = eventually(DEADLINE, "the spring is looked at again", || async {
                Ok((operator.passes(SPRINGS) > springs).then_some(()))
            })
            .await;
        }
        *self.operator.lock().unwrap() = Some(operator);
        looked
    }

    async fn end(self) {
        self.stop().await;
    }

    fn arm_outside(&self, n: u64, mode: Mode) {
        self.house.house.fault.set(usize::try_from(n).unwrap(), mode);
    }

    fn outside_writes(&self) -> u64 {
        self.house.house.fault.count() as u64
    }
}
