//! A thousand pools.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use aquifer_lab::rook::Kind;
use aquifer_lab::rook::stand_in::NAMESPACE;
use aquifer_lab::{Lab, eventually};
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{DeleteParams, ListParams, PostParams};

use super::faults::pool;

const POOLS: usize = 1_000;

#[tokio::test]
async fn a_thousand_pools_become_ready_and_go_again() -> Result<()> {
    let cluster = Lab::test_cluster().start().await?;
    let _rook = Lab::rook_stand_in(&cluster).await?;
    let pools = Kind::CephBlockPool.api(&cluster.client()?, NAMESPACE);
    let (api, params) = (&pools, &PostParams::default());
    let started = Instant::now();
    stream::iter(0..POOLS)
        .map(Ok::<_, kube::Error>)
        .try_for_each_concurrent(16, |n| async move {
            api.create(params, &pool(&format!("pool-{n:04}"))).await.map(drop)
        })
        .await?;
    let created = started.elapsed();
    eventually(Duration::from_secs(120), "all pools are Ready", || async {
        let list = api.list(&ListParams::default()).await?;
        let ready = list.iter().filter(|pool| pool.data["status"]["phase"] == "Ready").count();
        ensure!(ready == POOLS, "{ready} of {POOLS} are Ready");
        Ok(Some(()))
    })
    .await?;
    println!("{POOLS} pools: created after {created:.1?}, all Ready after {:.1?}", started.elapsed());

    let started = Instant::now();
    pools.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    eventually(Duration::from_secs(120), "all pools are gone", || async {
        let left = api.list(&ListParams::default().limit(1)).await?.items.len();
        Ok((left == 0).then_some(()))
    })
    .await?;
    println!("{POOLS} pools: gone after {:.1?}", started.elapsed());
    cluster.stop().await
}
