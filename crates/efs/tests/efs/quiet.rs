//! What it costs: the writes of a volume's life, and none at all when there is nothing to do.

use anyhow::Result;
use aquifer_efs::volumes::volume_name;
use aquifer_engine::Key;
use aquifer_lab::{Call, Mark, eventually};

use super::harness::{Corner, DEADLINE, Ground, lonely};
use super::objects::Objects;

const VOLUMES: u64 = 20;

#[tokio::test]
async fn a_volume_costs_few_writes_and_then_neither_resync_nor_restart_costs_any() -> Result<()> {
    let ground = lonely().await;
    let operator = ground.operator();
    let corner = Corner::on(&ground.cluster).await?;
    // News of the driver reach every SharedVolume: they shall not be counted here.
    Objects::on(&ground)?.installed().await?;
    ground.settled().await?;
    let names: Vec<String> = (0..VOLUMES).map(|n| format!("v{n}")).collect();

    let mark = ground.cluster.audit().mark()?;
    for (n, name) in names.iter().enumerate() {
        corner.create(name, Some(&format!("fsap-{n:08x}"))).await?;
    }
    for name in &names {
        corner.ready(name).await?;
    }
    ground.settled().await?;
    report("made", &ground, &corner, &names, mark, 2)?;

    let mark = ground.cluster.audit().mark()?;
    operator.resync_all(VOLUMES).await?;
    ground.settled().await?;
    let writes = ground.writes_since(mark)?;
    assert!(writes.is_empty(), "a resync wrote: {writes:?}");

    operator.crash();
    let mark = ground.cluster.audit().mark()?;
    let operator = ground.operator();
    eventually(DEADLINE, "a restarted operator has looked at everything", || async {
        Ok((operator.passes() >= VOLUMES).then_some(()))
    })
    .await?;
    ground.settled().await?;
    let writes = ground.writes_since(mark)?;
    assert!(writes.is_empty(), "a restart wrote: {writes:?}");

    let mark = ground.cluster.audit().mark()?;
    for name in &names {
        corner.delete(name).await?;
    }
    for name in &names {
        corner.gone(name).await?;
    }
    ground.settled().await?;
    report("deleted", &ground, &corner, &names, mark, 1)?;
    operator.crash();
    Ok(())
}

/// Three writes of objects for each volume, and no more of status than allowed.
fn report(
    what: &str,
    ground: &Ground,
    corner: &Corner,
    names: &[String],
    mark: Mark,
    allowed: usize,
) -> Result<()> {
    let writes = ground.writes_since(mark)?;
    let mut most = 0;
    for name in names {
        let volume = volume_name(&Key::namespaced(&corner.namespace, name));
        let about =
            |call: &&Call| call.name == *name || call.name == format!("pvc-{name}") || call.name == volume;
        let about: Vec<&Call> = writes.iter().filter(about).collect();
        let status = about.iter().filter(|call| call.subresource == "status").count();
        let line = |call: &&Call| format!("{} {} {}", call.verb, call.uri, call.code);
        let text = || about.iter().map(line).collect::<Vec<_>>().join("\n");
        assert_eq!(about.len() - status, 3, "writes of objects while {name} was {what}:\n{}", text());
        assert!(status <= allowed, "writes of status while {name} was {what}:\n{}", text());
        most = most.max(status);
    }
    println!("{} volumes {what}: 3 writes of objects and at most {most} of status each", names.len());
    Ok(())
}
