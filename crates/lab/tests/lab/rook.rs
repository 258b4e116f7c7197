//! Rook: what its users see, from the stand-in; and how the stand-in behaves when it is asked to fail.

#[path = "rook/faults.rs"]
mod faults;
#[path = "rook/observations.rs"]
mod observations;
#[path = "rook/scale.rs"]
mod scale;
#[path = "rook/scenario.rs"]
mod scenario;
#[path = "rook/story.rs"]
mod story;

use anyhow::{Result, ensure};
use aquifer_lab::Lab;
use aquifer_lab::rook::{Kind, NAMESPACE};
use serde_json::{Value, json};

use observations::compare;
use scenario::scenario;

/// What is in Rook's source and easily overlooked: the scenario must see it, whichever Rook it meets.
fn well_known() -> Vec<(&'static str, Value)> {
    vec![
        (
            "pool.story",
            json!([
                "created",
                "finalizer",
                "Progressing",
                "Ready",
                "deleting",
                "blocked",
                "not blocked",
                "gone"
            ]),
        ),
        ("pool.finalizers", json!(["cephblockpool.ceph.rook.io"])),
        ("pool.status.info.type", json!("Replicated")),
        ("pool.status.info.failureDomain", json!("host")),
        // With its finalizer Rook writes empty parts into the spec: a new generation that it does not observe.
        ("pool.generation", json!(2)),
        ("pool.status.observedGeneration", json!(1)),
        ("pool.spec.application", json!("")),
        ("pool_with_new_quota.generation", json!(3)),
        ("pool_with_new_quota.status.observedGeneration", json!(3)),
        ("pool_in_use.status.phase", json!("Ready")),
        ("pool_in_use.status.conditions.0.type", json!("DeletionIsBlocked")),
        ("pool_in_use.status.conditions.0.reason", json!("ObjectHasDependents")),
        ("user.generation", json!(1)),
        ("user.status.info.secretName", json!("rook-ceph-client-scenario-user")),
        ("user_secret.type", json!("kubernetes.io/rook")),
        ("user_secret.data.scenario-user", json!("a cephx key")),
        ("user_secret.data.userKey", json!("a cephx key")),
        ("user_secret.data.adminID", json!("the text scenario-user")),
        ("user_secret.same_key_after_deletion", json!(true)),
        ("bad_user.status.phase", json!("Progressing")),
        ("group.story", json!(["created", "finalizer", "Progressing", "Ready", "deleting", "gone"])),
        ("group.status.info.clusterID", json!("a02e25f4da960c426ca34a8b5f517bcb")),
        ("group.csi.cephFS.subvolumeGroup", json!("scenario-group")),
        ("group.csi_afterwards", json!(false)),
        ("lost_group.status.phase", json!("Progressing")),
        ("cluster.status.state", json!("Created")),
        ("monitors.finalizers", json!(["ceph.rook.io/disaster-protection"])),
        ("admin.data.ceph-username", json!("the text client.admin")),
    ]
}

/// One test, because every cluster and every run of the scenario costs the better part of a minute.
#[tokio::test]
async fn the_stand_in_shows_what_the_real_rook_shows_and_one_changed_field_is_noticed() -> Result<()> {
    let pretended = async {
        let cluster = Lab::test_cluster().start().await?;
        let rook = Lab::rook_stand_in(&cluster).await?;
        let seen = scenario(&cluster.client()?, NAMESPACE).await?;
        anyhow::Ok((cluster, rook, seen))
    };
    let real = async { scenario(&aquifer_lab::rook::shared().await?.client()?, NAMESPACE).await };
    let ((cluster, rook, pretended), real) = tokio::try_join!(pretended, real)?;
    println!("{real}{} observations of the real Rook, {} of the stand-in", real.len(), pretended.len());
    for (path, value) in well_known() {
        ensure!(pretended.get(path) == Some(&value), "{path} is {:?}, not {value}", pretended.get(path));
    }
    let differences: Vec<String> = compare(&pretended, &real).iter().map(ToString::to_string).collect();
    ensure!(differences.is_empty(), "the stand-in differs:\n{}", differences.join("\n"));

    rook.distort(Kind::CephBlockPool, "/info/type", json!("Mirrored"));
    let wrong = scenario(&cluster.client()?, NAMESPACE).await?;
    let differences = compare(&wrong, &real);
    let paths: Vec<&str> = differences.iter().map(|is| is.path.as_str()).collect();
    let expected = ["pool", "pool_in_use", "pool_with_new_quota"].map(|of| format!("{of}.status.info.type"));
    ensure!(paths == expected, "the comparison found {differences:?}");
    println!("with one field changed on purpose: {}", differences[0]);
    cluster.stop().await
}
