//! Faults on request do what they say, and end when they are asked to.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use aquifer_lab::rook::{CLUSTER, FILE_SYSTEM, Health, Kind, NAMESPACE, StandIn};
use aquifer_lab::{Call, Cluster, Lab, Mark, eventually};
use k8s_openapi::api::core::v1::Event;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

const SOON: Duration = Duration::from_secs(20);

/// One cluster for all tests of this file. Each has a stand-in of its own, so they take turns.
static SHARED: OnceCell<Cluster> = OnceCell::const_new();
static TURN: Mutex<()> = Mutex::const_new(());

pub struct Stage {
    _turn: MutexGuard<'static, ()>,
    pub cluster: &'static Cluster,
    pub rook: StandIn,
    pub pools: Api<DynamicObject>,
    pub client: Client,
}

pub async fn stage() -> Result<Stage> {
    let turn = TURN.lock().await;
    let cluster = SHARED.get_or_try_init(|| Lab::test_cluster().start()).await?;
    let rook = Lab::rook_stand_in(cluster).await?;
    let client = cluster.client()?;
    let pools = Kind::CephBlockPool.api(&client, NAMESPACE);
    Ok(Stage { _turn: turn, cluster, rook, pools, client })
}

pub fn pool(name: &str) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "ceph.rook.io/v1", "kind": "CephBlockPool", "metadata": { "name": name },
        "spec": { "replicated": { "size": 3 }, "quotas": { "maxSize": "1Gi" } },
    }))
    .unwrap()
}

impl Stage {
    /// Leaves nothing for the next test.
    pub async fn end(self) -> Result<()> {
        self.pools.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        eventually(SOON, "the pools of this test are gone", || async {
            let left = self.pools.list(&ListParams::default()).await?.items;
            Ok(left.is_empty().then_some(()))
        })
        .await
    }

    pub async fn create(&self, name: &str) -> Result<()> {
        self.pools.create(&PostParams::default(), &pool(name)).await?;
        Ok(())
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.pools.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    async fn until(&self, name: &str, phase: &str) -> Result<DynamicObject> {
        eventually(SOON, &format!("pool {name} is {phase}"), || async {
            let pool = self.pools.get(name).await?;
            ensure!(pool.data["status"]["phase"] == phase, "its status is {}", pool.data["status"]);
            Ok(Some(pool))
        })
        .await
    }

    async fn until_gone(&self, name: &str) -> Result<()> {
        eventually(SOON, &format!("pool {name} is gone"), || async {
            Ok(self.pools.get_opt(name).await?.is_none().then_some(()))
        })
        .await
    }

    async fn until_event(&self, name: &str, words: &str) -> Result<()> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), NAMESPACE);
        let fields = ListParams::default().fields(&format!("involvedObject.name={name}"));
        eventually(SOON, &format!("an event on {name} says {words:?}"), || async {
            let list = events.list(&fields).await?;
            let said: Vec<&String> = list.iter().filter_map(|event| event.message.as_ref()).collect();
            ensure!(said.iter().any(|is| is.contains(words)), "events: {said:?}");
            Ok(Some(()))
        })
        .await
    }

    async fn until_cluster(&self, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        let clusters = Kind::CephCluster.api(&self.client, NAMESPACE);
        eventually(SOON, what, || async {
            // From the API server's memory, as the stand-in reads it: what is seen here it sees too.
            let list = clusters.list(&ListParams::default().match_any()).await?;
            let status = list.items.first().context("no CephCluster")?.data["status"].clone();
            ensure!(is(&status), "the status is {status}");
            Ok(Some(status))
        })
        .await
    }

    /// A pool that is made now is Ready, so whatever the stand-in would have done before that is done.
    async fn wait_for_new_pool(&self, name: &str) -> Result<()> {
        self.create(name).await?;
        self.until(name, "Ready").await.map(drop)
    }

    /// What the stand-in has asked the API server for since a mark. Not its watches: those are written down when they end.
    fn calls(&self, since: Mark) -> Result<Vec<Call>> {
        let mut calls = self.cluster.audit().since(since)?;
        calls.retain(|call| call.user == "rook" && call.verb != "watch");
        Ok(calls)
    }

    /// Waits until the stand-in has looked so often at what is not done yet. Each look asks for the health of Ceph.
    async fn until_looked(&self, since: Mark, looks: usize) -> Result<()> {
        eventually(SOON, &format!("the stand-in looks {looks} times"), || async {
            let mut calls = self.calls(since)?;
            calls
                .retain(|is| is.verb == "list" && is.resource == "cephclusters" && is.namespace == NAMESPACE);
            ensure!(calls.len() >= looks, "it looked {} times", calls.len());
            Ok(Some(()))
        })
        .await
    }

    /// Waits until all that was under way when the stand-in was stopped is written down.
    async fn until_silent(&self) -> Result<Mark> {
        eventually(SOON, "the stand-in asks for nothing", || async {
            let mark = self.cluster.audit().mark()?;
            tokio::time::sleep(Duration::from_millis(300)).await;
            let calls = self.calls(mark)?;
            ensure!(calls.is_empty(), "{calls:?}");
            Ok(Some(mark))
        })
        .await
    }
}

#[tokio::test]
async fn a_slow_rook_takes_its_time_for_each_object_but_not_for_one_after_the_other() -> Result<()> {
    let stage = stage().await?;
    let delay = Duration::from_secs(3);
    stage.rook.slow(delay);
    let started = Instant::now();
    for n in 0..20 {
        stage.create(&format!("slow-{n}")).await?;
    }
    let first = stage.until("slow-0", "Progressing").await?;
    ensure!(first.data["status"]["observedGeneration"].is_null(), "{}", first.data["status"]);
    for n in 0..20 {
        let pool = stage.until(&format!("slow-{n}"), "Ready").await?;
        ensure!(pool.data["status"]["observedGeneration"] == 1, "{}", pool.data["status"]);
    }
    let took = started.elapsed();
    println!("20 pools with a delay of {delay:?} each took {took:.1?}");
    ensure!(took >= delay && took < delay * 3, "it took {took:?}");
    stage.end().await
}

#[tokio::test]
async fn a_failing_object_has_the_phase_failure_and_the_reason_in_an_event_until_it_is_mended() -> Result<()>
{
    let stage = stage().await?;
    stage.rook.fail("bad", "the OSDs are full");
    stage.create("bad").await?;
    let pool = stage.until("bad", "Failure").await?;
    ensure!(pool.data["status"]["observedGeneration"].is_null(), "{}", pool.data["status"]);
    stage.until_event("bad", "failed to create pool \"bad\": the OSDs are full").await?;
    stage.wait_for_new_pool("good").await?;

    stage.rook.mend("bad");
    let pool = stage.until("bad", "Ready").await?;
    ensure!(pool.data["status"]["observedGeneration"] == 2, "{}", pool.data["status"]);

    stage.rook.fail("bad", "no quorum");
    stage.delete("bad").await?;
    stage.until_event("bad", "failed to delete pool \"bad\": no quorum").await?;
    ensure!(stage.pools.get("bad").await?.data["status"]["phase"] == "Ready", "the phase changed");
    stage.rook.mend("bad");
    stage.until_gone("bad").await?;
    stage.end().await
}

#[tokio::test]
async fn a_hanging_rook_begins_everything_and_ends_nothing() -> Result<()> {
    let stage = stage().await?;
    stage.wait_for_new_pool("old").await?;
    stage.rook.hang();
    stage.create("new").await?;
    let pool = stage.until("new", "Progressing").await?;
    ensure!(pool.finalizers() == ["cephblockpool.ceph.rook.io"], "{:?}", pool.finalizers());
    stage.delete("old").await?;
    stage
        .pools
        .patch(
            "new",
            &PatchParams::default(),
            &Patch::Merge(json!({ "spec": { "quotas": { "maxSize": "2Gi" } } })),
        )
        .await?;
    // A hundred looks of the stand-in at other objects would have ended this one too.
    for n in 0..10 {
        stage.create(&format!("more-{n}")).await?;
        stage.until(&format!("more-{n}"), "Progressing").await?;
    }
    ensure!(stage.pools.get("new").await?.data["status"]["phase"] == "Progressing", "it went on");
    ensure!(stage.pools.get("old").await?.metadata.deletion_timestamp.is_some(), "it was not deleted");

    stage.rook.resume();
    stage.until("new", "Ready").await?;
    stage.until_gone("old").await?;
    stage.end().await
}

#[tokio::test]
async fn an_absent_rook_does_nothing_and_looks_at_everything_when_it_is_back() -> Result<()> {
    let mut stage = stage().await?;
    let began = Instant::now();
    stage.wait_for_new_pool("old").await?;
    let usual = began.elapsed();
    stage.rook.stop().await;
    let mark = stage.until_silent().await?;
    stage.create("new").await?;
    stage.delete("old").await?;
    // Ten times as long as it would take, and with as much to do.
    for n in 0..20 {
        stage.create(&format!("more-{n}")).await?;
        tokio::time::sleep(usual / 2).await;
    }
    let calls = stage.calls(mark)?;
    ensure!(calls.is_empty(), "an absent Rook asked for {calls:?}");
    let before = stage.pools.get("new").await?;
    ensure!(before.finalizers().is_empty() && before.data["status"].is_null(), "{before:?}");
    ensure!(stage.pools.get("old").await?.metadata.deletion_timestamp.is_some(), "it was not deleted");

    stage.rook.fail("new", "looked at");
    stage.rook.start_again();
    stage.until("new", "Failure").await?;
    stage.until_gone("old").await?;
    for n in 0..20 {
        stage.until(&format!("more-{n}"), "Ready").await?;
    }
    stage.rook.mend("new");
    stage.end().await
}

#[tokio::test]
async fn the_cluster_shows_its_health_and_capacity_and_while_it_is_ill_nothing_is_made_or_deleted()
-> Result<()> {
    let stage = stage().await?;
    stage.wait_for_new_pool("old").await?;
    stage.rook.set_capacity(1_000, 300);
    let status = stage
        .until_cluster("the capacity is 1000", |is| is["ceph"]["capacity"]["bytesTotal"] == 1_000)
        .await?;
    ensure!(status["ceph"]["capacity"]["bytesAvailable"] == 700, "{status}");

    stage.rook.set_health(Health::Err, &[("OSD_DOWN", "3 osds down")]);
    let status = stage.until_cluster("HEALTH_ERR", |is| is["ceph"]["health"] == "HEALTH_ERR").await?;
    ensure!(status["ceph"]["details"]["OSD_DOWN"]["message"] == "3 osds down", "{status}");
    ensure!(status["ceph"]["previousHealth"] == "HEALTH_OK", "{status}");
    ensure!(status["phase"] == "Ready", "{status}");

    stage.delete("old").await?;
    stage.create("waits").await?;
    let waits = stage.until("waits", "Progressing").await?;
    let old = stage.pools.get("old").await?;
    // Either one would be done by the second look at it.
    stage.until_looked(stage.cluster.audit().mark()?, 10).await?;
    for before in [waits, old] {
        let now = stage.pools.get(&before.name_any()).await?;
        ensure!(now.resource_version() == before.resource_version(), "{before:?} became {now:?}");
    }
    stage.rook.set_health(Health::Warn, &[("POOL_NEARFULL", "1 pool nearfull")]);
    stage.until("waits", "Ready").await?;
    stage.until_gone("old").await?;
    let status = stage.until_cluster("HEALTH_WARN", |is| is["ceph"]["health"] == "HEALTH_WARN").await?;
    ensure!(status["ceph"]["details"].as_object().is_some_and(|details| details.len() == 1), "{status}");
    stage.rook.set_health(Health::Ok, &[]);
    stage
        .until_cluster("HEALTH_OK without details", |is| {
            is["ceph"]["health"] == "HEALTH_OK" && is["ceph"]["details"].is_null()
        })
        .await?;
    stage.end().await
}

#[tokio::test]
async fn a_pool_with_images_is_not_deleted() -> Result<()> {
    let stage = stage().await?;
    stage.wait_for_new_pool("full").await?;
    stage.rook.set_images("full", 1);
    stage.delete("full").await?;
    stage.until_event("full", "pool \"full\" contains images/snapshots").await?;
    let pool = stage.pools.get("full").await?;
    // Rook asks for dependents first, and finds none.
    ensure!(
        pool.data["status"]["conditions"][0]["reason"] == "ObjectHasNoDependents",
        "{}",
        pool.data["status"]
    );
    stage.rook.set_images("full", 0);
    stage.until_gone("full").await?;
    stage.end().await
}

#[tokio::test]
async fn a_group_with_subvolumes_is_not_deleted() -> Result<()> {
    let stage = stage().await?;
    let groups = Kind::CephFilesystemSubVolumeGroup.api(&stage.client, NAMESPACE);
    let group = json!({
        "apiVersion": "ceph.rook.io/v1", "kind": "CephFilesystemSubVolumeGroup",
        "metadata": { "name": "full" }, "spec": { "filesystemName": FILE_SYSTEM },
    });
    groups.create(&PostParams::default(), &serde_json::from_value(group)?).await?;
    eventually(SOON, "the group is Ready", || async {
        Ok((groups.get("full").await?.data["status"]["phase"] == "Ready").then_some(()))
    })
    .await?;
    stage.rook.set_subvolumes("full", 1);
    groups.delete("full", &DeleteParams::default()).await?;
    // Rook writes no events about groups, so there are only its looks to wait for.
    stage.until_looked(stage.cluster.audit().mark()?, 5).await?;
    let group = groups.get("full").await?;
    ensure!(group.finalizers() == ["cephfilesystemsubvolumegroup.ceph.rook.io"], "{:?}", group.finalizers());
    stage.rook.set_subvolumes("full", 0);
    eventually(SOON, "the group is gone", || async {
        Ok(groups.get_opt("full").await?.is_none().then_some(()))
    })
    .await?;
    stage.end().await
}

#[tokio::test]
async fn a_cluster_that_is_needed_is_not_deleted() -> Result<()> {
    let stage = stage().await?;
    stage.wait_for_new_pool("needed").await?;
    let clusters = Kind::CephCluster.api(&stage.client, NAMESPACE);
    clusters.delete(CLUSTER, &DeleteParams::default()).await?;
    let status = stage
        .until_cluster("the deletion is blocked", |is| {
            is["conditions"].as_array().into_iter().flatten().any(|is| is["type"] == "DeletionIsBlocked")
        })
        .await?;
    ensure!(status["phase"] == "Deleting", "{status}");
    stage.delete("needed").await?;
    stage.until_gone("needed").await?;
    Kind::CephFilesystem.api(&stage.client, NAMESPACE).delete(FILE_SYSTEM, &DeleteParams::default()).await?;
    eventually(SOON, "the CephCluster is gone", || async {
        Ok(clusters.get_opt(CLUSTER).await?.is_none().then_some(()))
    })
    .await?;
    stage.end().await
}
