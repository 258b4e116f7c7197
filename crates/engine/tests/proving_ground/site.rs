//! One run on the real control plane: a namespace, a fault proxy, a pump house behind HTTP, and an operator that can be killed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use aquifer_engine::cluster::{Cluster as _, Listing, Verb};
use aquifer_engine::health::Health;
use aquifer_engine::intent::INTENT;
use aquifer_engine::latest;
use aquifer_engine::lease::Leadership;
use aquifer_engine::live::{Live, client_config};
use aquifer_engine::metrics::Metrics;
use aquifer_engine::model::{Fuse, Mode};
use aquifer_engine::remote::Remote;
use aquifer_engine::runner::{Context, run};
use aquifer_engine::{Kind, Object};
use aquifer_lab::eventually;
use aquifer_lab::proxy::{Fault, FaultId, Proxy, Upstream, Victim};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::family::{CLAIM, CONFIG_MAP, Kinds, SECRET, WellSpec, condition, spring, well, well_status};
use crate::ground::{admin, cluster, namespace, serve, write};
use crate::house::{House, HouseServer, Killer, Line};
use crate::springs::Springs;
use crate::story::{Deed, deeds, expected};
use crate::wells::Wells;

pub const PATIENCE: Duration = Duration::from_secs(20);

/// Where a fault strikes.
#[derive(Clone, Copy, Debug)]
pub enum Point {
    /// At the n-th write to Kubernetes.
    Write(u64),
    /// At the n-th write to the pump house.
    House(usize),
}

pub struct Site {
    pub namespace: String,
    pub run: String,
    pub kinds: Kinds,
    pub api: Live,
    pub proxy: Arc<Proxy>,
    pub house: HouseServer,
    pub decider: Option<Remote>,
    operator: Mutex<Option<Operator>>,
}

/// One life of the operator.
pub struct Operator {
    tasks: Vec<JoinHandle<()>>,
    alive: Arc<AtomicBool>,
    pub resync: latest::Sender<u64>,
    pub metrics: Metrics,
    pub health: Health,
}

impl Operator {
    /// Starts both controllers.
    pub fn start(site: &Site, client: kube::Client, leadership: Leadership) -> Self {
        let alive = Arc::new(AtomicBool::new(true));
        let (resync, receiver) = latest::latest(0);
        let metrics = Metrics::default();
        let health = Health::default();
        let context = Context {
            client: client.clone(),
            runtime: aquifer_engine::runtime::Runtime::system(),
            leadership,
            metrics: metrics.clone(),
            health: health.clone(),
            shutdown: CancellationToken::new(),
            resync: receiver,
        };
        let wells = Wells {
            kinds: site.kinds.clone(),
            runtime: aquifer_engine::runtime::Runtime::system(),
            run: site.run.clone(),
            house: Arc::new(Line::new(&site.house.url, Arc::clone(&alive))),
            keys: Arc::new(Live::new(client, metrics.clone())),
            decider: site.decider.clone(),
        };
        let springs = Springs { kinds: site.kinds.clone(), run: site.run.clone() };
        let tasks = vec![tokio::spawn(run(wells, context.clone())), tokio::spawn(run(springs, context))];
        Self { tasks, alive, resync, metrics, health }
    }

    /// Ends it without any farewell.
    pub fn killer(&self) -> impl Fn() + Send + Sync + use<> {
        let handles: Vec<_> = self.tasks.iter().map(JoinHandle::abort_handle).collect();
        let alive = Arc::clone(&self.alive);
        move || {
            alive.store(false, Ordering::SeqCst);
            handles.iter().for_each(tokio::task::AbortHandle::abort);
        }
    }

    /// Waits until nothing of it runs any more.
    pub async fn gone(self) {
        for task in self.tasks {
            let _ = task.await;
        }
    }
}

impl Site {
    /// A fresh site; the family's kinds are served.
    pub async fn new(purpose: &str) -> Self {
        let kinds = Kinds::new();
        let api = admin().await;
        for kind in [&kinds.well, &kinds.spring, &kinds.meter] {
            serve(&api, kind).await;
        }
        Self::with(purpose, kinds).await
    }

    /// A fresh site with kinds that may not be served.
    pub async fn with(purpose: &str, kinds: Kinds) -> Self {
        let api = admin().await;
        let namespace = namespace(&api, purpose).await;
        let proxy = Arc::new(proxy().await);
        let house = House::new(Arc::new(Fuse::default()), false);
        let killer: Killer = Arc::default();
        let crash = Arc::clone(&proxy);
        *killer.lock().unwrap() = Some(Box::new(move || crash.crash()));
        let house = HouseServer::start(house, killer).await;
        Self {
            run: namespace.clone(),
            namespace,
            kinds,
            api,
            proxy,
            house,
            decider: None,
            operator: Mutex::default(),
        }
    }

    /// A client behind the site's proxy.
    pub async fn client(&self) -> kube::Client {
        client(&self.proxy).await
    }

    /// Starts the operator; it is the one that crashes kill.
    pub async fn start(&self) {
        let operator = Operator::start(self, self.client().await, Leadership::always());
        self.proxy.set_victim(Victim::Call(Arc::new(operator.killer())));
        *self.operator.lock().unwrap() = Some(operator);
    }

    pub async fn stop(&self) {
        let operator = self.operator.lock().unwrap().take();
        if let Some(operator) = operator {
            operator.killer()();
            operator.gone().await;
        }
    }

    /// Every key has a pass.
    pub fn resync(&self) {
        if let Some(operator) = self.operator.lock().unwrap().as_ref() {
            operator.resync.increment();
        }
    }

    pub fn metrics(&self) -> String {
        self.operator.lock().unwrap().as_ref().map(|operator| operator.metrics.text()).unwrap_or_default()
    }

    pub fn missing(&self) -> Vec<String> {
        self.operator.lock().unwrap().as_ref().map(|operator| operator.health.missing()).unwrap_or_default()
    }

    pub fn inject(&self, point: Point, mode: Mode) -> Option<FaultId> {
        match (point, mode) {
            (Point::Write(n), Mode::CrashBefore) => Some(self.proxy.inject(Fault::CrashBefore(n))),
            (Point::Write(n), Mode::CrashAfter) => Some(self.proxy.inject(Fault::CrashAfter(n))),
            (Point::Write(n), Mode::LostReply) => Some(self.proxy.inject(Fault::CutReply(n))),
            (Point::House(n), mode) => {
                self.house.house.fuse.arm(n, mode);
                None
            }
        }
    }

    /// Brings the operator back if it was killed.
    async fn revive(&self) -> anyhow::Result<()> {
        if !self.proxy.crashed() {
            return Ok(());
        }
        self.proxy.wait_crash(PATIENCE).await?;
        self.stop().await;
        self.house.house.fuse.revive();
        self.proxy.revive().await?;
        self.start().await;
        Ok(())
    }

    /// Waits for something, bringing the operator back to life when it was killed meanwhile.
    pub async fn until<T>(
        &self,
        what: &str,
        look: impl AsyncFn() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        eventually(PATIENCE, what, || async {
            self.revive().await?;
            look().await
        })
        .await
    }

    pub async fn act(&self, deed: &Deed) {
        match deed {
            Deed::Spring(capacity) => {
                self.create(&self.kinds.spring, spring(&self.kinds, &self.namespace, &self.run, *capacity))
                    .await;
            }
            Deed::Well(name, spec) => self.well(name, spec).await,
            Deed::Delete(name) => self.delete(name).await,
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
        let listing = Listing { kind: kind.clone(), namespace: self.namespace.clone() };
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

    /// Everything there is in the namespace, with what differs between runs masked: equal when the outcome is.
    pub async fn picture(&self) -> BTreeMap<String, Value> {
        let kinds = [&self.kinds.well, &self.kinds.spring, &self.kinds.meter, &CONFIG_MAP, &CLAIM, &SECRET];
        let mut docs = BTreeMap::new();
        for kind in kinds {
            for object in self.objects(kind).await {
                docs.insert(format!("{kind} {}", object.name()), object.0);
            }
        }
        let mut words: Vec<(String, String)> = docs
            .iter()
            .map(|(name, doc)| (Object(doc.clone()).uid().to_owned(), format!("uid of {name}")))
            .collect();
        words.push((self.namespace.clone(), "NS".into()));
        for doc in docs.values_mut() {
            mask(doc, &words);
        }
        docs
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
        let mut created = BTreeMap::new();
        for made in self.proxy.writes().into_iter().filter(|write| write.status == Some(201)) {
            let path = made.path.replace(&self.namespace, "NS");
            let name = made.object.unwrap_or_default();
            let path = path.strip_suffix(&format!("/{name}")).map_or(path.clone(), str::to_owned);
            *created.entry(format!("{path}/{name}")).or_default() += 1;
        }
        created
    }

    /// Plays a step of the story.
    pub async fn play(&self, step: usize) {
        for deed in deeds(step) {
            self.act(&deed).await;
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

pub async fn proxy() -> Proxy {
    let cluster = cluster().await;
    let upstream = Upstream { url: cluster.url().to_owned(), ca_pem: cluster.ca_pem().as_bytes().to_vec() };
    Proxy::start(upstream).await.unwrap()
}

pub async fn client(proxy: &Proxy) -> kube::Client {
    let mut config = client_config(kube::Config::new(proxy.url().parse().unwrap()));
    config.auth_info.token = Some(cluster().await.admin_token().to_owned().into());
    kube::Client::try_from(config).unwrap()
}

fn mask(value: &mut Value, words: &[(String, String)]) {
    match value {
        Value::Object(map) => {
            for field in [
                "resourceVersion",
                "generation",
                "creationTimestamp",
                "managedFields",
                "observedGeneration",
                "lastTransitionTime",
                INTENT,
            ] {
                map.remove(field);
            }
            if map.get("kind").is_some_and(|kind| kind == "Secret")
                && let Some(data) = map.get_mut("data").and_then(Value::as_object_mut)
            {
                data.values_mut().for_each(|secret| *secret = json!("masked"));
            }
            map.values_mut().for_each(|value| mask(value, words));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| mask(value, words)),
        Value::String(text) => {
            for (word, name) in words {
                *text = text.replace(word.as_str(), name);
            }
        }
        _ => {}
    }
}
