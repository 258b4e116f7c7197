//! The operator's image, made from this checkout: one static program, its bill of materials, and labels that say what it is. Publishes
//! it nowhere.
//!
//! The same sources give the same bytes, wherever the checkout, the cargo home and the compiler are: their places are
//! not in the program. The commit is a label, so that it is part of the sources in this.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use aquifer_lab::Lab;
use aquifer_lab::recipe::{self, Image};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};

use crate::sbom;

/// The image's name; no registry answers there. It is the default of the chart and of `aquifer install`.
pub const NAME: &str = concat!("localhost/aquifer:", env!("CARGO_PKG_VERSION"));

/// How the program is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// As it is shipped; minutes.
    Release,
    /// Like the binary that tests start: larger and slower, but compiled soon after a change.
    Dev,
}

impl Profile {
    /// What tests run: what is shipped when there is time for it (`AQUIFER_FULL`).
    pub fn of_tests() -> Self {
        if std::env::var_os("AQUIFER_FULL").is_some() { Self::Release } else { Self::Dev }
    }

    /// As cargo names its folder.
    fn folder(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Dev => "debug",
        }
    }
}

/// An image and the program in it.
#[derive(Debug, Clone)]
pub struct Built {
    /// What nodes get.
    pub image: Image,
    /// The program in it.
    pub program: PathBuf,
    /// Its bill of materials, which is in the image as well.
    pub bill: PathBuf,
}

impl Built {
    /// Of the image's archive, in hexadecimal digits.
    pub fn sha256(&self) -> Result<String> {
        let archive = &self.image.archive;
        let bytes = std::fs::read(archive).with_context(|| format!("cannot read {}", archive.display()))?;
        Ok(format!("{:x}", Sha256::digest(bytes)))
    }
}

/// Builds the image of this checkout, below `target/image`. When nothing has changed that takes a second; what cargo says is shown
/// on standard error. Blocks.
pub fn image(profile: Profile) -> Result<Built> {
    let target = Lab::root().parent().map(Path::to_path_buf).context("there is no target folder")?;
    let workspace = target.parent().context("there is no workspace")?;
    image_of(workspace, &target, profile, &revision(workspace)?)
}

/// Builds the image of another copy of the workspace, with a target folder of its own, as that of a commit. Blocks.
pub fn image_of(workspace: &Path, target: &Path, profile: Profile, revision: &str) -> Result<Built> {
    let dir = match profile {
        Profile::Release => target.join("image"),
        Profile::Dev => target.join("image/dev"),
    };
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    // Cargo takes turns by itself, the rest does not.
    let lock =
        File::create(dir.join("lock")).with_context(|| format!("cannot write to {}", dir.display()))?;
    flock(&lock, FlockOperation::LockExclusive).context("cannot wait for another build of the image")?;
    let workspace = workspace.canonicalize().with_context(|| format!("no {}", workspace.display()))?;
    let target = target.canonicalize().with_context(|| format!("no {}", target.display()))?;
    let triple = triple(&workspace)?;
    let program = program(&workspace, &target, profile, &triple)?;
    let bill = dir.join("aquifer.cdx.json");
    write_if_new(&bill, &sbom::of(&workspace, &triple)?)?;
    let text = workspace.join("crates/cli/Containerfile");
    let text = std::fs::read_to_string(&text).with_context(|| format!("cannot read {}", text.display()))?;
    let containerfile = dir.join("Containerfile");
    write_if_new(&containerfile, &(text + &labels(revision)))?;
    let archive = dir.join("aquifer.tar");
    let (noted, made_of) = (dir.join("made-of"), made_of(&program, &[&containerfile, &bill])?);
    let current = archive.is_file() && std::fs::read_to_string(&noted).is_ok_and(|note| note == made_of);
    if !current {
        // The note goes first: one that is there always fits the archive.
        if noted.exists() {
            std::fs::remove_file(&noted)?;
        }
        recipe::archive_of(&containerfile, &program, &[&bill], NAME, &archive)?;
        std::fs::write(&noted, made_of).with_context(|| format!("cannot write {}", noted.display()))?;
    }
    Ok(Built { image: Image { name: NAME.to_owned(), archive }, program, bill })
}

/// The commit that a workspace is at, marked when there is more than that; empty where there is no git.
pub fn revision(workspace: &Path) -> Result<String> {
    let git = |args: &[&str]| -> Option<String> {
        let output =
            Command::new("git").args(args).current_dir(workspace).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "HEAD"]) else { return Ok(String::new()) };
    let changed =
        git(&["status", "--porcelain"]).context("git does not say whether something was changed")?;
    Ok(if changed.is_empty() { commit } else { format!("{commit}-changed") })
}

/// What people and registries read of an image, under the names that the OCI has for it. Neither a time nor a place.
fn labels(revision: &str) -> String {
    let labels = [
        ("title", "Aquifer"),
        ("description", "Storage operators for Kubernetes in one binary"),
        ("version", env!("CARGO_PKG_VERSION")),
        ("licenses", env!("CARGO_PKG_LICENSE")),
        ("revision", revision),
    ];
    let said = labels.iter().filter(|(_, value)| !value.is_empty());
    let lines = said.map(|(name, value)| format!("LABEL org.opencontainers.image.{name}={value:?}"));
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// So that its time says when its content changed.
fn write_if_new(file: &Path, text: &str) -> Result<()> {
    if std::fs::read_to_string(file).is_ok_and(|there| there == text) {
        return Ok(());
    }
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// What the compiler of this workspace says.
fn rustc_says(workspace: &Path, args: &[&str]) -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(&rustc).args(args).current_dir(workspace).output();
    let output = output.context("the operator is built with Rust, but there is no rustc on the PATH")?;
    ensure!(output.status.success(), "rustc fails: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// What it builds for.
fn triple(workspace: &Path) -> Result<String> {
    let version = rustc_says(workspace, &["-vV"])?;
    let triple = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(triple.context("rustc does not say what it builds for")?.to_owned())
}

/// The operator as a static program.
fn program(workspace: &Path, target: &Path, profile: Profile, triple: &str) -> Result<PathBuf> {
    // The signal ends cargo with this thread, which waits for it right here.
    let mut cargo = Command::new("setpriv");
    cargo.args(["--pdeathsig", "TERM"]).arg(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--locked", "--package", "aquifer", "--bin", "aquifer"]);
    // With a target that is named, the flags reach the operator but not the build scripts, which cannot be static.
    cargo.args(["--target", triple, "--target-dir"]).arg(target);
    // What a cargo that started us said about our package must not reach the next one: build scripts that look at it would run again.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST", "CARGO_BIN"].iter().any(|prefix| text.starts_with(prefix)) {
            cargo.env_remove(&name);
        }
    }
    let mut flags = vec!["-Ctarget-feature=+crt-static".to_owned()];
    // Only then: these flags reach C in build scripts too, which everyday builds share with the other profile and would make anew.
    if profile == Profile::Release {
        cargo.arg("--release");
        let sysroot = PathBuf::from(rustc_says(workspace, &["--print", "sysroot"])?);
        let places = [
            (cargo_home()?, "/cargo"),
            (sysroot, "/rust"),
            (workspace.into(), "/aquifer"),
            (target.into(), "/target"),
        ];
        // Of several that match, the last one counts: the target folder is mostly within the workspace.
        let places = places.map(|(from, to)| format!("{}={to}", from.display()));
        flags.extend(places.iter().map(|place| format!("--remap-path-prefix={place}")));
        cargo.env("CFLAGS", places.map(|place| format!("-ffile-prefix-map={place}")).join(" "));
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    let status = cargo.current_dir(workspace).stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status.context("cannot run setpriv (Debian: util-linux)")?;
    ensure!(
        status.success(),
        "the operator did not build as a static program for {triple} ({status}); see above"
    );
    Ok(target.join(triple).join(profile.folder()).join("aquifer"))
}

fn cargo_home() -> Result<PathBuf> {
    let named = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let usual = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
    named.or_else(usual).context("no HOME and no CARGO_HOME")
}

/// Changes whenever cargo writes the program, and with how it is packed. The content of the program would say as much, but takes
/// seconds to read in one without optimisation.
fn made_of(program: &Path, texts: &[&Path]) -> Result<String> {
    let written = std::fs::metadata(program).and_then(|meta| Ok((meta.len(), meta.modified()?)));
    let written = written.with_context(|| format!("cannot look at {}", program.display()))?;
    let mut all = format!("{written:?}\n");
    for file in texts {
        all += &std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    }
    Ok(format!("{all}\n{:?}", recipe::buildah_key_part()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_say_what_it_is_and_of_which_commit_when_that_is_known() {
        let said = labels("0123abc");
        let version = format!("LABEL org.opencontainers.image.version=\"{}\"\n", env!("CARGO_PKG_VERSION"));
        assert!(said.contains(&version), "{said}");
        assert!(said.contains("LABEL org.opencontainers.image.licenses=\"Apache-2.0\"\n"), "{said}");
        assert!(said.ends_with("LABEL org.opencontainers.image.revision=\"0123abc\"\n"), "{said}");
        assert!(!labels("").contains("revision"));
    }

    #[test]
    fn the_commit_is_marked_when_there_is_more_than_it_and_left_out_without_git() {
        let dir = tempfile::tempdir().unwrap();
        let git = |args: &[&str]| {
            let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
            let done =
                Command::new("git").args(identity).args(args).current_dir(dir.path()).output().unwrap();
            assert!(done.status.success(), "{done:?}");
            String::from_utf8(done.stdout).unwrap().trim().to_owned()
        };
        git(&["init", "--quiet"]);
        std::fs::write(dir.path().join("a"), "1").unwrap();
        git(&["add", "a"]);
        git(&["commit", "--quiet", "--message", "a"]);
        let commit = git(&["rev-parse", "HEAD"]);
        assert_eq!(revision(dir.path()).unwrap(), commit);
        std::fs::write(dir.path().join("a"), "2").unwrap();
        assert_eq!(revision(dir.path()).unwrap(), format!("{commit}-changed"));
        let elsewhere = tempfile::tempdir().unwrap();
        assert_eq!(revision(elsewhere.path()).unwrap(), "");
    }
}
