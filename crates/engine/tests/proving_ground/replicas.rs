//! Two replicas and one lease: the first is killed in the middle of its work, the second finishes it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aquifer_engine::lease::{Config, Timing, elect};
use aquifer_engine::runtime::Runtime;
use aquifer_lab::proxy::{Fault, Proxy, Victim};
use tokio_util::sync::CancellationToken;

use crate::site::{Operator, PATIENCE, Site, client, proxy};

async fn replica(site: &Site, proxy: &Proxy, identity: &str) -> (Operator, impl Fn() + Send + Sync + use<>) {
    let timing =
        Timing::new(Duration::from_secs(2), Duration::from_millis(1200), Duration::from_millis(300)).unwrap();
    let config = Config {
        namespace: site.namespace.clone(),
        name: "proving".into(),
        identity: identity.into(),
        timing,
    };
    let client = client(proxy).await;
    let (leadership, elector) = elect(client.clone(), &Runtime::system(), config, CancellationToken::new());
    let operator = Operator::start(site, client, leadership);
    let (kill, elector) = (operator.killer(), elector.abort_handle());
    let kill = move || {
        elector.abort();
        kill();
    };
    (operator, kill)
}

fn created(proxy: &Proxy) -> Vec<String> {
    let made = proxy.writes().into_iter().filter(|write| write.status == Some(201));
    made.map(|write| write.object.unwrap_or_default()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_replica_finishes_what_the_first_began_and_makes_nothing_twice() {
    let site = Site::new("replicas").await;
    let (one, two) = (Arc::clone(&site.proxy), proxy().await);
    let (first, kill_first) = replica(&site, &one, "one").await;
    one.set_victim(Victim::Call(Arc::new(kill_first)));
    // The first leads before the second starts, and dies at its ninth write.
    one.inject(Fault::CrashBefore(9));
    site.play(0).await;
    aquifer_lab::eventually(PATIENCE, "the first replica leads and writes", || async {
        Ok((!one.writes().is_empty()).then_some(()))
    })
    .await
    .unwrap();
    let (second, kill_second) = replica(&site, &two, "two").await;
    one.wait_crash(PATIENCE).await.unwrap();
    assert!(two.writes().is_empty(), "a standby writes nothing: {:?}", two.writes());
    first.gone().await;
    aquifer_lab::eventually(PATIENCE, "the second replica has finished", || site.arrived(0)).await.unwrap();
    assert!(two.wait_idle(Duration::from_millis(1500), PATIENCE).await);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for name in created(&one).into_iter().chain(created(&two)) {
        *counts.entry(name).or_default() += 1;
    }
    println!("{} writes by the first, {} by the second", one.writes().len(), two.writes().len());
    assert!(counts.values().all(|n| *n == 1), "{counts:?}");
    assert!(!created(&two).is_empty(), "the second had something left to do");
    assert!(site.house.house.made().values().all(|n| *n == 1), "{:?}", site.house.house.made());
    kill_second();
    second.gone().await;
}
