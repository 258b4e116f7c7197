//! A build that is under way: a directory of its own in the cache, and programs that leave nothing when it is killed. Knows nothing of
//! what is built.
//!
//! Where the machine allows it, each program has its own process and mount namespaces: the kernel ends with it all that it started, and drops
//! what it mounted. What it writes beside is in the directory, which the next build removes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::directory::open_lock;
use crate::leftovers;
use crate::programs::go::{Progress, last_lines};
use crate::recipe::packing;

const PREFIX: &str = ".building-";
const NAMESPACES: [&str; 6] = ["unshare", "--mount", "--mount-proc", "--pid", "--fork", "--kill-child=KILL"];

/// What a build may do: run programs that are shown as progress and that end with this process.
#[derive(Debug)]
pub struct Work {
    room: TempDir,
    what: String,
}

impl Work {
    /// Begins the build of `name` next to where it will be. The caller holds its lock, `<name>.lock` or a better one.
    pub(crate) fn begin(within: &Path, name: &str, what: &str) -> Result<Self> {
        remove_stale(within, name);
        let room = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{name}."))
            .tempdir_in(within)
            .with_context(|| format!("cannot write to {}", within.display()))?;
        std::fs::create_dir(room.path().join("tmp"))?;
        Ok(Self { room, what: what.to_owned() })
    }

    /// Where the result is put together, until it gets its name.
    pub(crate) fn content(&self) -> Result<PathBuf> {
        let dir = self.room.path().join("content");
        std::fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(dir)
    }

    /// An empty directory that is gone with the build, also when that is killed.
    pub fn dir(&self) -> Result<TempDir> {
        tempfile::tempdir_in(self.tmp()).context("no room for the files of a build")
    }

    /// Runs a program to its end; its last lines are in the error when it fails.
    pub fn run(&mut self, command: &mut Command) -> Result<()> {
        let log = self.room.path().join("log");
        let output = File::create(&log)?;
        let mut child = self
            .contained(command)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("cannot run setpriv (Debian: util-linux)")?;
        let mut progress = Progress::new(self.what.clone());
        let status = progress.until_ended(&mut child)?;
        ensure!(
            status.success(),
            "{}: `{}` failed: {status}\n{}",
            self.what,
            command.get_program().to_string_lossy(),
            last_lines(&log)?
        );
        Ok(())
    }

    /// Builds an image from a Containerfile and writes it as an archive. Uses a store of its own, which is gone afterwards.
    pub fn buildah(&mut self, file: &Path, context: &Path, name: &str, archive: &Path) -> Result<()> {
        let store = self.dir()?;
        let buildah = || {
            let mut command = Command::new("buildah");
            command.arg("--root").arg(store.path().join("root"));
            command.arg("--runroot").arg(store.path().join("run"));
            command.args(["--storage-driver", "vfs"]);
            command
        };
        for arguments in packing(file, context, name, archive) {
            self.run(buildah().args(arguments))?;
        }
        Ok(())
    }

    fn tmp(&self) -> PathBuf {
        self.room.path().join("tmp")
    }

    fn contained(&self, command: &Command) -> Command {
        let mut wrapped = Command::new("setpriv");
        // The signal ends the program with this thread, which waits for it.
        wrapped.args(["--pdeathsig", "KILL"]);
        if has_namespaces() {
            wrapped.args(NAMESPACES);
        }
        wrapped.arg(command.get_program()).args(command.get_args()).env("TMPDIR", self.tmp());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        if let Some(dir) = command.get_current_dir() {
            wrapped.current_dir(dir);
        }
        wrapped
    }
}

/// Only root may make namespaces, and in a container not even root.
fn has_namespaces() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let tried = Command::new(NAMESPACES[0]).args(&NAMESPACES[1..]).arg("true").output();
        tried.is_ok_and(|output| output.status.success())
    })
}

/// Removes what killed builds have left here: of this name, and of all others that are not being built now.
fn remove_stale(within: &Path, name: &str) {
    for entry in std::fs::read_dir(within).into_iter().flatten().flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        let Some((of, _)) = file.strip_prefix(PREFIX).and_then(|rest| rest.rsplit_once('.')) else {
            continue;
        };
        // Held until it is removed.
        let lock = (of != name).then(|| open_lock(&within.join(format!("{of}.lock"))));
        let is_free = |lock: &File| flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        let is_stale = lock.as_ref().is_none_or(|lock| lock.as_ref().is_ok_and(is_free));
        // A mount could lead anywhere.
        if !is_stale || !leftovers::mounts(&entry.path()).is_empty() {
            continue;
        }
        if let Err(error) = std::fs::remove_dir_all(entry.path()) {
            eprintln!("cannot remove {}, which a killed build left: {error}", entry.path().display());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn what_killed_builds_left_goes_with_the_next_build_but_nothing_of_those_under_way() {
        let cache = tempfile::tempdir().unwrap();
        let left = |name: &str| {
            let dir = cache.path().join(format!("{PREFIX}{name}"));
            std::fs::create_dir_all(dir.join("tmp/root")).unwrap();
            dir
        };
        let (own, dead, alive) = (left("a-1.x"), left("b-1.x"), left("c-1.x"));
        let lock = open_lock(&cache.path().join("c-1.lock")).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        let work = Work::begin(cache.path(), "a-1", "building").unwrap();
        assert!(!own.exists() && !dead.exists() && alive.exists());
        assert!(work.tmp().is_dir());
        drop(work);
        assert!(Work::begin(cache.path(), "c-1", "building").is_ok() && !alive.exists());
    }

    #[test]
    fn a_program_has_its_own_directory_for_temporary_files_and_its_failure_is_reported() {
        let cache = tempfile::tempdir().unwrap();
        let mut work = Work::begin(cache.path(), "a", "building").unwrap();
        work.run(Command::new("sh").args(["-c", "mktemp && exit $CODE"]).env("CODE", "0")).unwrap();
        let files = std::fs::read_dir(work.tmp()).unwrap().count();
        assert_eq!(files, 1);
        let error = work.run(Command::new("sh").args(["-c", "echo alas; exit 3"])).unwrap_err();
        assert!(error.to_string().contains("alas"), "{error}");
    }

    /// Without namespaces only the program itself ends.
    #[test]
    fn what_a_program_started_ends_with_whoever_builds() {
        if !has_namespaces() {
            println!("no namespaces here, nothing to see");
            return;
        }
        let cache = tempfile::tempdir().unwrap();
        let work = Work::begin(cache.path(), "a", "building").unwrap();
        let sign = work.tmp().join("sign");
        let script = format!(
            "mount -t tmpfs none {0}; touch {1}; sleep 600 & sleep 600",
            work.tmp().display(),
            sign.display()
        );
        let mut child = work.contained(Command::new("sh").args(["-c", &script])).spawn().unwrap();
        let of_ours = || {
            let all = std::fs::read_dir("/proc").unwrap().flatten();
            let tables = all.filter_map(|entry| std::fs::read_to_string(entry.path().join("mountinfo")).ok());
            tables.filter(|table| table.contains(&work.tmp().display().to_string())).count()
        };
        let wait_until = |what: &str, condition: &dyn Fn() -> bool| {
            let began = Instant::now();
            while !condition() {
                assert!(began.elapsed() < Duration::from_secs(10), "waited in vain until {what}");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        // The shell and both of its children have the mount; the machine has not.
        wait_until("it runs", &|| of_ours() >= 3);
        assert!(!sign.exists());
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until("all has ended", &|| of_ours() == 0);
    }
}
