//! The third floor: the real Rook and a real Ceph, and what they promise to those who build on them.

#[path = "storage/quota.rs"]
mod quota;

use std::time::Instant;

use anyhow::{Result, anyhow, bail, ensure};
use aquifer_lab::{Cluster, Lab};
use serde_json::Value;
use tokio::sync::OnceCell;

/// One for all tests: it is the most expensive thing of the whole lab. When it fails it is not tried again.
static SHARED: OnceCell<Result<Cluster, String>> = OnceCell::const_new();

pub(crate) async fn shared() -> Result<&'static Cluster> {
    let start = || async {
        let began = Instant::now();
        let cluster = Lab::test_cluster().nodes(3).zones(["a", "b", "c"]).rook().start().await;
        println!("3 nodes with Rook and Ceph after {:.1} s", began.elapsed().as_secs_f64());
        cluster.map_err(|error| format!("{error:#}"))
    };
    SHARED.get_or_init(start).await.as_ref().map_err(|error| anyhow!("{error}"))
}

#[tokio::test]
async fn rook_runs_three_mons_a_manager_three_osds_and_a_file_system() -> Result<()> {
    let cluster = shared().await?;
    let status: Value = serde_json::from_str(&cluster.ceph(&["status", "--format=json"]).await?)?;
    let all = (
        status["quorum"].as_array().map_or(0, Vec::len),
        &status["osdmap"]["num_up_osds"],
        &status["fsmap"]["up"],
    );
    ensure!(all.0 == 3 && all.1 == 3 && all.2 == 1, "3 mons, 3 OSDs and 1 file system, but it says {status}");
    let tree: Value = serde_json::from_str(&cluster.ceph(&["osd", "tree", "--format=json"]).await?)?;
    let hosts = tree["nodes"].as_array().into_iter().flatten().filter(|node| node["type"] == "host").count();
    ensure!(hosts == 3, "each OSD is on a host of its own, but Ceph sees {tree}");
    Ok(())
}

#[tokio::test]
async fn a_client_in_any_namespace_may_do_what_its_capabilities_say_and_no_more() -> Result<()> {
    let cluster = shared().await?;
    let may = [("mon", "profile rbd"), ("osd", "allow r pool=.mgr")];
    let client = cluster.ceph_client("some-tenant", "reader", &may).await?;
    let pools = client.run("rados", &["lspools"]).await?;
    ensure!(pools.lines().any(|pool| pool == ".mgr"), "it sees the pools {pools}");
    let Err(refused) = client.run("rados", &["--pool", ".mgr", "create", "not-allowed"]).await else {
        bail!("it may write what it may only read");
    };
    ensure!(format!("{refused:#}").contains("not permitted"), "it is refused with {refused:#}");
    Ok(())
}
