//! Kinds that the cluster does not serve yet: nobody waits for them but those who need them.

use std::time::Duration;

use crate::family::{Kinds, WellSpec, condition};
use crate::ground::serve;
use crate::site::{Site, ready};
use crate::story::Action;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_kind_that_is_not_served_yet_holds_up_nothing_but_itself() {
    let mut kinds = Kinds::new();
    kinds.meter = Kinds::moved(&kinds.meter, "later.proving.aquifer.storage");
    drop(Site::new("later").await); // serves the rest
    let site = Site::with("later", kinds).await;
    site.start().await;
    site.play(0).await;
    site.until("both wells flow without meters", async || site.arrived(0).await).await.unwrap();
    let metered = async || {
        let well = site.the_well("a").await?;
        anyhow::Ok(condition(&well, "Metered"))
    };
    assert_eq!(metered().await.unwrap(), ("False".into(), "NotInstalled".into()));
    serve(&site.api, &site.kinds.meter).await;
    site.until("the meters are fitted", async || {
        let (state, reason) = metered().await?;
        anyhow::ensure!(state == "True", "{state} {reason}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    assert_eq!(site.names(&site.kinds.meter).await, ["a-meter", "b-meter"]);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_whose_own_kind_is_not_served_starts_when_it_appears() {
    let mut kinds = Kinds::new();
    kinds.well = Kinds::moved(&kinds.well, "subject.proving.aquifer.storage");
    drop(Site::new("subject").await);
    let site = Site::with("subject", kinds).await;
    site.start().await;
    site.until("it is ready all the same", async || Ok(site.missing().is_empty().then_some(())))
        .await
        .unwrap();
    serve(&site.api, &site.kinds.well).await;
    site.act(&Action::Spring(10)).await;
    site.well("a", &WellSpec::new(4, &["x"])).await;
    site.until("the well flows", async || ready(&site.the_well("a").await?, 4).map(Some)).await.unwrap();
    assert!(site.proxy().wait_idle(Duration::from_millis(300), Duration::from_secs(10)).await);
    site.stop().await;
}
