//! The operator's image: a static program and nothing else, the same bytes each time. Publishes it nowhere.

use std::{
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::{host, process};

/// The image's name; no registry answers there. It is the default of the chart and of `aquifer install`.
const NAME: &str = concat!("localhost/aquifer:", env!("CARGO_PKG_VERSION"));

/// Flags of `cargo xtask image`.
#[derive(clap::Args)]
pub struct Args {
    /// Build everything a second time from nothing, and fail unless both are the same bytes (minutes)
    #[arg(long)]
    verify: bool,
}

/// Builds the image and says where it is.
pub fn run(args: &Args) -> Result<()> {
    host::ensure_for_images()?;
    let start = Instant::now();
    let out = process::target_dir().join("image");
    fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    let program = program()?;
    let archive = out.join("aquifer.tar");
    aquifer_lab::recipe::archive_of(&containerfile(), &program, NAME, &archive)?;
    let digest = digest(&archive)?;
    println!("image    {NAME}");
    println!("archive  {}", archive.display());
    println!("program  {}", size(&program)?);
    println!("size     {}", size(&archive)?);
    println!("digest   sha256:{digest} (of the archive)");
    println!("took     {}", process::took(start.elapsed()));
    if args.verify {
        verify(&out.join("verify"), &digest)?;
    }
    Ok(())
}

/// In the same place, because a few of its folders are in the program: relative to the workspace, so that every checkout gives the
/// same bytes.
fn verify(dir: &Path, first: &str) -> Result<()> {
    println!("building it again from nothing");
    let built = process::target_dir().join(triple()?).join("release");
    fs::remove_dir_all(&built).with_context(|| format!("cannot empty {}", built.display()))?;
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let archive = dir.join("aquifer.tar");
    aquifer_lab::recipe::archive_of(&containerfile(), &program()?, NAME, &archive)?;
    let second = digest(&archive)?;
    if second != first {
        bail!("not reproducible: the second build has sha256:{second}; it is {}", archive.display());
    }
    fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    println!("the second build has the same digest");
    Ok(())
}

fn containerfile() -> PathBuf {
    process::root().join("crates/cli/Containerfile")
}

/// The operator as a static program. Where the sources and the cargo home are is not in it.
fn program() -> Result<PathBuf> {
    let triple = triple()?;
    let root = process::root().canonicalize().context("cannot find the workspace")?;
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    let home = home.context("no HOME and no CARGO_HOME")?;
    let places =
        [(root.display(), "/aquifer"), (home.display(), "/cargo")].map(|(from, to)| format!("{from}={to}"));
    let rust = places.clone().map(|place| format!("--remap-path-prefix={place}"));
    let c = places.map(|place| format!("-ffile-prefix-map={place}"));
    // With a target that is named, the flags reach the operator but not the build scripts, which cannot be static.
    let mut cargo =
        process::cargo(&["build", "--locked", "--release", "--package", "aquifer", "--bin", "aquifer"]);
    cargo.arg("--target").arg(&triple);
    cargo.env("RUSTFLAGS", format!("-C target-feature=+crt-static {}", rust.join(" ")));
    cargo.env("CFLAGS", c.join(" "));
    eprintln!("building the operator as a static program for {triple}");
    process::run(&mut cargo)?;
    Ok(process::target_dir().join(triple).join("release/aquifer"))
}

fn triple() -> Result<String> {
    let said = process::output(process::command("rustc").arg("-vV"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say what it builds for")?.to_owned())
}

fn digest(file: &Path) -> Result<String> {
    let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut text = String::new();
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

fn size(file: &Path) -> Result<String> {
    let bytes = fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?.len();
    Ok(format!("{}.{} MiB", bytes >> 20, ((bytes % (1 << 20)) * 10) >> 20))
}
