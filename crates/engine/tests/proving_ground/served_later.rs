//! Kinds that the cluster does not serve yet: nobody waits for them but those who need them.

use std::time::Duration;

use aquifer_engine::Kind;

use crate::cluster_run::{ClusterRun, ready};
use crate::control_plane::serve;
use crate::family::{Kinds, WellSpec, condition};
use crate::story::Action;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_kind_that_is_not_served_yet_holds_up_nothing_but_itself() {
    let mut kinds = Kinds::new();
    kinds.meter = Kinds::moved(&kinds.meter, "later.proving.aquifer.storage");
    drop(ClusterRun::new("later").await); // serves the rest
    let run = ClusterRun::with("later", kinds).await;
    run.start().await;
    run.play(0).await;
    run.until("both wells flow without meters", async || run.arrived(0).await).await.unwrap();
    let metered = async || {
        let well = run.the_well("a").await?;
        anyhow::Ok(condition(&well, "Metered"))
    };
    assert_eq!(metered().await.unwrap(), ("False".into(), "NotInstalled".into()));
    serve(&run.api, &run.kinds.meter).await;
    run.until("the meters are fitted", async || {
        let (state, reason) = metered().await?;
        anyhow::ensure!(state == "True", "{state} {reason}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    assert_eq!(run.names(&run.kinds.meter).await, ["a-meter", "b-meter"]);
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_is_served_in_an_older_version_only_is_read_and_written_in_that() {
    let mut kinds = Kinds::new();
    kinds.meter = Kinds::moved(&kinds.meter, "older.proving.aquifer.storage");
    let older = Kind { version: "v1alpha1".into(), ..kinds.meter.clone() };
    drop(ClusterRun::new("older").await); // serves the rest
    let run = ClusterRun::with("older", kinds).await;
    serve(&run.api, &older).await;
    run.start().await;
    run.play(0).await;
    run.until("both wells have meters", async || {
        let (state, reason) = condition(&run.the_well("a").await?, "Metered");
        anyhow::ensure!(state == "True", "{state} {reason}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    assert_eq!(run.names(&older).await, ["a-meter", "b-meter"]);
    assert!(run.proxy().wait_idle(Duration::from_millis(300), Duration::from_secs(10)).await, "it rests");
    run.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_whose_own_kind_is_not_served_starts_when_it_appears() {
    let mut kinds = Kinds::new();
    kinds.well = Kinds::moved(&kinds.well, "subject.proving.aquifer.storage");
    drop(ClusterRun::new("subject").await);
    let run = ClusterRun::with("subject", kinds).await;
    run.start().await;
    run.until("it is ready all the same", async || Ok(run.missing().is_empty().then_some(()))).await.unwrap();
    serve(&run.api, &run.kinds.well).await;
    run.act(&Action::Spring(10)).await;
    run.well("a", &WellSpec::new(4, &["x"])).await;
    run.until("the well flows", async || ready(&run.the_well("a").await?, 4).map(Some)).await.unwrap();
    assert!(run.proxy().wait_idle(Duration::from_millis(300), Duration::from_secs(10)).await);
    run.stop().await;
}
