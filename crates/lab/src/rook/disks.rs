//! Disks for Ceph: one loop device over a sparse file for each OSD. Never touches a disk of the machine.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::nodes::host::run;

/// How large a disk claims to be; its file takes only what Ceph has written.
pub(crate) const GIBIBYTES: u64 = 8;

/// A disk, which all nodes see as they share one kernel, but which belongs to one of them.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) node: String,
    pub(crate) device: String,
}

/// Makes this many disks in the cluster's directory, for the nodes in turn. They go with the directory. Blocks.
pub(crate) fn make(dir: &Path, nodes: &[String], count: usize) -> Result<Vec<Disk>> {
    let make = |(n, node): (usize, &String)| {
        let path = dir.join(format!("disk-{n}"));
        let file = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
        file.set_len(GIBIBYTES << 30).context("no room for a disk")?;
        let device = run(Command::new("losetup").args(["--find", "--show"]).arg(&path))?;
        Ok(Disk { node: node.clone(), device: device.trim().to_owned() })
    };
    nodes.iter().cycle().take(count).enumerate().map(make).collect()
}
