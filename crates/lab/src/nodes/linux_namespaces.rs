//! The Linux namespaces of a cluster with nodes (mounts, processes, network), its cgroups, and the network links within them. Knows nothing of
//! Kubernetes.
//!
//! The first process of each set of namespaces is a shell that waits for ever and reaps orphans. The kernel ends all
//! processes of a process namespace with the first one, and drops mounts, links and network namespaces with their last user. That
//! is why nothing here needs a name in the machine's own tables, and why nothing of it can be forgotten.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Pid;

use super::host::{network_of, run};
use super::plan::{CORE, CORE_ADDRESS, NodePlan, POD_RANGE, Plan, SERVICE_RANGE, WIDE_AREA_RANGE};
use crate::leftovers;
use crate::supervisor::{MACHINE_PROC, Place, Program, Supervisor, quote};

/// A link to the core's network namespace, in the cluster's directory.
pub(crate) const CORE_NETWORK: &str = "core.net";
/// The bridge between the nodes, in the core.
pub(crate) const BRIDGE: &str = "nodes";
/// Where a node has its own files instead of the machine's.
pub(crate) const OWN_PLACES: [&str; 3] = ["/run", "/var/lib", "/var/log"];
const PATIENCE: Duration = Duration::from_secs(20);

/// What kubelet wants of the whole machine's kernel. It gets files that say so, and the kernel's own settings stay as they are.
const PRETENDED: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Makes the core's namespaces and waits until they are there.
pub(crate) fn make_core(supervisor: &Supervisor, dir: &Path, plan: &Plan) -> Result<()> {
    std::fs::write(dir.join("sweep.sh"), leftovers::script(dir))?;
    make_cgroups(dir, plan)?;
    let script = dir.join("core.init.sh");
    std::fs::write(&script, core_script(dir, plan))?;
    supervisor.run(&first_process(CORE, &script, Place::Machine))?;
    wait_for(supervisor, CORE)?;
    Ok(())
}

/// Makes the namespaces of a node, with its link to the core. Its processes can be started then.
pub(crate) fn make_node(
    supervisor: &Supervisor,
    dir: &Path,
    plan: &Plan,
    node_plan: &NodePlan,
) -> Result<()> {
    for below in ["var-lib", "var-log", "cni"] {
        std::fs::create_dir_all(dir.join(&node_plan.name).join(below))?;
    }
    let script = dir.join(format!("{}.init.sh", node_plan.name));
    std::fs::write(&script, node_script(dir, node_plan))?;
    // The sign that it is up must be a new one.
    let _ = std::fs::remove_file(dir.join(format!("{}.pid", node_plan.name)));
    supervisor.run(&first_process(&node_plan.name, &script, Place::Inside(CORE.into())))?;
    let node = wait_for(supervisor, &node_plan.name)?;
    let core = supervisor.pid(CORE).context("the core of the cluster is gone")?;
    link(core, node, plan, node_plan)
}

/// `unshare` ends its child when it ends, and ends when the supervisor does.
fn first_process(name: &str, script: &Path, place: Place) -> Program {
    let words = ["--mount", "--pid", "--net", "--fork", "--kill-child=KILL", "bash"];
    let mut args: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    args.push(script.display().to_string());
    Program { name: format!("{name}-namespaces"), path: "unshare".into(), args, place }
}

fn wait_for(supervisor: &Supervisor, name: &str) -> Result<Pid> {
    let started = Instant::now();
    loop {
        if let Some(pid) = supervisor.pid(name) {
            return Ok(pid);
        }
        let maker = format!("{name}-namespaces");
        if supervisor.has_ended(&maker) || started.elapsed() > PATIENCE {
            bail!(
                "cannot make the namespaces of {name}:\n{}\n{}",
                supervisor.last_lines(&maker),
                supervisor.last_lines("supervisor")
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Connects a node to the bridge and sets its routes to the others. What it sends to the wide area is dropped by the core, until there is one.
fn link(core: Pid, node: Pid, plan: &Plan, node_plan: &NodePlan) -> Result<()> {
    let mut outside = String::new();
    let _ = writeln!(
        outside,
        "link add {} type veth peer name eth0 netns {}\nlink set {0} master {BRIDGE} up",
        node_plan.name,
        node.as_raw_nonzero()
    );
    ip_batch(core, &outside)?;
    let mut inside = format!(
        "link set eth0 up\naddress add {}/24 dev eth0\nroute add {SERVICE_RANGE} via {CORE_ADDRESS}\n\
         route add {WIDE_AREA_RANGE} via {CORE_ADDRESS}\n",
        node_plan.address
    );
    for other in plan.node_plans.iter().filter(|other| other.name != node_plan.name) {
        let _ = writeln!(inside, "route add {} via {}", other.pods, other.address);
    }
    ip_batch(node, &inside)
}

/// Runs `ip` commands in the network namespace of a process. Process ids in them are the machine's.
pub(crate) fn ip_batch(within: Pid, commands: &str) -> Result<()> {
    use std::io::{Seek as _, Write as _};
    // It has no name, so nothing of it can be left.
    let mut file = tempfile::tempfile()?;
    file.write_all(commands.as_bytes())?;
    file.rewind()?;
    let mut net = std::ffi::OsString::from("--net=");
    net.push(network_of(within));
    run(Command::new("nsenter").arg(net).args(["--", "ip", "-batch", "-"]).stdin(file))
        .with_context(|| format!("in a network of the lab:\n{commands}"))?;
    Ok(())
}

/// What both kinds of first process begin with.
fn beginning(dir: &Path) -> String {
    format!(
        r#"set -e
cd {dir}
read -r pid rest < {MACHINE_PROC}/self/stat
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
for setting in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > "$setting"; done
if [ -d /proc/sys/net/ipv6/conf ]; then echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6; fi
ip link set lo up
"#,
        dir = quote(&dir.to_string_lossy())
    )
}

/// Waits for ever. A pipe that it can write to itself never ends, and bash reaps orphans meanwhile.
const END: &str = "mkfifo \"$name.wait\"\necho \"$pid\" > \"$name.pid.new\"\nmv \"$name.pid.new\" \"$name.pid\"\nread -r rest <> \"$name.wait\"\n";

fn core_script(dir: &Path, plan: &Plan) -> String {
    let mut script = format!(
        "# The first process of the namespaces of the control plane.\nname={CORE}\ncd {dir}\nmkdir -p {MACHINE_PROC}\nmount --bind /proc {MACHINE_PROC}\n{}",
        beginning(dir),
        dir = quote(&dir.to_string_lossy())
    );
    // Nothing is forwarded here until a test connects two clusters on purpose.
    script += "echo 0 > /proc/sys/net/ipv4/ip_forward\n";
    let _ = write!(
        script,
        "ip link add {BRIDGE} type bridge\nip address add {CORE_ADDRESS}/24 dev {BRIDGE}\nip link set {BRIDGE} up\n"
    );
    for node_plan in &plan.node_plans {
        let _ = writeln!(script, "ip route add {} via {}", node_plan.pods, node_plan.address);
    }
    let _ = writeln!(script, "ln -sfn \"/proc/$pid/ns/net\" {CORE_NETWORK}");
    // The control plane reaches services through rules, but has to find a way for them first.
    let _ = writeln!(script, "ip route add {SERVICE_RANGE} via {}", plan.node_plans[0].address);
    script + END
}

fn node_script(dir: &Path, node_plan: &NodePlan) -> String {
    let name = &node_plan.name;
    let mut script = format!("# The first process of the node {name}.\nname={name}\n{}", beginning(dir));
    // A node forwards between its pods and its one link; there is no other.
    script += "echo 1 > /proc/sys/net/ipv4/ip_forward\n";
    // What is written to these places by the node and by pods that mount them is the node's own.
    let _ = writeln!(script, "mount --bind {name}/var-lib /var/lib\nmount --bind {name}/var-log /var/log");
    for (setting, value) in PRETENDED {
        let file = format!("{name}/{}", setting.replace('/', "-"));
        let _ = writeln!(
            script,
            "if [ -f /proc/sys/{setting} ]; then echo {value} > {file}; mount --bind {file} /proc/sys/{setting}; fi"
        );
    }
    // Mounts that a pod makes for others (storage drivers do) must reach them.
    script += "mount --make-rshared /\n";
    let _ = writeln!(script, "# Pods: {}, of {POD_RANGE}.\nrm -f \"$name.wait\"", node_plan.pods);
    script + END
}

/// The cgroups below which kubelets put their pods: one for each node, in each hierarchy.
fn make_cgroups(dir: &Path, plan: &Plan) -> Result<()> {
    for hierarchy in leftovers::hierarchies() {
        let top = hierarchy.join(leftovers::cgroup_name(dir));
        let nodes = plan.node_plans.iter().map(|node_plan| top.join(&node_plan.name));
        for group in std::iter::once(top.clone()).chain(nodes) {
            std::fs::create_dir_all(&group)
                .with_context(|| format!("cannot make the cgroup {}", group.display()))?;
            // A new cgroup has no processors and no memory until they are set.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let above = group.parent().unwrap_or(&hierarchy).join(file);
                if let Ok(value) = std::fs::read_to_string(above) {
                    std::fs::write(group.join(file), value)
                        .with_context(|| format!("cannot set up the cgroup {}", group.display()))?;
                }
            }
        }
    }
    Ok(())
}
