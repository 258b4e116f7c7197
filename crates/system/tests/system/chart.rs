//! Aquifer as users install it, on nodes that run its pods: the chart, a leader that is killed, an upgrade, an uninstall; then the
//! same nodes without Helm.

#[path = "chart/view.rs"]
mod view;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use aquifer_lab::{Call, eventually};
use serde_json::{Value, json};
use xtask::operator_image::{self, Profile};
use xtask::queries::{self, Known};

use self::view::{Story, names};
use crate::commands::{CHART, OPERATOR, succeeded};
use aquifer_lab::install::apply;

/// Where the users of this story work.
const USERS: &str = "smoke";
/// What a user may wait when the leader dies.
const TAKEOVER: Duration = Duration::from_secs(20);
/// What Helm makes before an uninstall.
const CHECK: &str = "app.kubernetes.io/component=uninstall-check";
/// Metrics that have no value until something is wrong, or until a family does what efs does not.
const ABSENT_WHEN_WELL: [&str; 5] = [
    "aquifer_controller_panics_total",
    "aquifer_controller_live_passes_total",
    "aquifer_controller_effects_total",
    "aquifer_objects_not_ready",
    "aquifer_watch_failures_total",
];
const PATIENCE: Duration = Duration::from_mins(2);

#[tokio::test]
async fn the_chart_installs_and_upgrades_and_the_standby_takes_over() -> Result<()> {
    let began = Instant::now();
    let built = tokio::task::spawn_blocking(|| operator_image::image(Profile::of_tests())).await??;
    println!("{:>5.1} s  the image is built", began.elapsed().as_secs_f64());
    describes_itself(&built.image.archive, &built.bill)?;
    let cluster = aquifer_lab::rook::shared().await?;
    let mut story = Story::new(cluster, &built.program);
    match story.run(&built.image.archive).await {
        Ok(()) => Ok(()),
        Err(error) => Err(error.context(story.what_the_cluster_says())),
    }
}

/// What a registry and a scanner read of the image: its labels, and what it is made of.
fn describes_itself(archive: &Path, bill: &Path) -> Result<()> {
    let read = |archive: &Path, file: &str| -> Result<Vec<u8>> {
        let done = Command::new("tar").arg("-xOf").arg(archive).arg(file).output()?;
        ensure!(done.status.success(), "tar: {}", String::from_utf8_lossy(&done.stderr));
        Ok(done.stdout)
    };
    let manifest: Value = serde_json::from_slice(&read(archive, "manifest.json")?)?;
    let config = manifest[0]["Config"].as_str().context("an image without a config")?;
    let config: Value = serde_json::from_slice(&read(archive, config)?)?;
    let labels = &config["config"]["Labels"];
    for name in ["title", "description", "version", "licenses", "revision"] {
        let label = labels[format!("org.opencontainers.image.{name}")].as_str().unwrap_or_default();
        ensure!(!label.is_empty(), "no label {name} in {config}");
    }
    ensure!(labels["org.opencontainers.image.licenses"] == "Apache-2.0", "{labels}");
    let layers = manifest[0]["Layers"].as_array().context("an image without layers")?;
    let dir = tempfile::tempdir()?;
    let mut found = None;
    for layer in layers.iter().filter_map(Value::as_str) {
        let copy = dir.path().join("layer.tar");
        std::fs::write(&copy, read(archive, layer)?)?;
        found = found.or(read(&copy, "sbom/aquifer.cdx.json").ok());
    }
    ensure!(
        found.context("no bill of materials in the image")? == std::fs::read(bill)?,
        "not the bill beside it"
    );
    Ok(())
}

impl Story<'_> {
    async fn run(&mut self, image: &Path) -> Result<()> {
        self.cluster.import_image(image).await?;
        self.done("every node has the image");
        self.installed_by_helm().await?;
        let leader = self.leader().await?;
        self.killed(&leader, "its pod deleted with force", "two", |story| {
            story
                .kubectl(&["delete", "pod", "-n", OPERATOR, &leader, "--force", "--grace-period=0"])
                .map(drop)
        })
        .await?;
        self.two_replicas_ready().await?;
        let leader = self.leader().await?;
        let how = "its process killed by SIGKILL";
        self.killed(&leader, how, "three", |story| story.kill_process_of(&leader)).await?;
        self.two_replicas_ready().await?;
        self.upgraded().await?;
        self.uninstalled_by_helm().await?;
        self.installed_without_helm().await
    }

    /// Two replicas in a namespace that takes only pods of the strictest standard, and what one gets from them.
    async fn installed_by_helm(&mut self) -> Result<()> {
        for name in [OPERATOR, USERS] {
            let labels = json!({ "pod-security.kubernetes.io/enforce": "restricted" });
            let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } });
            apply(&self.cluster.client()?, namespace).await?;
        }
        let usual = self.kubectl(&["run", "usual", "-n", OPERATOR, "--image", self.cluster.probe_image()?]);
        let refused = usual.err().context("the namespace takes any pod")?.to_string();
        ensure!(refused.contains("violates PodSecurity"), "{refused}");
        let said = self.helm(&["install", "aquifer", CHART, "--wait", "--timeout", "2m"])?;
        ensure!(said.contains("STATUS: deployed"), "{said}");
        self.done("helm install --wait");
        let pods = self.pods()?;
        ensure!(pods.len() == 2, "{pods:?}");
        for pod in &pods {
            let status = &pod["status"];
            let container = &status["containerStatuses"][0];
            ensure!(container["ready"] == true && container["started"] == true, "{status}");
            ensure!(container["restartCount"] == 0, "a probe failed: {status}");
        }
        let nodes: BTreeSet<_> = pods.iter().map(|pod| pod["spec"]["nodeName"].to_string()).collect();
        // Only a wish of the chart: a scheduler may have better reasons.
        self.done(&format!("both replicas are Ready, on {} nodes, and nothing was restarted", nodes.len()));

        let leader = self.leader().await?;
        self.done(&format!("{leader} leads"));
        self.share("one").await?;
        self.wait_ready("one").await?;
        let claim = self.kubectl(&["get", "pvc", "-n", USERS, "-o", "jsonpath={.items[*].status.phase}"])?;
        ensure!(claim == "Bound", "{claim}");
        self.done("a SharedVolume is Ready, its volume and claim are Bound");

        let budget = "jsonpath={.status.currentHealthy} of {.status.expectedPods}, {.status.disruptionsAllowed} may go";
        eventually(PATIENCE, "the PodDisruptionBudget sees both pods", || async {
            let seen = self.kubectl(&["get", "pdb", "-n", OPERATOR, "aquifer", "-o", budget])?;
            if seen == "2 of 2, 1 may go" { Ok(Some(())) } else { Err(anyhow!("{seen}")) }
        })
        .await?;
        self.metrics().await?;
        self.done("/metrics answers through the Service, one replica of two leads");
        self.resolves_names().await?;
        self.done(
            "another replica, which is told only the API server's name, is Ready: the image resolves names",
        );
        Ok(())
    }

    /// The image is one static program, without the libraries that others resolve names with. A replica that knows the API server by
    /// name alone must find it.
    async fn resolves_names(&self) -> Result<()> {
        let deployment = self.kubectl(&["get", "deployment", "-n", OPERATOR, "aquifer", "-o", "json"])?;
        let deployment: Value = serde_json::from_str(&deployment)?;
        let mut spec = deployment["spec"]["template"]["spec"].clone();
        let env = spec["containers"][0]["env"].as_array_mut().context("a container without variables")?;
        env.push(json!({ "name": "KUBERNETES_SERVICE_HOST", "value": "kubernetes.default.svc" }));
        spec["terminationGracePeriodSeconds"] = json!(0);
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "spec": spec,
            "metadata": { "name": "by-name", "namespace": OPERATOR } });
        apply(&self.cluster.client()?, pod).await?;
        let ready = ["wait", "--for=condition=Ready", "-n", OPERATOR, "pod/by-name", "--timeout=60s"];
        let waited = self.kubectl(&ready).map(drop);
        let said = self.kubectl(&["logs", "-n", OPERATOR, "by-name"]).unwrap_or_default();
        self.kubectl(&["delete", "pod", "-n", OPERATOR, "by-name"])?;
        waited.with_context(|| format!("a replica that knows the API server by name: {said}"))
    }

    /// Asks for /metrics from a pod: by the Service's name, and each replica by its address.
    async fn metrics(&self) -> Result<()> {
        let probe = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "probe", "namespace": USERS },
            "spec": { "securityContext": { "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": { "type": "RuntimeDefault" } },
                "terminationGracePeriodSeconds": 0,
                "containers": [{ "name": "probe", "image": self.cluster.probe_image()?, "args": ["wait"],
                    "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } } }] } });
        apply(&self.cluster.client()?, probe).await?;
        self.kubectl(&["wait", "--for=condition=Ready", "-n", USERS, "pod/probe", "--timeout=60s"])?;
        let get = async |host: &str| {
            let url = format!("http://{host}:8081/metrics");
            self.cluster.exec(USERS, "probe", &["/tools", "get", &url]).await
        };
        let service = format!("aquifer-metrics.{OPERATOR}.svc.cluster.local");
        let text =
            eventually(PATIENCE, "the Service answers", async || get(&service).await.map(Some)).await?;
        ensure!(text.contains("\naquifer_leader{family=\"efs\"} "), "{text}");
        let mut leaders = Vec::new();
        for pod in self.pods()? {
            let address = pod["status"]["podIP"].as_str().context("a pod without an address")?;
            let text = get(address).await?;
            if text.lines().any(|line| line == "aquifer_leader{family=\"efs\"} 1") {
                leaders.push(text);
            }
        }
        ensure!(leaders.len() == 1, "{} replicas say that they lead", leaders.len());
        // What alerts and dashboard ask for is what a leader is asked for.
        let scraped = Known::scraped(&leaders[0]);
        let questions = queries::all(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")))?;
        let lacking: Vec<_> =
            questions.iter().flat_map(|question| scraped.lacks(question, &ABSENT_WHEN_WELL)).collect();
        ensure!(lacking.is_empty(), "{lacking:#?} in {}", leaders[0]);
        self.kubectl(&["delete", "pod", "-n", USERS, "probe"]).map(drop)
    }

    /// Kills the leader, asks for another volume at once, and waits until another process has served it. Mostly that is the replica that
    /// stood by; but a process that is started again at once may see the dead leader's last renewal before the one that stood by, and
    /// then has waited as long.
    async fn killed(
        &mut self,
        leader: &str,
        how: &str,
        volume: &str,
        kill: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        let standby: Vec<String> = names(&self.pods()?).into_iter().filter(|pod| pod != leader).collect();
        self.at_rest().await?;
        let before = self.objects()?;
        let mark = self.cluster.audit().mark()?;
        let lease = self.holder()?;
        let killed = Instant::now();
        kill(self)?;
        self.share(volume).await?;
        let (holder, held) = eventually(PATIENCE, "another replica holds the lease", || async {
            let now = self.holder()?;
            Ok((!now.is_empty() && now != lease).then(|| (now, killed.elapsed())))
        })
        .await?;
        self.wait_ready(volume).await?;
        let served = killed.elapsed();
        let taker = holder.split('_').next().unwrap_or_default().to_owned();
        let role = if standby.contains(&taker) {
            "the standby"
        } else if taker == leader {
            "its successor in the same pod,"
        } else {
            "a new replica"
        };
        println!(
            "         {how}: {role} {taker} holds the lease {:.1} s after it, and has served a new volume after {:.1} s",
            held.as_secs_f64(),
            served.as_secs_f64()
        );
        ensure!(held < TAKEOVER && served < TAKEOVER, "that is not under {TAKEOVER:?}");

        self.at_rest().await?;
        let after = self.objects()?;
        ensure!(before.is_subset(&after), "before {before:#?}, now {after:#?}");
        let new: Vec<&String> = after.difference(&before).collect();
        ensure!(new.len() == 3, "a volume is a SharedVolume, a claim and a volume, not {new:?}");
        let others: Vec<Call> = self.writes_to_volumes(mark)?;
        let others: Vec<&Call> = others.iter().filter(|call| !call.name.contains(volume)).collect();
        ensure!(others.is_empty(), "it wrote to what was finished: {others:?}");
        self.done(&format!("{how}: nothing was made twice, what was there was not written to"));
        Ok(())
    }

    /// The kernel's way: the leader can say no last word, so its lease has to run out.
    fn kill_process_of(&self, pod: &str) -> Result<()> {
        let pods = self.pods()?;
        let pod = pods.iter().find(|one| one["metadata"]["name"] == pod).context("the pod is gone")?;
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned).context("not there yet");
        let (node, id) =
            (text(&pod["spec"]["nodeName"])?, text(&pod["status"]["containerStatuses"][0]["containerID"])?);
        let number = node.trim_start_matches('n').parse().context("a node with another name")?;
        let id = id.strip_prefix("containerd://").context("not containerd's")?;
        let mut ctr = self.cluster.node(number)?.command("ctr")?;
        succeeded(&ctr.args(["--namespace", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", id]).output()?)
            .map(drop)
    }

    /// Another log level: new pods one after the other, and no volume notices.
    async fn upgraded(&mut self) -> Result<()> {
        self.at_rest().await?;
        let (before, old) = (self.versions()?, names(&self.pods()?));
        let mark = self.cluster.audit().mark()?;
        let change = ["--reset-then-reuse-values", "--set", "log.level=debug"];
        self.helm(&[&["upgrade", "aquifer", CHART, "--wait", "--timeout", "2m"][..], &change].concat())?;
        self.done("helm upgrade --wait to another log level");
        self.two_replicas_ready().await?;
        let new = names(&self.pods()?);
        ensure!(new.iter().all(|pod| !old.contains(pod)), "{old:?} are now {new:?}");
        let leader = self.leader().await?;
        self.at_rest().await?;
        let log = self.kubectl(&["logs", "-n", OPERATOR, &leader])?;
        ensure!(log.contains(r#""level":"DEBUG""#), "no word of the new level: {log}");
        self.untouched(&before, mark)?;
        self.done("all pods are new and say more; the volumes were not written to");
        Ok(())
    }

    /// Refused while something needs the operator, which goes on; then without asking.
    async fn uninstalled_by_helm(&mut self) -> Result<()> {
        let before = self.versions()?;
        let pods = names(&self.pods()?);
        let uninstall = ["uninstall", "aquifer", "--wait", "--timeout", "2m"];
        let refused = self.helm(&uninstall).err().context("helm uninstalled what is needed")?.to_string();
        let log = self.kubectl(&["logs", "-n", OPERATOR, "job/aquifer-uninstall-check"])?;
        for said in [&refused, &log] {
            for word in [
                "while these objects need it",
                "SharedVolume smoke/one",
                "SharedVolume smoke/two",
                "Component efs-driver is installed",
                "aquifer efs uninstall",
                "helm uninstall aquifer --namespace aquifer-system --no-hooks",
                "helm rollback aquifer 2 --namespace aquifer-system",
            ] {
                ensure!(said.contains(word), "no `{word}` in {said}");
            }
        }
        self.two_replicas_ready().await?;
        ensure!(names(&self.pods()?) == pods, "the pods were {pods:?}");
        self.share("four").await?;
        self.wait_ready("four").await?;
        let left = "clusterrole,clusterrolebinding,serviceaccount";
        let left = self.kubectl(&["get", left, "-n", OPERATOR, "-l", CHECK, "-o", "name"])?;
        ensure!(left.is_empty(), "its rights are still there: {left}");
        let after = self.versions()?;
        ensure!(before.is_subset(&after), "before {before:#?}, now {after:#?}");
        self.done("helm uninstall refuses, says what is left, and leaves the operator at work");
        // Helm takes the release for one that is being removed; what was said brings it back, without a restart.
        let upgrade = ["upgrade", "aquifer", CHART, "--reset-then-reuse-values"];
        let refused = self.helm(&upgrade).err().context("helm upgrades it: then nobody need be told how")?;
        ensure!(refused.to_string().contains("no deployed releases"), "{refused}");
        self.helm(&["rollback", "aquifer", "2", "--wait", "--timeout", "2m"])?;
        ensure!(names(&self.pods()?) == pods, "the pods were {pods:?}");
        self.helm(&upgrade)?;
        self.done("helm rollback to the same revision makes it upgradable again");

        self.at_rest().await?;
        let (before, mark) = (self.versions()?, self.cluster.audit().mark()?);
        self.helm(&[&uninstall[..], &["--no-hooks"]].concat())?;
        self.no_pods().await?;
        let kinds = self.kubectl(&["get", "crds", "-o", "name"])?;
        for crd in aquifer_families::crds(&aquifer_families::all()) {
            let name = crd.metadata.name.context("a kind without a name")?;
            ensure!(kinds.contains(&name), "{name} is gone");
        }
        self.untouched(&before, mark)?;
        self.done("helm uninstall --no-hooks: the pods are gone, our kinds and the users' objects stay");
        Ok(())
    }

    /// The binary alone: it takes up what is there, and goes only when nothing needs it.
    async fn installed_without_helm(&mut self) -> Result<()> {
        let (before, mark) = (self.versions()?, self.cluster.audit().mark()?);
        let said = self.aquifer(&["install", "--wait", "--timeout", "120"])?;
        ensure!(said.contains("2 of 2 replicas are ready"), "{said}");
        self.done("aquifer install --wait");
        let leader = self.leader().await?;
        self.at_rest().await?;
        self.untouched(&before, mark)?;
        self.done(&format!("{leader} leads and has taken up the volumes without a write"));

        let refused =
            self.aquifer(&["uninstall", "--yes"]).err().context("it uninstalled itself")?.to_string();
        for word in ["while these objects need it", "SharedVolume smoke/one", "SharedVolume smoke/two"] {
            ensure!(refused.contains(word), "no `{word}` in {refused}");
        }
        self.two_replicas_ready().await?;
        self.done("aquifer uninstall refuses, and names the SharedVolumes");
        self.aquifer(&["efs", "uninstall", "--yes", "--timeout", "90"])?;
        let left = self.objects()?;
        ensure!(left.is_empty(), "{left:?}");
        self.done("aquifer efs uninstall: no SharedVolume, claim or volume is left");
        self.aquifer(&["uninstall", "--yes"])?;
        self.no_pods().await?;
        let left = self.kubectl(&["get", "components", "-o", "name"])?;
        ensure!(left.is_empty(), "the next installation would lack {left}");
        self.done("aquifer uninstall: the pods are gone");
        Ok(())
    }
}
