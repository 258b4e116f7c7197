//! What there is of a cluster outside of its directory: processes, mounts, loop devices, cgroups, links, namespaces. Asserts nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::nodes::isolation::programs;

/// Every process of a cluster: its programs, what shares a process namespace with them, and what those started.
pub(crate) fn everything(dir: &Path) -> Vec<(String, i32)> {
    let machine = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let space = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let mut found = programs(dir);
    let spaces: BTreeSet<PathBuf> =
        found.iter().filter_map(|(_, pid)| space(*pid)).filter(|of| *of != machine).collect();
    let mut others = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse::<i32>().ok());
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let name = format!("({})", line.split(' ').next().unwrap_or_default());
        let ours = line.contains(&format!("{}/", dir.display()))
            || space(pid).is_some_and(|of| spaces.contains(&of));
        if ours && !found.iter().any(|(_, known)| *known == pid) {
            found.push((name.clone(), pid));
        }
        others.push((name, pid, parent));
    }
    let mut next = 0;
    while let Some((_, parent)) = found.get(next).cloned() {
        next += 1;
        for (name, pid, of) in &others {
            if *of == Some(parent) && !found.iter().any(|(_, known)| known == pid) {
                found.push((name.clone(), *pid));
            }
        }
    }
    found
}

/// What a cluster consists of at some moment, to look for it afterwards.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) processes: Vec<(String, i32)>,
    /// `net:[...]` and the like, without the machine's own.
    pub(crate) namespaces: BTreeSet<PathBuf>,
    /// When this was so, in ticks since the machine started.
    pub(crate) ticks: u64,
}

impl Known {
    pub(crate) fn of(dir: &Path) -> Self {
        let processes = if dir.exists() { everything(dir) } else { Vec::new() };
        let own: BTreeSet<PathBuf> = namespaces("self").collect();
        let all = processes.iter().flat_map(|(_, pid)| namespaces(&pid.to_string()));
        let namespaces = all.filter(|namespace| !own.contains(namespace)).collect();
        Self { processes, namespaces, ticks: ticks() }
    }

    pub(crate) fn pid(&self, name: &str) -> i32 {
        self.processes.iter().find(|(known, _)| known == name).unwrap().1
    }
}

/// Those of a process that nodes and pods have of their own.
fn namespaces(pid: &str) -> impl Iterator<Item = PathBuf> + use<> {
    let links = ["net", "pid", "mnt"].map(|kind| format!("/proc/{pid}/ns/{kind}"));
    links.into_iter().filter_map(|link| std::fs::read_link(link).ok())
}

/// How long the machine runs, as /proc/PID/stat counts it.
pub(crate) fn ticks() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap();
    text.split(' ').next().unwrap().replace('.', "").parse().unwrap()
}

/// When a process was started.
fn started_at(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

/// What there is of a directory outside of it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Traces {
    pub(crate) processes: Vec<String>,
    pub(crate) mounts: Vec<String>,
    pub(crate) loops: Vec<String>,
    pub(crate) cgroups: Vec<PathBuf>,
    pub(crate) links: Vec<String>,
    pub(crate) namespaces: Vec<String>,
}

impl Traces {
    pub(crate) fn of(dir: &Path, known: &Known) -> Self {
        let inside = format!("{}/", dir.display());
        let lives =
            |pid: i32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
        let living = known.processes.iter().filter(|(_, pid)| lives(*pid));
        let mut processes: Vec<String> = living.map(|(name, pid)| format!("{name} {pid}")).collect();
        let (mut mounts, mut occupied) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            if line.contains(&inside)
                && !line.contains("aquifer-lab-hold")
                && !known.processes.iter().any(|(_, at)| *at == pid)
            {
                processes.push(line.clone());
            }
            // The number of a namespace that is gone is given to the next one, maybe of another test; those in there are younger.
            // One that has ended has no command line.
            if !line.is_empty() && started_at(pid).is_some_and(|started| started <= known.ticks) {
                let ours = namespaces(&pid.to_string()).filter(|of| known.namespaces.contains(of));
                occupied.extend(ours.map(|namespace| format!("{} of {pid} {line}", namespace.display())));
            }
            // In whatever mount namespace there still is.
            let table = std::fs::read_to_string(entry.path().join("mountinfo")).unwrap_or_default();
            mounts.extend(
                table.lines().filter(|line| line.contains(&inside)).map(|line| format!("{pid}: {line}")),
            );
        }
        Self {
            processes,
            mounts,
            loops: loops(dir),
            cgroups: cgroups(dir),
            links: links(),
            namespaces: occupied,
        }
    }

    pub(crate) fn is_empty_but_for(&self, before: &Self) -> bool {
        self.processes.is_empty()
            && self.mounts.is_empty()
            && self.loops.is_empty()
            && self.cgroups.is_empty()
            && self.links == before.links
            && self.namespaces.is_empty()
    }
}

/// The loop devices over files in the directory.
pub(crate) fn loops(dir: &Path) -> Vec<String> {
    let inside = format!("{}/", dir.display());
    let of_ours = |entry: std::fs::DirEntry| {
        let file = std::fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        file.starts_with(&inside).then(|| entry.file_name().to_string_lossy().into_owned())
    };
    std::fs::read_dir("/sys/block").unwrap().flatten().filter_map(of_ours).collect()
}

/// The links of the machine itself.
fn links() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir("/sys/class/net")
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Where the cluster's kubelets put their pods, as the configuration of one of them names it.
fn cgroups(dir: &Path) -> Vec<PathBuf> {
    let name = name_of_cgroups(dir);
    let hierarchies = std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten();
    hierarchies.map(|entry| entry.path().join(&name)).filter(|path| path.is_dir()).collect()
}

fn name_of_cgroups(dir: &Path) -> String {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(dir.as_os_str().as_encoded_bytes());
    digest[..6].iter().fold("aquifer-lab-".to_owned(), |name, byte| format!("{name}{byte:02x}"))
}
