//! What the tests stand on: a cluster with our kinds installed, the operator inside this process but with its own runtime and
//! its own account, and a namespace for each test.

use std::future::Future;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use aquifer_api::efs::{SharedVolume, SharedVolumeSpec};
use aquifer_efs::driver::{Driver, Management};
use aquifer_efs::volumes::{self, Volumes};
use aquifer_engine::health::Health;
use aquifer_engine::lease::Leadership;
use aquifer_engine::live::client_config;
use aquifer_engine::metrics::Metrics;
use aquifer_engine::runner::{self, Context};
use aquifer_lab::install::{self, Account, USER};
use aquifer_lab::proxy::{Proxy, Upstream, Victim};
use aquifer_lab::{Call, Cluster, Lab, Mark, eventually};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, OnceCell, Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

/// How long a test waits for what should take seconds at most.
pub const DEADLINE: Duration = Duration::from_secs(30);
pub const FILE_SYSTEM: &str = "fs-0123456789abcdef0";
pub const ACCESS_POINT: &str = "fsap-0123456789abcdef0";
pub const OTHER_ACCESS_POINT: &str = "fsap-0fedcba9876543210";

/// A cluster with our kinds and the operator's account; no operator yet.
pub struct Ground {
    pub cluster: Cluster,
    pub account: Account,
}

impl Ground {
    pub async fn start() -> Result<Self> {
        let cluster = Lab::test_cluster().start().await?;
        let client = cluster.client()?;
        install::crds(&client).await?;
        install::user_roles(&client).await?;
        let account = install::identity(&cluster).await?;
        Ok(Self { cluster, account })
    }

    /// Starts the operator as its own user.
    pub fn operator(&self) -> Operator {
        Operator::start(&self.account, Driver::default())
    }

    /// Writes of the operator since a mark, Leases and Events apart.
    pub fn writes_since(&self, mark: Mark) -> Result<Vec<Call>> {
        let calls = self.cluster.audit().since(mark)?;
        Ok(calls.into_iter().filter(|c| c.user == USER && c.is_write() && !c.is_lease_or_event()).collect())
    }
}

/// The ground that most tests share, with an operator that runs for the whole test binary.
pub async fn shared() -> &'static Ground {
    static GROUND: OnceCell<(Ground, Operator)> = OnceCell::const_new();
    let (ground, _) = GROUND
        .get_or_init(|| async {
            let ground = Ground::start().await.expect("the shared cluster starts");
            let operator = ground.operator();
            (ground, operator)
        })
        .await;
    ground
}

/// The operator in a thread and a runtime of its own: stopping it is as sudden as a crash.
pub struct Operator {
    stop: CancellationToken,
    resync: aquifer_engine::latest::Sender<u64>,
    thread: Option<std::thread::JoinHandle<()>>,
    pub health: Health,
    pub metrics: Metrics,
}

impl Operator {
    /// Takes an account, not a file: what is tested never runs as administrator.
    pub fn start(account: &Account, driver: Driver) -> Self {
        let stop = CancellationToken::new();
        let (resync, resynced) = aquifer_engine::latest::latest(0);
        let (health, metrics) = (Health::default(), Metrics::default());
        let (token, kubeconfig) = (stop.clone(), account.kubeconfig.clone());
        let (health_inside, metrics_inside) = (health.clone(), metrics.clone());
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let client = client_of(&kubeconfig).await.expect("a client");
                let context = Context {
                    client,
                    runtime: aquifer_engine::runtime::Runtime::system(),
                    leadership: Leadership::always(),
                    metrics: metrics_inside,
                    health: health_inside,
                    // Never cancelled: a crash asks nobody.
                    shutdown: CancellationToken::new(),
                    resync: resynced,
                };
                tokio::select! {
                    () = token.cancelled() => {}
                    () = runner::run(Volumes, context.clone()) => {}
                    () = runner::run(driver, context.clone()) => {}
                }
            });
            runtime.shutdown_background();
        });
        Self { stop, resync, thread: Some(thread), health, metrics }
    }

    /// Every object is looked at again.
    pub fn resync(&self) {
        self.resync.increment();
    }

    /// Something that makes the operator drop dead, for the fault proxy.
    pub fn killer(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Ends at once, whatever it was doing.
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
pub async fn client_of(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(client_config(config))?)
}

/// One test's corner of a cluster.
pub struct Corner {
    pub client: Client,
    pub namespace: String,
}

impl Corner {
    /// A new namespace on the shared ground.
    pub async fn new() -> Result<Self> {
        Self::on(&shared().await.cluster).await
    }

    /// A new namespace on a cluster.
    pub async fn on(cluster: &Cluster) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let namespace = format!("t{}", COUNT.fetch_add(1, Ordering::SeqCst));
        Self::named(cluster, &namespace).await
    }

    /// A namespace of a name that matters.
    pub async fn named(cluster: &Cluster, namespace: &str) -> Result<Self> {
        let client = cluster.client()?;
        let body: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &body).await?;
        Ok(Self { client, namespace: namespace.to_owned() })
    }

    pub fn shared_volumes(&self) -> Api<SharedVolume> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    /// Creates a SharedVolume.
    pub async fn create(&self, name: &str, access_point: Option<&str>) -> Result<SharedVolume> {
        let spec = SharedVolumeSpec {
            file_system_id: FILE_SYSTEM.into(),
            access_point_id: access_point.map(Into::into),
        };
        let body = SharedVolume::new(name, spec);
        self.shared_volumes().create(&PostParams::default(), &body).await.context("create a SharedVolume")
    }

    /// Changes the access point of a SharedVolume.
    pub async fn change(&self, name: &str, access_point: &str) -> Result<SharedVolume> {
        let patch = json!({"spec": {"accessPointID": access_point}});
        Ok(self.shared_volumes().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
    }

    pub async fn delete(&self, name: &str) -> Result<()> {
        self.shared_volumes().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until a SharedVolume is as wanted; prints it when it does not become so.
    pub async fn until(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&SharedVolume) -> bool,
    ) -> Result<SharedVolume> {
        let api = self.shared_volumes();
        eventually(DEADLINE, &format!("SharedVolume {}/{name} {what}", self.namespace), || async {
            let shared = api.get(name).await?;
            if is(&shared) { Ok(Some(shared)) } else { Err(anyhow!("{}", show(&shared))) }
        })
        .await
    }

    /// Waits until a SharedVolume's current generation is Ready.
    pub async fn ready(&self, name: &str) -> Result<SharedVolume> {
        self.until(name, "is Ready", is_ready).await
    }

    /// Waits until `Ready` is false for this reason; returns its message.
    pub async fn not_ready(&self, name: &str, reason: &str) -> Result<String> {
        let what = format!("is not Ready: {reason}");
        let shared = self.until(name, &what, |shared| {
            condition(shared, "Ready").is_some_and(|c| c["status"] == "False" && c["reason"] == reason)
        });
        let shared = shared.await?;
        let message =
            condition(&shared, "Ready").map(|c| c["message"].as_str().unwrap_or_default().to_owned());
        message.context("a condition without a message")
    }

    /// Waits until a SharedVolume is gone.
    pub async fn gone(&self, name: &str) -> Result<()> {
        let api = self.shared_volumes();
        absent(&format!("SharedVolume {}/{name}", self.namespace), || async {
            Ok(api.get_opt(name).await?.map(|o| show(&o)))
        })
        .await
    }

    /// The claim and volume of a Ready SharedVolume.
    pub async fn pair(&self, name: &str) -> Result<(PersistentVolume, PersistentVolumeClaim)> {
        let shared = self.ready(name).await?;
        let status = shared.status.clone().unwrap_or_default();
        let claim = status.claim_ref.context("no claimRef")?.name;
        let volume = status.volume_ref.context("no volumeRef")?.name;
        Ok((self.volumes().get(&volume).await?, self.claims().get(&claim).await?))
    }
}

/// Waits until something is gone.
pub async fn absent<F: Future<Output = Result<Option<String>>>>(
    what: &str,
    look: impl Fn() -> F,
) -> Result<()> {
    eventually(DEADLINE, &format!("{what} is gone"), || async {
        match look().await? {
            None => Ok(Some(())),
            Some(there) => Err(anyhow!("{there}")),
        }
    })
    .await
}

pub fn is_ready(shared: &SharedVolume) -> bool {
    let current = shared.status.as_ref().is_some_and(|s| s.observed_generation == shared.metadata.generation);
    current && condition(shared, "Ready").is_some_and(|c| c["status"] == "True")
}

/// A condition as JSON.
pub fn condition(shared: &SharedVolume, kind: &str) -> Option<Value> {
    let status = shared.status.as_ref()?;
    let found = status.conditions.iter().find(|c| c.type_ == kind)?;
    serde_json::to_value(found).ok()
}

/// An object as one line, for messages.
pub fn show(object: &(impl serde::Serialize + ResourceExt)) -> String {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    if let Some(metadata) = value["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    value.to_string()
}

/// A ground for tests that start and stop their own operator: each has it for itself as long as it runs.
pub struct Lonely {
    ground: MutexGuard<'static, Ground>,
    // After the ground: whoever comes next finds it free.
    _turn: SemaphorePermit<'static>,
}

impl Deref for Lonely {
    type Target = Ground;

    fn deref(&self) -> &Ground {
        &self.ground
    }
}

/// Waits for a lonely ground. There are two for all tests.
pub async fn lonely() -> Lonely {
    static TURNS: Semaphore = Semaphore::const_new(2);
    static GROUNDS: [OnceCell<Mutex<Ground>>; 2] = [OnceCell::const_new(), OnceCell::const_new()];
    let turn = TURNS.acquire().await.expect("turns never end");
    let start = || async { Ground::start().await.expect("a lonely cluster starts").into() };
    for ground in &GROUNDS {
        // One that is being started for somebody else is as good as taken.
        if let Ok(ground) = ground.get_or_init(start).await.try_lock() {
            return Lonely { ground, _turn: turn };
        }
    }
    unreachable!("two turns, two grounds, and both are taken")
}

/// A ground whose operator speaks to the API server through the fault proxy.
pub struct Faulty {
    pub proxy: Proxy,
    account: Account,
}

impl Faulty {
    pub async fn before(ground: &Ground) -> Result<Self> {
        let (url, ca_pem) = (ground.cluster.url().to_owned(), ground.cluster.ca_pem().as_bytes().to_vec());
        let proxy = Proxy::start(Upstream { url, ca_pem }).await?;
        let account = ground.account.behind(&proxy, &ground.cluster.dir().join("kubeconfig-proxy"))?;
        Ok(Self { proxy, account })
    }

    /// Starts an operator that looks after SharedVolumes only, so that every write it makes is about them.
    pub fn operator(&self) -> Operator {
        let driver = Driver { management: Management::External, ..Driver::default() };
        let operator = Operator::start(&self.account, driver);
        let killer = operator.killer();
        self.proxy.set_victim(Victim::Call(Arc::new(move || killer.cancel())));
        operator
    }
}

impl Operator {
    /// How many passes over SharedVolumes have ended.
    pub fn passes(&self) -> u64 {
        let text = self.metrics.text();
        let ours =
            |line: &&str| line.starts_with("aquifer_controller_passes_total") && line.contains(volumes::NAME);
        let count = |line: &str| line.rsplit(' ').next()?.parse::<u64>().ok();
        text.lines().filter(ours).filter_map(count).sum()
    }

    /// Looks at all `n` objects again and waits until that is done.
    pub async fn resync_all(&self, n: u64) -> Result<()> {
        let before = self.passes();
        self.resync();
        eventually(DEADLINE, "every object is looked at again", || async {
            let done = self.passes() - before;
            anyhow::ensure!(done >= n, "{done} of {n}");
            Ok(Some(()))
        })
        .await
    }
}

impl Corner {
    /// A pod that uses a claim, as if it ran on a node.
    pub async fn pod(&self, name: &str, claim: &str) -> Result<()> {
        let body: Pod = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "nodeName": "somewhere",
                "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "example.com/none"}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
            },
        }))?;
        let pods = self.pods();
        // The namespace's service account comes a moment after the namespace.
        eventually(DEADLINE, "a pod can be made", || async {
            Ok(Some(pods.create(&PostParams::default(), &body).await?))
        })
        .await?;
        Ok(())
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Ends a pod at once, as its node would.
    pub async fn end_pod(&self, name: &str) -> Result<()> {
        self.pods().delete(name, &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }

    /// Deletes the namespace.
    pub async fn delete_namespace(&self) -> Result<()> {
        Api::<Namespace>::all(self.client.clone()).delete(&self.namespace, &DeleteParams::default()).await?;
        Ok(())
    }

    /// The volumes whose claim is, or was, in this namespace.
    pub async fn volumes_here(&self) -> Result<Vec<PersistentVolume>> {
        let all = self.volumes().list(&ListParams::default()).await?;
        let here = |volume: &PersistentVolume| {
            let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
            claim.is_some_and(|claim| claim.namespace.as_deref() == Some(&self.namespace))
        };
        Ok(all.items.into_iter().filter(here).collect())
    }

    /// Waits until no claim and no volume is left here.
    pub async fn empty(&self) -> Result<()> {
        absent(&format!("every pair of {}", self.namespace), || async {
            let claims = self.claims().list(&ListParams::default()).await?.items;
            let volumes = self.volumes_here().await?;
            let left: Vec<String> = claims.iter().map(show).chain(volumes.iter().map(show)).collect();
            Ok((!left.is_empty()).then(|| left.join("\n")))
        })
        .await
    }

    /// Waits until a SharedVolume is Ready with another pair than this one.
    pub async fn another_pair(
        &self,
        name: &str,
        old: &(PersistentVolume, PersistentVolumeClaim),
    ) -> Result<(PersistentVolume, PersistentVolumeClaim)> {
        self.until(name, "is Ready with a new pair", |shared| {
            let status = shared.status.clone().unwrap_or_default();
            is_ready(shared)
                && status.claim_uid != old.1.uid()
                && status.volume_ref.and_then(|volume| volume.uid) != old.0.uid()
        })
        .await?;
        self.pair(name).await
    }
}

/// Changes an object in place, as somebody else would.
pub async fn edit<K>(api: &Api<K>, name: &str, patch: &Value) -> Result<K>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    Ok(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
}

/// Waits until an object is as wanted; prints it when it does not become so.
pub async fn until<K>(api: &Api<K>, name: &str, what: &str, is: impl Fn(&K) -> bool) -> Result<K>
where
    K: Clone + serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug + ResourceExt,
{
    eventually(DEADLINE, &format!("{name} {what}"), || async {
        let object = api.get(name).await?;
        if is(&object) { Ok(Some(object)) } else { Err(anyhow!("{}", show(&object))) }
    })
    .await
}

/// The handle of a volume.
pub fn handle(volume: &PersistentVolume) -> &str {
    let csi = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
    csi.map(|csi| csi.volume_handle.as_str()).unwrap_or_default()
}

pub fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
}

impl Ground {
    /// Waits until the operator has stopped writing: longer than a status that can wait does wait.
    pub async fn settled(&self) -> Result<()> {
        eventually(DEADLINE, "the operator stops writing", || async {
            let mark = self.cluster.audit().mark()?;
            tokio::time::sleep(Duration::from_millis(1500)).await;
            let writes = self.writes_since(mark)?;
            anyhow::ensure!(writes.is_empty(), "{writes:?}");
            Ok(Some(()))
        })
        .await
    }
}
