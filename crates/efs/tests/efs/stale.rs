//! Caches that are behind, have gaps, or must be filled anew: the operator may be slower then, but never wrong.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use aquifer_lab::proxy::Fault;
use aquifer_lab::{Call, Mark};
use kube::ResourceExt;

use super::harness::{DEADLINE, exclusive, proxied, resync_volumes, volumes_operator};
use super::tenant::{ACCESS_POINT, FILE_SYSTEM, OTHER_ACCESS_POINT, Tenant, handle, is_bound};
use aquifer_lab::kit::{Proxied, TestCluster};

/// Everything that the decision about a SharedVolume looks at.
const WATCHED: [&str; 5] =
    ["sharedvolumes", "persistentvolumes", "persistentvolumeclaims", "namespaces", "components"];

async fn rested(proxied: &Proxied) -> Result<()> {
    ensure!(proxied.proxy.wait_idle(Duration::from_millis(300), DEADLINE).await, "the operator never rests");
    Ok(())
}

/// Deletions that the operator asked for and got.
fn deletions(test: &TestCluster, mark: Mark) -> Result<Vec<Call>> {
    let done = |call: &Call| call.verb == "delete" && call.succeeded();
    Ok(test.writes_since(mark)?.into_iter().filter(done).collect())
}

/// Makes the operator list a kind anew.
fn relist(proxied: &Proxied, resource: &str) {
    proxied.proxy.inject(Fault::Gone { resource: resource.into() });
    proxied.proxy.inject(Fault::CloseWatch { resource: resource.into() });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_carried_out_although_no_word_of_the_volumes_comes_through() -> Result<()> {
    let test = exclusive().await?;
    let proxied = proxied(&test).await?;
    let operator = volumes_operator(&proxied);
    let tenant = Tenant::on(&test.cluster).await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let old = tenant.pair("data").await?;
    rested(&proxied).await?;
    let mark = test.cluster.audit().mark()?;
    proxied.proxy.inject(Fault::HoldWatch { resource: "persistentvolumes".into(), lists_as_of: None });
    tenant.change("data", OTHER_ACCESS_POINT).await?;
    let new = tenant.another_pair("data", &old).await?;
    assert_eq!(handle(&new.0), format!("{FILE_SYSTEM}::{OTHER_ACCESS_POINT}"));
    // All the old news come at once, deletions first; none of them is about what is there now.
    proxied.proxy.release("persistentvolumes");
    rested(&proxied).await?;
    resync_volumes(&operator, 1).await?;
    rested(&proxied).await?;
    let now = tenant.pair("data").await?;
    assert_eq!((now.0.uid(), now.1.uid()), (new.0.uid(), new.1.uid()));
    let deletions = deletions(&test, mark)?;
    assert_eq!(deletions.len(), 2, "the old claim and the old volume: {deletions:?}");
    tenant.delete("data").await?;
    tenant.gone("data").await?;
    operator.crash();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_that_the_operator_has_not_seen_yet_is_not_taken_for_one_that_is_being_deleted()
-> Result<()> {
    let test = exclusive().await?;
    let proxied = proxied(&test).await?;
    let operator = volumes_operator(&proxied);
    let first = Tenant::on(&test.cluster).await?;
    first.create("data", None).await?;
    first.ready("data").await?;
    proxied.proxy.inject(Fault::HoldWatch { resource: "namespaces".into(), lists_as_of: None });
    let unseen = Tenant::on(&test.cluster).await?;
    unseen.create("data", Some(ACCESS_POINT)).await?;
    unseen.ready("data").await?;
    for tenant in [&first, &unseen] {
        tenant.delete("data").await?;
        tenant.gone("data").await?;
    }
    operator.crash();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_lost_event_of_any_kind_does_no_harm_and_the_next_list_makes_it_good() -> Result<()> {
    let test = exclusive().await?;
    let proxied = proxied(&test).await?;
    let operator = volumes_operator(&proxied);
    rested(&proxied).await?;
    for kind in WATCHED {
        let (mark, context) = (test.cluster.audit().mark()?, || format!("after a lost event of {kind}"));
        let lose = || proxied.proxy.inject(Fault::DropWatchEvent { resource: kind.into(), n: 1 });
        lose();
        let tenant = Tenant::on(&test.cluster).await?;
        tenant.create("data", Some(ACCESS_POINT)).await?;
        rested(&proxied).await?;
        relist(&proxied, kind);
        let old = tenant.pair("data").await.with_context(context)?;
        lose();
        tenant.change("data", OTHER_ACCESS_POINT).await?;
        rested(&proxied).await?;
        relist(&proxied, kind);
        let (_, claim) = tenant.another_pair("data", &old).await.with_context(context)?;
        assert!(is_bound(&claim), "{}", context());
        let done = deletions(&test, mark)?;
        assert_eq!(done.len(), 2, "{}: the old claim and the old volume: {done:?}", context());
        lose();
        tenant.delete("data").await?;
        rested(&proxied).await?;
        relist(&proxied, kind);
        tenant.gone("data").await.with_context(context)?;
        tenant.empty().await.with_context(context)?;
        proxied.proxy.clear();
    }
    operator.crash();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_break_in_the_middle_of_a_change_do_not_disturb_it() -> Result<()> {
    let test = exclusive().await?;
    let proxied = proxied(&test).await?;
    let operator = volumes_operator(&proxied);
    let tenant = Tenant::on(&test.cluster).await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let old = tenant.pair("data").await?;
    rested(&proxied).await?;
    let mark = test.cluster.audit().mark()?;
    tenant.change("data", OTHER_ACCESS_POINT).await?;
    for kind in WATCHED {
        proxied.proxy.inject(Fault::CloseWatch { resource: kind.into() });
        relist(&proxied, kind);
    }
    let (volume, claim) = tenant.another_pair("data", &old).await?;
    assert_eq!(handle(&volume), format!("{FILE_SYSTEM}::{OTHER_ACCESS_POINT}"));
    assert!(is_bound(&claim));
    let deletions = deletions(&test, mark)?;
    assert_eq!(deletions.len(), 2, "the old claim and the old volume: {deletions:?}");
    tenant.delete("data").await?;
    tenant.gone("data").await?;
    operator.crash();
    Ok(())
}
