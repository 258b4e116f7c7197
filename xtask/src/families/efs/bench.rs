//! SharedVolumes by the hundred: how long create, ready and delete take with the operator, next to the floor.
//!
//! Both run on a fresh cluster. `create` and `ready` start together; their counts therefore both start there, and only
//! `ready` shows all status writes.

use std::{
    collections::{BTreeMap, HashSet},
    fmt::Debug,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use aquifer_api::efs::{SharedVolume, SharedVolumeSpec};
use aquifer_families::efs::names::labels::SHARED_VOLUME_FINALIZER;
use aquifer_lab::{Cluster, Lab, Mark, eventually};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, ServiceAccount};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
    runtime::watcher::{self, Event, watcher},
};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::floor;
use crate::bench::{
    CONCURRENCY,
    measure::{Calls, Usage},
    row::{Row, float},
    say,
};
use crate::{
    operator::{self, Operator},
    process::took,
};
use aquifer_lab::install::{self, Account};

pub(super) const BENCH: &str = "efs";
pub(super) const NAMESPACE: &str = "bench";
/// How long nothing may be written before the objects count as being at rest.
const REST: Duration = Duration::from_secs(30);
/// How long they are left alone.
const IDLE: Duration = Duration::from_mins(10);
/// Often enough to be exact, seldom enough to cost the server nothing.
const PAUSE: Duration = Duration::from_millis(50);

/// What the bare client needed for the three cases.
pub(super) struct Floor {
    pub create: Cost,
    pub ready: Cost,
    pub delete: Cost,
}

/// What one case took.
#[derive(Clone, Copy)]
pub(super) struct Cost {
    time: Duration,
    cpu_seconds: f64,
}

/// The start of a case of the bare client, which runs in this process.
pub(super) struct Start {
    at: Instant,
    cpu_seconds: f64,
}

impl Start {
    pub fn now() -> Result<Self> {
        Ok(Self { at: Instant::now(), cpu_seconds: Usage::of(std::process::id())?.cpu_seconds })
    }

    /// What it took up to now.
    pub fn cost(&self, done: &str) -> Result<Cost> {
        let now = Self::now()?;
        let cost = Cost { time: now.at - self.at, cpu_seconds: now.cpu_seconds - self.cpu_seconds };
        say(&format!("{done} after {}", took(cost.time)));
        Ok(cost)
    }
}

/// Measures one size.
pub async fn run(n: usize, program: &Path) -> Result<Vec<Row>> {
    if n == 0 {
        bail!("a benchmark of 0 objects measures nothing");
    }
    say(&format!("{n} SharedVolumes, floor: a bare client on a fresh cluster"));
    let bench = BenchCluster::start("bench-floor").await?;
    let least = floor::run(&bench, n).await;
    bench.cluster.stop().await?;
    let least = least?;
    say(&format!("{n} SharedVolumes, the operator on a fresh cluster"));
    let bench = BenchCluster::start("bench-ours").await?;
    let rows = ours(&bench, n, program, &least).await;
    bench.cluster.stop().await?;
    rows
}

/// Lets SharedVolumes that are Ready be as they are; says what that cost the operator.
pub async fn idle(n: usize, program: &Path) -> Result<String> {
    let bench = BenchCluster::start("bench-idle").await?;
    let log = bench.cluster.dir().join("aquifer.log");
    let mut operator = operator::start(program, BENCH, &bench.account.kubeconfig, &log)?;
    let measured = idle_cost(&bench, n, &mut operator).await;
    let measured = measured.map_err(|error| error.context(operator.log_tail()));
    operator.stop().await?;
    bench.cluster.stop().await?;
    measured
}

async fn idle_cost(bench: &BenchCluster, n: usize, operator: &mut Operator) -> Result<String> {
    operator.ready(Duration::from_mins(1)).await?;
    let api: Api<SharedVolume> = Api::namespaced(bench.user.clone(), NAMESPACE);
    stream::iter(0..n)
        .map(Ok)
        .try_for_each_concurrent(CONCURRENCY, |index| create_volume(&api, index))
        .await?;
    tokio::try_join!(bound(&bench.user, n, |_| {}), ready(&api, n))?;
    say("all Ready; waiting until nothing is written any more");
    loop {
        let from = bench.cluster.audit().mark()?;
        tokio::time::sleep(REST).await;
        let calls = bench.cluster.audit().between(from, bench.cluster.audit().mark()?)?;
        if Calls::count(&calls, |user| user == install::USER).all_writes_per_object(1) == 0.0 {
            break;
        }
    }
    say(&format!("nothing is written any more; measuring for {}", took(IDLE)));
    let from = Point::now(bench, operator)?;
    tokio::time::sleep(IDLE).await;
    let to = Point::now(bench, operator)?;
    let calls = bench.cluster.audit().between(from.mark, to.mark)?;
    let counts = Calls::count(&calls, |user| user == install::USER);
    Ok(format!(
        "{n} SharedVolumes at rest for {}: {} writes (Leases and Events apart: {}), {} reads, {:.2} s of CPU, peak {:.1} MiB",
        took(IDLE),
        counts.all_writes_per_object(1),
        counts.apart_per_object(1),
        counts.reads_per_object(1),
        to.operator.cpu_seconds - from.operator.cpu_seconds,
        to.operator.rss_mib
    ))
}

/// A fresh cluster that is ready for SharedVolumes.
pub(super) struct BenchCluster {
    pub cluster: Cluster,
    /// The one who makes and deletes SharedVolumes: the user of the product.
    pub user: Client,
    pub account: Account,
}

impl BenchCluster {
    pub async fn start(name: &str) -> Result<Self> {
        let cluster = Lab::cluster(name).start().await?;
        let user = cluster.client()?;
        install::crds(&user).await?;
        let account = install::identity(&cluster).await?;
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        install::apply(&user, namespace).await?;
        // Made by kube-controller-manager: from here on it works, and its start is in nobody's time.
        let accounts: Api<ServiceAccount> = Api::namespaced(user.clone(), NAMESPACE);
        eventually(Duration::from_secs(30), "kube-controller-manager works", || async {
            Ok(accounts.get_opt("default").await?)
        })
        .await?;
        Ok(Self { cluster, user, account })
    }
}

async fn ours(bench: &BenchCluster, n: usize, program: &Path, floor: &Floor) -> Result<Vec<Row>> {
    let log = bench.cluster.dir().join("aquifer.log");
    let mut operator = operator::start(program, BENCH, &bench.account.kubeconfig, &log)?;
    let result = cases(bench, n, &mut operator, floor).await;
    let result = result.map_err(|error| error.context(operator.log_tail()));
    operator.stop().await?;
    result
}

async fn cases(bench: &BenchCluster, n: usize, operator: &mut Operator, floor: &Floor) -> Result<Vec<Row>> {
    operator.ready(Duration::from_mins(1)).await?;
    let api: Api<SharedVolume> = Api::namespaced(bench.user.clone(), NAMESPACE);
    let begin = Point::now(bench, operator)?;
    stream::iter(0..n)
        .map(Ok)
        .try_for_each_concurrent(CONCURRENCY, |index| create_volume(&api, index))
        .await?;
    created(&bench.user, n).await?;
    let create = Point::now(bench, operator)?;
    say(&format!("all created after {}", took(create.at - begin.at)));
    tokio::try_join!(bound(&bench.user, n, |_| {}), ready(&api, n))?;
    let ready = Point::now(bench, operator)?;
    say(&format!("all Ready and Bound after {}", took(ready.at - begin.at)));
    let again = Point::now(bench, operator)?;
    stream::iter(0..n)
        .map(Ok)
        .try_for_each_concurrent(CONCURRENCY, |index| delete_volume(&api, index))
        .await?;
    gone(&bench.user, n).await?;
    let delete = Point::now(bench, operator)?;
    say(&format!("all gone after {}", took(delete.at - again.at)));
    Ok(vec![
        row(bench, "create", n, &begin, &create, floor.create)?,
        row(bench, "ready", n, &begin, &ready, floor.ready)?,
        row(bench, "delete", n, &again, &delete, floor.delete)?,
    ])
}

/// A moment, and what had been used by then.
struct Point {
    at: Instant,
    mark: Mark,
    operator: Usage,
    manager: Usage,
}

impl Point {
    fn now(bench: &BenchCluster, operator: &Operator) -> Result<Self> {
        let at = Instant::now();
        let manager =
            bench.cluster.pid_of("kube-controller-manager").context("kube-controller-manager has ended")?;
        Ok(Self {
            at,
            mark: bench.cluster.audit().mark()?,
            operator: Usage::of(operator.pid())?,
            manager: Usage::of(manager)?,
        })
    }
}

fn row(
    bench: &BenchCluster,
    case: &'static str,
    n: usize,
    from: &Point,
    to: &Point,
    floor: Cost,
) -> Result<Row> {
    let seconds = (to.at - from.at).as_secs_f64();
    let floor_seconds = floor.time.as_secs_f64();
    let calls = bench.cluster.audit().between(from.mark, to.mark)?;
    let counts = Calls::count(&calls, |user| user == install::USER);
    let manager = Calls::count(&calls, |user| {
        user == "system:kube-controller-manager" || user.starts_with("system:serviceaccount:kube-system:")
    });
    let more = BTreeMap::from([
        ("per_second", float(n) / seconds),
        ("text_mib", to.operator.text_mib),
        ("refused_writes", counts.refused()),
        ("events_leases_per_object", counts.apart_per_object(n)),
        ("kcm_writes_per_object", manager.all_writes_per_object(n)),
        ("kcm_cpu_seconds", to.manager.cpu_seconds - from.manager.cpu_seconds),
    ]);
    Ok(Row {
        bench: BENCH,
        case,
        n,
        seconds,
        floor_seconds,
        ratio: seconds / floor_seconds,
        writes_per_object: counts.writes_per_object(n),
        reads_per_object: counts.reads_per_object(n),
        cpu_seconds: to.operator.cpu_seconds - from.operator.cpu_seconds,
        floor_cpu_seconds: floor.cpu_seconds,
        rss_mib: to.operator.rss_mib,
        more,
    })
}

/// How long one case may take before something is wrong.
fn deadline(n: usize) -> Duration {
    Duration::from_mins(1) + Duration::from_millis(300) * u32::try_from(n).unwrap_or(u32::MAX / 1000)
}

pub(super) fn name(index: usize) -> String {
    format!("volume-{index:05}")
}

/// An access point of its own for each, because two of the same in one namespace are a warning.
pub(super) fn spec(index: usize) -> SharedVolumeSpec {
    SharedVolumeSpec {
        file_system_id: "fs-0123456789abcdef0".into(),
        access_point_id: Some(format!("fsap-{index:017x}")),
        ..SharedVolumeSpec::default()
    }
}

pub(super) async fn create_volume(api: &Api<SharedVolume>, index: usize) -> Result<()> {
    let volume = SharedVolume::new(&name(index), spec(index));
    api.create(&PostParams::default(), &volume)
        .await
        .with_context(|| format!("cannot create {}", name(index)))?;
    Ok(())
}

pub(super) async fn delete_volume(api: &Api<SharedVolume>, index: usize) -> Result<()> {
    api.delete(&name(index), &DeleteParams::default())
        .await
        .with_context(|| format!("cannot delete {}", name(index)))?;
    Ok(())
}

/// Waits until all volumes and claims exist and every SharedVolume carries our finalizer.
pub(super) async fn created(client: &Client, n: usize) -> Result<()> {
    let volumes: Api<SharedVolume> = Api::namespaced(client.clone(), NAMESPACE);
    until(n, "PVs, PVCs and finalizers", || async {
        let (disks, claims) = pairs(client).await?;
        if disks < n || claims < n {
            return Ok(Err(format!("{disks} PVs, {claims} PVCs")));
        }
        // The whole list only now: a finalizer comes before its pair, so this is looked at once or twice.
        let list = volumes.list_metadata(&ListParams::default()).await?;
        let held =
            list.iter().filter(|item| item.finalizers().iter().any(|name| name == SHARED_VOLUME_FINALIZER));
        let held = held.count();
        Ok(if held >= n { Ok(()) } else { Err(format!("{held} finalizers")) })
    })
    .await
}

/// Waits until nothing is left.
pub(super) async fn gone(client: &Client, n: usize) -> Result<()> {
    let volumes: Api<SharedVolume> = Api::namespaced(client.clone(), NAMESPACE);
    until(n, "everything to be gone", || async {
        let ((disks, claims), volumes) = (pairs(client).await?, total(&volumes).await?);
        Ok(if disks + claims + volumes == 0 {
            Ok(())
        } else {
            Err(format!("{disks} PVs, {claims} PVCs, {volumes} SharedVolumes"))
        })
    })
    .await
}

async fn pairs(client: &Client) -> Result<(usize, usize)> {
    let disks: Api<PersistentVolume> = Api::all(client.clone());
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), NAMESPACE);
    Ok((total(&disks).await?, total(&claims).await?))
}

/// How many objects there are. Asks for one only: the server says how many are left.
async fn total<K: Resource + Clone + Debug + DeserializeOwned>(api: &Api<K>) -> Result<usize> {
    let list = api.list_metadata(&ListParams::default().limit(1)).await?;
    let left = usize::try_from(list.metadata.remaining_item_count.unwrap_or(0))?;
    Ok(list.items.len() + left)
}

async fn until<F, Fut>(n: usize, what: &str, mut look: F) -> Result<()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Result<(), String>>>,
{
    let start = Instant::now();
    loop {
        let seen = match look().await? {
            Ok(()) => return Ok(()),
            Err(seen) => seen,
        };
        if start.elapsed() > deadline(n) {
            bail!("waited {} for {what} of {n} SharedVolumes; there are {seen}", took(start.elapsed()));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until all claims are Bound; reports each one as it happens.
pub(super) async fn bound(
    client: &Client,
    n: usize,
    report: impl FnMut(&PersistentVolumeClaim),
) -> Result<()> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), NAMESPACE);
    let is_bound = |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
    };
    watch_until(claims, n, "claims are Bound", is_bound, report).await
}

pub(super) async fn ready(api: &Api<SharedVolume>, n: usize) -> Result<()> {
    let is_ready = |volume: &SharedVolume| {
        let conditions = volume.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    watch_until(api.clone(), n, "SharedVolumes are Ready", is_ready, |_| {}).await
}

/// Watches until `n` objects satisfy `done`. A watch and not a list, because the objects are looked at one by one here.
async fn watch_until<K>(
    api: Api<K>,
    n: usize,
    what: &str,
    done: impl Fn(&K) -> bool,
    mut report: impl FnMut(&K),
) -> Result<()>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut seen: HashSet<String> = HashSet::new();
    let watch = async {
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
        while let Some(event) = events.try_next().await? {
            match event {
                Event::Apply(object) | Event::InitApply(object) => {
                    if !done(&object) {
                        seen.remove(&object.name_any());
                    } else if seen.insert(object.name_any()) {
                        report(&object);
                    }
                }
                Event::Delete(object) => {
                    seen.remove(&object.name_any());
                }
                Event::Init | Event::InitDone => {}
            }
            if seen.len() >= n {
                return Ok(());
            }
        }
        bail!("the watch ended")
    };
    match tokio::time::timeout(deadline(n), watch).await {
        Ok(result) => result,
        Err(_) => bail!("after {}, {} of {n} {what}", took(deadline(n)), seen.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_volume_has_its_own_valid_access_point() {
        let ids: HashSet<String> = (0..3000).filter_map(|index| spec(index).access_point_id).collect();
        assert_eq!(ids.len(), 3000);
        for id in ids {
            let digits = id.strip_prefix("fsap-").unwrap();
            assert!(
                (8..=40).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit()),
                "{id}"
            );
        }
    }
}
