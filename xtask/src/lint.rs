//! The checks that need no cluster. Runs all of them, also when one fails, and says at the end which did.

use std::{
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use aquifer_lab::Lab;

use crate::{chart, crds, decisions, docs, host, process};

const CARGO_DENY: &str = "0.20.2";

type Check = fn() -> Result<Outcome>;

/// How a check ended that did not fail.
enum Outcome {
    Passed,
    Skipped,
}

/// Runs every check.
pub fn run() -> Result<()> {
    host::ensure()?;
    let checks: [(&str, Check); 6] = [
        ("format", || passes(&mut process::cargo(&["fmt", "--all", "--check"]))),
        ("generated files", || {
            crds::check().and_then(|()| chart::check()).and_then(|()| docs::check()).map(|()| Outcome::Passed)
        }),
        ("decisions", || decisions::check(&process::root()).map(|()| Outcome::Passed)),
        ("clippy", || {
            passes(&mut process::cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
        }),
        ("dependencies: licences, bans, sources", || {
            passes(deny()?.args(["check", "--hide-inclusion-graph", "licenses", "bans", "sources"]))
        }),
        ("dependencies: advisories", advisories),
    ];
    let (mut failed, mut skipped) = (Vec::new(), Vec::new());
    for (name, check) in checks {
        let start = Instant::now();
        println!("== {name}");
        match check() {
            Ok(Outcome::Passed) => println!("== {name}: ok ({})", process::took(start.elapsed())),
            Ok(Outcome::Skipped) => {
                println!("== {name}: SKIPPED");
                skipped.push(name);
            }
            Err(error) => {
                println!("== {name}: FAILED: {error:#}");
                failed.push(name);
            }
        }
    }
    if !failed.is_empty() {
        bail!("lint failed: {}", failed.join("; "));
    }
    if skipped.is_empty() {
        println!("lint: all checks passed");
    } else {
        println!("lint: all checks passed but for those that were skipped: {}", skipped.join("; "));
    }
    Ok(())
}

fn passes(command: &mut Command) -> Result<Outcome> {
    process::run(command)?;
    Ok(Outcome::Passed)
}

/// Known defects of dependencies. The only check that needs the network, so it may be skipped, but never quietly.
fn advisories() -> Result<Outcome> {
    let mut fetch = deny()?;
    let fetch = fetch.args(["fetch", "db"]).stdin(Stdio::null()).env("GIT_TERMINAL_PROMPT", "0").output();
    let fetch = fetch.context("cannot start cargo-deny")?;
    if !fetch.status.success() {
        let text = String::from_utf8_lossy(&fetch.stderr);
        let reason = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
        println!(
            "the advisory database cannot be fetched, so advisories were not checked. {}",
            reason.trim()
        );
        return Ok(Outcome::Skipped);
    }
    passes(deny()?.args(["check", "--hide-inclusion-graph", "--disable-fetch", "advisories"]))
}

/// cargo-deny, built once for each version and kept in the user's cache: every checkout uses the same.
fn deny() -> Result<Command> {
    let place = Lab::cache()?.join(format!("cargo-deny-{CARGO_DENY}"));
    let program = place.join("bin/cargo-deny");
    if !program.exists() {
        println!(
            "building cargo-deny {CARGO_DENY} into {}: it comes as source only (once, 2 to 5 minutes)",
            place.display()
        );
        // Without optimisation: it builds in half the time and its check still takes only seconds.
        let mut install = process::cargo(&["install", "--locked", "--debug", "--force", "--root"]);
        process::run(install.arg(&place).arg(format!("cargo-deny@{CARGO_DENY}")))?;
    }
    Ok(process::command(&program.to_string_lossy()))
}
