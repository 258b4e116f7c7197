//! Processes that the `*.pid` files of a cluster directory name. Ends no process that is not provably of that directory.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Whether the process lives and was started for this directory: its command line names a file in there. Process
/// ids are reused, so a pid file alone proves nothing.
pub(crate) fn lives(pid: Pid, dir: &Path) -> bool {
    // With the slash: the directory `a` must not answer for `ab`.
    let mut inside = dir.as_os_str().as_encoded_bytes().to_vec();
    inside.push(b'/');
    let proc = Path::new("/proc").join(pid.as_raw_nonzero().to_string());
    // On a machine that is very busy, reading a large program takes a while.
    for _ in 0..5_000 {
        let Ok(command_line) = std::fs::read(proc.join("cmdline")) else { return false };
        if !command_line.is_empty() {
            return command_line.windows(inside.len()).any(|part| part == inside);
        }
        // Empty has two reasons: it ended and is not reaped, or it is within `exec`, which is over soon.
        if has_ended(&proc) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

/// Whether all of the process has ended, each thread of it: only then are its ports and files free.
pub(crate) fn is_gone(pid: Pid) -> bool {
    let proc = Path::new("/proc").join(pid.as_raw_nonzero().to_string());
    let threads = std::fs::read_dir(proc.join("task")).map_or(0, Iterator::count);
    has_ended(&proc) && threads <= 1
}

/// A zombie, or gone altogether. Looks at the first thread only.
fn has_ended(proc: &Path) -> bool {
    let Ok(stat) = std::fs::read_to_string(proc.join("stat")) else { return true };
    // The state follows the name, which is in brackets and may hold brackets itself.
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// The number in a pid file, once it is written.
pub(crate) fn read_pid(pid_file: &Path) -> Option<Pid> {
    Pid::from_raw(std::fs::read_to_string(pid_file).ok()?.trim().parse().ok()?)
}

/// The process that wrote this pid file, if it lives.
pub(crate) fn recorded(pid_file: &Path) -> Option<Pid> {
    let pid = read_pid(pid_file)?;
    lives(pid, pid_file.parent()?).then_some(pid)
}

/// Every living process that the directory's pid files name, the supervisor first so that it starts nothing more.
pub(crate) fn all_recorded(dir: &Path) -> Vec<(String, Pid)> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut found: Vec<(String, Pid)> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pid"))
        .filter_map(|path| {
            let name = path.file_stem()?.to_string_lossy().into_owned();
            Some((name, recorded(&path)?))
        })
        .collect();
    found.sort_by_key(|(name, _)| (name != "supervisor", name.clone()));
    found
}

/// Kills every recorded process and waits until they, and those that are `ending` already, are gone.
pub(crate) fn end_all(dir: &Path, mut ending: Vec<(String, Pid)>, patience: Duration) -> Result<()> {
    let started = Instant::now();
    loop {
        for (name, pid) in all_recorded(dir) {
            // It may have ended by itself in between; the next look shows it.
            let _ = kill_process(pid, Signal::KILL);
            if !ending.iter().any(|(_, known)| *known == pid) {
                ending.push((name, pid));
            }
        }
        ending.retain(|(_, pid)| !is_gone(*pid));
        if ending.is_empty() {
            return Ok(());
        }
        if started.elapsed() > patience {
            bail!("processes of {} do not end: {ending:?}", dir.display());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
