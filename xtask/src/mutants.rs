//! `cargo xtask mutants`: changes the decisions and the engine in many small ways, one by one, and looks whether a unit test
//! notices. cargo-mutants does the work; `.cargo/mutants.toml` says what is changed and which tests run.

use std::fs;

use anyhow::{Context, Result};
use clap::Args as Flags;

use crate::mutate;
use crate::process;

/// The version that the figures of docs/testing.md were made with.
const VERSION: &str = "27.1.0";

#[derive(Flags)]
pub struct Args {
    /// Only files that match this, such as '**/decide.rs'; all that .cargo/mutants.toml names when left out
    #[arg(long)]
    file: Option<String>,
    /// Only a part of the mutants, such as 0/10 for every tenth
    #[arg(long)]
    shard: Option<String>,
}

pub fn run(args: &Args) -> Result<()> {
    let tools = process::target_dir().join("tools").join(format!("cargo-mutants-{VERSION}"));
    let program = tools.join("bin/cargo-mutants");
    if !program.exists() {
        let mut install = process::cargo(&["install", "--locked", "--root"]);
        process::run(install.arg(&tools).arg(format!("cargo-mutants@{VERSION}")))?;
    }
    let tree = process::target_dir().join("mutants/tree");
    mutate::copy(&tree)?;
    // Unit tests use neither the lab, which depends on what is changed, nor the engine as another crate would: without the two
    // each mutant costs a fraction.
    let lab = "aquifer-lab.workspace = true\n";
    let engine = "aquifer-engine = { workspace = true, features = [\"simulation\"] }\n";
    for (package, unused) in [("engine", lab), ("engine", engine), ("efs", lab)] {
        let path = tree.join(format!("crates/{package}/Cargo.toml"));
        let manifest =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        fs::write(&path, manifest.replace(unused, ""))?;
    }
    let mut play = process::command(&program.to_string_lossy());
    play.args(["mutants", "--workspace", "--in-place", "--timeout", "60", "--output"]).arg(tree.join(".."));
    play.current_dir(&tree).env("CARGO_TARGET_DIR", tree.join("../target"));
    if let Some(file) = &args.file {
        // Instead of the files that are named there: a flag of cargo-mutants would only add some.
        let path = tree.join(".cargo/mutants.toml");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let (_, rest) = text.split_once("]\n").context("there is no list of files in .cargo/mutants.toml")?;
        fs::write(&path, format!("examine_globs = [{file:?}]\n{rest}"))?;
    }
    if let Some(shard) = &args.shard {
        play.args(["--sharding", "round-robin", "--shard", shard]);
    }
    process::run(&mut play)
}
