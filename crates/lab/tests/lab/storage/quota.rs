//! A quota that is asked of Rook is kept by Ceph. Measured from inside, as a tenant would notice it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use aquifer_lab::install::apply;
use aquifer_lab::rook::{CephClient, NAMESPACE};
use aquifer_lab::{Cluster, eventually};
use serde_json::{Value, json};

const POOL: &str = "with-quota";
const MEBIBYTE: u64 = 1 << 20;
const QUOTA: u64 = 32 * MEBIBYTE;
/// What one write adds, and how many there can be before the test gives up.
const PIECE: u64 = 4 * MEBIBYTE;
const MOST: u64 = 64;
const FILE: &str = "/tmp/piece";

#[tokio::test]
async fn ceph_stops_a_tenant_at_the_quota_of_its_pool_and_lets_it_go_on_after_a_raise() -> Result<()> {
    let cluster = aquifer_lab::rook::shared().await?;
    set_quota(cluster, QUOTA).await?;
    let may = [("mon", "profile rbd"), ("osd", &format!("allow rwx pool={POOL}"))];
    let tenant = cluster.ceph_client("tenant", "quota-tenant", &may).await?;
    tenant.exec(&["truncate", "--size", &PIECE.to_string(), FILE]).await?;

    // Ceph counts what is stored with a delay, so it is written slowly: one piece, then the next.
    let began = Instant::now();
    let mut written = 0;
    let refused = loop {
        ensure!(written < MOST * PIECE, "{written} bytes were written and Ceph refused none");
        match write(&tenant, written / PIECE).await {
            Ok(()) => written += PIECE,
            Err(error) => break error,
        }
    };
    let stored = stored(cluster).await?;
    println!(
        "quota {} MiB: Ceph stopped the tenant after {} MiB and {:.1} s, with {} MiB stored",
        QUOTA / MEBIBYTE,
        written / MEBIBYTE,
        began.elapsed().as_secs_f64(),
        stored / MEBIBYTE,
    );
    ensure!(written >= QUOTA, "it was stopped below its quota, after {written} bytes: {refused:#}");
    let health = cluster.ceph(&["health", "detail"]).await?;
    ensure!(health.contains("POOL_FULL"), "Ceph says nothing of a full pool, but: {health}");

    let began = Instant::now();
    set_quota(cluster, 8 * QUOTA).await?;
    eventually(Duration::from_mins(2), "the tenant can write again", || async {
        write(&tenant, written / PIECE).await.map(Some)
    })
    .await?;
    println!("after a raise it could write again within {:.1} s", began.elapsed().as_secs_f64());
    Ok(())
}

/// Asks Rook for the pool with this quota and waits until Ceph has it.
async fn set_quota(cluster: &Cluster, bytes: u64) -> Result<()> {
    let pool = json!({"apiVersion": "ceph.rook.io/v1", "kind": "CephBlockPool",
        "metadata": {"name": POOL, "namespace": NAMESPACE},
        "spec": {"failureDomain": "host", "replicated": {"size": 3}, "quotas": {"maxSize": bytes.to_string()}}});
    apply(&cluster.client()?, pool).await?;
    eventually(Duration::from_mins(2), &format!("Ceph knows the quota of {bytes} bytes"), || async {
        let quota = cluster.ceph(&["osd", "pool", "get-quota", POOL, "--format=json"]).await?;
        let quota: Value = serde_json::from_str(&quota)?;
        if quota["quota_max_bytes"] != bytes {
            bail!("it has {quota}");
        }
        Ok(Some(()))
    })
    .await
}

/// Writes one piece, or fails after some seconds: Ceph lets those wait who write into a full pool.
async fn write(tenant: &CephClient<'_>, number: u64) -> Result<()> {
    let name = format!("piece-{number}");
    tenant.run("rados", &["--pool", POOL, "--rados-osd-op-timeout=10", "put", &name, FILE]).await.map(drop)
}

/// What the pool holds, without replicas.
async fn stored(cluster: &Cluster) -> Result<u64> {
    let usage: Value = serde_json::from_str(&cluster.ceph(&["df", "--format=json"]).await?)?;
    let pool = usage["pools"].as_array().into_iter().flatten().find(|pool| pool["name"] == POOL);
    pool.and_then(|pool| pool["stats"]["stored"].as_u64())
        .with_context(|| format!("no pool {POOL} in {usage}"))
}
