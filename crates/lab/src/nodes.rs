//! Real nodes: kubelet, containerd and kube-proxy, with real pods. Needs root; brings no storage.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use aquifer_lab::Lab;
//!
//! let cluster = Lab::cluster("play").nodes(3).zones(["a", "b", "c"]).start().await?;
//! cluster.node(2)?.freeze().await?;
//! # Ok(()) }
//! ```
//!
//! # Where everything is
//!
//! ```text
//!  the machine          core (mount, process, network namespaces)       node n1 (the same three, within the core's)
//!  127.0.0.1:PORT  ~~~  127.0.0.1:PORT  kube-apiserver, etcd, ...
//!          relay        bridge `nodes` 10.90.0.1 ---- veth -----------  eth0 10.90.0.11, bridge `pods` 10.244.1.1
//! ```
//!
//! - **No wire leads out.** There is no link between the machine's network and the lab's. The one way in is the *relay*: a process
//!   that accepts on the machine's loopback and connects within the core, because its listening socket was made in the one
//!   namespace and the rest of it runs in the other. A pod that sends to any other address finds no route.
//! - **All clusters have the same addresses**, and do not notice: namespaces are their own worlds. [`crate::Lab::wide_area`]
//!   connects two of them, on purpose and visibly.
//! - **The kernel cleans up.** A node's namespaces are nested in the core's, and all processes of a process namespace end with its
//!   first one. Mounts, links and network namespaces have no other users, so they vanish too. The pid files of all programs name
//!   the processes as the machine knows them. Cgroups and loop devices are removed by the supervisor, or else by the next start.
//! - **A node has its own `/run`, `/var/lib` and `/var/log`**, so programs and pods use the usual paths, and two
//!   nodes never meet in one. What kubelet asks of the whole machine's kernel it finds already done: it sees files that say so.

mod dns;
mod exec;
pub mod host;
mod images;
mod linux_namespaces;
mod machine;
mod node;
pub(crate) mod plan;
mod wide_area;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

pub use node::Node;
pub use wide_area::{Exposed, LineState, WideArea};

use crate::programs::Programs;
use crate::recipe::{self, Image};
use crate::supervisor::{Program, Supervisor};
use plan::{NodePlan, Plan};

const READY_WITHIN: Duration = Duration::from_mins(2);

/// Builds what nodes are made of beside Kubernetes, unless it is cached. A start does it too; here the wait can be explained. Blocks.
pub fn prepare() -> Result<()> {
    NodeParts::find().map(drop)
}

/// What nodes are made of beside Kubernetes; built once.
#[derive(Debug, Clone)]
pub(crate) struct NodeParts {
    tools: PathBuf,
    pause: Image,
    dns: Image,
    probe: Image,
}

impl NodeParts {
    /// Checks the machine; then finds the programs and images or builds them. Blocks.
    pub(crate) fn find() -> Result<Self> {
        host::check()?;
        Ok(Self {
            tools: recipe::program("tools")?,
            pause: recipe::image("pause")?,
            dns: recipe::image("coredns")?,
            probe: recipe::image("tools")?,
        })
    }
}

/// The nodes of a running cluster.
#[derive(Debug, Clone)]
pub(crate) struct Nodes {
    dir: PathBuf,
    pub(crate) plan: Plan,
    parts: NodeParts,
    /// For each node: containerd, kubelet, kube-proxy.
    programs: Vec<[Program; 3]>,
    /// A kube-proxy for the control plane, which calls webhooks by the address of their service. Absent, like the programs, in a
    /// process that does not own the cluster.
    core_proxy: Option<Program>,
}

impl Nodes {
    /// Writes the files of all nodes into the cluster's directory.
    pub(crate) fn prepare(
        dir: &Path,
        node_plans: Vec<NodePlan>,
        parts: NodeParts,
        programs: &Programs,
    ) -> Result<Self> {
        for needed in [crate::programs::SCHEDULER, crate::programs::KUBELET, crate::programs::KUBE_PROXY] {
            if !programs.has(needed) {
                bail!(
                    "{} has no {needed}, which a cluster with nodes needs: unset KUBEBUILDER_ASSETS to build it",
                    programs.dir().display()
                );
            }
        }
        for path in [dir, programs.dir(), &parts.tools] {
            if let Some(hidden) = linux_namespaces::OWN_PLACES.iter().find(|place| path.starts_with(place)) {
                bail!(
                    "{} is below {hidden}, of which each node has its own: move the checkout or the cache (XDG_CACHE_HOME)",
                    path.display()
                );
            }
        }
        let plan = Plan { node_plans, tools: parts.tools.clone() };
        let prepared: Result<Vec<_>> = plan
            .node_plans
            .iter()
            .map(|node_plan| machine::prepare(dir, node_plan, programs, &parts.pause.name))
            .collect();
        let any = &plan.node_plans[0].name;
        let core_proxy = machine::proxy(dir, plan::CORE, any, plan::CORE_PROXY_KUBECONFIG, programs)?;
        Ok(Self { dir: dir.to_path_buf(), plan, parts, programs: prepared?, core_proxy: Some(core_proxy) })
    }

    /// The nodes of a cluster that another process owns: pods and images can be worked with, programs cannot be started.
    pub(crate) fn of_another_process(dir: &Path, node_plans: Vec<NodePlan>, parts: NodeParts) -> Self {
        let plan = Plan { node_plans, tools: parts.tools.clone() };
        Self { dir: dir.to_path_buf(), plan, parts, programs: Vec::new(), core_proxy: None }
    }

    /// The programs of one node: containerd, kubelet, kube-proxy.
    pub(crate) fn programs_of(&self, n: usize) -> Result<&[Program; 3]> {
        self.programs.get(n).context("cannot start programs of a node: another process owns the cluster")
    }

    fn core_proxy(&self) -> Result<&Program> {
        self.core_proxy.as_ref().context("cannot start a kube-proxy: another process owns the cluster")
    }

    /// Makes the namespaces of the control plane, which its programs are started in. Blocks.
    pub(crate) fn make_core(&self, supervisor: &Supervisor) -> Result<()> {
        linux_namespaces::make_core(supervisor, &self.dir, &self.plan)
    }

    /// Makes all nodes' namespaces, starts their containerd and gives them the images. Blocks for a few seconds.
    pub(crate) fn boot_nodes(&self, supervisor: &Supervisor) -> Result<()> {
        for (node_plan, programs) in self.plan.node_plans.iter().zip(&self.programs) {
            linux_namespaces::make_node(supervisor, &self.dir, &self.plan, node_plan)?;
            supervisor.run(&programs[0])?;
        }
        let images = [&self.parts.pause, &self.parts.dns, &self.parts.probe];
        for image in images {
            self.import(supervisor, &image.archive)?;
        }
        Ok(())
    }

    /// Starts one node again after it was ended.
    pub(crate) fn boot_node(&self, supervisor: &Supervisor, n: usize) -> Result<()> {
        let (node_plan, programs) = (&self.plan.node_plans[n], self.programs_of(n)?);
        linux_namespaces::make_node(supervisor, &self.dir, &self.plan, node_plan)?;
        for program in programs {
            supervisor.run(program)?;
            if program.name == node_plan.program(machine::CONTAINERD) {
                images::wait_for_containerd(supervisor, node_plan)?;
            }
        }
        Ok(())
    }

    /// Makes the node objects and starts kubelets and proxies.
    pub(crate) async fn join(&self, client: &kube::Client, supervisor: &Supervisor) -> Result<()> {
        let nodes: Api<NodeObject> = Api::all(client.clone());
        for node_plan in &self.plan.node_plans {
            register(&nodes, node_plan).await?;
        }
        for programs in &self.programs {
            supervisor.run(&programs[1])?;
            supervisor.run(&programs[2])?;
        }
        supervisor.run(self.core_proxy()?)
    }

    /// A kube-proxy waits half a minute for its own node, and ends with it. The core is no node, so its proxy bears the name of one that is
    /// there, and of another when that one is deleted.
    pub(crate) fn restart_core_proxy(&self, supervisor: &Supervisor, node: Option<&str>) -> Result<()> {
        supervisor.kill(&self.core_proxy()?.name)?;
        let Some(node) = node else { return Ok(()) };
        let mut program = self.core_proxy()?.clone();
        let name = program.args.iter_mut().find(|arg| arg.starts_with("--hostname-override="));
        if let Some(name) = name {
            *name = format!("--hostname-override={node}");
        }
        supervisor.run(&program)
    }

    /// Waits until every node is Ready, and fails as soon as one of its programs has ended.
    pub(crate) async fn wait_until_ready(
        &self,
        client: &kube::Client,
        supervisor: &Supervisor,
    ) -> Result<()> {
        let nodes: Api<NodeObject> = Api::all(client.clone());
        let started = Instant::now();
        loop {
            let list = nodes.list(&ListParams::default()).await?;
            let ready: Vec<&str> = list.iter().filter(|node| is_ready(node)).filter_map(name).collect();
            if ready.len() == self.plan.node_plans.len() {
                return Ok(());
            }
            for program in self.programs.iter().flatten() {
                if supervisor.has_ended(&program.name) {
                    bail!(
                        "{} ended. Its last words:\n{}",
                        program.name,
                        supervisor.last_lines(&program.name)
                    );
                }
            }
            if started.elapsed() > READY_WITHIN {
                let seen: Vec<String> = list.iter().map(conditions).collect();
                bail!("not all nodes are Ready after {READY_WITHIN:?}, only {ready:?}:\n{}", seen.join("\n"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The image with a server, a client and a name lookup for pods of tests.
    pub(crate) fn probe_image(&self) -> &str {
        &self.parts.probe.name
    }

    /// Gives an image to all nodes, at the same time. Blocks.
    pub(crate) fn import(&self, supervisor: &Supervisor, archive: &Path) -> Result<()> {
        images::import(supervisor, &self.plan.node_plans, archive)
    }
}

/// How many nodes run in a cluster's directory.
pub(crate) fn running_in(dir: &Path) -> usize {
    let Ok(dir) = dir.canonicalize() else { return 0 };
    plan::all_names()
        .filter(|name| crate::processes::recorded(&dir.join(format!("{name}.pid"))).is_some())
        .count()
}

/// Made before its kubelet starts, so that its pod range and zone are known from the beginning.
async fn register(nodes: &Api<NodeObject>, node_plan: &NodePlan) -> Result<()> {
    let mut labels = json!({
        "kubernetes.io/hostname": node_plan.name,
        "kubernetes.io/os": "linux",
        "node-role.kubernetes.io/worker": "",
    });
    if let Some(zone) = &node_plan.zone {
        labels["topology.kubernetes.io/zone"] = json!(zone);
        labels["topology.kubernetes.io/region"] = json!("lab");
    }
    let object = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node_plan.name, "labels": labels},
        "spec": {"podCIDR": node_plan.pods, "podCIDRs": [node_plan.pods]},
    });
    let params = PatchParams::apply("aquifer-lab").force();
    nodes.patch(&node_plan.name, &params, &Patch::Apply(&object)).await.context("cannot make a Node")?;
    // kube-proxy asks for the address when it starts, maybe before kubelet has written it.
    let status = json!({"status": {"addresses": [
        {"type": "InternalIP", "address": node_plan.address}, {"type": "Hostname", "address": node_plan.name},
    ]}});
    nodes.patch_status(&node_plan.name, &PatchParams::default(), &Patch::Merge(&status)).await?;
    Ok(())
}

fn name(node: &NodeObject) -> Option<&str> {
    node.metadata.name.as_deref()
}

/// Whether the node says that it is Ready.
pub(crate) fn is_ready(node: &NodeObject) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn conditions(node: &NodeObject) -> String {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let said: Vec<String> = conditions
        .map(|condition| {
            let message = condition.message.as_deref().unwrap_or_default();
            format!("{}={} {message}", condition.type_, condition.status)
        })
        .collect();
    format!("{}: {}", name(node).unwrap_or_default(), said.join("; "))
}

/// Starts everything of a cluster with nodes, and prints how long each step took.
pub(crate) async fn launch(
    nodes: &Arc<Nodes>,
    control_plane: &crate::control_plane::ControlPlane,
    supervisor: &Arc<Supervisor>,
    cluster: &str,
) -> Result<()> {
    let began = Instant::now();
    let report =
        |what: &str| eprintln!("cluster {cluster}: {what} after {:.1} s", began.elapsed().as_secs_f64());
    let (core_nodes, core_supervisor) = (nodes.clone(), supervisor.clone());
    crate::cluster::blocking(move || core_nodes.make_core(&core_supervisor)).await?;
    for program in &control_plane.programs {
        supervisor.run(program)?;
    }
    let names: Vec<&str> = control_plane.programs.iter().map(|program| program.name.as_str()).collect();
    let booted = {
        let (nodes, supervisor) = (nodes.clone(), supervisor.clone());
        async move {
            crate::cluster::blocking(move || nodes.boot_nodes(&supervisor)).await?;
            report("nodes booted, images imported");
            Ok::<(), anyhow::Error>(())
        }
    };
    let ready = async {
        control_plane.wait_until_ready(supervisor, &names).await?;
        report("control plane ready");
        Ok::<(), anyhow::Error>(())
    };
    // Both to their end: what still ran in this directory would disturb the next try. A taken port is an error of the first.
    let (ready, booted) = tokio::join!(ready, booted);
    ready?;
    booted?;
    let client = control_plane.server.client(&control_plane.admin)?;
    nodes.join(&client, supervisor).await?;
    dns::install(&client, &nodes.parts.dns.name).await?;
    nodes.wait_until_ready(&client, supervisor).await?;
    report(&format!("{} nodes Ready", nodes.plan.node_plans.len()));
    dns::wait_until_ready(&client).await?;
    report("DNS ready");
    Ok(())
}
