//! What the machine must have. Installs Debian's packages when we are root; otherwise says exactly what is missing.
//!
//! Go is not checked here: the lab asks for it when it has to build Kubernetes, and only then.

use std::{
    env, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use aquifer_lab::nodes::host::{TOOLS as NODE_TOOLS, Tool};
use aquifer_lab::rook::TOOLS as ROOK_TOOLS;

use crate::process;

const TOOLS: [Tool; 3] = [
    Tool { program: "cc", package: "gcc", why: "links Rust programs and compiles the TLS library" },
    Tool { program: "setpriv", package: "util-linux", why: "ends the lab's programs with their parent" },
    Tool { program: "git", package: "git", why: "fetches the database of security advisories" },
];

/// Makes sure that the tools of every command are there.
pub fn ensure() -> Result<()> {
    install(&TOOLS)
}

/// Makes sure that images can be built here.
pub fn ensure_for_images() -> Result<()> {
    ensure()?;
    install(&[Tool { program: "buildah", package: "buildah", why: "builds images" }])
}

/// Makes sure that a cluster can have nodes here.
pub fn ensure_for_nodes() -> Result<()> {
    install(&NODE_TOOLS)?;
    if !is_root()? {
        bail!("nodes need root, for namespaces, mounts and cgroups: run this as root");
    }
    Ok(())
}

/// Makes sure that a cluster can have Rook and Ceph here.
pub fn ensure_for_rook() -> Result<()> {
    install(&ROOK_TOOLS)
}

fn install(tools: &[Tool]) -> Result<()> {
    let missing: Vec<&Tool> = tools.iter().filter(|tool| find(tool.program).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    for tool in &missing {
        eprintln!("missing: {} ({})", tool.program, tool.why);
    }
    let packages: Vec<&str> = missing.iter().map(|tool| tool.package).collect();
    let line = format!("apt-get install -y --no-install-recommends {}", packages.join(" "));
    if find("apt-get").is_none() {
        bail!(
            "install what provides: {}",
            missing.iter().map(|tool| tool.program).collect::<Vec<_>>().join(", ")
        );
    }
    if !is_root()? {
        bail!("as root, run: {line}");
    }
    eprintln!("installing with: {line}");
    let mut install = process::command("apt-get");
    install.env("DEBIAN_FRONTEND", "noninteractive");
    install.args(["install", "-y", "--no-install-recommends"]).args(&packages);
    if process::run(&mut install).is_err() {
        // A fresh machine has no package lists yet.
        process::run(process::command("apt-get").arg("update"))?;
        process::run(&mut install)?;
    }
    match missing.iter().find(|tool| find(tool.program).is_none()) {
        None => Ok(()),
        Some(tool) => bail!("{} is still missing after installing {}", tool.program, tool.package),
    }
}

/// The first executable of that name in PATH, or where system programs are, which a PATH may lack.
fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    // A full path stays what it is when it is joined.
    env::split_paths(&path).chain(system).map(|dir| dir.join(program)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.mode() & 0o111 != 0)
}

fn is_root() -> Result<bool> {
    Ok(fs::metadata("/proc/self").context("cannot read /proc/self")?.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_exist_is_not_found() {
        assert!(find("sh").is_some());
        assert!(find("surely-no-such-program").is_none());
    }
}
