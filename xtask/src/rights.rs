//! Does the operator need every right that the chart gives it, and no other? Keeps the record of a test run and prints how it
//! compares with the chart.

mod compare;
pub mod usage;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use aquifer_lab::{Lab, install};

use self::usage::Usage;
use compare::{Standing, Verdict, compare, granted, held};

/// What the record is of, in the words of whoever made it.
const OF: &str = "of";

/// Where clusters of a test run leave their record. No cluster can have this name.
pub fn dir() -> PathBuf {
    Lab::root().join(".usage")
}

/// Begins a new record of the run `of`.
pub fn begin(of: &str) -> Result<()> {
    // What crashed before is not of this run.
    Lab::sweep()?;
    let dir = dir();
    if dir.exists() {
        fs::remove_dir_all(&dir).with_context(|| format!("cannot empty {}", dir.display()))?;
    }
    fs::create_dir_all(&dir)
        .and_then(|()| fs::write(dir.join(OF), of))
        .with_context(|| format!("cannot write to {}", dir.display()))
}

/// Prints the table of the last run.
pub fn run() -> Result<()> {
    let of = fs::read_to_string(dir().join(OF))
        .context("nothing is on record yet: `cargo xtask test` records what the operator does")?;
    Lab::sweep()?;
    usage::summarize_all(&dir())?;
    let used = usage::read(&dir())?;
    ensure!(!used.is_empty(), "no operator ran in `{of}`");
    let verdict = compare(granted(), &used, &held());
    println!("Rights of the operator, and what it did with them in `{of}`:");
    print_table(&verdict);
    println!();
    print_breadth();
    print_trouble(&verdict);
    println!("{}", line(&verdict, &used));
    if !verdict.is_good() {
        bail!("what is granted is not what is needed");
    }
    Ok(())
}

/// Compares after a whole run; prints only what is wrong. False when something is.
pub fn check() -> Result<bool> {
    Lab::sweep()?;
    usage::summarize_all(&dir())?;
    let used = usage::read(&dir())?;
    let verdict = compare(granted(), &used, &held());
    print_breadth();
    print_trouble(&verdict);
    println!("{}", line(&verdict, &used));
    Ok(verdict.is_good())
}

fn line(verdict: &Verdict, used: &BTreeSet<Usage>) -> String {
    let clusters: BTreeSet<&str> = used.iter().map(|usage| usage.cluster.as_str()).collect();
    format!(
        "{} rights granted, {} used, {} held for a reason, {} unused; {} missing, {} as other users; in {} clusters",
        verdict.rights.len(),
        verdict.count(|standing| standing == Standing::Used),
        verdict.count(|standing| matches!(standing, Standing::Held(_))),
        verdict.unused().count(),
        verdict.missing.len() + verdict.beyond.len(),
        verdict.other_accounts.len(),
        clusters.len(),
    )
}

fn print_table(verdict: &Verdict) {
    let mut why = "";
    let mut place = String::new();
    for (right, standing) in &verdict.rights {
        if right.why != why {
            why = right.why;
            place.clear();
            print!("\n\n{why}");
        }
        if right.place() != place {
            place = right.place();
            print!("\n  {place}:");
        }
        match standing {
            Standing::Used => print!(" {}", right.verb),
            Standing::Held(_) => print!(" ({})", right.verb),
            Standing::Unused => print!(" !{}", right.verb),
        }
    }
    println!();
}

/// What all of it is worth to somebody else.
fn print_breadth() {
    println!("Whoever steals the operator's token can:");
    for line in compare::breadth() {
        println!("- {line}");
    }
}

fn print_trouble(verdict: &Verdict) {
    for right in verdict.unused() {
        println!("unused: {} {}: granted for \"{}\"", right.verb, right.place(), right.why);
    }
    for held in &verdict.needless {
        println!("not an exception any more: {} {}: {}", held.verb, held.resource, held.reason);
    }
    for usage in &verdict.missing {
        println!("refused, no rule grants it: {}", say(usage));
    }
    for usage in &verdict.beyond {
        println!("allowed, but by no rule of ours: {}", say(usage));
    }
    for usage in &verdict.other_accounts {
        println!("an operator ran as {} instead of {}: {}", usage.user, install::USER, say(usage));
    }
    for usage in &verdict.taken {
        println!("note: refused while its rights were taken away: {}", say(usage));
    }
    for (right, standing) in &verdict.rights {
        if let Standing::Held(reason) = standing {
            println!("note: {} {} is held: {reason}", right.verb, right.place());
        }
    }
}

fn say(usage: &Usage) -> String {
    let Usage { cluster, verb, group, resource, namespace, name, manager, .. } = usage;
    let group = if group.is_empty() { String::new() } else { format!(".{group}") };
    let details = [("namespace", namespace), ("name", name), ("field manager", manager)];
    let details: Vec<String> = details
        .iter()
        .filter(|(_, value)| !value.is_empty() && *value != usage::ANY)
        .map(|(word, value)| format!(", {word} {value}"))
        .collect();
    format!("{verb} {resource}{group}{} (cluster {cluster})", details.concat())
}
