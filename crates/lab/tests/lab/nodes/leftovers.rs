//! Nothing of a cluster with nodes is left when its owner ends, however that happens: no process, mount, network, loop device, cgroup.

#[path = "leftovers/traces.rs"]
mod traces;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use aquifer_lab::Lab;
use rustix::process::{Pid, Signal, kill_process};

pub(super) use traces::everything;
use traces::{Known, Traces, loops, ticks};

/// A first start may have to build the image before.
const DISKS_WITHIN: Duration = Duration::from_mins(20);

struct Owner {
    child: Child,
    dir: PathBuf,
}

impl Owner {
    fn spawn(name: &str, options: &[&str]) -> Self {
        Self::spawn_with(name, options, |_| ())
    }

    fn spawn_with(name: &str, options: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let name = format!("{name}-{}", std::process::id());
        std::fs::create_dir_all(Lab::root()).unwrap();
        let dir = Lab::root().canonicalize().unwrap().join(&name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_aquifer-lab-hold"));
        command.arg(&name).args(options).env_remove("AQUIFER_LAB_KEEP");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        change(&mut command);
        Self { child: command.spawn().unwrap(), dir }
    }

    fn start(name: &str) -> Self {
        let mut owner = Self::spawn(name, &["--nodes", "1"]);
        owner.wait_for_start();
        owner
    }

    fn wait_for_start(&mut self) {
        let mut line = String::new();
        BufReader::new(self.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(self.dir.is_dir(), "the cluster did not start: {line:?}");
    }

    /// A loop device on a file in the directory, and one that holds it, as a cluster with Rook has them.
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

    /// Gives what there was of the cluster when it was killed.
    fn kill(&mut self) -> Known {
        let mut known = Known::of(&self.dir);
        self.child.kill().unwrap();
        known.ticks = ticks();
        self.child.wait().unwrap();
        known
    }

    /// Waits until the start has disks; how long that takes is the machine's business.
    fn wait_for_disks(&mut self) {
        let began = Instant::now();
        while loops(&self.dir).is_empty() {
            assert!(self.child.try_wait().unwrap().is_none(), "the start ended without disks");
            assert!(began.elapsed() < DISKS_WITHIN, "no disks after {DISKS_WITHIN:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_until_gone(why: &str, dir: &Path, known: &Known, before: &Traces) {
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
    let before = Traces::of(Path::new("/nowhere"), &Known::default());
    let mut owner = Owner::start("killed-nodes");
    owner.add_loop_devices();
    let known = Known::of(&owner.dir);
    let processes = &known.processes;
    let shims = processes.iter().filter(|(name, _)| name.contains("shim")).count();
    assert!(shims > 0 && processes.len() > 15, "{processes:?}");
    let traces = Traces::of(&owner.dir, &known);
    assert!(
        !traces.mounts.is_empty() && !traces.loops.is_empty() && !traces.cgroups.is_empty(),
        "{traces:#?}"
    );
    // Three kinds for the core, for the node and for its pods.
    assert!(known.namespaces.len() >= 9 && !traces.namespaces.is_empty(), "{:?}", known.namespaces);
    assert_eq!(traces.links, before.links, "the lab has a link in the machine's own network");

    // A node that hangs must not hold anything up.
    let space = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let node = known.pid("n1");
    for (_, pid) in processes.iter().filter(|(_, pid)| space(*pid) == space(node)) {
        kill_process(Pid::from_raw(*pid).unwrap(), Signal::STOP).unwrap();
    }

    let known = owner.kill();
    wait_until_gone("owner killed", &owner.dir, &known, &before);
    Lab::sweep().unwrap();
    assert!(!owner.dir.exists());
}

#[test]
fn when_the_owner_lets_go_its_nodes_leave_nothing() {
    let before = Traces::of(Path::new("/nowhere"), &Known::default());
    let mut owner = Owner::start("let-go-nodes");
    let known = Known::of(&owner.dir);
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
fn what_cannot_be_removed_is_reported_and_swept_later() {
    let broken = tempfile::tempdir().unwrap();
    let losetup = broken.path().join("losetup");
    std::fs::write(&losetup, "#!/bin/sh\nexit 1\n").unwrap();
    std::fs::set_permissions(&losetup, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", broken.path().display(), std::env::var("PATH").unwrap());
    let mut owner = Owner::spawn_with("no-detach", &[], |command| {
        command.env("PATH", path).stderr(Stdio::piped());
    });
    owner.wait_for_start();
    owner.add_loop_devices();
    drop(owner.child.stdin.take());
    let mut said = String::new();
    owner.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!owner.child.wait().unwrap().success());
    assert!(said.contains("losetup --detach") && said.contains("tries again"), "{said}");
    // With its directory gone nobody would know whose devices these are.
    Lab::sweep().unwrap();
    assert!(loops(&owner.dir).is_empty() && !owner.dir.exists());
}

#[test]
fn what_a_crash_of_owner_and_supervisor_leaves_is_swept_by_the_next_start() {
    let before = Traces::of(Path::new("/nowhere"), &Known::default());
    let mut owner = Owner::start("crashed-nodes");
    owner.add_loop_devices();
    let supervisor = Known::of(&owner.dir).pid("supervisor");
    // Stopped, it cannot tidy up; only the kernel's own signals are left.
    kill_process(Pid::from_raw(supervisor).unwrap(), Signal::STOP).unwrap();
    let known = owner.kill();
    kill_process(Pid::from_raw(supervisor).unwrap(), Signal::KILL).unwrap();

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let next = runtime.block_on(Lab::test_cluster().nodes(1).start()).unwrap();
    assert!(!owner.dir.exists(), "{} was not swept", owner.dir.display());
    wait_until_gone("owner and supervisor killed", &owner.dir, &known, &before);
    drop(next);
}

/// When a start is killed. The moment is the point of these tests; there is nothing to wait for.
#[derive(Debug, Clone, Copy)]
enum Moment {
    AfterStart(Duration),
    AfterDisks(Duration),
}

impl Moment {
    fn wait(self, owner: &mut Owner) {
        let (Moment::AfterStart(pause) | Moment::AfterDisks(pause)) = self;
        if let Moment::AfterDisks(_) = self {
            owner.wait_for_disks();
        }
        std::thread::sleep(pause);
    }
}

/// Kills starts of clusters at these moments, and starts another one after them.
fn kill_starts(name: &str, options: &[&str], moments: &[Moment]) {
    let before = Traces::of(Path::new("/nowhere"), &Known::default());
    for (n, moment) in moments.iter().enumerate() {
        let mut owner = Owner::spawn(&format!("{name}-{n}"), options);
        moment.wait(&mut owner);
        let loops = loops(&owner.dir).len();
        assert!(loops > 0 || !matches!(moment, Moment::AfterDisks(_)), "the disks are gone before the kill");
        let known = owner.kill();
        // Every other one at once, while its supervisor is at it.
        if n % 2 == 1 {
            Lab::sweep().unwrap();
        }
        let processes = known.processes.len();
        let what = format!("killed {moment:?}, with {processes} processes and {loops} loop devices");
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
    let moments: Vec<Moment> =
        moments.into_iter().map(Duration::from_millis).map(Moment::AfterStart).collect();
    println!("{} moments; the full run has 10", moments.len());
    kill_starts("moment", &["--nodes", "1"], &moments);
}

/// Up to the moment when Ceph is healthy, on an idle machine. Each kill after the disks meets some.
#[test]
fn a_start_with_rook_that_is_killed_at_any_moment_leaves_nothing_for_the_next() {
    let (nodes, early, late): (&str, &[u64], &[u64]) = match std::env::var_os("AQUIFER_FULL") {
        Some(_) => ("3", &[1, 6, 12, 20], &[0, 10, 25, 45, 70, 100]),
        None => ("1", &[], &[0]),
    };
    let early = early.iter().map(|seconds| Moment::AfterStart(Duration::from_secs(*seconds)));
    let late = late.iter().map(|seconds| Moment::AfterDisks(Duration::from_secs(*seconds)));
    let moments: Vec<Moment> = early.chain(late).collect();
    println!("{} moments; the full run has 10", moments.len());
    kill_starts("rook-moment", &["--nodes", nodes, "--rook"], &moments);
}
