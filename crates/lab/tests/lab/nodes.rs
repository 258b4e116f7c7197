//! Clusters with nodes: pods, services and names work, faults are what they say, and no packet can leave.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use aquifer_lab::{Cluster, Lab, Programs, eventually};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

#[path = "nodes/datagrams.rs"]
mod datagrams;
#[path = "nodes/isolation.rs"]
mod isolation;
#[path = "nodes/leftovers.rs"]
mod leftovers;
#[path = "nodes/links.rs"]
mod links;
#[path = "nodes/wide_area.rs"]
mod wide_area;

/// One for the tests that break nothing, and how long its start took.
static SHARED: OnceCell<(Cluster, Duration)> = OnceCell::const_new();

async fn shared() -> &'static Cluster {
    &shared_and_its_start().await.0
}

async fn shared_and_its_start() -> &'static (Cluster, Duration) {
    SHARED
        .get_or_init(|| async {
            // What is built once is no part of a start.
            let prepare = || Programs::find().and_then(|_| aquifer_lab::nodes::prepare());
            tokio::task::spawn_blocking(prepare).await.unwrap().unwrap();
            let began = Instant::now();
            let cluster = Lab::test_cluster().nodes(3).zones(["a", "b"]).start().await.unwrap();
            (cluster, began.elapsed())
        })
        .await
}

/// A server on some nodes with a service in front, in the namespace `default`. Gives its pods, with name and address.
async fn serve(cluster: &Cluster, name: &str, replicas: usize) -> Vec<(String, String)> {
    let labels = json!({"app": name});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                "terminationGracePeriodSeconds": 0,
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": labels}}],
                "containers": [{"name": "serve", "image": cluster.probe_image().unwrap(), "args": ["serve", ":8080"],
                    "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1}}],
            }}},
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]},
    });
    let client = cluster.client().unwrap();
    for object in [deployment, service] {
        aquifer_lab::install::apply(&client, object).await.unwrap();
    }
    let pods: Api<Pod> = Api::namespaced(client, "default");
    eventually(Duration::from_mins(1), &format!("{replicas} pods of {name} are ready"), || async {
        let list = pods.list(&ListParams::default().labels(&format!("app={name}"))).await?;
        let ready: Vec<_> = list.iter().filter(|pod| is_ready(pod)).collect();
        ensure!(ready.len() == replicas, "{}", serde_json::to_string(&list.items)?);
        let address = |pod: &Pod| pod.status.as_ref()?.pod_ip.clone();
        Ok(Some(ready.iter().map(|pod| (pod.name_any(), address(pod).unwrap_or_default())).collect()))
    })
    .await
    .unwrap()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Asks a URL from within a pod.
async fn get(cluster: &Cluster, pod: &str, url: &str) -> Result<String> {
    Ok(cluster.exec("default", pod, &["/tools", "get", url]).await?.trim().to_owned())
}

/// The same, when it may take a moment until rules are in place.
async fn eventually_get(cluster: &Cluster, pod: &str, url: &str) -> String {
    let what = format!("{url} answers {pod}");
    eventually(Duration::from_secs(20), &what, || async { Ok(Some(get(cluster, pod, url).await?)) })
        .await
        .unwrap()
}

#[tokio::test]
async fn pods_reach_each_other_services_and_names_on_all_nodes() {
    let cluster = shared().await;
    let began = Instant::now();
    let pods = serve(cluster, "web", 3).await;
    println!("3 pods ready after {:.1} s", began.elapsed().as_secs_f64());
    for (from, _) in &pods {
        for (to, address) in &pods {
            assert_eq!(&get(cluster, from, &format!("http://{address}:8080")).await.unwrap(), to);
        }
        let answer = eventually_get(cluster, from, "http://web.default.svc.cluster.local").await;
        assert!(pods.iter().any(|(name, _)| *name == answer), "{answer}");
        let api = cluster.exec("default", from, &["/tools", "lookup", "kubernetes.default"]).await.unwrap();
        assert_eq!(api.trim(), "10.96.0.1");
    }
    // The control plane reaches pods, and services by their address, as it does to call webhooks.
    let proxied = "/api/v1/namespaces/default/services/web:80/proxy/";
    let answer = cluster.kubectl_output(&["get", "--raw", proxied]).await.unwrap();
    assert!(answer.starts_with("web-"), "{answer}");
    let service =
        cluster.kubectl_output(&["get", "service", "web", "-ojsonpath={.spec.clusterIP}"]).await.unwrap();
    let output = std::process::Command::new("nsenter")
        .arg(format!("--net={}", cluster.dir().join("core.net").display()))
        .arg(aquifer_lab::recipe::program("tools").unwrap())
        .args(["get", &format!("http://{service}")])
        .output()
        .unwrap();
    assert!(output.stdout.starts_with(b"web-"), "{output:?}");
}

#[tokio::test]
async fn exec_logs_and_port_forward_work_from_the_machine() {
    let cluster = shared().await;
    let pods = serve(cluster, "talk", 1).await;
    let pod = &pods[0].0;
    get(cluster, pod, "http://127.0.0.1:8080/hello").await.unwrap();
    let log = cluster.kubectl_output(&["logs", pod]).await.unwrap();
    assert!(log.contains("asked for /hello"), "{log}");

    let mut forward: tokio::process::Command = cluster.kubectl().into();
    let mut child = forward
        .args(["port-forward", &format!("pod/{pod}"), ":8080"])
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines =
        tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(child.stdout.take().unwrap()));
    let line =
        tokio::time::timeout(Duration::from_secs(20), lines.next_line()).await.unwrap().unwrap().unwrap();
    let port: u16 =
        line.split(['>', ' ']).find_map(|word| word.strip_prefix("127.0.0.1:")).unwrap().parse().unwrap();
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut answer).await.unwrap();
    assert!(answer.trim_end().ends_with(pod.as_str()), "{answer}");
}

#[tokio::test]
async fn nodes_have_their_zone_and_address() {
    let cluster = shared().await;
    let nodes: Api<Node> = Api::all(cluster.client().unwrap());
    let zones: Vec<String> = nodes
        .list(&ListParams::default())
        .await
        .unwrap()
        .iter()
        .map(|node| format!("{}={}", node.name_any(), node.labels()["topology.kubernetes.io/zone"]))
        .collect();
    assert_eq!(zones, ["n1=a", "n2=b", "n3=a"]);
    assert_eq!(cluster.node_count(), 3);
    let seen = nodes.get("n2").await.unwrap().status.unwrap();
    assert_eq!(cluster.node(2).unwrap().address(), "10.90.0.12");
    assert!(seen.addresses.iter().flatten().any(|is| is.address == "10.90.0.12"), "{seen:?}");
}

#[tokio::test]
async fn a_pod_can_run_an_image_that_was_imported_on_every_node() {
    let cluster = shared().await;
    let dir = tempfile::tempdir().unwrap();
    let (containerfile, archive) = (dir.path().join("Containerfile"), dir.path().join("image.tar"));
    std::fs::write(&containerfile, "FROM scratch\nCOPY tools /imported\n").unwrap();
    let name = "localhost/aquifer-lab/imported:1";
    let tools = aquifer_lab::recipe::program("tools").unwrap();
    aquifer_lab::recipe::archive_of(&containerfile, &tools, &[], name, &archive).unwrap();
    let has = |n: usize| {
        let socket = "/run/containerd/containerd.sock";
        let mut command = cluster.node(n).unwrap().command("ctr").unwrap();
        let output = command.args(["--address", socket, "--namespace", "k8s.io", "images", "list", "-q"]);
        let output = output.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().lines().any(|line| line == name)
    };
    assert_eq!([1, 2, 3].map(has), [false; 3]);
    cluster.import_image(&archive).await.unwrap();
    assert_eq!([1, 2, 3].map(has), [true; 3]);

    let pods: Api<Pod> = Api::namespaced(cluster.client().unwrap(), "default");
    let pod = json!({
        "metadata": {"name": "imported"},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{
            "name": "wait", "image": name, "imagePullPolicy": "Never", "command": ["/imported", "wait"]}]},
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    eventually(Duration::from_mins(1), "the pod of the imported image runs", || async {
        let pod = pods.get("imported").await?;
        ensure!(is_ready(&pod), "{:?}", pod.status);
        Ok(Some(()))
    })
    .await
    .unwrap();
}

/// What the lab promises about time and memory, printed. The limits leave room for a machine that is busy with other tests.
#[tokio::test]
async fn three_nodes_take_little_time_and_memory() {
    let (cluster, start) = shared_and_its_start().await;
    println!("3 nodes with DNS after {:.1} s", start.as_secs_f64());
    assert!(*start < 4 * Duration::from_secs(30), "{start:?}");
    let (mut total, mut own) = (0, 0);
    for (name, pid) in isolation::programs(cluster.dir()) {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |key: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        let rss = field("VmRSS:");
        total += rss;
        own += field("RssAnon:");
        if rss > 20 * 1024 {
            println!("{name:<28} {:>5} MiB, of which {:>4} its own", rss / 1024, field("RssAnon:") / 1024);
        }
    }
    // Most of the rest is the one program that nearly all of them are, once in memory and counted in each.
    println!("all programs: {} MiB, of which {} MiB their own", total / 1024, own / 1024);
    // A control plane and three kubelets cannot have less: such a sum would be of something else.
    assert!((200 * 1024..2 * 1024 * 1024).contains(&own), "{own} KiB");
}

#[tokio::test]
async fn faults_of_nodes_are_seen_by_the_cluster_and_can_be_repaired() {
    let cluster = Lab::test_cluster().nodes(3).start().await.unwrap();
    let [one, two, three] = [1, 2, 3].map(|n| cluster.node(n).unwrap());
    let pods = serve(&cluster, "web", 3).await;

    one.stop_kubelet().await.unwrap();
    two.freeze().await.unwrap();
    three.cut_link().await.unwrap();
    let began = Instant::now();
    for node in [&one, &two, &three] {
        node.wait_until_ready(false, Duration::from_mins(1)).await.unwrap();
        println!("{} is not Ready after {:.1} s", node.name(), began.elapsed().as_secs_f64());
    }
    one.start_kubelet().await.unwrap();
    two.thaw().await.unwrap();
    three.restore_link().await.unwrap();
    for node in [&one, &two, &three] {
        node.wait_until_ready(true, Duration::from_mins(1)).await.unwrap();
    }
    println!("all Ready again after {:.1} s", began.elapsed().as_secs_f64());
    // The faults hurt no pod.
    for (pod, _) in &pods {
        assert_eq!(&eventually_get(&cluster, pod, "http://127.0.0.1:8080").await, pod);
    }

    two.power_off().await.unwrap();
    assert_eq!(two.pid_of("containerd"), None);
    two.power_on().await.unwrap();
    two.wait_until_ready(true, Duration::from_mins(1)).await.unwrap();
    two.drain().await.unwrap();
    assert_eq!(pods_on(&cluster, "n2").await.unwrap(), Vec::<String>::new());
    // Its pod has no other place to go: the pods are to be on different nodes.
    two.uncordon().await.unwrap();
    eventually(Duration::from_mins(1), "a pod comes to n2 again", || async {
        Ok((!pods_on(&cluster, "n2").await?.is_empty()).then_some(()))
    })
    .await
    .unwrap();

    one.delete().await.unwrap();
    let nodes: Api<Node> = Api::all(cluster.client().unwrap());
    let names: Vec<String> =
        nodes.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["n2", "n3"]);
    assert_eq!(one.pid_of("kubelet"), None);
    cluster.stop().await.unwrap();
}

async fn pods_on(cluster: &Cluster, node: &str) -> Result<Vec<String>> {
    let selector = format!("--field-selector=spec.nodeName={node}");
    let text = cluster.kubectl_output(&["get", "pods", "-A", &selector, "-ojson"]).await?;
    let list: Value = serde_json::from_str(&text)?;
    let items = list["items"].as_array().context("no items")?;
    Ok(items.iter().map(|pod| pod["metadata"]["name"].to_string()).collect())
}

#[tokio::test]
async fn five_nodes_are_ready_and_their_pods_reach_each_other() {
    let cluster = Lab::test_cluster().nodes(5).start().await.unwrap();
    let nodes: Api<Node> = Api::all(cluster.client().unwrap());
    let names: Vec<String> =
        nodes.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["n1", "n2", "n3", "n4", "n5"]);
    for n in 1..=5 {
        cluster.node(n).unwrap().wait_until_ready(true, Duration::from_secs(20)).await.unwrap();
    }
    // One pod on each.
    let pods = serve(&cluster, "web", 5).await;
    for (to, address) in &pods {
        assert_eq!(&get(&cluster, &pods[0].0, &format!("http://{address}:8080")).await.unwrap(), to);
    }
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_number_of_nodes_that_cannot_be_is_refused_at_once() {
    for count in [0, 6] {
        let error = Lab::test_cluster().nodes(count).start().await.unwrap_err().to_string();
        assert!(error.contains("1 to 5 nodes"), "{error}");
    }
    let bare = Lab::test_cluster().start().await.unwrap();
    let error = bare.node(1).unwrap_err().to_string();
    assert!(error.contains("without nodes"), "{error}");
}
