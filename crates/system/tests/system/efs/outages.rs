//! What pods notice when the driver is restarted and when the operator is down: nothing.

use std::time::Instant;

use anyhow::{Result, ensure};
use aquifer_lab::{eventually, kit};
use kube::api::DeleteParams;

use super::changes::is_another_pair;
use super::pods::User;
use super::tenants::WRITER;
use super::world::{DRIVER_NAMESPACE, DRIVER_PODS, ONE, PATIENCE, RED, TEAM, World};

/// One on each node; each has a file of its own.
const KEEPERS: [User<'_>; 3] = [
    User { namespace: RED, name: "keeper-1", node: "n1", uid: 1001, of: &["data"], does: &["keep", "/data"] },
    User { namespace: RED, name: "keeper-2", node: "n2", uid: 1002, of: &["data"], does: &["keep", "/data"] },
    User { namespace: RED, name: "keeper-3", node: "n3", uid: 1003, of: &["data"], does: &["keep", "/data"] },
];

pub async fn mounts_outlive_the_driver_and_new_ones_follow_it(world: &mut World) -> Result<()> {
    for keeper in &KEEPERS {
        keeper.make(world).await?;
    }
    let mut before = Vec::new();
    for keeper in &KEEPERS {
        keeper.runs(world).await?;
        before.push(keeper.goes_on(world, 0).await?.0);
    }
    world.done("a pod on each node uses a file without end");

    let began = Instant::now();
    world.kubectl(&["rollout", "restart", "daemonset", "-n", DRIVER_NAMESPACE, DRIVER_PODS])?;
    let new = ["n1", "n2", "n3"].map(|node| User::idle(RED, node, node, 2000, &["twin"]));
    for pod in &new {
        pod.make(world).await?;
    }
    world.kubectl(&[
        "rollout",
        "status",
        "daemonset",
        "-n",
        DRIVER_NAMESPACE,
        DRIVER_PODS,
        "--timeout=60s",
    ])?;
    let rolled = began.elapsed();
    for number in 1..=3 {
        world.driver_registered(world.cluster.node(number)?.name()).await?;
    }
    for pod in &new {
        pod.runs(world).await?;
    }
    let (mounted, mut longest) = (began.elapsed(), 0);
    for (keeper, rounds) in KEEPERS.iter().zip(before) {
        // Not counted from the restart: it has to go on after it.
        let (now, _) = keeper.rounds(world).await?;
        let (after, slowest) = keeper.goes_on(world, now.max(rounds)).await?;
        ensure!(after > rounds, "{} has stopped", keeper.name);
        longest = longest.max(slowest);
    }
    for pod in &new {
        pod.ask_to_end(world).await?;
    }
    world.done(&format!(
        "the driver was restarted on all nodes within {:.1} s; pods asked for meanwhile run after {:.1} s, those that ran went on (slowest round {longest} ms)",
        rolled.as_secs_f64(),
        mounted.as_secs_f64()
    ));
    Ok(())
}

pub async fn what_happens_while_the_operator_is_down_is_done_later(world: &mut World) -> Result<()> {
    let before = world.pair(RED, "twin").await?;
    let sum = WRITER.sum(world, "/data/from-red").await?;
    world.operators(0).await?;
    world.share(RED, "late", ONE, Some(TEAM)).await?;
    world.unshare(RED, "other").await?;
    world.claims(RED).delete("pvc-twin", &DeleteParams::default()).await?;
    kit::gone(&world.claims(RED), "pvc-twin").await?;
    let started = User::idle(RED, "started", "n2", 77, &["data"]);
    started.start(world).await?;
    started.sees(world, "/data/from-red", &sum).await?;
    let late = world.volumes(RED).get("late").await?;
    ensure!(late.status.is_none(), "somebody has looked at it: {late:?}");
    world.done("while the operator is down pods run and start; SharedVolumes and claims come and go");

    let waiting = User::idle(RED, "waiting", "n2", 78, &["data"]);
    without_the_driver(world, &waiting, &sum).await?;

    world.operators(1).await?;
    world.driver_registered(waiting.node).await?;
    let registered = Instant::now();
    waiting.runs(world).await?;
    let mounted = registered.elapsed();
    waiting.sees(world, "/data/from-red", &sum).await?;
    world.ready(RED, "late").await?;
    kit::gone(&world.volumes(RED), "other").await?;
    is_another_pair(world, &before).await?;
    world.done(&format!(
        "when it is back, all of that is done; the waiting pod ran {:.1} s after its node had registered the driver again",
        mounted.as_secs_f64()
    ));
    Ok(())
}

/// Takes the driver away from all nodes, which only the operator would repair: what is mounted stays, and a new pod waits.
async fn without_the_driver(world: &mut World, waiting: &User<'_>, sum: &str) -> Result<()> {
    let nowhere = r#"{"spec":{"template":{"spec":{"nodeSelector":{"nowhere":"true"}}}}}"#;
    world.kubectl(&["patch", "daemonset", "-n", DRIVER_NAMESPACE, DRIVER_PODS, "-p", nowhere])?;
    world.driver_gone(waiting.node).await?;
    waiting.make(world).await?;
    let why = format!("involvedObject.name={},reason=FailedMount", waiting.name);
    eventually(PATIENCE, "the waiting pod says why it waits", || async {
        let events = world.kubectl(&["get", "events", "-n", RED, "--field-selector", &why])?;
        Ok(events.contains("not found in the list of registered CSI drivers").then_some(()))
    })
    .await?;
    WRITER.sees(world, "/data/from-red", sum).await?;
    for keeper in &KEEPERS {
        let (rounds, _) = keeper.rounds(world).await?;
        keeper.goes_on(world, rounds).await?;
    }
    world.done("without the driver on any node pods go on with what they have mounted, and a new one waits and says why");
    Ok(())
}
