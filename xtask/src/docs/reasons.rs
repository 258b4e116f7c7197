//! Compares the reasons and object states that the program can write with the tables that explain them to people. The tables are written
//! by hand, because what to do about a reason is more than its name.
//!
//! A table of reasons has the columns `type`, `status` and `reason` first; an empty `type` repeats the one above. A table of states begins
//! with the column `state`. The last heading above a table names the kind.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::process;

/// The pages for users that have such tables.
const PAGES: [&str; 1] = ["docs/efs.md"];
/// Stands in the column of the condition's type for the state of an object.
const STATE: &str = "state";

/// Something that the program can write into a status.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Written {
    kind: String,
    /// The type of the condition, or [`STATE`].
    condition: String,
    reason: String,
}

/// Fails when a page lacks a reason, or explains one that is never written.
pub fn check(written: &[Written]) -> Result<()> {
    if written.is_empty() {
        println!("reasons are not compared with the docs: `aquifer reference` does not list them yet");
        return Ok(());
    }
    let mut explained = BTreeSet::new();
    for page in PAGES {
        let file = process::root().join(page);
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        explained.extend(tables(&text));
    }
    let differences = differences(&written.iter().cloned().collect(), &explained);
    if !differences.is_empty() {
        bail!("{}:\n{}", PAGES.join(", "), differences.join("\n"));
    }
    Ok(())
}

fn differences(written: &BTreeSet<Written>, explained: &BTreeSet<Written>) -> Vec<String> {
    let name = |reason: &Written| format!("{} {} {}", reason.kind, reason.condition, reason.reason);
    let missing = written.difference(explained).map(|reason| format!("{} is not explained", name(reason)));
    let extra = explained.difference(written).map(|reason| format!("{} is never written", name(reason)));
    missing.chain(extra).collect()
}

/// Every reason and state that the tables of a page explain.
fn tables(text: &str) -> BTreeSet<Written> {
    let mut found = BTreeSet::new();
    let mut kind = String::new();
    let mut columns: Vec<String> = Vec::new();
    let mut condition = String::new();
    for line in text.lines() {
        if line.starts_with('#') {
            line.split('`').nth(1).unwrap_or_default().clone_into(&mut kind);
        }
        if !line.starts_with('|') {
            columns.clear();
            continue;
        }
        let cells: Vec<String> = line.trim_matches('|').split('|').map(plain).collect();
        if columns.is_empty() {
            columns = cells;
            condition.clear();
            continue;
        }
        let reason = match columns.first().map(String::as_str) {
            Some("type") if columns.get(2).is_some_and(|name| name == "reason") => {
                if let Some(name) = cells.first().filter(|name| !name.is_empty()) {
                    condition.clone_from(name);
                }
                cells.get(2)
            }
            Some(STATE) => {
                STATE.clone_into(&mut condition);
                cells.first()
            }
            _ => None,
        };
        if let Some(reason) = reason.filter(|word| !word.is_empty() && !word.starts_with('-')) {
            found.insert(Written {
                kind: kind.clone(),
                condition: condition.clone(),
                reason: reason.clone(),
            });
        }
    }
    found
}

fn plain(cell: &str) -> String {
    cell.trim().trim_matches('`').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
## Conditions of `SharedVolume`\n\
\n\
| type | status | reason | meaning |\n|---|---|---|---|\n\
| `Ready` | True | `Bound` | works |\n| | False | `InUse` | wait |\n\
| `Duplicate` | True | `SameData` | use one |\n\
\n\
| field | meaning |\n|---|---|\n| `spec` | not a reason |\n\
\n\
## Objects of a `Component`\n\
\n\
| state | meaning |\n|---|---|\n| `Current` | fine |\n";

    fn reason(kind: &str, condition: &str, reason: &str) -> Written {
        Written { kind: kind.into(), condition: condition.into(), reason: reason.into() }
    }

    fn all() -> BTreeSet<Written> {
        BTreeSet::from([
            reason("SharedVolume", "Ready", "Bound"),
            reason("SharedVolume", "Ready", "InUse"),
            reason("SharedVolume", "Duplicate", "SameData"),
            reason("Component", STATE, "Current"),
        ])
    }

    #[test]
    fn reasons_and_states_are_read_from_their_tables() {
        assert_eq!(tables(PAGE), all());
    }

    #[test]
    fn what_is_not_explained_and_what_is_never_written_is_named() {
        let mut written = all();
        written.remove(&reason("Component", STATE, "Current"));
        written.insert(reason("Component", STATE, "Foreign"));
        assert_eq!(
            differences(&written, &tables(PAGE)),
            ["Component state Foreign is not explained", "Component state Current is never written"]
        );
    }
}
