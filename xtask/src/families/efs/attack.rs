//! One tenant with the role `edit` does its worst in one namespace: thousands of SharedVolumes of the same data, giant annotations on them and
//! on pods, a claim that never goes, and edits without end. Another tenant makes SharedVolumes before and meanwhile: how long it waits for
//! each, and how much memory the operator needs.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use aquifer_api::efs::{SharedVolume, SharedVolumeSpec};
use aquifer_lab::install;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::bench::{BENCH, BenchCluster, NAMESPACE, name, spec};
use crate::bench::{CONCURRENCY, measure::Usage, say};
use crate::operator::{self, Operator};

const NEIGHBOUR: &str = "neighbour";
/// So many SharedVolumes does the other tenant make, one after the other: enough that one that is slow by chance is not the 99th per cent.
const SAMPLES: usize = 300;
/// How often the attacker edits.
const EDITS_PER_SECOND: u64 = 20;
/// As much as an object can carry, nearly.
const GIANT: usize = 200_000;
/// Pods and SharedVolumes with giant annotations.
const GIANTS: usize = 60;
/// Longer than the other tenant would believe that anything happens.
const PATIENCE: Duration = Duration::from_mins(1);
/// How often it looks.
const PAUSE: Duration = Duration::from_millis(5);

pub async fn run(n: usize, program: &Path) -> Result<String> {
    let bench = BenchCluster::start("bench-attack").await?;
    let log = bench.cluster.dir().join("aquifer.log");
    let mut operator = operator::start(program, BENCH, &bench.account.kubeconfig, &log)?;
    let measured = measure(&bench, n, &mut operator).await;
    let measured = measured.map_err(|error| error.context(operator.log_tail()));
    operator.stop().await?;
    bench.cluster.stop().await?;
    measured
}

async fn measure(bench: &BenchCluster, n: usize, operator: &mut Operator) -> Result<String> {
    operator.ready(Duration::from_mins(1)).await?;
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NEIGHBOUR } });
    install::apply(&bench.user, namespace).await?;
    say("the other tenant alone");
    let quiet = Waits::measure(&bench.user, "quiet").await?;
    say(&format!("{n} equal SharedVolumes, giant annotations, a claim that never goes"));
    prepare(&bench.user, n).await?;
    let edits = AtomicU64::new(0);
    say("edits without end, and the other tenant");
    let attacked = tokio::select! {
        waits = Waits::measure(&bench.user, "attacked") => waits?,
        ended = edit_without_end(&bench.user, n, &edits) => bail!("the attack ended: {ended:?}"),
    };
    let Usage { rss_mib, .. } = Usage::of(operator.pid())?;
    Ok(format!(
        "another tenant's time to Ready, quiet: p50 {:.0} ms, p99 {:.0} ms; beside {n} equal SharedVolumes, {GIANTS} pods and SharedVolumes of {} KiB, a claim that never goes \
         and {} edits: p50 {:.0} ms, p99 {:.0} ms, ratio of p99 {:.2} (limit 2); the operator's peak {rss_mib:.1} MiB (limit 64)",
        quiet.at(50),
        quiet.at(99),
        GIANT / 1000,
        edits.load(Ordering::Relaxed),
        attacked.at(50),
        attacked.at(99),
        attacked.at(99) / quiet.at(99),
    ))
}

/// All that the attacker leaves lying about.
async fn prepare(client: &Client, n: usize) -> Result<()> {
    let volumes: Api<SharedVolume> = Api::namespaced(client.clone(), NAMESPACE);
    let giant = json!({ "example.com/giant": "x".repeat(GIANT) });
    stream::iter(0..n)
        .map(Ok::<_, anyhow::Error>)
        .try_for_each_concurrent(CONCURRENCY, |index| {
            let (volumes, giant) = (&volumes, &giant);
            async move {
                let mut volume = SharedVolume::new(&name(index), equal());
                if index < GIANTS {
                    volume.metadata.annotations = Some(serde_json::from_value(giant.clone())?);
                }
                volumes.create(&PostParams::default(), &volume).await?;
                Ok(())
            }
        })
        .await?;
    super::bench::ready(&volumes, n).await?;
    for index in 0..GIANTS {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": format!("pod-{index}"), "namespace": NAMESPACE, "annotations": giant },
            // On a node that is none: such a pod holds its claim.
            "spec": { "nodeName": "nowhere", "containers": [{ "name": "a", "image": "a" }], "tolerations": [{ "operator": "Exists" }],
                "volumes": [{ "name": "a", "persistentVolumeClaim": { "claimName": format!("pvc-{}", name(index)) } }] } });
        install::apply(client, pod).await?;
        // Its pods are asked for again and again from now on.
        volumes.delete(&name(index), &DeleteParams::default()).await?;
    }
    let claims: Api<k8s_openapi::api::core::v1::PersistentVolumeClaim> =
        Api::namespaced(client.clone(), NAMESPACE);
    let held = json!({ "metadata": { "finalizers": ["example.com/never"] } });
    claims.patch(&format!("pvc-{}", name(GIANTS)), &PatchParams::default(), &Patch::Merge(held)).await?;
    volumes.delete(&name(GIANTS), &DeleteParams::default()).await?;
    Ok(())
}

/// The same data for all.
fn equal() -> SharedVolumeSpec {
    spec(0)
}

/// Changes annotations, labels and what is asked for, one SharedVolume after the other.
async fn edit_without_end(client: &Client, n: usize, edits: &AtomicU64) -> Result<()> {
    let volumes: Api<SharedVolume> = Api::namespaced(client.clone(), NAMESPACE);
    let mut due = tokio::time::interval(Duration::from_secs(1) / u32::try_from(EDITS_PER_SECOND)?);
    for round in 0_usize.. {
        due.tick().await;
        let index = GIANTS + 1 + round % n.saturating_sub(GIANTS + 1).max(1);
        let change: Value = match round % 3 {
            0 => json!({ "metadata": { "annotations": { "example.com/round": round.to_string() } } }),
            1 => json!({ "metadata": { "labels": { "round": round.to_string() } } }),
            _ => json!({ "spec": { "accessPointID": spec(round % 2).access_point_id } }),
        };
        volumes.patch(&name(index), &PatchParams::default(), &Patch::Merge(change)).await?;
        edits.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// How long the other tenant waited for each SharedVolume, in milliseconds and in order.
struct Waits(Vec<f64>);

impl Waits {
    async fn measure(client: &Client, prefix: &str) -> Result<Self> {
        let volumes: Api<SharedVolume> = Api::namespaced(client.clone(), NEIGHBOUR);
        let mut waits = Vec::new();
        for index in 0..SAMPLES {
            let name = format!("{prefix}-{index}");
            let began = Instant::now();
            volumes.create(&PostParams::default(), &SharedVolume::new(&name, spec(index))).await?;
            while !is_ready(&volumes, &name).await? {
                if began.elapsed() > PATIENCE {
                    bail!("{NEIGHBOUR}/{name} is not Ready after {PATIENCE:?}");
                }
                tokio::time::sleep(PAUSE).await;
            }
            waits.push(began.elapsed().as_secs_f64() * 1000.0);
            // Without it the second hundred would be duplicates of the first.
            volumes.delete(&name, &DeleteParams::default()).await?;
        }
        waits.sort_by(f64::total_cmp);
        Ok(Self(waits))
    }

    /// The wait that so many per cent do not exceed.
    fn at(&self, percent: usize) -> f64 {
        self.0[(self.0.len() * percent / 100).min(self.0.len() - 1)]
    }
}

async fn is_ready(volumes: &Api<SharedVolume>, name: &str) -> Result<bool> {
    let volume = volumes.get(name).await.with_context(|| format!("cannot read {name}"))?;
    let conditions = volume.status.iter().flat_map(|status| &status.conditions);
    Ok(conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_of_a_percentage_is_one_that_was_measured() {
        let waits = Waits((1..=100).map(f64::from).collect());
        assert_eq!((waits.at(50), waits.at(99), waits.at(100)), (51.0, 100.0, 100.0));
    }
}
