//! What it costs: the writes of a volume's life, and none at all when there is nothing to do.

use std::ops::RangeInclusive;

use anyhow::Result;
use aquifer_efs::volumes::volume_name;
use aquifer_engine::Key;
use aquifer_lab::{Call, Mark, eventually};

use super::harness::{DEADLINE, exclusive, installed_operator, passes, resync_volumes};
use super::objects::Objects;
use super::tenant::Tenant;
use aquifer_lab::kit::TestCluster;

const VOLUMES: u64 = 20;

#[tokio::test]
async fn a_volume_costs_few_writes_and_then_neither_resync_nor_restart_costs_any() -> Result<()> {
    let test = exclusive().await?;
    let operator = installed_operator(&test);
    let tenant = Tenant::on(&test.cluster).await?;
    // News of the driver reach every SharedVolume: they shall not be counted here.
    Objects::on(&test)?.installed().await?;
    test.settled().await?;
    let names: Vec<String> = (0..VOLUMES).map(|n| format!("v{n}")).collect();

    let mark = test.cluster.audit().mark()?;
    for (n, name) in names.iter().enumerate() {
        tenant.create(name, Some(&format!("fsap-{n:08x}"))).await?;
    }
    for name in &names {
        tenant.ready(name).await?;
    }
    test.settled().await?;
    report("made", &test, &tenant, &names, mark, (3..=4, 2))?;

    let mark = test.cluster.audit().mark()?;
    resync_volumes(&operator, VOLUMES).await?;
    test.settled().await?;
    let writes = test.writes_since(mark)?;
    assert!(writes.is_empty(), "a resync wrote: {writes:?}");

    operator.crash();
    let mark = test.cluster.audit().mark()?;
    let operator = installed_operator(&test);
    eventually(DEADLINE, "a restarted operator has looked at everything", || async {
        Ok((passes(&operator) >= VOLUMES).then_some(()))
    })
    .await?;
    test.settled().await?;
    let writes = test.writes_since(mark)?;
    assert!(writes.is_empty(), "a restart wrote: {writes:?}");

    let mark = test.cluster.audit().mark()?;
    for name in &names {
        tenant.delete(name).await?;
    }
    for name in &names {
        tenant.gone(name).await?;
    }
    test.settled().await?;
    report("deleted", &test, &tenant, &names, mark, (3..=3, 1))?;
    operator.crash();
    Ok(())
}

/// So many writes of objects for each SharedVolume (one less where Kubernetes has bound the claim before anything is noted on it), and no more of status than allowed.
fn report(
    what: &str,
    test: &TestCluster,
    tenant: &Tenant,
    names: &[String],
    mark: Mark,
    (objects, allowed): (RangeInclusive<usize>, usize),
) -> Result<()> {
    let writes = test.writes_since(mark)?;
    let mut most = 0;
    for name in names {
        let volume = volume_name(&Key::namespaced(&tenant.name, name));
        let about =
            |call: &&Call| call.name == *name || call.name == format!("pvc-{name}") || call.name == volume;
        let about: Vec<&Call> = writes.iter().filter(about).collect();
        let status = about.iter().filter(|call| call.subresource == "status").count();
        let line = |call: &&Call| format!("{} {} {}", call.verb, call.uri, call.code);
        let lines = || about.iter().map(line).collect::<Vec<_>>().join("\n");
        assert!(
            objects.contains(&(about.len() - status)),
            "writes of objects while {name} was {what}:\n{}",
            lines()
        );
        assert!(status <= allowed, "writes of status while {name} was {what}:\n{}", lines());
        most = most.max(status);
    }
    println!(
        "{} volumes {what}: {objects:?} writes of objects and at most {most} of status each",
        names.len()
    );
    Ok(())
}
