//! Nothing outlives its owner: whatever is killed, all the rest ends, and the next start tidies up.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use aquifer_lab::{Cluster, Lab};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use rustix::process::{Pid, Signal, kill_process};

const PROGRAMS: [&str; 4] = ["supervisor", "etcd", "kube-apiserver", "kube-controller-manager"];

/// Another process that owns a cluster.
struct Owner {
    child: Child,
    dir: PathBuf,
    pids: Vec<i32>,
}

impl Owner {
    fn start(name: &str) -> Self {
        Self::start_with(name, &[])
    }

    fn start_with(name: &str, environment: &[(&str, &str)]) -> Self {
        let name = format!("{name}-{}", std::process::id());
        let mut child = Command::new(env!("CARGO_BIN_EXE_aquifer-lab-hold"))
            .arg(&name)
            .env_remove("AQUIFER_LAB_KEEP")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let dir = PathBuf::from(line.trim_end());
        assert!(dir.is_dir(), "the cluster did not start: {line:?}");
        let pids = PROGRAMS.iter().map(|program| pid_in(&dir, program)).collect();
        let owner = Self { child, dir, pids };
        assert_eq!(owner.living(), owner.pids);
        owner
    }

    fn living(&self) -> Vec<i32> {
        self.pids.iter().copied().filter(|&pid| lives(pid)).collect()
    }

    fn all_end(&self, why: &str) {
        let began = Instant::now();
        while !self.living().is_empty() {
            assert!(
                began.elapsed() < Duration::from_secs(10),
                "{why}, but these live on: {:?}",
                self.living()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        println!("{why}: all gone after {} ms", began.elapsed().as_millis());
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pid_in(dir: &Path, program: &str) -> i32 {
    std::fs::read_to_string(dir.join(format!("{program}.pid"))).unwrap().trim().parse().unwrap()
}

/// Ended but not reaped counts as ended.
fn lives(pid: i32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

#[test]
fn when_the_owner_is_killed_everything_ends_and_the_next_start_removes_the_directory() {
    let mut owner = Owner::start("killed-owner");
    owner.child.kill().unwrap();
    owner.child.wait().unwrap();
    owner.all_end("owner killed");

    assert!(owner.dir.exists());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let next = runtime.block_on(Lab::test_cluster().start()).unwrap();
    assert!(!owner.dir.exists(), "{} was not swept", owner.dir.display());
    assert!(next.pid_of("kube-apiserver").is_some());
}

#[test]
fn when_the_supervisor_is_killed_every_program_ends() {
    let owner = Owner::start("killed-supervisor");
    kill(pid_in(&owner.dir, "supervisor"), Signal::KILL);
    owner.all_end("supervisor killed");
}

#[test]
fn when_owner_and_supervisor_are_killed_at_once_every_program_ends() {
    let owner = Owner::start("killed-both");
    let owner_pid = i32::try_from(owner.child.id()).unwrap();
    // Stopped, it cannot see its pipe close: only the kernel's own signal is left.
    kill(pid_in(&owner.dir, "supervisor"), Signal::STOP);
    kill(owner_pid, Signal::KILL);
    kill(pid_in(&owner.dir, "supervisor"), Signal::KILL);
    owner.all_end("owner and supervisor killed");
}

#[test]
fn when_the_owner_lets_go_the_cluster_stops_and_leaves_nothing() {
    let mut owner = Owner::start("let-go");
    drop(owner.child.stdin.take());
    assert!(owner.child.wait().unwrap().success());
    assert_eq!(owner.living(), Vec::<i32>::new());
    assert!(!owner.dir.exists());
}

#[test]
fn when_the_owner_lets_go_during_the_start_nothing_is_left() {
    let name = format!("let-go-early-{}", std::process::id());
    let dir = Lab::root().join(&name);
    let mut child = Command::new(env!("CARGO_BIN_EXE_aquifer-lab-hold"))
        .arg(&name)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while !dir.join("etcd.pid").exists() {
        assert!(began.elapsed() < Duration::from_secs(30), "it does not begin to start");
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = pid_in(&dir, "supervisor");
    assert!(!dir.join("ready.json").exists(), "it was ready at once");
    drop(child.stdin.take());
    assert!(!child.wait().unwrap().success(), "it came to an end as if all were well");
    assert!(!lives(pid) && !dir.exists(), "{} is left", dir.display());
}

#[tokio::test]
async fn a_cluster_can_be_used_by_a_process_that_does_not_own_it_and_goes_on_afterwards() -> anyhow::Result<()>
{
    let owner = Owner::start("used-by-others");
    let name = owner.dir.file_name().unwrap().to_string_lossy().into_owned();
    let used = Cluster::of_another_process(&name).await?;
    let mark = used.audit().mark()?;
    let namespaces: Api<Namespace> = Api::all(used.client()?);
    assert!(namespaces.get_opt("default").await?.is_some());
    assert!(used.kubectl_output(&["get", "namespaces"]).await?.contains("kube-system"));
    assert!(used.audit().since(mark)?.iter().any(|call| call.resource == "namespaces"));
    assert!(used.pid_of("kube-apiserver").is_some());
    let refused = used.start_program("kube-apiserver").await.unwrap_err();
    println!("{refused:#}");
    used.stop().await?;
    assert_eq!(owner.living(), owner.pids, "using it ended something of it");
    Ok(())
}

#[test]
fn a_directory_that_the_user_wants_to_keep_survives_the_next_start() {
    let mut owner = Owner::start_with("kept", &[("AQUIFER_LAB_KEEP", "1")]);
    drop(owner.child.stdin.take());
    assert!(owner.child.wait().unwrap().success());
    assert_eq!(owner.living(), Vec::<i32>::new());
    Lab::sweep().unwrap();
    assert!(owner.dir.join("audit.log").exists());
    std::fs::remove_dir_all(&owner.dir).unwrap();
}

#[test]
fn what_survived_a_crash_is_ended_by_the_next_start_and_strangers_are_spared() {
    // What a crash of everything could leave: a directory without an owner, a program of it that still runs, and a pid file whose
    // number belongs to another process by now.
    let dir = Lab::root().join(format!("crashed-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let dir = dir.canonicalize().unwrap();
    std::fs::write(dir.join("data"), "").unwrap();
    let mut survivor =
        Command::new("tail").arg("-f").arg(dir.join("data")).stdout(Stdio::null()).spawn().unwrap();
    let mut stranger = Command::new("tail").args(["-f", "/dev/null"]).spawn().unwrap();
    std::fs::write(dir.join("etcd.pid"), survivor.id().to_string()).unwrap();
    std::fs::write(dir.join("kube-apiserver.pid"), format!("{}\n", stranger.id())).unwrap();
    std::fs::write(dir.join("gone.pid"), "garbage").unwrap();
    // Last: from here on any process may sweep.
    std::fs::write(dir.join("lock"), "1").unwrap();

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let next = runtime.block_on(Lab::test_cluster().start()).unwrap();
    assert!(!dir.exists(), "{} was not swept", dir.display());
    assert!(!lives(i32::try_from(survivor.id()).unwrap()), "the survivor lives on");
    assert!(stranger.try_wait().unwrap().is_none(), "a stranger was killed");
    drop(next);

    stranger.kill().unwrap();
    stranger.wait().unwrap();
    survivor.wait().unwrap();
}
