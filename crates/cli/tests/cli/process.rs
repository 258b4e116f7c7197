//! Runs the binary: to its end, or as an operator that the kit looks at from outside.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::Result;
use aquifer_lab::kit::Process;
use aquifer_lab::{Cluster, install::Account};

const PROGRAM: &str = env!("CARGO_BIN_EXE_aquifer");

/// The binary, without the settings of whoever runs the tests.
pub fn aquifer() -> Command {
    let mut command = Command::new(PROGRAM);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AQUIFER_") || name == "KUBECONFIG")
    {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub fn output(arguments: &[&str]) -> Output {
    aquifer().args(arguments).output().unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Starts `aquifer run` under an account; its log is in the directory of the cluster.
pub fn operator(cluster: &Cluster, account: &Account, identity: &str, more: &[&str]) -> Result<Process> {
    let log = cluster.dir().join(format!("operator-{identity}.log"));
    let arguments = [&["--log-format", "json", "--identity", identity], more].concat();
    Process::start(Path::new(PROGRAM), account, &log, &arguments)
}
