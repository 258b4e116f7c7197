//! `cargo xtask mutate`: puts known defects back into a scratch copy of the engine, one by one, and looks whether each is found:
//! by the simulation, or by the unit test that the patch names after `Test: `.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Args as Flags;

use crate::process::{self, took};
use crate::simulate::TEST;

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
        let content = fs::read_to_string(&patch)?;
        let test = content.lines().find_map(|line| line.strip_prefix("Test: "));
        let found = match test {
            Some(test) => test_finds(&tree, test),
            None => simulation_finds(&tree, args.seconds),
        };
        let found = found.with_context(|| format!("cannot try {name}"));
        apply(&tree, &patch, true)?;
        if let Some(how) = found? {
            println!("{name}: found after {}: {how}", took(begin.elapsed()));
        } else {
            println!("{name}: NOT FOUND in {}", took(begin.elapsed()));
            missed.push(name);
        }
    }
    ensure!(missed.is_empty(), "nothing finds {}", missed.join(", "));
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
        let named =
            |filter: &str| path.file_stem().is_some_and(|name| name.to_string_lossy().contains(filter));
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

fn cargo(tree: &Path, args: &[&str]) -> Command {
    let mut command = process::cargo(&["test", "--quiet", "--package", "aquifer-engine"]);
    // A target directory of its own: cargo would take what is built here for what is built from our own tree.
    command.args(args).current_dir(tree).env("CARGO_TARGET_DIR", tree.join("target"));
    command
}

/// Whether a unit test fails.
fn test_finds(tree: &Path, test: &str) -> Result<Option<String>> {
    process::run(&mut cargo(tree, &["--lib", "--no-run"]))?;
    let played = cargo(tree, &["--lib", "--", "--exact", test]).output().context("cannot run the test")?;
    let ran = String::from_utf8_lossy(&played.stdout).contains("running 1 test");
    ensure!(ran, "there is no test {test}");
    Ok((!played.status.success()).then(|| test.to_owned()))
}

/// What the simulation says of the first history that ends badly; none when all end well.
fn simulation_finds(tree: &Path, seconds: u64) -> Result<Option<String>> {
    process::run(&mut cargo(tree, &["--test", "proving_ground", "--no-run"]))?;
    let mut play = cargo(tree, &["--test", "proving_ground", "--", "--exact", TEST, "--nocapture"]);
    play.env("AQUIFER_SECONDS", seconds.to_string()).env("AQUIFER_SHORTEN", "0");
    let played = play.output().context("cannot play the simulation")?;
    let said = String::from_utf8_lossy(&played.stdout).into_owned();
    ensure!(said.contains("running 1 test"), "there is no test {TEST}");
    if played.status.success() {
        return Ok(None);
    }
    let bad = said.lines().find(|line| line.contains(" ends badly: "));
    let bad = bad.context("the simulation failed without a history that ends badly")?;
    Ok(Some(bad.chars().take(160).collect()))
}
