//! Caches that are behind, have gaps, or must be filled anew: the operator may be slower then, but never wrong.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use aquifer_lab::proxy::Fault;
use aquifer_lab::{Call, Mark};
use kube::ResourceExt;

use super::harness::{
    ACCESS_POINT, Corner, DEADLINE, FILE_SYSTEM, Faulty, Ground, OTHER_ACCESS_POINT, handle, is_bound, lonely,
};

/// Everything that the decision about a SharedVolume looks at.
const WATCHED: [&str; 5] =
    ["sharedvolumes", "persistentvolumes", "persistentvolumeclaims", "namespaces", "components"];

async fn rested(faulty: &Faulty) -> Result<()> {
    ensure!(faulty.proxy.wait_idle(Duration::from_millis(300), DEADLINE).await, "the operator never rests");
    Ok(())
}

/// Deletions that the operator asked for and got.
fn deletions(ground: &Ground, mark: Mark) -> Result<Vec<Call>> {
    let done = |call: &Call| call.verb == "delete" && call.succeeded();
    Ok(ground.writes_since(mark)?.into_iter().filter(done).collect())
}

/// Makes the operator list a kind anew.
fn relist(faulty: &Faulty, resource: &str) {
    faulty.proxy.inject(Fault::Gone { resource: resource.into() });
    faulty.proxy.inject(Fault::CloseWatch { resource: resource.into() });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_carried_out_although_no_word_of_the_volumes_comes_through() -> Result<()> {
    let ground = lonely().await;
    let faulty = Faulty::before(&ground).await?;
    let operator = faulty.operator();
    let corner = Corner::on(&ground.cluster).await?;
    corner.create("data", Some(ACCESS_POINT)).await?;
    let old = corner.pair("data").await?;
    rested(&faulty).await?;
    let mark = ground.cluster.audit().mark()?;
    faulty.proxy.inject(Fault::HoldWatch { resource: "persistentvolumes".into(), lists_as_of: None });
    corner.change("data", OTHER_ACCESS_POINT).await?;
    let new = corner.another_pair("data", &old).await?;
    assert_eq!(handle(&new.0), format!("{FILE_SYSTEM}::{OTHER_ACCESS_POINT}"));
    // All the old news come at once, deletions first; none of them is about what is there now.
    faulty.proxy.release("persistentvolumes");
    rested(&faulty).await?;
    operator.resync_all(1).await?;
    rested(&faulty).await?;
    let now = corner.pair("data").await?;
    assert_eq!((now.0.uid(), now.1.uid()), (new.0.uid(), new.1.uid()));
    let deletions = deletions(&ground, mark)?;
    assert_eq!(deletions.len(), 2, "the old claim and the old volume: {deletions:?}");
    corner.delete("data").await?;
    corner.gone("data").await?;
    operator.crash();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_that_the_operator_has_not_heard_of_is_not_taken_for_a_dying_one() -> Result<()> {
    let ground = lonely().await;
    let faulty = Faulty::before(&ground).await?;
    let operator = faulty.operator();
    let first = Corner::on(&ground.cluster).await?;
    first.create("data", None).await?;
    first.ready("data").await?;
    faulty.proxy.inject(Fault::HoldWatch { resource: "namespaces".into(), lists_as_of: None });
    let unheard = Corner::on(&ground.cluster).await?;
    unheard.create("data", Some(ACCESS_POINT)).await?;
    unheard.ready("data").await?;
    for corner in [&first, &unheard] {
        corner.delete("data").await?;
        corner.gone("data").await?;
    }
    operator.crash();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_lost_event_of_any_kind_does_no_harm_and_the_next_list_makes_it_good() -> Result<()> {
    let ground = lonely().await;
    let faulty = Faulty::before(&ground).await?;
    let operator = faulty.operator();
    rested(&faulty).await?;
    for kind in WATCHED {
        let (mark, context) = (ground.cluster.audit().mark()?, || format!("after a lost event of {kind}"));
        let lose = || faulty.proxy.inject(Fault::DropWatchEvent { resource: kind.into(), n: 1 });
        lose();
        let corner = Corner::on(&ground.cluster).await?;
        corner.create("data", Some(ACCESS_POINT)).await?;
        rested(&faulty).await?;
        relist(&faulty, kind);
        let old = corner.pair("data").await.with_context(context)?;
        lose();
        corner.change("data", OTHER_ACCESS_POINT).await?;
        rested(&faulty).await?;
        relist(&faulty, kind);
        let (_, claim) = corner.another_pair("data", &old).await.with_context(context)?;
        assert!(is_bound(&claim), "{}", context());
        let done = deletions(&ground, mark)?;
        assert_eq!(done.len(), 2, "{}: the old claim and the old volume: {done:?}", context());
        lose();
        corner.delete("data").await?;
        rested(&faulty).await?;
        relist(&faulty, kind);
        corner.gone("data").await.with_context(context)?;
        corner.empty().await.with_context(context)?;
        faulty.proxy.clear();
    }
    operator.crash();
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_break_in_the_middle_of_a_change_do_not_disturb_it() -> Result<()> {
    let ground = lonely().await;
    let faulty = Faulty::before(&ground).await?;
    let operator = faulty.operator();
    let corner = Corner::on(&ground.cluster).await?;
    corner.create("data", Some(ACCESS_POINT)).await?;
    let old = corner.pair("data").await?;
    rested(&faulty).await?;
    let mark = ground.cluster.audit().mark()?;
    corner.change("data", OTHER_ACCESS_POINT).await?;
    for kind in WATCHED {
        faulty.proxy.inject(Fault::CloseWatch { resource: kind.into() });
        relist(&faulty, kind);
    }
    let (volume, claim) = corner.another_pair("data", &old).await?;
    assert_eq!(handle(&volume), format!("{FILE_SYSTEM}::{OTHER_ACCESS_POINT}"));
    assert!(is_bound(&claim));
    let deletions = deletions(&ground, mark)?;
    assert_eq!(deletions.len(), 2, "the old claim and the old volume: {deletions:?}");
    corner.delete("data").await?;
    corner.gone("data").await?;
    operator.crash();
    Ok(())
}
