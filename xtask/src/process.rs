//! Where the workspace is and how other programs are started from it. Decides nothing about their results.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    time::Duration,
};

use anyhow::{Context, Result, bail};

/// The root of the workspace.
pub fn root() -> PathBuf {
    let here =
        env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    here.parent().map_or_else(|| here.clone(), Path::to_path_buf)
}

/// Where cargo puts what it builds.
pub fn target_dir() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// A program that runs in the root of the workspace.
pub fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    // We were started by cargo, and its variables about this package must not reach the next cargo:
    // build scripts that look at it would run again.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST") || text == "CARGO_BIN_NAME" {
            command.env_remove(&name);
        }
    }
    command
}

/// The cargo that started us.
pub fn cargo(args: &[&str]) -> Command {
    let program = env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = command(&program);
    command.args(args);
    command
}

/// Runs a program on our own terminal and fails unless it succeeds.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    check(status, &shown)
}

/// Runs a program, gives what it wrote to stdout, and fails unless it succeeds. Its stderr stays on the terminal.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    command.stderr(std::process::Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start `{shown}`"))?;
    check(output.status, &shown)?;
    String::from_utf8(output.stdout).with_context(|| format!("`{shown}` wrote something that is not UTF-8"))
}

/// A command as a person would type it.
pub fn show(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let mut words = vec![program.to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|arg| arg.to_string_lossy().into_owned()));
    words.join(" ")
}

/// A duration as people say it.
pub fn took(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 {
        format!("{:.1} s", duration.as_secs_f64())
    } else {
        format!("{} min {} s", seconds / 60, seconds % 60)
    }
}

fn check(status: ExitStatus, shown: &str) -> Result<()> {
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_without_the_folder_of_its_program() {
        assert_eq!(show(Command::new("/usr/bin/cargo").args(["fmt", "--check"])), "cargo fmt --check");
    }

    #[test]
    fn a_duration_over_a_minute_has_no_fractions() {
        assert_eq!(took(Duration::from_millis(1_540)), "1.5 s");
        assert_eq!(took(Duration::from_secs(125)), "2 min 5 s");
    }

    #[test]
    fn a_program_that_fails_is_named() {
        let error = run(&mut Command::new("false")).unwrap_err();
        assert!(error.to_string().contains("`false` failed"), "{error}");
    }
}
