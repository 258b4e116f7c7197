//! The operator's program: builds it, and starts it as a user would. How it is watched is the kit's business.

use std::path::{Path, PathBuf};

use anyhow::Result;
pub use aquifer_lab::kit::Process as Operator;

use crate::process;

/// Builds the operator and gives its program.
pub fn build(optimised: bool) -> Result<PathBuf> {
    let mut cargo = process::cargo(&["build", "--package", "aquifer", "--bin", "aquifer"]);
    if optimised {
        cargo.arg("--release");
    }
    eprintln!("building the operator{}", if optimised { " with optimisation" } else { "" });
    process::run(&mut cargo)?;
    Ok(process::target_dir().join(if optimised { "release" } else { "debug" }).join("aquifer"))
}

/// Starts the program against a cluster, with these families. Must be called on the main thread: the kernel ends it with the thread that started it.
pub fn start(program: &Path, families: &str, kubeconfig: &Path, log: &Path) -> Result<Operator> {
    Operator::start_as(program, kubeconfig, log, &["--families", families])
}
