//! `cargo xtask docs`: the reference in docs/reference, made from code. The pages hold nothing that a person wrote for them: flags,
//! metrics and reasons come from the program, fields from the CRDs, values from the chart.

mod alerts;
mod kinds;
mod links;
mod reasons;
mod values;

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;
use xtask::queries::Known;

use crate::generated::{Args, Files, Folder};
use crate::process;

const COMMAND: &str = "cargo xtask docs";

/// Writes or checks the pages.
pub fn run(args: Args) -> Result<()> {
    if args.check {
        return check();
    }
    let reference = reference()?;
    Folder::whole(dir(), files(&reference)?).write()?;
    check_written_by_hand(&reference)
}

/// Fails when a page is not what would be written now.
pub fn check() -> Result<()> {
    let reference = reference()?;
    let files = files(&reference)?;
    Folder::whole(dir(), files.clone()).check(COMMAND)?;
    check_written_by_hand(&reference)?;
    println!("{} pages of the reference are current", files.len());
    Ok(())
}

/// What people wrote about the program must fit what the program says.
fn check_written_by_hand(reference: &Reference) -> Result<()> {
    links::check()?;
    reasons::check(&reference.reasons)?;
    let mut known = Known::default();
    for metric in &reference.metrics {
        known.add(&metric.name, &metric.kind, &metric.labels);
    }
    alerts::check(&known)
}

fn dir() -> PathBuf {
    process::root().join("docs/reference")
}

/// What `aquifer reference` prints.
#[derive(Deserialize)]
struct Reference {
    commands: Vec<Command>,
    metrics: Vec<Metric>,
    #[serde(default)]
    reasons: Vec<reasons::Written>,
}

#[derive(Deserialize)]
struct Command {
    name: String,
    about: String,
    arguments: Vec<Argument>,
}

#[derive(Deserialize)]
struct Argument {
    usage: String,
    heading: String,
    variable: String,
    default: String,
    choices: Vec<String>,
    help: String,
}

#[derive(Deserialize)]
struct Metric {
    name: String,
    kind: String,
    labels: Vec<String>,
    help: String,
}

fn reference() -> Result<Reference> {
    let mut cargo = process::cargo(&["run", "--quiet", "--package", "aquifer", "--", "reference"]);
    // Defaults are those of the program, not those of whoever runs this.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("AQUIFER_")) {
        cargo.env_remove(name);
    }
    let text = process::output(&mut cargo)?;
    serde_json::from_str(&text).context("cannot read what `aquifer reference` printed")
}

fn files(reference: &Reference) -> Result<Files> {
    let pages = [
        ("commands.md", commands(&reference.commands)),
        ("metrics.md", metrics(&reference.metrics)),
        ("kinds.md", kinds::page(&crate::crds::all())?),
        ("reasons.md", reasons::page(&reference.reasons)),
        ("values.md", values::page()?),
    ];
    let mut files: Files = pages.into_iter().map(|(name, text)| (name.to_owned(), headed(&text))).collect();
    let mut index = String::from("# Reference\n\nThese pages are made from code.\n\n");
    for (name, text) in &files {
        let title = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or(name);
        let _ = writeln!(index, "- [{title}]({name})");
    }
    files.insert("README.md".into(), headed(&index));
    Ok(files)
}

fn headed(text: &str) -> String {
    format!("<!-- Written by `{COMMAND}`. Do not edit. -->\n\n{}\n", text.trim_end())
}

fn commands(all: &[Command]) -> String {
    let mut text = String::from(
        "# Commands\n\nEvery flag that has a variable can be set by it; the flag wins. `aquifer COMMAND --help` prints the same.\n",
    );
    for command in all {
        let _ = write!(text, "\n## {}\n\n{}.\n", command.name, command.about);
        let mut headings: Vec<&str> = Vec::new();
        for argument in &command.arguments {
            if !headings.contains(&argument.heading.as_str()) {
                headings.push(&argument.heading);
            }
        }
        for heading in headings {
            if !heading.is_empty() {
                let _ = write!(text, "\n### {heading}\n");
            }
            text += "\n| flag | variable | default | meaning |\n|---|---|---|---|\n";
            for argument in command.arguments.iter().filter(|argument| argument.heading == heading) {
                let mut help = argument.help.clone();
                if !argument.choices.is_empty() {
                    let _ = write!(help, " (one of: {})", argument.choices.join(", "));
                }
                let cells = [code(&argument.usage), code(&argument.variable), code(&argument.default)];
                let _ = writeln!(text, "| {} | {} |", cells.join(" | "), cell(&help));
            }
        }
    }
    text
}

fn metrics(all: &[Metric]) -> String {
    let mut text = String::from(
        "# Metrics\n\nServed at `/metrics` of the address of `--metrics-listen`. [operations.md](../operations.md) says what to look at.\n\n\
         | metric | type | labels | meaning |\n|---|---|---|---|\n",
    );
    for metric in all {
        let labels: Vec<String> = metric.labels.iter().map(|label| code(label)).collect();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            code(&metric.name),
            metric.kind,
            labels.join(", "),
            cell(&metric.help)
        );
    }
    text
}

/// Text that does not end its cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// Text as it is typed; nothing for nothing.
fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{}`", cell(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_stand_under_their_headings_with_variable_default_and_choices() {
        let argument = |usage: &str, heading: &str, choices: &[&str]| Argument {
            usage: usage.into(),
            heading: heading.into(),
            variable: "AQUIFER_X".into(),
            default: "a".into(),
            choices: choices.iter().map(|&choice| choice.to_owned()).collect(),
            help: "This | that".into(),
        };
        let command = Command {
            name: "aquifer run".into(),
            about: "Runs".into(),
            arguments: vec![argument("--one <X>", "", &["a", "b"]), argument("--two", "EFS", &[])],
        };
        let text = commands(&[command]);
        assert!(
            text.contains("| `--one <X>` | `AQUIFER_X` | `a` | This \\| that (one of: a, b) |"),
            "{text}"
        );
        let (before, after) = text.split_once("### EFS").unwrap();
        assert!(before.contains("--one") && after.contains("--two"), "{text}");
    }
}
