//! `cargo xtask mutate`: puts known defects back into a scratch copy of the engine, one by one, and looks whether the simulation
//! finds each.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Args as Flags;

use crate::process::{self, took};

/// Where the defects are, each a patch with a word about it in front.
const MUTATIONS: &str = "crates/engine/mutations";

#[derive(Flags)]
pub struct Args {
    /// Only those whose name contains this
    filter: Option<String>,
    /// How long to look for each, in seconds
    #[arg(long, default_value_t = 120)]
    seconds: u64,
}

pub fn run(args: &Args) -> Result<()> {
    let tree = process::target_dir().join("mutate");
    copy(&tree)?;
    let mut missed = Vec::new();
    for patch in patches(args.filter.as_deref())? {
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        apply(&tree, &patch, false)?;
        let begin = Instant::now();
        let found = finds(&tree, args.seconds).with_context(|| format!("cannot try {name}"));
        apply(&tree, &patch, true)?;
        if let Some(how) = found? {
            println!("{name}: found after {}: {how}", took(begin.elapsed()));
        } else {
            println!("{name}: NOT FOUND in {}", took(begin.elapsed()));
            missed.push(name);
        }
    }
    ensure!(missed.is_empty(), "the simulation does not find {}", missed.join(", "));
    Ok(())
}

/// A copy of what is committed.
fn copy(tree: &Path) -> Result<()> {
    if tree.exists() {
        fs::remove_dir_all(tree).with_context(|| format!("cannot remove {}", tree.display()))?;
    }
    fs::create_dir_all(tree)?;
    let archive = tree.join("tree.tar");
    let archive_name = archive.to_string_lossy().into_owned();
    process::run(process::command("git").args(["archive", "--output", &archive_name, "HEAD"]))?;
    process::run(process::command("tar").args(["-xf", &archive_name, "-C"]).arg(tree))
}

fn patches(filter: Option<&str>) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(process::root().join(MUTATIONS))? {
        let path = entry?.path();
        let named = |filter: &str| path.to_string_lossy().contains(filter);
        if path.extension().is_some_and(|extension| extension == "patch") && filter.is_none_or(named) {
            found.push(path);
        }
    }
    found.sort();
    if found.is_empty() {
        bail!("there is no patch of that name in {MUTATIONS}");
    }
    Ok(found)
}

fn apply(tree: &Path, patch: &Path, reverse: bool) -> Result<()> {
    let mut command = process::command("git");
    // Below our own repository, but not a part of it.
    command.current_dir(tree).env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree));
    command.arg("apply").arg(patch);
    if reverse {
        command.arg("--reverse");
    }
    process::run(&mut command)
}

/// What the simulation says of the first history that ends badly; none when all end well.
fn finds(tree: &Path, seconds: u64) -> Result<Option<String>> {
    let mut build =
        process::cargo(&["test", "--package", "aquifer-engine", "--test", "proving_ground", "--no-run"]);
    build.current_dir(tree).env("CARGO_TARGET_DIR", process::target_dir());
    process::run(build.args(["--quiet"]))?;
    let mut play =
        process::cargo(&["test", "--package", "aquifer-engine", "--test", "proving_ground", "--quiet"]);
    play.current_dir(tree).env("CARGO_TARGET_DIR", process::target_dir());
    play.args(["--", "--exact", crate::simulate::TEST, "--nocapture"]);
    play.env("AQUIFER_SECONDS", seconds.to_string()).env("AQUIFER_SHORTEN", "0");
    let played = play.output().context("cannot play the simulation")?;
    if played.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&played.stdout).into_owned();
    let bad = said.lines().find(|line| line.contains(" ends badly: "));
    let bad = bad.context("the simulation failed without a history that ends badly")?;
    Ok(Some(bad.chars().take(160).collect()))
}
