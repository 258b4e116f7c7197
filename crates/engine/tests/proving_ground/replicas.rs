//! Two replicas and one lease: the first is killed in the middle of its work, the second finishes it.

use std::collections::BTreeMap;
use std::time::Duration;

use aquifer_engine::Kind;
use aquifer_engine::cluster::Cluster as _;
use aquifer_engine::lease::Timing;
use aquifer_engine::process::LeaseSettings;
use aquifer_lab::eventually;
use aquifer_lab::kit::{Operator, Proxied};
use aquifer_lab::proxy::{Fault, Proxy};

use crate::cluster_run::{ClusterRun, proxied};
use crate::control_plane::DEADLINE;

const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease", "leases");

fn replica(run: &ClusterRun, behind: &Proxied, identity: &str) -> Operator {
    let timing =
        Timing::new(Duration::from_secs(2), Duration::from_millis(1200), Duration::from_millis(300)).unwrap();
    let lease = LeaseSettings { namespace: run.namespace.clone(), identity: identity.into(), timing };
    run.operator(behind, Some(lease))
}

fn created(proxy: &Proxy) -> Vec<String> {
    let made = proxy.writes().into_iter().filter(|write| write.status == Some(201));
    made.map(|write| write.object.unwrap_or_default()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_replica_finishes_what_the_first_began_and_makes_nothing_twice() {
    let run = ClusterRun::new("replicas").await;
    let (one, two) = (run.proxy(), proxied().await);
    // The first leads before the second starts, and dies at its ninth write.
    one.inject(Fault::CrashBefore(9));
    let first = replica(&run, &run.proxied, "one");
    let second = eventually(DEADLINE, "the first replica leads", || async {
        let lease = run.api.get(&LEASE.at(&run.namespace, "aquifer-test")).await?;
        let leads = lease.is_some_and(|lease| lease.text("/spec/holderIdentity").starts_with("one"));
        Ok(leads.then(|| replica(&run, &two, "two")))
    })
    .await
    .unwrap();
    // Only a standby whose caches are filled could write, if it wanted to.
    eventually(DEADLINE, "the second replica is ready", || async {
        let missing = second.health.missing();
        anyhow::ensure!(missing.is_empty(), "{missing:?}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    run.play(0).await;
    one.wait_crash(DEADLINE).await.unwrap();
    assert_eq!(one.writes().len(), 9, "the first was at work");
    assert!(two.proxy.writes().is_empty(), "a standby writes nothing: {:?}", two.proxy.writes());
    first.crash();
    eventually(DEADLINE, "the second replica has finished", || run.arrived(0)).await.unwrap();
    assert!(two.proxy.wait_idle(Duration::from_millis(1500), DEADLINE).await);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for name in created(one).into_iter().chain(created(&two.proxy)) {
        *counts.entry(name).or_default() += 1;
    }
    println!("{} writes by the first, {} by the second", one.writes().len(), two.proxy.writes().len());
    assert!(counts.values().all(|n| *n == 1), "{counts:?}");
    assert!(!created(&two.proxy).is_empty(), "the second had something left to do");
    assert!(run.house.house.made().values().all(|n| *n == 1), "{:?}", run.house.house.made());
    second.crash();
}
