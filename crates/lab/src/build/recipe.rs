//! Programs and images made from the recipes in `lab/`: built once for each content, kept outside the checkout. Runs none of them.
//!
//! A recipe is a directory with a Go module, and with a `Containerfile` when it makes an image. Its name in the
//! cache has a hash of all its files, of the compiler's version and of the arguments of all programs, so a change builds it anew and a fresh
//! clone finds it.

mod key;

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};

pub use crate::building::Work;
use crate::directory::open_lock;
use crate::programs::go::Progress;
use crate::programs::{cache, source_dir};

pub(crate) use key::key_of;

/// The address that all images of the lab have; no registry answers there, so nothing is ever pulled.
pub(crate) const REGISTRY: &str = "localhost/aquifer-lab";

/// What Go must not take from the machine's own settings.
const GO_ENVIRONMENT: [(&str, &str); 4] =
    [("GOTOOLCHAIN", "local"), ("CGO_ENABLED", "0"), ("GOFLAGS", "-mod=readonly"), ("GOWORK", "off")];

/// Stands for names and places in arguments that are part of a key.
pub(crate) const NOWHERE: &str = "";

/// An image as a file that a node can import.
#[derive(Debug, Clone)]
pub struct Image {
    /// The name by which pods ask for it.
    pub name: String,
    /// The archive, in the format of `docker save`.
    pub archive: PathBuf,
}

/// Builds the Go program of a recipe, or finds it in the cache. Blocks.
pub fn program(recipe: &str) -> Result<PathBuf> {
    let source = source_dir(recipe);
    let key = key_of(&[&source], &go_key_part(&source))?;
    let dir = once(&format!("{recipe}-{key}"), &format!("building {recipe} from source"), |dir, work| {
        let mut go = Command::new("go");
        go.args(go_arguments(&source, &dir.join(recipe))).envs(GO_ENVIRONMENT);
        work.run(go.current_dir(&source))
    })?;
    Ok(dir.join(recipe))
}

/// The arguments with which Go makes a program.
fn go_arguments(source: &Path, program: &Path) -> Vec<OsString> {
    // A module without code of its own names a program of another module as its tool.
    let package = if source.join("main.go").is_file() { "." } else { "tool" };
    // Some programs get their version from the linker.
    let ldflags = std::fs::read_to_string(source.join("ldflags")).unwrap_or_default();
    let flags = format!("-s -w {}", ldflags.trim());
    let mut arguments: Vec<OsString> =
        ["build", "-trimpath", "-ldflags", &flags, "-o"].map(OsString::from).into();
    arguments.extend([program.into(), package.into()]);
    arguments
}

/// Builds the image of a recipe around its program, or finds it in the cache. Blocks.
pub fn image(recipe: &str) -> Result<Image> {
    let source = source_dir(recipe);
    let key = key_of(&[&source], &image_key_part(&source))?;
    let name = format!("{REGISTRY}/{recipe}:{key}");
    let program = program(recipe)?;
    let dir =
        once(&format!("image-{recipe}-{key}"), &format!("building the image {recipe}"), |dir, work| {
            let context = work.dir()?;
            std::fs::copy(&program, context.path().join(recipe))?;
            work.buildah(&source.join("Containerfile"), context.path(), &name, &dir.join(ARCHIVE))
        })?;
    Ok(Image { name, archive: dir.join(ARCHIVE) })
}

/// Writes the image of a program that is not made here, and of files beside it, as an archive; the same files give the same bytes.
/// Callers take turns. Blocks.
pub fn archive_of(
    containerfile: &Path,
    program: &Path,
    beside: &[&Path],
    name: &str,
    archive: &Path,
) -> Result<()> {
    let (Some(dir), Some(of)) = (archive.parent(), archive.file_name()) else {
        bail!("{} is not a file", archive.display());
    };
    let mut work = Work::begin(dir, &of.to_string_lossy(), &format!("building the image {name}"))?;
    let context = work.dir()?;
    for (file, mode) in std::iter::once((program, 0o555)).chain(beside.iter().map(|&file| (file, 0o444))) {
        let file_name = file.file_name().with_context(|| format!("{} is not a file", file.display()))?;
        let copy = context.path().join(file_name);
        std::fs::copy(file, &copy).with_context(|| format!("cannot copy {}", file.display()))?;
        // What the file allowed where it was built must not matter.
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(mode))?;
    }
    // An archive that is there is added to, not replaced.
    if archive.exists() {
        std::fs::remove_file(archive).with_context(|| format!("cannot remove {}", archive.display()))?;
    }
    work.buildah(containerfile, context.path(), name, archive)
}

/// The name of the archive in a directory that [`once`] made.
pub const ARCHIVE: &str = "image.tar";

/// The arguments of two runs of buildah: one makes an image, the other writes it as an archive.
pub(crate) fn packing(file: &Path, context: &Path, name: &str, archive: &Path) -> [Vec<OsString>; 2] {
    // The label would be the version of buildah: the same content would have other bytes on another machine.
    let flags = ["--isolation", "chroot", "--pull-never", "--timestamp", "0", "--identity-label=false"];
    let mut make: Vec<OsString> = vec!["bud".into()];
    make.extend(flags.map(OsString::from));
    make.extend(["--tag".into(), name.into(), "--file".into(), file.into(), context.into()]);
    let mut target = OsString::from("docker-archive:");
    target.push(archive);
    target.push(format!(":{name}"));
    [make, vec!["push".into(), "--quiet".into(), name.into(), target]]
}

/// The environment and the arguments of Go for a recipe, as a part of a key.
fn go_key_part(source: &Path) -> Vec<OsString> {
    let environment = GO_ENVIRONMENT.map(|(name, value)| format!("{name}={value}").into());
    environment.into_iter().chain(go_arguments(source, NOWHERE.as_ref())).collect()
}

/// The arguments of buildah for any image, as a part of a key.
pub fn buildah_key_part() -> Vec<OsString> {
    let nowhere = Path::new(NOWHERE);
    packing(nowhere, nowhere, NOWHERE, nowhere).concat()
}

/// Those of Go and of buildah for the image of a recipe, as a part of a key.
pub(crate) fn image_key_part(source: &Path) -> Vec<OsString> {
    [go_key_part(source), buildah_key_part()].concat()
}

/// The directory `name` of the cache, filled by `build` unless it is there. Several processes that need it build it once.
pub fn once(name: &str, what: &str, build: impl FnOnce(&Path, &mut Work) -> Result<()>) -> Result<PathBuf> {
    let cache = cache()?;
    let dir = cache.join(name);
    if dir.is_dir() {
        return Ok(dir);
    }
    std::fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
    let lock = open_lock(&cache.join(format!("{name}.lock")))?;
    let mut progress = Progress::new(format!("waiting for another process that is {what}"));
    loop {
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(rustix::io::Errno::WOULDBLOCK) => progress.wait()?,
            Err(error) => return Err(error).context("cannot lock the cache"),
        }
    }
    // Another process may have built it while this one waited.
    if dir.is_dir() {
        return Ok(dir);
    }
    // Under another name first: what has the right name is always whole.
    let mut work = Work::begin(&cache, name, what)?;
    let content = work.content()?;
    let mut progress = Progress::new(format!("{what} (once; kept in {})", dir.display()));
    progress.say();
    build(&content, &mut work)?;
    progress.say();
    std::fs::rename(&content, &dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir)
}
