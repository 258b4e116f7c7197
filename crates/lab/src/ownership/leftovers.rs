//! What of a cluster outlives its processes: cgroups, loop devices, mounts. Removes only what provably belongs to the directory.
//!
//! Everything else of a node (its mounts, network namespaces and links) is in namespaces that the kernel drops with their last
//! process. A cluster without nodes has nothing of this, and looking for it costs a few directory listings.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use sha2::{Digest, Sha256};

use crate::control_plane::hex;
use crate::nodes::host::run;

const CGROUPS: &str = "/sys/fs/cgroup";
const PATIENCE: Duration = Duration::from_secs(20);

/// The name of the cgroups of a cluster, unlike that of any other directory's.
pub(crate) fn cgroup_name(dir: &Path) -> String {
    format!("aquifer-lab-{}", hex(&Sha256::digest(dir.as_os_str().as_encoded_bytes())[..6]))
}

/// Every hierarchy of cgroups that is mounted.
pub(crate) fn hierarchies() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(CGROUPS) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        // Some are known under two names, one of which is a link.
        .filter(|path| !path.is_symlink() && path.join("cgroup.procs").is_file())
        .collect();
    found.sort();
    found
}

/// Removes it all, whatever of it fails. The processes of the directory have ended before.
pub(crate) fn remove(dir: &Path) -> Result<()> {
    let began = Instant::now();
    let name = cgroup_name(dir);
    let groups = hierarchies().into_iter().map(|hierarchy| remove_cgroup(&hierarchy.join(&name), began));
    let mut outcomes: Vec<Result<()>> = groups.collect();
    outcomes.extend(loop_devices(dir).iter().map(|device| detach(device, dir)));
    let unmount = |mount: &String| run(Command::new("umount").args(["--lazy", mount])).map(drop);
    outcomes.extend(mounts(dir).iter().map(unmount));
    all(outcomes)
}

/// One error that names all of them.
pub(crate) fn all(outcomes: Vec<Result<()>>) -> Result<()> {
    let errors: Vec<String> =
        outcomes.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    ensure!(errors.is_empty(), "{}", errors.join("; "));
    Ok(())
}

/// Looks again before and after: whoever else detaches it may be faster, and its number is soon given to another device.
fn detach(device: &String, dir: &Path) -> Result<()> {
    let is_ours = || loop_devices(dir).contains(device);
    if !is_ours() {
        return Ok(());
    }
    match run(Command::new("losetup").args(["--detach", device])) {
        Err(error) if is_ours() => Err(error),
        _ => Ok(()),
    }
}

/// The loop devices whose file is in the directory, after those that kubelets have set up on top of them.
pub(crate) fn loop_devices(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/sys/block") else { return Vec::new() };
    let of_ours = |device: &Path| {
        let file = std::fs::read_to_string(device.join("loop/backing_file")).ok()?;
        // The kernel adds a word when the file is deleted already, so the beginning is what counts.
        Path::new(file.trim_end()).starts_with(dir).then_some(())
    };
    let ours: Vec<String> = entries
        .flatten()
        .filter(|entry| of_ours(&entry.path()).is_some())
        .map(|entry| format!("/dev/{}", entry.file_name().to_string_lossy()))
        .collect();
    let mut all = over(&ours);
    all.extend(ours);
    all
}

/// The loop devices whose "file" is one of these devices. A kubelet holds a local disk by one, under a path that only its node knew; the
/// number of the disk's own entry in /dev gives it away.
fn over(devices: &[String]) -> Vec<String> {
    let entry = |device: &String| {
        let meta = std::fs::metadata(device).ok()?;
        let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
        Some((format!("{major}:{minor}"), meta.ino().to_string()))
    };
    let entries: Vec<(String, String)> = devices.iter().filter_map(entry).collect();
    if entries.is_empty() {
        return Vec::new();
    }
    let columns = "NAME,BACK-MAJ:MIN,BACK-INO";
    let list = run(Command::new("losetup").args(["--list", "--noheadings", "--output", columns]));
    let is_over = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, device, number) = (words.next()?, words.next()?, words.next()?);
        entries.iter().any(|(of, entry)| of == device && entry == number).then(|| name.to_owned())
    };
    list.unwrap_or_default().lines().filter_map(is_over).collect()
}

/// The machine's own mounts below the directory, the innermost first. There are none unless a person made them by hand.
pub(crate) fn mounts(dir: &Path) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let below = |line: &str| {
        let point = line.split(' ').nth(4)?.replace("\\040", " ");
        Path::new(&point).starts_with(dir).then_some(point)
    };
    let mut found: Vec<String> = table.lines().filter_map(below).collect();
    found.reverse();
    found
}

fn remove_cgroup(top: &Path, began: Instant) -> Result<()> {
    while top.exists() {
        let mut groups = vec![top.to_path_buf()];
        let mut next = 0;
        while let Some(group) = groups.get(next).cloned() {
            next += 1;
            let children = std::fs::read_dir(&group).into_iter().flatten().flatten();
            groups.extend(children.map(|entry| entry.path()).filter(|path| path.is_dir()));
        }
        for group in groups.iter().rev() {
            let members = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            for pid in members.lines().filter_map(|line| line.parse().ok()).filter_map(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
            // Refused as long as a process in there is ending; the next round tries again.
            let _ = std::fs::remove_dir(group);
        }
        if top.exists() {
            if began.elapsed() > PATIENCE {
                bail!("{} cannot be removed: see the processes in its cgroup.procs files", top.display());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

/// The same for the supervisor, which has only a shell: run when the owner is gone, so that not even a crash leaves much. It takes turns with
/// the lab's own sweeps, and leaves a directory alone that another process has claimed.
pub(crate) fn script(dir: &Path) -> String {
    let (dir, group) = (crate::supervisor::quote(&dir.to_string_lossy()), cgroup_name(dir));
    format!(
        r#"# Ends the process group that is its argument and the namespaces of the cluster, and removes what the kernel keeps of them.
# The next start does it too.
dir={dir}
[ -z "$1" ] || kill -9 "-$1"
pid=$(cat "$dir/core.pid" 2>/dev/null)
if [ -n "$pid" ] && tr '\0' ' ' < "/proc/$pid/cmdline" 2>/dev/null | grep -qF "$dir/"; then
    kill -9 "$pid"
fi
# One sweep at a time; and where another process has claimed the directory, nothing is left to sweep.
if [ -f "$dir/../.lock" ]; then
    exec 9< "$dir/../.lock"
    flock 9
fi
[ -f "$dir/lock" ] && flock --shared --wait 1 "$dir/lock" true || exit 0
# Refused as long as a process in there is ending.
tries=0
while [ "$tries" -lt 400 ]; do
    left=
    for group in {CGROUPS}/*/{group}; do
        [ -d "$group" ] || continue
        find "$group" -depth -type d -exec rmdir {{}} \; 2>/dev/null
        [ ! -d "$group" ] || left=1
    done
    [ -n "$left" ] || break
    sleep 0.05
    tries=$((tries + 1))
done
for file in /sys/block/loop*/loop/backing_file; do
    case "$(cat "$file" 2>/dev/null)" in
        "$dir"/*) device=${{file#/sys/block/}}; device=/dev/${{device%%/*}} ;;
        *) continue ;;
    esac
    # What a kubelet has set up on top of it goes first.
    entry=$(stat -c '%Hd:%Ld %i' "$device")
    losetup --list --noheadings --output NAME,BACK-MAJ:MIN,BACK-INO | while read -r upper filesystem number; do
        [ "$filesystem $number" != "$entry" ] || losetup --detach "$upper"
    done
    losetup --detach "$device"
done
"#
    )
}
