//! The directory of a cluster: claimed by one process at a time, swept when its owner is gone. Knows nothing of what runs in it
//! beyond the pid files.
//!
//! Ownership is a lock that the kernel drops with its process. A lock of the whole lab, held only for moments, keeps
//! a sweep from meeting a directory that is just being claimed.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FlockOperation, flock};

use crate::audit;
use crate::control_plane::AUDIT_LOG;
use crate::{leftovers, processes};

const LOCK: &str = "lock";
/// The owner's wish, kept in the directory so that it also binds whoever sweeps it.
const KEEP: &str = "keep";
/// Where its owner wants to have the audit log, for the same reason kept here.
const AUDIT_TO: &str = "audit-to";
const PATIENCE: Duration = Duration::from_secs(20);

/// `target/lab` of the workspace that this crate was built in.
pub(crate) fn root() -> PathBuf {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = crate_dir.ancestors().nth(2).unwrap_or(crate_dir);
    workspace.join("target").join("lab")
}

/// A claimed directory. It is removed when this is dropped, unless the user wants to keep it or something is left that only
/// the directory names. The next sweep tries again then.
#[derive(Debug)]
pub(crate) struct Directory {
    root: PathBuf,
    dir: PathBuf,
    /// Held, never read.
    _lock: File,
}

impl Directory {
    /// Sweeps the lab, then makes the directory anew and claims it.
    pub(crate) fn claim(root: &Path, name: &str) -> Result<Self> {
        check_name(name)?;
        let root = make_root(root)?;
        let _lab = lock_lab(&root)?;
        if let Err(error) = sweep_locked(&root) {
            eprintln!("{error:#}");
        }
        let dir = root.join(name);
        if let Some(owner) = owner(&dir) {
            bail!(
                "cluster {name} is running already, in process {owner}: stop that one or choose another name"
            );
        }
        clear(&dir)?;
        // With its lock it is one that the sweep could not give up; without, its audit log is kept.
        if dir.join(LOCK).exists() {
            keep_audit_log(&dir)?;
        }
        remove(&dir)?;
        DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .with_context(|| format!("cannot make {}", dir.display()))?;
        let mut lock = open_lock(&dir.join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .with_context(|| format!("cannot lock {}", dir.display()))?;
        write!(lock, "{}", std::process::id())?;
        if std::env::var_os("AQUIFER_LAB_KEEP").is_some() {
            File::create(dir.join(KEEP))?;
        }
        if let Some(into) = std::env::var_os(audit::KEEP_IN) {
            std::fs::write(dir.join(AUDIT_TO), into.as_encoded_bytes())?;
        }
        Ok(Self { root, dir, _lock: lock })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The audit log goes with the directory, whatever the environment says.
    pub(crate) fn forget_audit_log(&self) -> Result<()> {
        match std::fs::remove_file(self.dir.join(AUDIT_TO)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).context("the audit log would be kept")
            }
            _ => Ok(()),
        }
    }

    /// Empties the directory for another try; the claim stays. Nothing of the try before may be left: here is how it would be found.
    pub(crate) fn empty(&self) -> Result<()> {
        clear(&self.dir)?;
        for entry in std::fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.is_dir() {
                std::fs::remove_dir_all(&path)?;
            } else if ![LOCK, KEEP, AUDIT_TO].iter().any(|name| path.ends_with(name)) {
                std::fs::remove_file(&path)?;
            }
        }
        Ok(())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let result = lock_lab(&self.root).and_then(|_lab| clear(&self.dir).and_then(|()| give_up(&self.dir)));
        if let Err(error) = result {
            eprintln!("cannot clean up {}, the next start tries again: {error:#}", self.dir.display());
        }
    }
}

/// The process that runs the named cluster now.
pub(crate) fn owner_of(root: &Path, name: &str) -> Option<u32> {
    let _lab = lock_lab(root).ok()?;
    owner(&root.join(name))
}

/// The process that holds the directory now. Looking takes the lock for a moment, so only the holder of the lab's lock may.
fn owner(dir: &Path) -> Option<u32> {
    let mut lock = File::open(dir.join(LOCK)).ok()?;
    if flock(&lock, FlockOperation::NonBlockingLockShared).is_ok() {
        return None;
    }
    let mut text = String::new();
    lock.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Ends the processes and removes the directories of owners that are gone.
pub(crate) fn sweep(root: &Path) -> Result<()> {
    let root = make_root(root)?;
    let _lab = lock_lab(&root)?;
    sweep_locked(&root)
}

/// One directory that cannot be cleaned up is no reason to leave the others, but it is reported.
fn sweep_locked(root: &Path) -> Result<()> {
    let mut outcomes = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let dir = entry?.path();
        // Without a lock file it is not a cluster, or one that the user wanted to keep.
        let Ok(lock) = File::open(dir.join(LOCK)) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        let swept = clear(&dir).and_then(|()| give_up(&dir));
        outcomes.push(swept.with_context(|| format!("cannot clean up {} after a crash", dir.display())));
    }
    leftovers::all(outcomes)
}

/// Ends the processes of a directory and removes what of theirs the kernel keeps.
fn clear(dir: &Path) -> Result<()> {
    processes::end_all(dir, Vec::new(), PATIENCE)?;
    leftovers::remove(dir)
}

/// Removes the directory, or just its lock when its owner wanted to look into it. The audit log is kept before, where its owner wants
/// that; when it cannot be kept all stays, because a call that is lost here would look like one that was never made.
fn give_up(dir: &Path) -> Result<()> {
    keep_audit_log(dir)?;
    remove_or_keep(dir)
}

fn keep_audit_log(dir: &Path) -> Result<()> {
    let Ok(into) = std::fs::read(dir.join(AUDIT_TO)) else { return Ok(()) };
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let log = dir.join(AUDIT_LOG);
    if !log.exists() {
        return Ok(());
    }
    audit::keep(&name, &log, Path::new(OsStr::from_bytes(&into))).with_context(|| {
        format!("cannot keep the audit log, so {} stays: remove it if that does not matter", dir.display())
    })
}

fn remove_or_keep(dir: &Path) -> Result<()> {
    if dir.join(KEEP).exists() {
        let lock = dir.join(LOCK);
        return std::fs::remove_file(&lock).with_context(|| format!("cannot remove {}", lock.display()));
    }
    remove(dir)
}

fn remove(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// With links resolved, because processes are recognised by this path.
fn make_root(root: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(root)
        .and_then(|()| root.canonicalize())
        .with_context(|| format!("cannot make {}", root.display()))
}

fn lock_lab(root: &Path) -> Result<File> {
    let path = root.join(".lock");
    let file = open_lock(&path)?;
    flock(&file, FlockOperation::LockExclusive).with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

pub(crate) fn open_lock(path: &Path) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))
}

fn check_name(name: &str) -> Result<()> {
    let good = !name.is_empty()
        && name.len() <= 40
        && !name.starts_with('-')
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    ensure!(
        good,
        "{name:?} is not a name for a cluster: up to 40 lower-case letters, digits and inner dashes"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_running_cluster_cannot_be_claimed_again_and_says_who_runs_it() {
        let root = tempfile::tempdir().unwrap();
        let directory = Directory::claim(root.path(), "a").unwrap();
        let error = Directory::claim(root.path(), "a").unwrap_err().to_string();
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        drop(directory);
        Directory::claim(root.path(), "a").unwrap();
    }

    #[test]
    fn a_sweep_leaves_claimed_directories_and_foreign_files_alone() {
        let root = tempfile::tempdir().unwrap();
        let directory = Directory::claim(root.path(), "live").unwrap();
        std::fs::create_dir(root.path().join("notes")).unwrap();
        std::fs::create_dir(root.path().join("dead")).unwrap();
        std::fs::write(root.path().join("dead").join(LOCK), "1").unwrap();
        sweep(root.path()).unwrap();
        assert!(directory.dir().exists());
        assert!(root.path().join("notes").exists());
        assert!(!root.path().join("dead").exists());
    }

    #[test]
    fn a_directory_is_given_up_only_after_what_runs_in_it() {
        let root = tempfile::tempdir().unwrap();
        let directory = Directory::claim(root.path(), "a").unwrap();
        let file = directory.dir().join("file");
        std::fs::write(&file, "").unwrap();
        let mut child = std::process::Command::new("tail").arg("-f").arg(&file).spawn().unwrap();
        std::fs::write(directory.dir().join("tail.pid"), child.id().to_string()).unwrap();
        drop(directory);
        assert!(!file.exists());
        assert!(child.try_wait().unwrap().is_some(), "it runs without its directory");
    }

    /// A directory whose owner was killed, with an audit log that is to be kept.
    fn dead_with_a_log(root: &Path, into: &Path) -> PathBuf {
        let dead = root.join("dead");
        std::fs::create_dir(&dead).unwrap();
        std::fs::write(dead.join(LOCK), "1").unwrap();
        std::fs::write(dead.join(AUDIT_TO), into.as_os_str().as_bytes()).unwrap();
        std::fs::write(dead.join(AUDIT_LOG), "a call\n").unwrap();
        dead
    }

    fn kept(into: &Path) -> Vec<String> {
        let files = std::fs::read_dir(into).unwrap().flatten();
        files.map(|file| std::fs::read_to_string(file.path()).unwrap()).collect()
    }

    #[test]
    fn the_audit_log_is_kept_also_when_its_cluster_was_killed() {
        let root = tempfile::tempdir().unwrap();
        let into = root.path().join(".audit");
        for expected in 1..=2 {
            // The second cluster of the same name has a log of its own.
            let dead = dead_with_a_log(root.path(), &into);
            sweep(root.path()).unwrap();
            assert!(!dead.exists());
            assert_eq!(kept(&into), vec!["a call\n"; expected]);
        }
    }

    #[test]
    fn a_cluster_whose_audit_log_cannot_be_kept_stays_until_it_can() {
        let root = tempfile::tempdir().unwrap();
        let into = root.path().join(".audit");
        let dead = dead_with_a_log(root.path(), &into);
        std::fs::write(&into, "in the way").unwrap();
        let error = format!("{:#}", sweep(root.path()).unwrap_err());
        assert!(error.contains("cannot keep the audit log") && dead.exists(), "{error}");
        assert!(Directory::claim(root.path(), "dead").is_err() && dead.exists());
        std::fs::remove_file(&into).unwrap();
        sweep(root.path()).unwrap();
        assert!(!dead.exists());
        assert_eq!(kept(&into).len(), 1);
    }

    #[test]
    fn names_that_could_leave_the_lab_are_refused() {
        for name in ["", "..", "a/b", "A", "-a", "x y"] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
