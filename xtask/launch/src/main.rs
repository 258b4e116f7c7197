//! `cargo xtask`: builds xtask, shows what is compiled, and becomes it. Has no dependencies, so that it is there at once; holds no command.
//!
//! `cargo run` knows two ways: silent, which is a minute without a word in a fresh clone, or with lines at every call and after every
//! failure. This one is silent when there is nothing to compile.

use std::env;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// What cargo says about itself and not about the build.
const NOISE: [&str; 3] = ["Finished", "Running", "Blocking"];

fn main() -> ExitCode {
    let error = match build() {
        // Returns only when it fails.
        Ok(program) => format!("cannot start {}: {}", program.display(), become_xtask(&program)),
        Err(error) => error,
    };
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

/// Builds xtask and gives its program.
fn build() -> Result<PathBuf, String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let color = if std::io::IsTerminal::is_terminal(&std::io::stderr()) { "always" } else { "never" };
    let mut command = Command::new(cargo);
    command.args(["build", "--package", "xtask", "--bin", "xtask", "--color", color]).current_dir(root());
    forget_this_package(&mut command);
    let mut child = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    let mut explained = false;
    for line in
        child.stderr.take().into_iter().flat_map(|pipe| BufReader::new(pipe).lines()).map_while(Result::ok)
    {
        if is_noise(&line) {
            continue;
        }
        if !explained && line.contains("Compiling") {
            eprintln!("compiling the project's own commands (in a fresh clone a minute or two)");
            explained = true;
        }
        eprintln!("{line}");
    }
    let status = child.wait().map_err(|error| format!("cannot wait for cargo: {error}"))?;
    if !status.success() {
        return Err("cannot build xtask; see above".to_owned());
    }
    Ok(target().join("debug").join("xtask"))
}

fn is_noise(line: &str) -> bool {
    let text = without_colours(line);
    NOISE.iter().any(|word| text.trim_start().starts_with(word))
}

fn without_colours(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or(part, |(_, rest)| rest))
}

/// The program takes our place, so that signals, terminals and the exit code are its own.
fn become_xtask(program: &Path) -> std::io::Error {
    let mut command = Command::new(program);
    forget_this_package(&mut command);
    command.args(env::args_os().skip(1)).env("CARGO_MANIFEST_DIR", root().join("xtask")).exec()
}

/// What cargo says about this package must reach no other: build scripts that look at it would run again.
fn forget_this_package(command: &mut Command) {
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_")
            || text.starts_with("CARGO_MANIFEST")
            || text.starts_with("CARGO_BIN_")
        {
            command.env_remove(&name);
        }
    }
}

/// The root of the workspace: two folders above this package.
fn root() -> PathBuf {
    let here =
        env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    here.ancestors().nth(2).map_or_else(|| here.clone(), Path::to_path_buf)
}

fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

#[cfg(test)]
mod tests {
    use super::is_noise;

    #[test]
    fn what_is_compiled_is_shown_and_what_cargo_says_at_every_call_is_not() {
        assert!(is_noise("    Finished `dev` profile [unoptimized + debuginfo] target(s) in 0.14s"));
        assert!(is_noise("\u{1b}[1m\u{1b}[92m    Finished\u{1b}[0m `dev` profile"));
        assert!(!is_noise("   Compiling kube v5.0.0"));
        assert!(!is_noise("error[E0425]: cannot find value `Finished` in this scope"));
    }
}
