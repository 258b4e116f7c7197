//! The crash walk: a SharedVolume is made, changed and deleted while the operator dies before or after every single write,
//! or does not hear of it. The end is always that of a life without trouble.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use aquifer_lab::proxy::Fault;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::harness::{
    ACCESS_POINT, Corner, DEADLINE, Faulty, Ground, OTHER_ACCESS_POINT, Operator, is_ready,
};

/// Writes of one act of a life; the walk ends by itself when a fault finds no write any more.
const MOST_WRITES: u64 = 15;
/// After the end of an act: whatever it still has to do, a resync would do as well, and that must be nothing.
const QUIET: Duration = Duration::from_millis(150);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    CrashBefore,
    CrashAfter,
    LostReply,
}

impl Trouble {
    fn at(self, n: u64) -> Fault {
        match self {
            Self::CrashBefore => Fault::CrashBefore(n),
            Self::CrashAfter => Fault::CrashAfter(n),
            Self::LostReply => Fault::CutReply(n),
        }
    }
}

/// The acts of a SharedVolume's life.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    Create,
    Change,
    Delete,
}

struct Walk {
    faulty: Faulty,
    operator: Option<Operator>,
    points: u32,
    runs: u32,
}

impl Walk {
    /// One act, with trouble at its n-th write. False when it had fewer writes than that.
    async fn act(&mut self, corner: &Corner, act: Act, trouble: Option<(Trouble, u64)>) -> Result<bool> {
        self.runs += 1;
        ensure!(
            self.faulty.proxy.wait_idle(Duration::from_millis(50), DEADLINE).await,
            "writes without an end"
        );
        self.faulty.proxy.reset();
        let fault = trouble.map(|(trouble, n)| self.faulty.proxy.inject(trouble.at(n)));
        match act {
            Act::Create => drop(corner.create("data", Some(ACCESS_POINT)).await?),
            Act::Change => drop(corner.change("data", OTHER_ACCESS_POINT).await?),
            Act::Delete => corner.delete("data").await?,
        }
        self.finish(corner, act).await?;
        let Some(fault) = fault else { return Ok(true) };
        let struck = self.faulty.proxy.fired(fault) > 0;
        self.faulty.proxy.clear();
        self.points += u32::from(struck);
        Ok(struck)
    }

    /// Waits for the end of an act; an operator that dies on the way is started anew.
    async fn finish(&mut self, corner: &Corner, act: Act) -> Result<()> {
        let end = Instant::now() + DEADLINE;
        loop {
            if self.faulty.proxy.crashed() {
                self.faulty.proxy.wait_crash(DEADLINE).await?;
                self.operator.take().context("nobody to crash")?.crash();
                self.faulty.proxy.revive().await?;
                self.operator = Some(self.faulty.operator());
            }
            let found = corner.shared_volumes().get_opt("data").await?;
            let done = match act {
                Act::Create | Act::Change => found.as_ref().is_some_and(is_ready),
                Act::Delete => found.is_none(),
            };
            // A fault may still be on the way: the last write of an act is the one that ends it.
            if done && self.faulty.proxy.wait_idle(QUIET, DEADLINE).await && !self.faulty.proxy.crashed() {
                return Ok(());
            }
            ensure!(Instant::now() < end, "{act:?} does not end: {found:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Everything is looked at again, and nothing is written.
    async fn nothing_left_to_do(&self) -> Result<()> {
        self.faulty.proxy.reset();
        self.operator.as_ref().context("no operator")?.resync_all(1).await?;
        ensure!(
            self.faulty.proxy.wait_idle(Duration::from_millis(50), DEADLINE).await,
            "writes without an end"
        );
        let writes = self.faulty.proxy.writes();
        ensure!(writes.is_empty(), "a resync wrote {writes:?}");
        Ok(())
    }
}

/// Everything that there is of a SharedVolume, without what differs between any two of them.
async fn state(corner: &Corner) -> Result<Value> {
    let all = ListParams::default();
    let shared = corner.shared_volumes().list(&all).await?.items;
    let (claims, volumes) = (corner.claims().list(&all).await?.items, corner.volumes_here().await?);
    let uids = shared.iter().map(ResourceExt::uid).chain(claims.iter().map(ResourceExt::uid));
    let uids: Vec<String> = uids.chain(volumes.iter().map(ResourceExt::uid)).flatten().collect();
    let mut objects = json!({"shared": shared, "claims": claims, "volumes": volumes});
    strip(&mut objects);
    let mut text = objects.to_string().replace(&corner.namespace, "NAMESPACE");
    for (n, uid) in uids.iter().enumerate() {
        text = text.replace(uid, &format!("UID-{n}"));
    }
    Ok(serde_json::from_str(&text)?)
}

/// Drops versions, times, and the hash that depends on a uid.
fn strip(value: &mut Value) {
    const DIFFERENT: [&str; 6] = [
        "resourceVersion",
        "managedFields",
        "creationTimestamp",
        "lastTransitionTime",
        "lastPhaseTransitionTime",
        "aquifer.storage/intent",
    ];
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !DIFFERENT.contains(&key.as_str()));
            map.values_mut().for_each(strip);
        }
        Value::Array(list) => list.iter_mut().for_each(strip),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_any_write_of_a_volumes_life_changes_nothing_about_its_end() -> Result<()> {
    let started = Instant::now();
    let ground = Ground::start().await?;
    let faulty = Faulty::before(&ground).await?;
    let mut walk = Walk { operator: Some(faulty.operator()), faulty, points: 0, runs: 0 };
    ensure!(walk.faulty.proxy.wait_idle(Duration::from_secs(2), DEADLINE).await, "the operator never rests");

    let corner = Corner::on(&ground.cluster).await?;
    let mut calm = Vec::new();
    for act in [Act::Create, Act::Change, Act::Delete] {
        walk.act(&corner, act, None).await?;
        let writes = walk.faulty.proxy.writes();
        println!("{act:?} without trouble: {} writes", writes.len());
        calm.push(state(&corner).await?);
    }

    for trouble in [Trouble::CrashBefore, Trouble::CrashAfter, Trouble::LostReply] {
        let mut acts = [(Act::Create, true), (Act::Change, true), (Act::Delete, true)];
        for n in 1..=MOST_WRITES {
            let corner = Corner::on(&ground.cluster).await?;
            for ((act, walking), calm) in acts.iter_mut().zip(&calm) {
                let at = walking.then_some((trouble, n));
                *walking &= walk.act(&corner, *act, at).await.with_context(|| format!("{act:?}, {at:?}"))?;
                let end = state(&corner).await?;
                ensure!(end == *calm, "{act:?} with {at:?} ends in\n{end}\nand without in\n{calm}");
                if *act != Act::Delete {
                    walk.nothing_left_to_do().await.with_context(|| format!("after {act:?} with {at:?}"))?;
                }
            }
            if !acts.iter().any(|(_, walking)| *walking) {
                break;
            }
            ensure!(n < MOST_WRITES, "an act has more than {MOST_WRITES} writes");
        }
    }
    println!(
        "crash walk: {} points, {} runs, 0 divergent end states, 0 second objects, {:.0} s",
        walk.points,
        walk.runs,
        started.elapsed().as_secs_f64()
    );
    Ok(())
}
