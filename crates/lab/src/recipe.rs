//! Programs and images made from the recipes in `lab/`: built once for each content, kept outside the checkout. Runs none of them.
//!
//! A recipe is a directory with a Go module, and with a `Containerfile` when it makes an image. Its name in the
//! cache has a hash of all its files and of the compiler's version, so a change builds it anew and a fresh clone finds it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};

pub use crate::building::Work;
use crate::control_plane::hex;
use crate::home::open_lock;
use crate::programs::go::Progress;
use crate::programs::{cache, source_dir};

/// The address that all images of the lab have; no registry answers there, so nothing is ever pulled.
pub(crate) const REGISTRY: &str = "localhost/aquifer-lab";

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
    let key = key(&source)?;
    let dir = once(&format!("{recipe}-{key}"), &format!("building {recipe} from source"), |dir, work| {
        let mut go = Command::new("go");
        // A module without code of its own names somebody else's program as its tool.
        let package = if source.join("main.go").is_file() { "." } else { "tool" };
        // Some programs want to be told their version by the linker.
        let told = std::fs::read_to_string(source.join("ldflags")).unwrap_or_default();
        let flags = format!("-s -w {}", told.trim());
        go.args(["build", "-trimpath", "-ldflags", &flags, "-o"]).arg(dir.join(recipe)).arg(package);
        go.envs([
            ("GOTOOLCHAIN", "local"),
            ("CGO_ENABLED", "0"),
            ("GOFLAGS", "-mod=readonly"),
            ("GOWORK", "off"),
        ]);
        work.run(go.current_dir(&source))
    })?;
    Ok(dir.join(recipe))
}

/// Builds the image of a recipe around its program, or finds it in the cache. Blocks.
pub fn image(recipe: &str) -> Result<Image> {
    let source = source_dir(recipe);
    let key = key(&source)?;
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

/// Writes the image of a program that is not made here as an archive; the same program gives the same bytes. Callers take turns. Blocks.
pub fn archive_of(containerfile: &Path, program: &Path, name: &str, archive: &Path) -> Result<()> {
    let (Some(dir), Some(of)) = (archive.parent(), archive.file_name()) else {
        bail!("{} is not a file", archive.display());
    };
    let mut work = Work::begin(dir, &of.to_string_lossy(), &format!("building the image {name}"))?;
    let context = work.dir()?;
    let file = program.file_name().with_context(|| format!("{} is not a file", program.display()))?;
    let copy = context.path().join(file);
    std::fs::copy(program, &copy).with_context(|| format!("failed to copy {}", program.display()))?;
    // What the file allowed where it was built must not matter.
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o555))?;
    // An archive that is there is added to, not replaced.
    if archive.exists() {
        std::fs::remove_file(archive).with_context(|| format!("failed to remove {}", archive.display()))?;
    }
    work.buildah(containerfile, context.path(), name, archive)
}

/// The name of the archive in a directory that [`once`] made.
pub const ARCHIVE: &str = "image.tar";

/// The directory `name` of the cache, filled by `build` unless it is there. Several processes that need it build it once.
pub fn once(name: &str, what: &str, build: impl FnOnce(&Path, &mut Work) -> Result<()>) -> Result<PathBuf> {
    let cache = cache()?;
    let dir = cache.join(name);
    if dir.is_dir() {
        return Ok(dir);
    }
    std::fs::create_dir_all(&cache).with_context(|| format!("failed to make {}", cache.display()))?;
    let lock = open_lock(&cache.join(format!("{name}.lock")))?;
    let mut progress = Progress::new(format!("waiting for another process that is {what}"));
    loop {
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(rustix::io::Errno::WOULDBLOCK) => progress.wait()?,
            Err(error) => return Err(error).context("failed to lock the cache"),
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
    std::fs::rename(&content, &dir).with_context(|| format!("failed to make {}", dir.display()))?;
    Ok(dir)
}

/// Changes with every file of the recipe and with the compiler.
pub fn key(source: &Path) -> Result<String> {
    key_of(&[source])
}

/// The same for what is made of several recipes.
pub(crate) fn key_of(sources: &[&Path]) -> Result<String> {
    let output =
        Command::new("go").args(["env", "GOVERSION"]).env("GOTOOLCHAIN", "local").output().context(
            "the lab's programs are built with Go, but there is no `go` on the PATH (Debian: golang)",
        )?;
    let mut hash = Sha256::new();
    hash.update(&output.stdout);
    for source in sources {
        let mut files: Vec<PathBuf> = std::fs::read_dir(source)
            .with_context(|| format!("there is no recipe {}", source.display()))?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_file())
            .collect();
        files.sort();
        for file in files {
            let content =
                std::fs::read(&file).with_context(|| format!("failed to read {}", file.display()))?;
            hash.update(file.file_name().unwrap_or_default().as_encoded_bytes());
            hash.update(content.len().to_le_bytes());
            hash.update(content);
        }
    }
    Ok(hex(&hash.finalize()[..8]))
}
