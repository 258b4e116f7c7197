//! A Rook cluster of the lab: the real Rook and a real Ceph, and what they promise to those who build on them.

#[path = "storage/quota.rs"]
mod quota;

use anyhow::{Result, bail, ensure};
use aquifer_lab::rook::shared;
use serde_json::Value;

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
