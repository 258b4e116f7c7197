//! The supervisor of a cluster: a small shell that starts programs and takes them along when it ends. Restarts nothing by itself.
//!
//! It reads start scripts, one path a line, from a pipe that only this process can write to. The pipe closes however this process
//! ends; the supervisor then kills its process group, which is all that it started. When the supervisor is killed, the kernel
//! kills the programs, because each asked for it (`setpriv --pdeathsig`) and the wish survives `exec`.
//!
//! A program may live inside the namespaces of another one ([`Place::Inside`]); those end with their first process, by the kernel.
//! What no process takes along when it ends (cgroups, loop devices) is removed by `sweep.sh`, where a cluster has one. That has a session
//! of its own, because the first thing it does is to kill the supervisor's group.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::nodes::host::search_path;
use crate::{leftovers, processes};

const SCRIPT: &str = "supervisor.sh";
/// A cluster with nodes has hundreds of processes to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// `$$` goes along so that a program can see whether the supervisor died before the wish for the signal was in place.
const SUPERVISOR: &str = r#"# Starts the scripts that it reads from its standard input, one a line; ends all of it when the pipe closes.
# When the owner ends while a program here is stopped, the kernel sends this signal to the whole group. Programs get it unchanged.
trap : HUP
echo $$ > supervisor.pid
while IFS= read -r script; do
    setpriv --pdeathsig KILL sh "$script" $$ &
done
trap '' HUP
[ ! -f sweep.sh ] || exec setsid sh sweep.sh $$
kill -9 0
"#;

/// A program and how to start it.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) place: Place,
}

/// Where a program runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// As a child of the supervisor, in the machine's own namespaces.
    Machine,
    /// In the mount, process and network namespaces of the process that `<name>.pid` names.
    Inside(String),
}

/// Inside other namespaces the machine's own view of processes is here, so that pid files mean the same in all namespaces.
pub(crate) const MACHINE_PROC: &str = "machine-proc";

#[derive(Debug)]
pub(crate) struct Supervisor {
    dir: PathBuf,
    /// Absent in a process that does not own the cluster: it can look, but neither start programs nor end them all.
    shell: Option<Mutex<Shell>>,
}

#[derive(Debug)]
struct Shell {
    child: Child,
    /// The write end. Close-on-exec, like everything that the standard library opens, so no other child keeps it open.
    orders: Option<ChildStdin>,
}

impl Supervisor {
    /// Starts the supervisor of a directory.
    pub(crate) fn start(dir: &Path) -> Result<Self> {
        let script = dir.join(SCRIPT);
        std::fs::write(&script, SUPERVISOR).with_context(|| format!("cannot write {}", script.display()))?;
        let log = File::create(dir.join("supervisor.log"))?;
        let mut child = Command::new("/bin/sh")
            .arg(&script)
            .env("PATH", search_path())
            .current_dir(dir)
            // Its own group: what is typed at a terminal must not reach the programs, and the group is what it kills.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start /bin/sh")?;
        let orders = child.stdin.take();
        Ok(Self { dir: dir.to_path_buf(), shell: Some(Mutex::new(Shell { child, orders })) })
    }

    /// The supervisor of a cluster that another process owns.
    pub(crate) fn of_another_process(dir: &Path) -> Self {
        Self { dir: dir.to_path_buf(), shell: None }
    }

    /// The directory of its cluster.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts a program; what it prints is appended to `<name>.log`.
    pub(crate) fn run(&self, program: &Program) -> Result<()> {
        if let Some(pid) = self.pid(&program.name) {
            bail!("{} runs already, as process {}", program.name, pid.as_raw_nonzero());
        }
        // The new pid file must be the sign that the new one has started.
        let _ = std::fs::remove_file(self.pid_file(&program.name));
        let path = self.dir.join(format!("{}.sh", program.name));
        let save = |path: &Path, text: String| {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        if let Place::Inside(first) = &program.place {
            let inner = self.dir.join(format!("{}.inside.sh", program.name));
            save(&path, enter_script(&self.dir, first, &inner))?;
            save(&inner, start_script(&self.dir, program))?;
        } else {
            save(&path, start_script(&self.dir, program))?;
        }
        let mut shell = self
            .shell()
            .with_context(|| format!("cannot start {}: another process owns the cluster", program.name))?;
        let orders = shell.orders.as_mut().context("the cluster was stopped")?;
        writeln!(orders, "{}", path.display())
            .with_context(|| format!("the supervisor of {} is gone", self.dir.display()))
    }

    /// The process of a program, while it lives.
    pub(crate) fn pid(&self, name: &str) -> Option<Pid> {
        processes::recorded(&self.pid_file(name))
    }

    /// Whether the program has started and ended since it was last run.
    pub(crate) fn has_ended(&self, name: &str) -> bool {
        processes::read_pid(&self.pid_file(name)).is_some_and(|pid| !processes::lives(pid, &self.dir))
    }

    /// Kills a program and waits until it is gone.
    pub(crate) fn kill(&self, name: &str) -> Result<()> {
        let Some(pid) = self.pid(name) else { return Ok(()) };
        kill_process(pid, Signal::KILL).with_context(|| format!("cannot kill {name}"))?;
        let started = Instant::now();
        while !processes::is_gone(pid) {
            if started.elapsed() > PATIENCE {
                bail!("{name} does not end (process {})", pid.as_raw_nonzero());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The last lines that the program printed.
    pub(crate) fn last_lines(&self, name: &str) -> String {
        let text = std::fs::read(self.log_file(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// What the program printed after the given length of its log.
    pub(crate) fn printed_since(&self, name: &str, length: usize) -> String {
        let text = std::fs::read(self.log_file(name)).unwrap_or_default();
        String::from_utf8_lossy(text.get(length..).unwrap_or_default()).into_owned()
    }

    /// How long the program's log is now.
    pub(crate) fn log_length(&self, name: &str) -> usize {
        let meta = std::fs::metadata(self.log_file(name));
        meta.ok().and_then(|meta| usize::try_from(meta.len()).ok()).unwrap_or(0)
    }

    /// Ends the supervisor and everything that it started, and waits until all are gone.
    pub(crate) fn end(&self) -> Result<()> {
        let Some(mut shell) = self.shell() else { return Ok(()) };
        // Those that are about to end are not found any more, but must be waited for.
        let running = processes::all_recorded(&self.dir);
        if let Some(orders) = shell.orders.take() {
            // At once, and also when the shell is stopped or stuck. Not reaped yet, so the id is still its own.
            if let Some(group) = i32::try_from(shell.child.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            // Later than the signal: a shell that lives would begin to sweep.
            drop(orders);
            shell.child.wait().context("cannot wait for the supervisor")?;
        }
        processes::end_all(&self.dir, running, PATIENCE)?;
        leftovers::remove(&self.dir)
    }

    fn shell(&self) -> Option<MutexGuard<'_, Shell>> {
        self.shell.as_ref().map(|shell| shell.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn pid_file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.pid"))
    }

    fn log_file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.log"))
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("{error:#}");
        }
    }
}

/// The script says how a program was started, so that a person can read it and start it by hand.
fn start_script(dir: &Path, program: &Program) -> String {
    let mut script = String::new();
    let _ = writeln!(script, "cd {} || exit 1", quote(&dir.to_string_lossy()));
    if program.place == Place::Machine {
        script += OWN_SUPERVISOR;
        let _ = writeln!(script, "echo $$ > {}.pid", program.name);
    } else {
        let _ = writeln!(script, "read -r pid rest < {MACHINE_PROC}/self/stat || exit 1");
        let _ = writeln!(script, "echo $pid > {}.pid", program.name);
    }
    let _ = write!(script, "exec {}", quote(&program.path.to_string_lossy()));
    for arg in &program.args {
        let _ = write!(script, " \\\n    {}", quote(arg));
    }
    let _ = writeln!(script, " \\\n    >> {}.log 2>&1 < /dev/null", program.name);
    script
}

/// Started by a supervisor that died meanwhile: the program would never be ended.
const OWN_SUPERVISOR: &str = "[ -z \"$1\" ] || [ \"$PPID\" = \"$1\" ] || exit 1\n";

/// Enters the namespaces of the process `first` and runs the script `inner` there.
fn enter_script(dir: &Path, first: &str, inner: &Path) -> String {
    format!(
        "cd {} || exit 1\n{OWN_SUPERVISOR}exec nsenter --target \"$(cat {first}.pid)\" --mount --pid --net -- sh {}\n",
        quote(&dir.to_string_lossy()),
        quote(&inner.to_string_lossy()),
    )
}

pub(crate) fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn tail(dir: &Path) -> Program {
        let file = dir.join("it's here").display().to_string();
        std::fs::write(&file, "hello\n").unwrap();
        Program {
            name: "tail".into(),
            path: "/usr/bin/tail".into(),
            args: vec!["-f".into(), file],
            place: Place::Machine,
        }
    }

    fn wait_until(what: &str, condition: impl Fn() -> bool) {
        let started = Instant::now();
        while !condition() {
            assert!(started.elapsed() < Duration::from_secs(10), "waited in vain for: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_program_gets_its_arguments_unchanged_and_its_output_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let supervisor = Supervisor::start(dir.path()).unwrap();
        supervisor.run(&tail(dir.path())).unwrap();
        wait_until("the output", || supervisor.last_lines("tail") == "hello");
    }

    #[test]
    fn killing_one_program_leaves_the_supervisor_able_to_start_it_again() {
        let dir = tempfile::tempdir().unwrap();
        let supervisor = Supervisor::start(dir.path()).unwrap();
        for _ in 0..3 {
            supervisor.run(&tail(dir.path())).unwrap();
            wait_until("the start", || supervisor.pid("tail").is_some());
            supervisor.kill("tail").unwrap();
            assert!(supervisor.has_ended("tail"));
        }
    }

    #[test]
    fn ending_the_supervisor_ends_its_programs() {
        let dir = tempfile::tempdir().unwrap();
        let supervisor = Supervisor::start(dir.path()).unwrap();
        supervisor.run(&tail(dir.path())).unwrap();
        wait_until("the start", || supervisor.pid("tail").is_some());
        let pid = supervisor.pid("tail").unwrap();
        supervisor.end().unwrap();
        assert!(!processes::lives(pid, dir.path()));
        assert!(supervisor.run(&tail(dir.path())).is_err());
    }
}
