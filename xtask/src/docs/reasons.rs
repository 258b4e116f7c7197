//! The page that lists all reasons; and a comparison of the reasons and object states that the program can write with the tables that
//! explain them to people. Those tables are written by hand, because what to do about a reason is more than its meaning.
//!
//! A table of reasons has the columns `type`, `status` and `reason` first, a table of states begins with the column `state`. The last
//! heading above a table names the kind, in backquotes.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{cell, code};
use crate::process;

/// Something that the program can write into a status.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Written {
    kind: String,
    field: Field,
    word: String,
    #[serde(default)]
    meaning: String,
}

impl Written {
    fn without_meaning(&self) -> Self {
        Self { meaning: String::new(), ..self.clone() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Field {
    Reason,
    State,
}

/// The page: every reason of every kind.
pub fn page(written: &[Written]) -> String {
    let mut text = String::from(
        "# Reasons\n\nThe reasons that conditions can have, by kind. The page of each family says what to do about them. Those that every kind has come \
         from the [seven classes of failure](../../ARCHITECTURE.md#the-seven-classes-of-failure).\n",
    );
    let reasons = || written.iter().filter(|it| it.field == Field::Reason);
    let kinds: BTreeSet<&str> = reasons().map(|it| it.kind.as_str()).collect();
    for kind in kinds {
        let _ = write!(text, "\n## {kind}\n\n| reason | meaning |\n|---|---|\n");
        for it in reasons().filter(|it| it.kind == kind) {
            let _ = writeln!(text, "| {} | {} |", code(&it.word), cell(&it.meaning));
        }
    }
    text
}

/// Fails when the page of a family lacks a reason, or explains one that is never written.
pub fn check(written: &[Written]) -> Result<()> {
    let pages: Vec<&str> = aquifer_families::all().into_iter().map(aquifer_family::Family::page).collect();
    let mut explained = BTreeSet::new();
    for page in &pages {
        let file = process::root().join(page);
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        explained.extend(tables(&text));
    }
    let names: BTreeSet<Written> = written.iter().map(Written::without_meaning).collect();
    let mut differences = differences(&names, &explained);
    if names.len() != written.len() {
        differences.push("a word is listed twice for one kind: it would have two meanings".to_owned());
    }
    if !differences.is_empty() {
        bail!("{}:\n{}", pages.join(", "), differences.join("\n"));
    }
    Ok(())
}

fn differences(written: &BTreeSet<Written>, explained: &BTreeSet<Written>) -> Vec<String> {
    let name = |it: &Written| format!("{} {:?} {}", it.kind, it.field, it.word);
    let missing = written.difference(explained).map(|it| format!("{} is not explained", name(it)));
    let extra = explained.difference(written).map(|it| format!("{} is never written", name(it)));
    missing.chain(extra).collect()
}

/// Every reason and state that the tables of a page explain.
fn tables(text: &str) -> BTreeSet<Written> {
    let mut found = BTreeSet::new();
    let mut kind = "";
    // Of the table that the line is in: what it lists, and in which column.
    let mut table: Option<Option<(Field, usize)>> = None;
    for line in text.lines() {
        if line.starts_with('#') {
            kind = line.split('`').nth(1).unwrap_or_default();
        }
        if !line.starts_with('|') {
            table = None;
            continue;
        }
        let cells: Vec<&str> =
            line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let Some(listed) = table else {
            table = Some(match cells.as_slice() {
                ["type", "status", "reason", ..] => Some((Field::Reason, 2)),
                ["state", ..] => Some((Field::State, 0)),
                _ => None,
            });
            continue;
        };
        let Some((field, column)) = listed else { continue };
        // The line below the heading consists of dashes.
        let word = cells.get(column).filter(|word| !word.is_empty() && !word.starts_with('-'));
        if let Some(word) = word {
            let word = (*word).to_owned();
            found.insert(Written { kind: kind.to_owned(), field, word, meaning: String::new() });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
## Conditions of a `SharedVolume`\n\
\n\
| type | status | reason | meaning |\n|---|---|---|---|\n\
| `Ready` | True | `Bound` | works |\n| | False | `InUse` | wait |\n\
\n\
| field | meaning |\n|---|---|\n| `spec` | not a reason |\n\
\n\
## Objects of a `Component`\n\
\n\
| state | meaning |\n|---|---|\n| `Current` | fine |\n";

    fn written(kind: &str, field: Field, word: &str) -> Written {
        Written { kind: kind.into(), field, word: word.into(), meaning: String::new() }
    }

    fn all() -> BTreeSet<Written> {
        BTreeSet::from([
            written("SharedVolume", Field::Reason, "Bound"),
            written("SharedVolume", Field::Reason, "InUse"),
            written("Component", Field::State, "Current"),
        ])
    }

    #[test]
    fn reasons_and_states_are_read_from_their_tables() {
        assert_eq!(tables(PAGE), all());
    }

    #[test]
    fn what_is_not_explained_and_what_is_never_written_is_named() {
        let mut program = all();
        program.remove(&written("Component", Field::State, "Current"));
        program.insert(written("Component", Field::State, "Foreign"));
        assert_eq!(
            differences(&program, &tables(PAGE)),
            ["Component State Foreign is not explained", "Component State Current is never written"]
        );
    }
}
