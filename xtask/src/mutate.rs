//! `cargo xtask mutate`: puts known defects back into a scratch copy of the project, one by one, and looks whether each is found:
//! by the simulation within the number of seeds that it states, and by the unit test of its crate that it names. A defect says which text of a file
//! is replaced by which: that survives changes around it, and a test here fails when it does not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args as Flags;

use crate::process::{self, took};
use crate::simulate::TEST;

/// Where the defects of a crate are, a file for each, below its own folder.
const MUTATIONS: &str = "mutations";
/// The crate whose histories are played.
const ENGINE: &str = "aquifer-engine";

/// How long histories are played at most.
const LONGEST: Duration = Duration::from_mins(20);

#[derive(Flags)]
pub struct Args {
    /// Only those whose name contains this
    filter: Option<String>,
    /// Let the simulation look for all of them in so many histories, also where only a unit test is named
    #[arg(long, value_name = "SEEDS")]
    simulate: Option<u64>,
}

pub fn run(args: &Args) -> Result<()> {
    let tree = process::target_dir().join("mutate");
    copy(&tree)?;
    let mutations = mutations(args.filter.as_deref())?;
    let seeds = |mutation: &Mutation| args.simulate.or(mutation.seeds);
    nothing_is_found_without_a_defect(&tree, &mutations, mutations.iter().filter_map(seeds).max())?;
    let mut missed = Vec::new();
    for mutation in &mutations {
        let (name, begin) = (&mutation.name, Instant::now());
        let originals = mutation.apply(&tree)?;
        let found = found(&tree, mutation, seeds(mutation)).with_context(|| format!("cannot try {name}"));
        // The last first: two of its texts may be in one file.
        for (path, original) in originals.iter().rev() {
            fs::write(path, original)?;
        }
        for (how, result) in found? {
            let took = took(begin.elapsed());
            if let Some(said) = result {
                println!("{name}: found by {how} after {took}: {said}");
            } else {
                println!("{name}: NOT FOUND by {how} in {took}");
                missed.push(name.as_str());
            }
        }
    }
    ensure!(missed.is_empty(), "not everything finds {}", missed.join(", "));
    Ok(())
}

/// What ends badly without a defect proves nothing with one.
fn nothing_is_found_without_a_defect(tree: &Path, mutations: &[Mutation], seeds: Option<u64>) -> Result<()> {
    if let Some(said) = seeds.map(|seeds| simulation_finds(tree, seeds)).transpose()?.flatten() {
        bail!("without any defect, {said}");
    }
    for mutation in mutations {
        let Some(test) = &mutation.test else { continue };
        let found = test_finds(tree, &mutation.package, test)?;
        ensure!(found.is_none(), "without any defect, {test} fails");
    }
    println!("without a defect nothing is found");
    Ok(())
}

/// What each of those says that should find a defect; none when it notices nothing.
fn found(tree: &Path, mutation: &Mutation, seeds: Option<u64>) -> Result<Vec<(String, Option<String>)>> {
    let mut found = Vec::new();
    if let Some(test) = &mutation.test {
        found.push(("its test".to_owned(), test_finds(tree, &mutation.package, test)?));
    }
    if let Some(seeds) = seeds {
        found.push((format!("the simulation of {seeds} seeds"), simulation_finds(tree, seeds)?));
    }
    Ok(found)
}

/// A copy of what is committed, with the time of now: cargo must not take what was built from a defect for what is built from it.
pub fn copy(tree: &Path) -> Result<()> {
    fs::create_dir_all(tree)?;
    for entry in fs::read_dir(tree)? {
        let path = entry?.path();
        // What was compiled of other crates is still good.
        if path.is_dir() && !path.ends_with("target") {
            fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    let archive = tree.join("tree.tar");
    let archive_name = archive.to_string_lossy().into_owned();
    process::run(process::command("git").args(["archive", "--output", &archive_name, "HEAD"]))?;
    process::run(process::command("tar").args(["-xmf", &archive_name, "-C"]).arg(tree))
}

/// A defect that can be put back.
struct Mutation {
    name: String,
    /// The package whose unit test finds it.
    package: String,
    /// The unit test that finds it.
    test: Option<String>,
    /// In how many histories the simulation finds it.
    seeds: Option<u64>,
    /// What it changes; a defect against which there are two guards takes both away.
    changes: Vec<Change>,
}

/// One text of one file that is replaced by another.
struct Change {
    file: String,
    find: String,
    replace: String,
}

impl Mutation {
    fn parse(name: &str, package: &str, content: &str) -> Option<Self> {
        let mut sections = content.split("\nFile: ");
        let head = sections.next()?;
        let line = |begin: &str| head.lines().find_map(|line| line.strip_prefix(begin));
        let test = line("Test: ").map(str::to_owned);
        let seeds = line("Seeds: ").and_then(|seeds| seeds.parse().ok());
        let changes: Vec<Change> = sections.map(Change::parse).collect::<Option<_>>()?;
        let complete = !changes.is_empty() && (test.is_some() || seeds.is_some());
        complete.then(|| Self { name: name.to_owned(), package: package.to_owned(), test, seeds, changes })
    }

    /// Puts it into a tree, in which each of its texts must be exactly once; gives back what was there.
    fn apply(&self, tree: &Path) -> Result<Vec<(PathBuf, String)>> {
        let mut originals = Vec::new();
        for change in &self.changes {
            let path = tree.join(&change.file);
            let original =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", change.file))?;
            let applied = change.applied(&original).with_context(|| format!("correct {}", self.name))?;
            fs::write(&path, applied)?;
            originals.push((path, original));
        }
        Ok(originals)
    }
}

impl Change {
    fn parse(text: &str) -> Option<Self> {
        let (file, change) = text.split_once("\n--- instead of\n")?;
        let (find, replace) = change.split_once("\n--- it says\n")?;
        let replace = replace.strip_suffix('\n').unwrap_or(replace);
        Some(Self { file: file.to_owned(), find: find.to_owned(), replace: replace.to_owned() })
    }

    fn applied(&self, original: &str) -> Result<String> {
        let times = original.matches(&self.find).count();
        ensure!(times == 1, "its text is {times} times in {}", self.file);
        Ok(original.replace(&self.find, &self.replace))
    }
}

fn mutations(filter: Option<&str>) -> Result<Vec<Mutation>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(process::root().join("crates"))? {
        let folder = entry?.path();
        if folder.join(MUTATIONS).is_dir() {
            found.extend(mutations_of(&folder, filter)?);
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    if found.is_empty() {
        bail!("there is no defect of that name in crates/*/{MUTATIONS}");
    }
    Ok(found)
}

/// Those of one crate, by its folder. The package of the command line is called like the program.
fn mutations_of(folder: &Path, filter: Option<&str>) -> Result<Vec<Mutation>> {
    let package = match folder.file_name().unwrap_or_default().to_string_lossy() {
        name if name == "cli" => "aquifer".to_owned(),
        name => format!("aquifer-{name}"),
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder.join(MUTATIONS))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if filter.is_none_or(|filter| name.contains(filter)) {
            let text = fs::read_to_string(&path)?;
            let read = Mutation::parse(&name, &package, &text);
            found.push(read.with_context(|| format!("cannot read {}", path.display()))?);
        }
    }
    Ok(found)
}

fn cargo(tree: &Path, package: &str, args: &[&str]) -> Command {
    let mut command = process::cargo(&["test", "--quiet", "--package", package]);
    // A target directory of its own: cargo would take what is built here for what is built from our own tree.
    command.args(args).current_dir(tree).env("CARGO_TARGET_DIR", tree.join("target"));
    command
}

/// Whether a unit test fails.
fn test_finds(tree: &Path, package: &str, test: &str) -> Result<Option<String>> {
    // Compiled as for `cargo xtask mutants`: quickly. The command line is a program, not a library.
    let target = if package == "aquifer" { "--bins" } else { "--lib" };
    let unit = ["--profile", "mutants", target];
    process::run(cargo(tree, package, &unit).arg("--no-run"))?;
    let played =
        cargo(tree, package, &unit).args(["--", "--exact", test]).output().context("cannot run the test")?;
    let ran = String::from_utf8_lossy(&played.stdout).contains("running 1 test");
    ensure!(ran, "there is no test {test}");
    Ok((!played.status.success()).then(|| test.to_owned()))
}

/// What the simulation says of the first of so many histories that ends badly; none when all end well.
fn simulation_finds(tree: &Path, seeds: u64) -> Result<Option<String>> {
    process::run(&mut cargo(tree, ENGINE, &["--test", "proving_ground", "--no-run"]))?;
    let mut play = cargo(tree, ENGINE, &["--test", "proving_ground", "--", "--exact", TEST, "--nocapture"]);
    play.env("AQUIFER_SEED", "1").env("AQUIFER_SEEDS", seeds.to_string());
    play.env("AQUIFER_SECONDS", LONGEST.as_secs().to_string()).env("AQUIFER_SHORTEN", "0");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_defect_can_still_be_put_back() {
        for mutation in mutations(None).unwrap() {
            for change in &mutation.changes {
                let original = fs::read_to_string(process::root().join(&change.file)).unwrap();
                let applied =
                    change.applied(&original).unwrap_or_else(|error| panic!("{}: {error}", mutation.name));
                assert_ne!(applied, original, "{}", mutation.name);
            }
        }
    }
}
