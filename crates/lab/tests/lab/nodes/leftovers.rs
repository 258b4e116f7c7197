//! Nothing of a cluster with nodes is left when its owner ends, however that happens: no process, mount, network, loop device, cgroup.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use aquifer_lab::Lab;
use rustix::process::{Pid, Signal, kill_process};

use super::isolation::programs;

/// Every process of a cluster: its programs, what shares a process namespace with them, and what those started.
pub(super) fn everything(dir: &Path) -> Vec<(String, i32)> {
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

/// What there is of a directory outside of it.
#[derive(Debug, Default, PartialEq)]
struct Traces {
    processes: Vec<String>,
    mounts: Vec<String>,
    loops: Vec<String>,
    cgroups: Vec<PathBuf>,
    links: Vec<String>,
    namespaces: Vec<String>,
}

impl Traces {
    fn of(dir: &Path, known: &[(String, i32)]) -> Self {
        let inside = format!("{}/", dir.display());
        let lives =
            |pid: i32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
        let mut processes: Vec<String> =
            known.iter().filter(|(_, pid)| lives(*pid)).map(|(name, pid)| format!("{name} {pid}")).collect();
        let mut mounts = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            if line.contains(&inside)
                && !line.contains("aquifer-lab-hold")
                && !known.iter().any(|(_, at)| *at == pid)
            {
                processes.push(line);
            }
            // In whatever mount namespace there still is.
            let table = std::fs::read_to_string(entry.path().join("mountinfo")).unwrap_or_default();
            mounts.extend(
                table.lines().filter(|line| line.contains(&inside)).map(|line| format!("{pid}: {line}")),
            );
        }
        let loops = std::fs::read_dir("/sys/block").unwrap().flatten().filter_map(|entry| {
            let file = std::fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
            file.starts_with(&inside).then(|| entry.file_name().to_string_lossy().into_owned())
        });
        let names = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
        Self {
            processes,
            mounts,
            loops: loops.collect(),
            cgroups: cgroups(dir),
            links: links(),
            namespaces: names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect(),
        }
    }

    fn is_empty_but_for(&self, before: &Self) -> bool {
        self.processes.is_empty()
            && self.mounts.is_empty()
            && self.loops.is_empty()
            && self.cgroups.is_empty()
            && self.links == before.links
            && self.namespaces == before.namespaces
    }
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

/// Where the cluster's kubelets put their pods, as one of them was told.
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

struct Owner {
    child: Child,
    dir: PathBuf,
}

impl Owner {
    fn spawn(name: &str, floors: &[&str]) -> Self {
        let name = format!("{name}-{}", std::process::id());
        std::fs::create_dir_all(Lab::root()).unwrap();
        let dir = Lab::root().canonicalize().unwrap().join(&name);
        let child = Command::new(env!("CARGO_BIN_EXE_aquifer-lab-hold"))
            .arg(&name)
            .args(floors)
            .env_remove("AQUIFER_LAB_KEEP")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child, dir }
    }

    fn start(name: &str) -> Self {
        let mut owner = Self::spawn(name, &["--nodes", "1"]);
        let mut line = String::new();
        BufReader::new(owner.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(owner.dir.is_dir(), "the cluster did not start: {line:?}");
        owner
    }

    /// A loop device on a file in the directory, and one that holds it, as the storage floor has them.
    fn add_loop_devices(&self) {
        let file = self.dir.join("disk");
        std::fs::File::create(&file).unwrap().set_len(1 << 20).unwrap();
        let mut of = file.display().to_string();
        for _ in 0..2 {
            let output = Command::new("/usr/sbin/losetup").args(["--find", "--show", &of]).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap().trim().clone_into(&mut of);
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_until_gone(why: &str, dir: &Path, known: &[(String, i32)], before: &Traces) {
    let began = Instant::now();
    loop {
        let traces = Traces::of(dir, known);
        if traces.is_empty_but_for(before) {
            println!("{why}: nothing is left after {:.1} s", began.elapsed().as_secs_f64());
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{why}, but there is: {traces:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn when_the_owner_is_killed_its_nodes_leave_nothing() {
    let before = Traces::of(Path::new("/nowhere"), &[]);
    let mut owner = Owner::start("killed-nodes");
    owner.add_loop_devices();
    let known = everything(&owner.dir);
    let shims = known.iter().filter(|(name, _)| name.contains("shim")).count();
    assert!(shims > 0 && known.len() > 15, "{known:?}");
    let traces = Traces::of(&owner.dir, &known);
    assert!(
        !traces.mounts.is_empty() && !traces.loops.is_empty() && !traces.cgroups.is_empty(),
        "{traces:#?}"
    );
    assert_eq!(traces.links, before.links, "the lab has a link in the machine's own network");

    // A node that hangs must not hold anything up.
    let space = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let node = known.iter().find(|(name, _)| name == "n1").unwrap().1;
    for (_, pid) in known.iter().filter(|(_, pid)| space(*pid) == space(node)) {
        kill_process(Pid::from_raw(*pid).unwrap(), Signal::STOP).unwrap();
    }

    owner.kill();
    wait_until_gone("owner killed", &owner.dir, &known, &before);
    assert!(owner.dir.exists());
    Lab::sweep().unwrap();
    assert!(!owner.dir.exists());
}

#[test]
fn when_the_owner_lets_go_its_nodes_leave_nothing() {
    let before = Traces::of(Path::new("/nowhere"), &[]);
    let mut owner = Owner::start("let-go-nodes");
    let known = everything(&owner.dir);
    drop(owner.child.stdin.take());
    assert!(owner.child.wait().unwrap().success());
    assert!(
        Traces::of(&owner.dir, &known).is_empty_but_for(&before),
        "{:#?}",
        Traces::of(&owner.dir, &known)
    );
    assert!(!owner.dir.exists());
}

#[test]
fn what_a_crash_of_owner_and_keeper_leaves_is_swept_by_the_next_start() {
    let before = Traces::of(Path::new("/nowhere"), &[]);
    let mut owner = Owner::start("crashed-nodes");
    owner.add_loop_devices();
    let known = everything(&owner.dir);
    let keeper = known.iter().find(|(name, _)| name == "keeper").unwrap().1;
    // Stopped, it cannot tidy up; only the kernel's own signals are left.
    kill_process(Pid::from_raw(keeper).unwrap(), Signal::STOP).unwrap();
    owner.kill();
    kill_process(Pid::from_raw(keeper).unwrap(), Signal::KILL).unwrap();

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let next = runtime.block_on(Lab::test_cluster().nodes(1).start()).unwrap();
    assert!(!owner.dir.exists(), "{} was not swept", owner.dir.display());
    wait_until_gone("owner and keeper killed", &owner.dir, &known, &before);
    drop(next);
}

/// Kills starts of clusters at these moments (milliseconds), and starts another one after them.
fn kill_starts(name: &str, floors: &[&str], moments: &[u64]) {
    let before = Traces::of(Path::new("/nowhere"), &[]);
    for (n, moment) in moments.iter().enumerate() {
        let mut owner = Owner::spawn(&format!("{name}-{n}"), floors);
        // The moment is the point of this test; there is nothing to wait for.
        std::thread::sleep(Duration::from_millis(*moment));
        let known = if owner.dir.exists() { everything(&owner.dir) } else { Vec::new() };
        let loops = Traces::of(&owner.dir, &[]).loops.len();
        owner.kill();
        let moment = Duration::from_millis(*moment);
        let what =
            format!("killed after {moment:?}, with {} processes and {loops} loop devices", known.len());
        wait_until_gone(&what, &owner.dir, &known, &before);
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let next = runtime.block_on(Lab::test_cluster().nodes(1).start()).unwrap();
    let swept = std::fs::read_dir(Lab::root()).unwrap().flatten().all(|entry| {
        let entry = entry.file_name().to_string_lossy().into_owned();
        !entry.ends_with(&format!("-{}", std::process::id())) || !entry.starts_with(name)
    });
    assert!(swept, "directories of killed starts are left in {}", Lab::root().display());
    drop(next);
}

#[test]
fn a_start_that_is_killed_at_any_moment_leaves_nothing_for_the_next() {
    let full = std::env::var_os("AQUIFER_FULL").is_some();
    let moments: Vec<u64> =
        if full { (0..10).map(|n| 100 + n * 1100).collect() } else { vec![300, 2000, 7000] };
    println!("{} moments; the full run has 10", moments.len());
    kill_starts("moment", &["--nodes", "1"], &moments);
}

/// Up to the moment when Ceph is healthy, on an idle machine.
#[test]
fn a_start_with_rook_that_is_killed_at_any_moment_leaves_nothing_for_the_next() {
    let seconds: &[u64] = match std::env::var_os("AQUIFER_FULL") {
        Some(_) => &[1, 6, 12, 20, 30, 45, 60, 80, 100, 130],
        None => &[20],
    };
    let moments: Vec<u64> = seconds.iter().map(|second| second * 1000).collect();
    println!("{} moments; the full run has 10", moments.len());
    kill_starts("rook-moment", &["--rook"], &moments);
}
