//! What nodes need from the machine: root, Debian's programs, cgroups of version 1. Installs nothing.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};

use crate::leftovers;

/// A program of the machine that nodes are made with.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    /// Its name on the PATH, or its full path.
    pub program: &'static str,
    /// The Debian package that has it.
    pub package: &'static str,
    /// What the lab does with it.
    pub why: &'static str,
}

/// Where Debian keeps the plugins that connect pods to the network.
pub(crate) const CNI_PLUGINS: &str = "/usr/lib/cni";

/// All that a cluster with nodes needs, beside what one without needs.
pub const TOOLS: [Tool; 9] = [
    Tool { program: "containerd", package: "containerd", why: "runs the pods of the lab's nodes" },
    Tool { program: "runc", package: "runc", why: "starts their containers" },
    Tool {
        program: "/usr/lib/cni/bridge",
        package: "containernetworking-plugins",
        why: "connects pods to their node",
    },
    Tool { program: "ip", package: "iproute2", why: "makes the lab's own networks" },
    Tool { program: "nft", package: "nftables", why: "balances services over pods" },
    Tool { program: "conntrack", package: "conntrack", why: "forgets connections to pods that are gone" },
    Tool { program: "buildah", package: "buildah", why: "builds the lab's images" },
    Tool { program: "nsenter", package: "util-linux", why: "starts programs in a node's namespaces" },
    Tool { program: "bash", package: "bash", why: "is the first process of each node" },
];

/// Fails, and says what to do, when this machine cannot have nodes.
pub(crate) fn check() -> Result<()> {
    check_for("a cluster with nodes", &TOOLS)?;
    ensure!(
        rustix::process::geteuid().is_root(),
        "a cluster with nodes makes namespaces, mounts and cgroups, which only root may: run this as root, or leave the nodes out"
    );
    ensure!(
        leftovers::hierarchies().iter().any(|path| path.ends_with("memory")),
        "nodes need cgroups of version 1 below /sys/fs/cgroup, one directory for each controller, as this lab's kubelets are set up for them"
    );
    Ok(())
}

/// Fails, and says what to install, when one of the tools that something needs is missing.
pub(crate) fn check_for(what: &str, tools: &[Tool]) -> Result<()> {
    let missing: Vec<&Tool> = tools.iter().filter(|tool| find(tool.program).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = missing.iter().map(|tool| format!("{} ({})", tool.program, tool.why)).collect();
    let packages: Vec<&str> = missing.iter().map(|tool| tool.package).collect();
    bail!(
        "{what} needs {}: as root, run `apt-get install -y --no-install-recommends {}`",
        names.join(", "),
        packages.join(" ")
    );
}

/// The PATH, and the places of system programs that a PATH may lack.
pub(crate) fn search_path() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from);
    // Only a directory with a colon in its name could be refused, and that came from a PATH.
    std::env::join_paths(std::env::split_paths(&path).chain(system)).unwrap_or(path)
}

/// The first executable of that name there.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    // A full path stays what it is when it is joined.
    std::env::split_paths(&search_path()).map(|dir| dir.join(program)).find(|path| path.is_file())
}

/// Runs a program to its end and gives what it printed, or an error with what it complained about.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let Output { status, stdout, stderr } = command
        .env("PATH", search_path())
        .output()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !status.success() {
        let words: Vec<_> = command.get_args().map(|arg| arg.to_string_lossy()).collect();
        bail!(
            "`{} {}` failed: {}",
            command.get_program().display(),
            words.join(" "),
            String::from_utf8_lossy(&stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// The network namespace of a process.
pub(crate) fn network_of(pid: rustix::process::Pid) -> PathBuf {
    Path::new("/proc").join(pid.as_raw_nonzero().to_string()).join("ns/net")
}
