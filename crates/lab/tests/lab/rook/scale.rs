//! Many pools: a thousand in the full run, three hundred otherwise.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use aquifer_lab::Lab;
use aquifer_lab::kit::is_full;
use aquifer_lab::rook::Kind;
use aquifer_lab::rook::NAMESPACE;
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};

use super::faults::pool;

const DEADLINE: Duration = Duration::from_mins(2);

/// Follows all pools until so many are Ready. Looking at a thousand again and again would be the larger part of the work.
async fn until_ready(pools: Api<DynamicObject>, count: usize) -> Result<()> {
    let mut ready = BTreeSet::new();
    let mut events = watcher(pools.clone(), watcher::Config::default()).boxed();
    while ready.len() != count {
        let Ok(event) = tokio::time::timeout(DEADLINE, events.next()).await else {
            let all = pools.list(&ListParams::default()).await?;
            let late: Vec<&DynamicObject> =
                all.iter().filter(|pool| !ready.contains(&pool.name_any())).collect();
            bail!(
                "{} are Ready, {} are not, and nothing happens; one is {:?}",
                ready.len(),
                late.len(),
                late.first()
            );
        };
        match event {
            Some(Ok(Event::Apply(pool) | Event::InitApply(pool))) => {
                if pool.data["status"]["phase"] == "Ready" {
                    ready.insert(pool.name_any());
                }
            }
            Some(Ok(Event::Delete(pool))) => drop(ready.remove(&pool.name_any())),
            Some(Ok(Event::Init | Event::InitDone)) => {}
            Some(Err(error)) => println!("the watch begins anew: {error}"),
            None => break,
        }
    }
    ensure!(ready.len() == count, "the watch ended with {} Ready", ready.len());
    Ok(())
}

/// Follows all pools until the last is gone.
async fn until_gone(pools: Api<DynamicObject>) -> Result<()> {
    let started = Instant::now();
    loop {
        let left = pools.list_metadata(&ListParams::default().limit(1)).await?.items;
        let Some(one) = left.first() else { return Ok(()) };
        ensure!(started.elapsed() < DEADLINE, "there is still {:?}", pools.get_opt(&one.name_any()).await?);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_pools_become_ready_and_go_again() -> Result<()> {
    let many = if is_full() { 1_000 } else { 300 };
    println!("{many} pools; the full run has 1000");
    let cluster = Lab::test_cluster().start().await?;
    let _rook = Lab::rook_stand_in(&cluster).await?;
    let pools = Kind::CephBlockPool.api(&cluster.client()?, NAMESPACE);
    let (api, params) = (&pools, &PostParams::default());
    let started = Instant::now();
    let all_ready = tokio::spawn(until_ready(pools.clone(), many));
    stream::iter(0..many)
        .map(anyhow::Ok)
        .try_for_each_concurrent(16, |n| async move {
            let pool = pool(&format!("pool-{n:04}"));
            api.create(params, &pool).await.with_context(|| format!("creating pool {n}"))?;
            Ok(())
        })
        .await?;
    let created = started.elapsed();
    all_ready.await??;
    println!("{many} pools: created after {created:.1?}, all Ready after {:.1?}", started.elapsed());

    let started = Instant::now();
    pools
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await
        .context("deleting all pools")?;
    until_gone(pools).await?;
    println!("{many} pools: gone after {:.1?}", started.elapsed());
    cluster.stop().await
}
