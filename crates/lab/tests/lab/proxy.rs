//! The fault proxy in front of a real API server, used by a real client.

use std::sync::Arc;
use std::time::Duration;

use aquifer_lab::proxy::{Fault, Proxy, Upstream, Victim};
use aquifer_lab::{Cluster, Lab};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::sync::OnceCell;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(20);

/// One for all tests of this file; each has a namespace and a proxy of its own.
static SHARED: OnceCell<Cluster> = OnceCell::const_new();

struct Bench {
    proxy: Proxy,
    /// Through the proxy.
    maps: Api<ConfigMap>,
    /// Past the proxy.
    direct: Api<ConfigMap>,
    dir: tempfile::TempDir,
}

impl Bench {
    async fn new(namespace: &str) -> Self {
        let cluster = SHARED.get_or_init(|| async { Lab::test_cluster().start().await.unwrap() }).await;
        let proxy = Proxy::start(Upstream {
            url: cluster.url().to_owned(),
            ca_pem: cluster.ca_pem().as_bytes().to_vec(),
        })
        .await
        .unwrap();
        let admin = cluster.client().unwrap();
        let object: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        Api::all(admin.clone()).create(&PostParams::default(), &object).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        proxy.kubeconfig(cluster.admin_token(), &path).unwrap();
        let maps = Api::namespaced(client(&path).await, namespace);
        Self { proxy, maps, direct: Api::namespaced(admin, namespace), dir }
    }

    /// What is really there, by name.
    async fn names(&self) -> Vec<String> {
        let list = self.direct.list(&ListParams::default()).await.unwrap();
        let ours = |name: &String| name != "kube-root-ca.crt";
        list.iter().map(ResourceExt::name_any).filter(ours).collect()
    }

    async fn create(&self, name: &str) {
        self.direct.create(&PostParams::default(), &map(name)).await.unwrap();
    }
}

/// A client as a program would make it, from a file.
async fn client(kubeconfig: &std::path::Path) -> Client {
    let config = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    Client::try_from(kube::Config::from_custom_kubeconfig(config, &options).await.unwrap()).unwrap()
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

/// A client that makes five objects one after the other, and dies at a fault.
async fn make_five(bench: &Bench) -> Vec<String> {
    let maps = bench.maps.clone();
    let task = tokio::spawn(async move {
        for name in ["m1", "m2", "m3", "m4", "m5"] {
            // Like a process that goes on whatever happens: only death stops it.
            let _ = maps.create(&PostParams::default(), &map(name)).await;
        }
    });
    let abort = task.abort_handle();
    bench.proxy.set_victim(Victim::Call(Arc::new(move || abort.abort())));
    bench.proxy.wait_crash(SOON).await.unwrap();
    assert!(task.await.unwrap_err().is_cancelled());
    bench.proxy.revive().await.unwrap();
    bench.names().await
}

#[tokio::test]
async fn a_crash_leaves_exactly_the_writes_before_it() {
    let bench = Bench::new("proxy-crash").await;
    bench.proxy.inject(Fault::CrashBefore(3));
    assert_eq!(make_five(&bench).await, ["m1", "m2"]);
    bench.proxy.reset();
    bench.proxy.inject(Fault::CrashAfter(3));
    assert_eq!(make_five(&bench).await, ["m1", "m2", "m3"]);
    // The first two were there already; the third was done, and nobody heard of it.
    let answers: Vec<_> = bench.proxy.writes().iter().map(|write| write.status).collect();
    assert_eq!(answers, [Some(409), Some(409), Some(201)]);
}

#[tokio::test]
async fn a_lost_reply_is_a_write_that_was_done() {
    let bench = Bench::new("proxy-cut").await;
    bench.proxy.inject(Fault::CutReply(1));
    bench.maps.create(&PostParams::default(), &map("cut")).await.unwrap_err();
    assert_eq!(bench.names().await, ["cut"]);
    match bench.maps.create(&PostParams::default(), &map("cut")).await {
        Err(kube::Error::Api(status)) => assert!(status.is_already_exists(), "{status:?}"),
        other => panic!("the object is there, but got {other:?}"),
    }
}

#[tokio::test]
async fn a_watcher_lags_while_it_is_held_and_catches_up() {
    let bench = Bench::new("proxy-hold").await;
    let config = watcher::Config::default().fields("metadata.name!=kube-root-ca.crt");
    let stream = watcher(bench.maps.clone(), config);
    let mut events = std::pin::pin!(stream.try_filter_map(async |event| {
        Ok(match event {
            watcher::Event::Apply(map) | watcher::Event::InitApply(map) => Some(map.name_any()),
            watcher::Event::InitDone => Some("synced".to_owned()),
            _ => None,
        })
    }));
    let mut next = async || timeout(SOON, events.next()).await.unwrap().unwrap();
    assert_eq!(next().await.unwrap(), "synced");
    bench.create("a").await;
    assert_eq!(next().await.unwrap(), "a");

    bench.proxy.inject(Fault::HoldWatch { resource: "configmaps".to_owned(), lists_as_of: None });
    for name in ["b", "c", "d"] {
        bench.create(name).await;
    }
    assert!(timeout(Duration::from_millis(300), next()).await.is_err());
    bench.proxy.release("configmaps");
    for name in ["b", "c", "d"] {
        assert_eq!(next().await.unwrap(), name);
    }

    bench.proxy.inject(Fault::DropWatchEvent { resource: "configmaps".to_owned(), n: 1 });
    bench.create("lost").await;
    bench.create("seen").await;
    assert_eq!(next().await.unwrap(), "seen");

    // A closed watch goes on where it was; a version that is too old makes the watcher list again.
    bench.proxy.inject(Fault::Gone { resource: "configmaps".to_owned() });
    bench.proxy.inject(Fault::CloseWatch { resource: "configmaps".to_owned() });
    assert!(next().await.is_err());
    let mut again = Vec::new();
    while again.last().is_none_or(|name| name != "synced") {
        again.push(next().await.unwrap());
    }
    assert_eq!(again, ["a", "b", "c", "d", "lost", "seen", "synced"]);
}

#[tokio::test]
async fn lists_can_show_the_past() {
    let bench = Bench::new("proxy-past").await;
    bench.create("gone").await;
    let then = bench.direct.list(&ListParams::default()).await.unwrap().metadata.resource_version;
    bench.direct.delete("gone", &DeleteParams::default()).await.unwrap();
    bench.proxy.inject(Fault::HoldWatch { resource: "configmaps".to_owned(), lists_as_of: then });
    let has_gone = async || {
        let list = bench.maps.list(&ListParams::default()).await.unwrap();
        list.iter().any(|map| map.name_any() == "gone")
    };
    assert!(has_gone().await);
    bench.proxy.release("configmaps");
    assert!(!has_gone().await);
}

#[tokio::test]
async fn the_server_sees_whom_the_client_acts_for() {
    let bench = Bench::new("proxy-jane").await;
    let token = SHARED.get().unwrap().admin_token();
    let path = bench.dir.path().join("jane");
    bench.proxy.kubeconfig_as(token, "jane", &["dev"], &path).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client(&path).await, "proxy-jane");
    let error = maps.list(&ListParams::default()).await.unwrap_err().to_string();
    assert!(error.contains("jane"), "{error}");
}

#[tokio::test]
async fn the_record_and_the_audit_log_agree() {
    let bench = Bench::new("proxy-audit").await;
    let cluster = SHARED.get().unwrap();
    let path = bench.dir.path().join("counter");
    bench.proxy.kubeconfig_as(cluster.admin_token(), "counter", &["system:masters"], &path).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client(&path).await, "proxy-audit");
    // A delete says in its body that it is a dry run; the audit log, which holds no bodies, cannot show it.
    bench.create("kept").await;
    maps.delete("kept", &DeleteParams { dry_run: true, ..DeleteParams::default() }).await.unwrap();
    let mark = cluster.audit().mark().unwrap();
    for number in 0..10 {
        let name = format!("m{number}");
        maps.create(&PostParams::default(), &map(&name)).await.unwrap();
        maps.create(&PostParams { dry_run: true, ..PostParams::default() }, &map("dry")).await.unwrap();
        maps.delete(&name, &DeleteParams::default()).await.unwrap();
    }
    assert!(bench.proxy.wait_idle(Duration::from_millis(50), SOON).await);
    let asked: Vec<_> = bench.proxy.writes().iter().map(|write| (write.path.clone(), write.status)).collect();
    assert_eq!(asked.len(), 20);
    let audited: Vec<_> = cluster
        .audit()
        .since(mark)
        .unwrap()
        .into_iter()
        .filter(|call| call.user == "counter" && call.is_write())
        .map(|call| (call.uri.trim_end_matches('?').to_owned(), Some(call.code)))
        .collect();
    assert_eq!(asked, audited);
}
