//! What a cluster gives: access under RBAC, the audit log, a controller manager that works, programs that stop and start.

use std::time::{Duration, Instant};

use anyhow::ensure;
use aquifer_lab::{Cluster, Lab, eventually};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::sync::OnceCell;

/// One for all tests of this file, which is itself a promise: it outlives the runtime of the test that started it.
static SHARED: OnceCell<Cluster> = OnceCell::const_new();

async fn shared() -> &'static Cluster {
    SHARED.get_or_init(|| async { Lab::test_cluster().start().await.unwrap() }).await
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"a": "1"}})).unwrap()
}

#[tokio::test]
async fn a_cluster_enforces_rbac() {
    let cluster = shared().await;
    let admin: Api<ConfigMap> = Api::namespaced(cluster.client().unwrap(), "default");
    admin.list(&ListParams::default()).await.unwrap();

    let nobody: Api<ConfigMap> = Api::namespaced(cluster.client_as("jane", &[]).unwrap(), "default");
    match nobody.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) => {
            assert!(status.is_forbidden(), "{status:?}");
            assert!(status.message.contains("jane"), "{status:?}");
        }
        other => panic!("jane has no rights, but got {other:?}"),
    }

    let master: Api<ConfigMap> =
        Api::namespaced(cluster.client_as("jane", &["system:masters"]).unwrap(), "default");
    master.list(&ListParams::default()).await.unwrap();
}

#[tokio::test]
async fn kubectl_works_with_every_kubeconfig() {
    let cluster = shared().await;
    let can = |kubeconfig: std::path::PathBuf| {
        let output = cluster
            .kubectl()
            .env("KUBECONFIG", kubeconfig)
            .args(["auth", "whoami", "-ojson"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let review: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        review["status"]["userInfo"]["username"].as_str().unwrap().to_owned()
    };
    assert_eq!(can(cluster.kubeconfig()), "admin");
    assert_eq!(can(cluster.kubeconfig_as("jane", &["dev"]).unwrap()), "jane");
    let (_, path) = cluster.service_account("default", "robot").await.unwrap();
    assert_eq!(can(path), "system:serviceaccount:default:robot");
}

#[tokio::test]
async fn a_service_account_gets_a_token_that_works_and_can_ask_twice() {
    let cluster = shared().await;
    cluster.service_account("default", "worker").await.unwrap();
    let (token, _) = cluster.service_account("default", "worker").await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client_with_token(&token).unwrap(), "default");
    let error = maps.list(&ListParams::default()).await.unwrap_err().to_string();
    assert!(error.contains("system:serviceaccount:default:worker"), "{error}");
}

#[tokio::test]
async fn the_audit_log_counts_each_write_with_its_user_as_soon_as_the_reply_is_there() {
    let cluster = shared().await;
    let maps: Api<ConfigMap> =
        Api::namespaced(cluster.client_as("writer", &["system:masters"]).unwrap(), "default");
    let mark = cluster.audit().mark().unwrap();
    for n in 1..=20 {
        maps.create(&PostParams::default(), &config_map(&format!("audited-{n}"))).await.unwrap();
        let calls = cluster.audit().since(mark).unwrap();
        let writes: Vec<_> = calls.iter().filter(|call| call.user == "writer" && call.is_write()).collect();
        assert_eq!(writes.len(), n, "{writes:#?}");
    }
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    maps.create(&dry, &config_map("never")).await.unwrap();
    maps.get("audited-1").await.unwrap();
    maps.create(&PostParams::default(), &config_map("audited-1")).await.unwrap_err();
    maps.delete("audited-1", &DeleteParams::default()).await.unwrap();

    let calls: Vec<_> =
        cluster.audit().since(mark).unwrap().into_iter().filter(|call| call.user == "writer").collect();
    let verbs = |verb: &str| calls.iter().filter(|call| call.verb == verb).count();
    assert_eq!((verbs("create"), verbs("get"), verbs("delete")), (22, 1, 1), "{calls:#?}");
    assert_eq!(calls.iter().filter(|call| call.is_write()).count(), 22, "all but the dry run and the read");
    assert_eq!(calls.iter().filter(|call| call.is_write() && call.succeeded()).count(), 21);
    let first = &calls[0];
    assert_eq!((first.resource.as_str(), first.namespace.as_str()), ("configmaps", "default"));
    assert_eq!((first.name.as_str(), first.group.as_str(), first.code), ("audited-1", "", 201));
}

#[tokio::test]
async fn a_pre_bound_pair_of_volume_and_claim_becomes_bound() {
    let cluster = shared().await;
    let client = cluster.client().unwrap();
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client, "default");
    let volume = serde_json::from_value(json!({
        "metadata": {"name": "pair"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": "",
            "claimRef": {"namespace": "default", "name": "pair"},
            "csi": {"driver": "example.com", "volumeHandle": "one"},
        },
    }))
    .unwrap();
    let claim = serde_json::from_value(json!({
        "metadata": {"name": "pair"},
        "spec": {
            "volumeName": "pair", "accessModes": ["ReadWriteMany"], "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }))
    .unwrap();
    volumes.create(&PostParams::default(), &volume).await.unwrap();
    claims.create(&PostParams::default(), &claim).await.unwrap();
    eventually(Duration::from_secs(20), "volume and claim are Bound", || async {
        let claim = claims.get("pair").await?.status.and_then(|status| status.phase);
        let volume = volumes.get("pair").await?.status.and_then(|status| status.phase);
        ensure!(
            claim.as_deref() == Some("Bound") && volume.as_deref() == Some("Bound"),
            "claim {claim:?}, volume {volume:?}"
        );
        Ok(Some(()))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_test_can_share_a_cluster_that_another_runtime_started() {
    // Each runs in a runtime of its own that ends before the next begins.
    let other = |name: &'static str| {
        std::thread::spawn(move || {
            tokio::runtime::Runtime::new().unwrap().block_on(async {
                let maps: Api<ConfigMap> = Api::namespaced(shared().await.client().unwrap(), "default");
                maps.create(&PostParams::default(), &config_map(name)).await.unwrap();
            });
        })
    };
    tokio::task::spawn_blocking(move || {
        other("first-runtime").join().unwrap();
        other("second-runtime").join().unwrap();
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn two_clusters_run_at_once_and_do_not_know_each_other() {
    let began = Instant::now();
    let (one, two) = tokio::try_join!(Lab::test_cluster().start(), Lab::test_cluster().start()).unwrap();
    println!("two clusters ready after {:.1} s", began.elapsed().as_secs_f64());
    assert_ne!(one.url(), two.url());
    let namespaces: Api<Namespace> = Api::all(one.client().unwrap());
    let namespace = serde_json::from_value(json!({"metadata": {"name": "only-in-one"}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let in_two: Api<Namespace> = Api::all(two.client().unwrap());
    let names: Vec<String> =
        in_two.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect();
    assert!(!names.contains(&"only-in-one".to_owned()), "{names:?}");
    // A token of one is worth nothing in the other.
    let stranger: Api<Namespace> = Api::all(two.client_with_token(one.admin_token()).unwrap());
    assert!(stranger.list(&ListParams::default()).await.is_err());

    let dir = one.dir().to_path_buf();
    one.stop().await.unwrap();
    assert!(!dir.exists(), "{} is still there", dir.display());
    in_two.list(&ListParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_name_can_be_used_by_one_at_a_time() {
    let name = format!("twice-{}", std::process::id());
    let cluster = Lab::cluster(&name).start().await.unwrap();
    assert_eq!(Lab::owner(&name), Some(std::process::id()));
    let error = format!("{:#}", Lab::cluster(&name).start().await.unwrap_err());
    assert!(error.contains("is running already"), "{error}");
    cluster.stop().await.unwrap();
    assert_eq!(Lab::owner(&name), None);
}

#[tokio::test]
async fn a_warm_start_is_timed_and_programs_stop_and_start_again_in_place() {
    let began = Instant::now();
    let cluster = Lab::test_cluster().start().await.unwrap();
    println!("warm start: {:.1} s", began.elapsed().as_secs_f64());
    let client = cluster.client().unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    maps.create(&PostParams::default(), &config_map("kept")).await.unwrap();

    for name in ["kube-apiserver", "kube-controller-manager", "etcd"] {
        let pid = cluster.pid_of(name).unwrap();
        cluster.stop_program(name).await.unwrap();
        assert_eq!(cluster.pid_of(name), None);
        if name == "kube-apiserver" {
            let began = Instant::now();
            maps.get("kept").await.unwrap_err();
            assert!(began.elapsed() < Duration::from_secs(10), "the client must give up soon");
        }
        cluster.start_program(name).await.unwrap();
        assert_ne!(cluster.pid_of(name), Some(pid));
        maps.get("kept").await.unwrap();
    }

    // Another program has the port for a while: it starts when the port is free again.
    cluster.stop_program("kube-apiserver").await.unwrap();
    let address = cluster.url().trim_start_matches("https://").to_owned();
    let squatter = std::net::TcpListener::bind(address).unwrap();
    let (started, ()) = tokio::join!(cluster.start_program("kube-apiserver"), async {
        let log = cluster.dir().join("kube-apiserver.log");
        eventually(Duration::from_secs(20), "the API server meets the taken port", || async {
            Ok(std::fs::read_to_string(&log)?.contains("address already in use").then_some(()))
        })
        .await
        .unwrap();
        drop(squatter);
    });
    started.unwrap();
    maps.get("kept").await.unwrap();

    let error = cluster.stop_program("kubelet").await.unwrap_err().to_string();
    assert!(error.contains("kube-apiserver"), "{error}");
}
