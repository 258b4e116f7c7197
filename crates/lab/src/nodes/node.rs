//! A node of a running cluster, and the faults that a test can ask of it. Repairs nothing by itself.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use rustix::process::{Pid, Signal, kill_process};

use super::Nodes;
use super::linux_namespaces::ip_batch;
use super::plan::{CORE, NodePlan};
use crate::cluster::{Cluster, blocking};
use crate::eventually;
use crate::processes;
use crate::programs::KUBELET;
use crate::supervisor::Supervisor;

const PATIENCE: Duration = Duration::from_secs(20);

/// One node.
#[derive(Debug)]
pub struct Node<'a> {
    cluster: &'a Cluster,
    nodes: Arc<Nodes>,
    index: usize,
}

impl Cluster {
    /// The node with this number; the first is 1 and is named `n1`.
    pub fn node(&self, number: usize) -> Result<Node<'_>> {
        let nodes = self.nodes()?.clone();
        let have = nodes.plan.node_plans.len();
        if number == 0 || number > have {
            bail!("cluster {} has the nodes 1 to {have}, but no {number}", self.name());
        }
        Ok(Node { cluster: self, nodes, index: number - 1 })
    }

    /// How many nodes it was started with.
    pub fn node_count(&self) -> usize {
        self.nodes().map_or(0, |nodes| nodes.plan.node_plans.len())
    }
}

impl Node<'_> {
    /// Its name in Kubernetes.
    pub fn name(&self) -> &str {
        &self.node_plan().name
    }

    /// Its address; NodePorts are reached there, from within the cluster's network.
    pub fn address(&self) -> &str {
        &self.node_plan().address
    }

    /// The process of `containerd`, `kubelet` or `kube-proxy`, as the machine knows it, while it lives.
    pub fn pid_of(&self, program: &str) -> Option<u32> {
        let pid = self.supervisor().pid(&self.node_plan().program(program))?;
        u32::try_from(pid.as_raw_nonzero().get()).ok()
    }

    /// The first process of the node, as the machine knows it, while it lives.
    pub(crate) fn pid(&self) -> Option<Pid> {
        self.supervisor().pid(&self.node_plan().name)
    }

    /// A command that runs on the node: in its network, and with its mounts and processes.
    pub fn command(&self, program: &str) -> Result<Command> {
        let mut command = inside(&self.supervisor(), self.node_plan())?;
        command.arg(program);
        Ok(command)
    }

    /// Kills the kubelet. Pods run on, and after a while the cluster takes the node for lost.
    pub async fn stop_kubelet(&self) -> Result<()> {
        let (supervisor, name) = (self.supervisor(), self.node_plan().program(KUBELET));
        blocking(move || supervisor.kill(&name)).await
    }

    /// Starts the kubelet again.
    pub async fn start_kubelet(&self) -> Result<()> {
        let (supervisor, program) = (self.supervisor(), self.nodes.programs_of(self.index)?[1].clone());
        blocking(move || supervisor.run(&program)).await
    }

    /// Stops every process of the node where it is, pods included: it hangs, but its connections stay open.
    pub async fn freeze(&self) -> Result<()> {
        self.signal_all(Signal::STOP).await
    }

    /// Lets a frozen node go on.
    pub async fn thaw(&self) -> Result<()> {
        self.signal_all(Signal::CONT).await
    }

    /// Takes the node's network link down. Everything on it runs on.
    pub async fn cut_link(&self) -> Result<()> {
        self.set_link("down").await
    }

    /// Takes the link up again.
    pub async fn restore_link(&self) -> Result<()> {
        self.set_link("up").await
    }

    /// Evicts its pods, as before maintenance, and lets no new ones come. Waits for it.
    pub async fn drain(&self) -> Result<()> {
        let flags = ["--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=50s"];
        let mut args = vec!["drain", self.name()];
        args.extend(flags);
        self.cluster.kubectl_output(&args).await.map(drop)
    }

    /// Lets pods come again after [`Node::drain`].
    pub async fn uncordon(&self) -> Result<()> {
        self.cluster.kubectl_output(&["uncordon", self.name()]).await.map(drop)
    }

    /// Ends every process of the node at once, as when its power fails. Its disk stays.
    pub async fn power_off(&self) -> Result<()> {
        let (supervisor, node_plan) = (self.supervisor(), self.node_plan().clone());
        blocking(move || power_off(&supervisor, &node_plan)).await
    }

    /// Starts it again after [`Node::power_off`], with what it has on its disk.
    pub async fn power_on(&self) -> Result<()> {
        let (nodes, supervisor, index) = (self.nodes.clone(), self.supervisor(), self.index);
        blocking(move || nodes.boot_node(&supervisor, index)).await
    }

    /// Takes it out of the cluster for good: its object is deleted and its processes end.
    pub async fn delete(&self) -> Result<()> {
        self.power_off().await?;
        let objects: Api<NodeObject> = Api::all(self.cluster.client()?);
        match objects.delete(self.name(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            other => {
                other.with_context(|| format!("cannot delete node {}", self.name()))?;
            }
        }
        let (nodes, supervisor) = (self.nodes.clone(), self.supervisor());
        let left = objects.list(&ListParams::default()).await?.items;
        let left = left.into_iter().find_map(|node| node.metadata.name);
        blocking(move || nodes.restart_core_proxy(&supervisor, left.as_deref())).await
    }

    /// Waits until the cluster says that the node is Ready, or that it is not.
    pub async fn wait_until_ready(&self, ready: bool, deadline: Duration) -> Result<()> {
        let objects: Api<NodeObject> = Api::all(self.cluster.client()?);
        let what = format!("node {} is {}", self.name(), if ready { "Ready" } else { "not Ready" });
        eventually(deadline, &what, || async {
            let node = objects.get(self.name()).await?;
            if super::is_ready(&node) == ready {
                return Ok(Some(()));
            }
            bail!("it says: {}", super::conditions(&node))
        })
        .await
    }

    async fn set_link(&self, state: &'static str) -> Result<()> {
        let (supervisor, name) = (self.supervisor(), self.node_plan().name.clone());
        blocking(move || {
            let core = supervisor.pid(CORE).context("the core of the cluster is gone")?;
            ip_batch(core, &format!("link set {name} {state}\n"))
        })
        .await
    }

    async fn signal_all(&self, signal: Signal) -> Result<()> {
        let (supervisor, node_plan) = (self.supervisor(), self.node_plan().clone());
        blocking(move || signal_all(&supervisor, &node_plan, signal)).await
    }

    fn node_plan(&self) -> &NodePlan {
        &self.nodes.plan.node_plans[self.index]
    }

    fn supervisor(&self) -> Arc<Supervisor> {
        self.cluster.supervisor()
    }
}

/// A command within a node's namespaces.
pub(crate) fn inside(supervisor: &Supervisor, node_plan: &NodePlan) -> Result<Command> {
    let pid =
        supervisor.pid(&node_plan.name).with_context(|| format!("node {} is not running", node_plan.name))?;
    Ok(enter(pid))
}

/// A command within the mount, process and network namespaces of a process.
pub(crate) fn enter(pid: Pid) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--target", &pid.as_raw_nonzero().to_string(), "--mount", "--pid", "--net", "--"]);
    command
}

fn power_off(supervisor: &Supervisor, node_plan: &NodePlan) -> Result<()> {
    let Some(first) = supervisor.pid(&node_plan.name) else { return Ok(()) };
    let members = Members::of(first)?;
    let _ = kill_process(first, Signal::KILL);
    for pid in members.entrances {
        let _ = kill_process(pid, Signal::KILL);
    }
    // The first process is gone only when all of the others are.
    let started = Instant::now();
    while !processes::is_gone(first) {
        if started.elapsed() > PATIENCE {
            bail!("the processes of node {} do not end", node_plan.name);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Signals every process of a node, until a look finds no new one. From outside, so that the one who signals cannot be stopped itself.
fn signal_all(supervisor: &Supervisor, node_plan: &NodePlan, signal: Signal) -> Result<()> {
    let first =
        supervisor.pid(&node_plan.name).with_context(|| format!("node {} is not running", node_plan.name))?;
    let mut done: Vec<Pid> = Vec::new();
    for _ in 0..50 {
        let members = Members::of(first)?;
        // An entrance stops by itself with its child, and when it goes on it makes the child go on.
        let entrances = members.entrances.into_iter().filter(|_| signal == Signal::CONT);
        let new: Vec<Pid> =
            members.inside.into_iter().chain(entrances).filter(|pid| !done.contains(pid)).collect();
        if new.is_empty() {
            return Ok(());
        }
        for pid in new {
            // It may have ended in between.
            let _ = kill_process(pid, signal);
            done.push(pid);
        }
    }
    bail!("node {} starts processes faster than they can be stopped", node_plan.name)
}

/// The processes of a node, as the machine knows them.
struct Members {
    /// Those in its process namespace, and what they started in namespaces of pods.
    inside: Vec<Pid>,
    /// Their parents outside: `nsenter`, through which its programs were started.
    entrances: Vec<Pid>,
}

impl Members {
    fn of(first: Pid) -> Result<Self> {
        let own = std::fs::read_link(format!("/proc/{}/ns/pid", first.as_raw_nonzero()))?;
        let mut inside: Vec<i32> = Vec::new();
        let mut entrances: Vec<i32> = Vec::new();
        let mut parents: Vec<(i32, i32)> = Vec::new();
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
            // The parent is the second field after the name, which is in brackets and may hold brackets itself.
            let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
            parents.extend(parent.map(|parent| (pid, parent)));
            if std::fs::read_link(entry.path().join("ns/pid")).is_ok_and(|of| of == own) {
                inside.push(pid);
                entrances.extend(parent);
            }
        }
        entrances.retain(|pid| !inside.contains(pid) && is_entrance(*pid));
        let mut next = 0;
        while let Some(&parent) = inside.get(next) {
            next += 1;
            let children = parents.iter().filter(|(pid, of)| *of == parent && !inside.contains(pid));
            let children: Vec<i32> = children.map(|(pid, _)| *pid).collect();
            inside.extend(children);
        }
        let pids = |list: Vec<i32>| list.into_iter().filter_map(Pid::from_raw).collect();
        Ok(Self { inside: pids(inside), entrances: pids(entrances) })
    }
}

fn is_entrance(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "nsenter")
}
