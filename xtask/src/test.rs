//! The rings of tests, cheapest first, summed up in one line. Knows nothing about any single test.

use std::{
    collections::BTreeSet,
    env,
    io::{BufRead, BufReader, Read, Write},
    process::{Command, Stdio},
    thread,
    time::Instant,
};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::Deserialize;

use crate::{host, image, lab, process, rights};

/// Packages whose integration tests drive whole programs.
const SYSTEM: [&str; 2] = ["aquifer-lab", "aquifer"];

/// Flags of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Args {
    /// Which ring; all of them when none is given
    ring: Option<Ring>,
    /// Only tests whose name contains this
    filter: Option<String>,
}

/// A ring of tests; see docs/testing.md.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Ring {
    /// Beside the code, without a cluster
    Pure,
    /// Behaviour against a real control plane
    Cluster,
    /// The programs themselves
    System,
    /// All rings, with the long walks
    Full,
}

impl Ring {
    fn heading(self) -> &'static str {
        match self {
            Ring::Pure => "pure: decisions, plans, quantities; no cluster",
            Ring::Cluster => "cluster: behaviour against a real control plane",
            Ring::System => "system: the binary, the lab, kill -9",
            Ring::Full => "full",
        }
    }
}

/// Runs the rings and fails when anything in them did.
pub async fn run(args: &Args) -> Result<()> {
    host::ensure()?;
    let full = args.ring == Some(Ring::Full);
    let rings = match args.ring {
        None | Some(Ring::Full) => vec![Ring::Pure, Ring::Cluster, Ring::System],
        Some(ring) => vec![ring],
    };
    if rings.iter().any(|ring| *ring != Ring::Pure) {
        rights::begin(&args.shown())?;
    }
    let packages = packages()?;
    let mut total = Tally::default();
    let mut prepared = false;
    let start = Instant::now();
    for ring in rings {
        let Some(selection) = selection(ring, &packages) else {
            println!("\n== {}: no tests yet", ring.heading());
            continue;
        };
        if ring != Ring::Pure && !prepared {
            // Here and not inside the first test, so that the wait is explained.
            lab::prepare().await?;
            prepared = true;
        }
        if ring == Ring::System {
            lab::prepare_nodes().await?;
            lab::prepare_rook().await?;
            image::prepare(full).await?;
        }
        println!("\n== {}", ring.heading());
        let begin = Instant::now();
        let tally = run_ring(ring, &selection, args.filter.as_deref(), full)?;
        println!("== {}: {} in {}", ring.heading(), tally.line(), process::took(begin.elapsed()));
        total.add(tally);
    }
    // Only everything together shows what nothing needs.
    if args.is_everything() {
        println!("\n== rights: the operator has what it needs, and nothing else");
        total.add(tally_of_rights(rights::check()));
    }
    println!();
    for broken in &total.broken {
        println!("failed: {broken}");
    }
    if total.ignored > 0 {
        println!("{} ignored", total.ignored);
    }
    println!("all rings took {}", process::took(start.elapsed()));
    let nothing = total.passed + total.failed == 0;
    println!("{}", total.line());
    if nothing {
        bail!(
            "no test ran{}",
            args.filter.as_ref().map(|name| format!(": none is named like `{name}`")).unwrap_or_default()
        );
    }
    if total.failed > 0 {
        std::process::exit(1);
    }
    Ok(())
}

impl Args {
    /// Whether nothing is left out.
    fn is_everything(&self) -> bool {
        matches!(self.ring, None | Some(Ring::Full)) && self.filter.is_none()
    }

    /// As one would type it.
    fn shown(&self) -> String {
        let ring = self.ring.and_then(|ring| ring.to_possible_value());
        let ring = ring.as_ref().map(clap::builder::PossibleValue::get_name);
        let words = ["cargo xtask test"].into_iter().chain(ring).chain(self.filter.as_deref());
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Counts as one test, also when there is no answer.
fn tally_of_rights(good: Result<bool>) -> Tally {
    let broken = match good {
        Ok(true) => return Tally { passed: 1, ..Tally::default() },
        Ok(false) => "what the chart grants is not what was used; see `cargo xtask rights`".to_owned(),
        Err(error) => format!("the rights could not be compared: {error:#}"),
    };
    Tally { failed: 1, broken: vec![broken], ..Tally::default() }
}

/// How `cargo test` is told how many tests run at once.
const THREADS: &str = "RUST_TEST_THREADS";
/// Cluster tests mostly wait, so more of them than cores run at once. So do system tests, but what they start weighs more.
const CLUSTER_TESTS_AT_ONCE: &str = "6";
const SYSTEM_TESTS_AT_ONCE: &str = "3";

/// Builds and runs one ring's tests.
fn run_ring(ring: Ring, selection: &[String], filter: Option<&str>, full: bool) -> Result<Tally> {
    let mut build = process::cargo(&["test", "--no-run"]);
    build.args(selection);
    if let Err(error) = process::run(&mut build) {
        return Ok(Tally { failed: 1, broken: vec![format!("{error:#}")], ..Tally::default() });
    }
    let mut tests = process::cargo(&["test", "--no-fail-fast"]);
    // What passing tests print too: walks tell how many points they visited.
    tests.args(selection).args(["--", "--show-output"]).args(filter);
    let at_once = match ring {
        Ring::Cluster => Some(CLUSTER_TESTS_AT_ONCE),
        Ring::System => Some(SYSTEM_TESTS_AT_ONCE),
        _ => None,
    };
    if let Some(at_once) = at_once.filter(|_| env::var_os(THREADS).is_none()) {
        tests.env(THREADS, at_once);
    }
    if full {
        tests.env("AQUIFER_FULL", "1");
    }
    if ring != Ring::Pure {
        tests.env(aquifer_lab::usage::VARIABLE, rights::dir());
    }
    follow(&mut tests, std::io::stdout(), std::io::stderr())
}

/// Shows a `cargo test` while it runs and counts what it says.
fn follow(
    command: &mut Command,
    show_out: impl Write + Send + 'static,
    show_err: impl Write + Send + 'static,
) -> Result<Tally> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{}`", process::show(command)))?;
    let (out, err) = (child.stdout.take().context("no stdout")?, child.stderr.take().context("no stderr")?);
    let out = thread::spawn(move || read(out, show_out));
    let err = thread::spawn(move || read(err, show_err));
    let mut tally = out.join().map_err(|_| anyhow::anyhow!("lost the output of the tests"))?;
    let notes = err.join().map_err(|_| anyhow::anyhow!("lost the messages of the tests"))?;
    let status = child.wait()?;
    tally.broken = notes.broken;
    // A test program that ends without a result (a crash, an abort) is one failure more.
    let crashed = tally.broken.len().saturating_sub(tally.red);
    tally.failed += crashed;
    if !status.success() && tally.failed == 0 {
        tally.failed = 1;
        tally.broken.push(format!("`{}` ended with {status}", process::show(command)));
    }
    Ok(tally)
}

/// Passes every line on and counts.
fn read(from: impl Read, mut to: impl Write) -> Tally {
    let mut tally = Tally::default();
    for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        // Nobody reads any more: still count to the end, so that the tests are not stopped half way.
        let _ = writeln!(to, "{line}").and_then(|()| to.flush());
        tally.see(&line);
    }
    tally
}

/// What tests said about themselves.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    ignored: usize,
    /// Test programs that ended with "test result: FAILED".
    red: usize,
    /// Test programs that failed, as cargo names them, and builds that failed.
    broken: Vec<String>,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.red += other.red;
        self.broken.extend(other.broken);
    }

    fn line(&self) -> String {
        format!("{} passed, {} failed", self.passed, self.failed)
    }

    fn see(&mut self, line: &str) {
        let line = line.trim();
        if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += count(result, "passed");
            self.failed += count(result, "failed");
            self.ignored += count(result, "ignored");
            self.red += usize::from(result.starts_with("FAILED"));
        } else if let Some(target) = line.strip_prefix("`-p ").and_then(|rest| rest.strip_suffix('`')) {
            // The list that cargo prints after "N targets failed:".
            self.broken.push(target.to_owned());
        }
    }
}

/// The number before a word in "ok. 3 passed; 0 failed; 1 ignored; …".
fn count(result: &str, word: &str) -> usize {
    let words: Vec<&str> = result.split([' ', ';']).collect();
    words.windows(2).find(|pair| pair[1] == word).and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

/// The arguments for cargo that select a ring's tests; nothing when there are none.
fn selection(ring: Ring, packages: &[Package]) -> Option<Vec<String>> {
    if ring == Ring::Pure {
        return Some(["--workspace", "--lib", "--bins"].map(str::to_owned).to_vec());
    }
    let wants_system = ring == Ring::System;
    let names: BTreeSet<&str> = packages
        .iter()
        .filter(|package| package.has_tests() && SYSTEM.contains(&package.name.as_str()) == wants_system)
        .map(|package| package.name.as_str())
        .collect();
    if names.is_empty() {
        return None;
    }
    let mut args: Vec<String> = names.iter().flat_map(|name| ["-p".to_owned(), (*name).to_owned()]).collect();
    args.extend(["--test".to_owned(), "*".to_owned()]);
    Some(args)
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
}

impl Package {
    fn has_tests(&self) -> bool {
        self.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "test"))
    }
}

fn packages() -> Result<Vec<Package>> {
    let text = process::output(&mut process::cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Metadata =
        serde_json::from_str(&text).context("cannot read what `cargo metadata` printed")?;
    Ok(metadata.packages)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, kind: &str) -> Package {
        Package { name: name.into(), targets: vec![Target { kind: vec![kind.into()] }] }
    }

    /// What is shown would be counted by whoever runs these tests.
    fn quietly(script: &str) -> Result<Tally> {
        follow(Command::new("sh").args(["-c", script]), std::io::sink(), std::io::sink())
    }

    #[test]
    fn results_of_several_programs_are_summed() {
        let text = "running 3 tests\n\
            test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            test result: FAILED. 4 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        let tally = read(text.as_bytes(), std::io::sink());
        assert_eq!((tally.passed, tally.failed, tally.ignored, tally.red), (7, 2, 1, 1));
        assert_eq!(tally.line(), "7 passed, 2 failed");
    }

    #[test]
    fn failed_programs_are_named_as_cargo_names_them() {
        let text =
            "error: 2 targets failed:\n    `-p aquifer-base --lib`\n    `-p aquifer-efs --test cluster`\n";
        let tally = read(text.as_bytes(), std::io::sink());
        assert_eq!(tally.broken, ["aquifer-base --lib", "aquifer-efs --test cluster"]);
    }

    #[test]
    fn a_program_that_crashes_counts_as_one_failure_and_is_named() {
        let script = "echo 'running 3 tests'; \
            echo 'test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured'; \
            printf 'error: 2 targets failed:\\n    `-p a --lib`\\n    `-p b --lib`\\n' >&2; exit 101";
        let tally = quietly(script).unwrap();
        assert_eq!((tally.passed, tally.failed), (1, 3));
        assert_eq!(tally.broken, ["a --lib", "b --lib"]);
    }

    #[test]
    fn a_run_that_dies_without_a_word_is_a_failure() {
        let tally = quietly("exit 3").unwrap();
        assert_eq!(tally.failed, 1);
        assert_eq!(tally.broken.len(), 1);
    }

    #[test]
    fn rights_that_cannot_be_compared_are_one_failure_with_its_reason() {
        let tally = tally_of_rights(Err(anyhow::anyhow!("no such record")));
        assert_eq!((tally.passed, tally.failed), (0, 1));
        assert!(tally.broken[0].contains("no such record"), "{:?}", tally.broken);
        assert_eq!(tally_of_rights(Ok(true)).line(), "1 passed, 0 failed");
    }

    #[test]
    fn integration_tests_of_programs_are_system_tests_and_all_others_cluster_tests() {
        let packages =
            [package("aquifer-efs", "test"), package("aquifer-lab", "test"), package("aquifer-base", "lib")];
        assert_eq!(selection(Ring::Cluster, &packages).unwrap(), ["-p", "aquifer-efs", "--test", "*"]);
        assert_eq!(selection(Ring::System, &packages).unwrap(), ["-p", "aquifer-lab", "--test", "*"]);
        assert!(selection(Ring::System, &packages[..1]).is_none());
    }
}
