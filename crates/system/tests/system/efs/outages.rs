//! What pods notice when the driver is restarted and when the operator is down: nothing.

use std::time::{Duration, Instant};

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

/// To mount and to start a pod takes a second or two, and many times that on two cores that are busy. Far below the two minutes that
/// kubelet pauses at most.
const STARTS: Duration = Duration::from_secs(15);

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

    let nodes = ["n1", "n2", "n3"];
    let registered = nodes.map(|node| world.driver_registered_again(node));
    let began = Instant::now();
    world.kubectl(&["rollout", "restart", "daemonset", "-n", DRIVER_NAMESPACE, DRIVER_PODS])?;
    let new = nodes.map(|node| User::idle(RED, node, node, 2000, &["twin"]));
    for pod in &new {
        pod.make(world).await?;
    }
    let [one, two, three] = &new;
    let ran = tokio::try_join!(ran(world, one), ran(world, two), ran(world, three))?;
    let (mut rolled, mut slowest, mut longest) = (Duration::ZERO, Duration::ZERO, 0);
    for ((pod, ran), registered) in new.iter().zip(<[Instant; 3]>::from(ran)).zip(registered) {
        let registered = registered.await??;
        rolled = rolled.max(registered.saturating_duration_since(began));
        slowest = slowest.max(ran_soon(pod, began, registered, ran)?);
    }
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
        "the driver was restarted on all nodes within {:.1} s; pods asked for meanwhile ran at most {:.1} s after their node had registered it again, those that ran went on (slowest round {longest} ms)",
        rolled.as_secs_f64(),
        slowest.as_secs_f64()
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
    let asked = without_the_driver(world, &waiting, &sum).await?;

    let registered = world.driver_registered_again(waiting.node);
    let (ran, ()) = tokio::try_join!(ran(world, &waiting), world.operators(1))?;
    let mounted = ran_soon(&waiting, asked, registered.await??, ran)?;
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

/// When a pod was seen to run.
async fn ran(world: &World, pod: &User<'_>) -> Result<Instant> {
    pod.runs(world).await?;
    Ok(Instant::now())
}

/// Checks that a pod ran soon after its node had registered the driver again, and gives the time between. Between two tries of a mount
/// kubelet pauses for half a second, then twice as long each time. So the pause that it was in is not longer than the pod had waited, and
/// that is all that may pass beside `STARTS`.
fn ran_soon(pod: &User<'_>, asked: Instant, registered: Instant, ran: Instant) -> Result<Duration> {
    let (waited, took) =
        (registered.saturating_duration_since(asked), ran.saturating_duration_since(registered));
    ensure!(
        took <= waited + STARTS,
        "{} ran {took:?} after its node had registered the driver again, for which it had waited {waited:?}",
        pod.name
    );
    Ok(took)
}

/// Takes the driver away from all nodes, which only the operator would repair: what is mounted stays, and a new pod waits. Gives the time
/// when it was asked for.
async fn without_the_driver(world: &mut World, waiting: &User<'_>, sum: &str) -> Result<Instant> {
    let nowhere = r#"{"spec":{"template":{"spec":{"nodeSelector":{"nowhere":"true"}}}}}"#;
    world.kubectl(&["patch", "daemonset", "-n", DRIVER_NAMESPACE, DRIVER_PODS, "-p", nowhere])?;
    world.driver_gone(waiting.node).await?;
    let asked = Instant::now();
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
    Ok(asked)
}
