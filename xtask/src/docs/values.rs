//! The page of the chart's values, from the comments and defaults of values.yaml. Reads only the part of YAML that the file uses.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, bail};

use super::{cell, code};
use crate::process;

const FILE: &str = "charts/aquifer/values.yaml";

/// One value, or a group of values that share a remark.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    path: String,
    default: Option<String>,
    remark: String,
}

/// The page.
pub fn page() -> Result<String> {
    let file = process::root().join(FILE);
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let lines = read(&text).with_context(|| format!("cannot read {FILE}"))?;
    check(&text, &lines)?;
    let mut page = String::from(
        "# Values of the chart\n\nThe schema of the chart refuses unknown names and wrong values.\n\n| value | default | meaning |\n|---|---|---|\n",
    );
    for line in &lines {
        let default = line.default.as_deref().map(code).unwrap_or_default();
        // A group without a remark says nothing.
        if line.default.is_some() || !line.remark.is_empty() {
            let _ = writeln!(page, "| {} | {default} | {} |", code(&line.path), cell(&line.remark));
        }
    }
    Ok(page)
}

fn read(text: &str) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    let mut parents: Vec<&str> = Vec::new();
    let mut remark: Vec<&str> = Vec::new();
    for line in text.lines() {
        let content = line.trim_start();
        if content.is_empty() {
            // What stands alone is about the file.
            remark.clear();
        } else if let Some(comment) = content.strip_prefix('#') {
            remark.push(comment.trim());
        } else {
            let depth = (line.len() - content.len()) / 2;
            let Some((key, value)) = content.split_once(':') else { bail!("`{line}` is not `key: value`") };
            if depth > parents.len() {
                bail!("`{line}` is indented by more than two spaces");
            }
            parents.truncate(depth);
            parents.push(key);
            let value = value.trim();
            lines.push(Line {
                path: parents.join("."),
                default: (!value.is_empty()).then(|| value.to_owned()),
                remark: remark.join(" "),
            });
            remark.clear();
        }
    }
    Ok(lines)
}

/// Fails when the lines are not what a real reader of YAML finds.
fn check(text: &str, lines: &[Line]) -> Result<()> {
    let values: serde_json::Value = serde_saphyr::from_str(text).context("not YAML")?;
    for line in lines {
        let pointer = format!("/{}", line.path.replace('.', "/"));
        if values.pointer(&pointer).is_none() {
            bail!("{FILE} has no value {}: its layout is not the one that this page is made from", line.path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_path_default_and_remark_of_their_place() {
        let text =
            "# About the file.\n\n# How many.\nreplicas: 2\n\nlog:\n  # Which\n  # ones.\n  level: info\n";
        let lines = read(text).unwrap();
        let seen: Vec<(&str, Option<&str>, &str)> = lines
            .iter()
            .map(|line| (line.path.as_str(), line.default.as_deref(), line.remark.as_str()))
            .collect();
        assert_eq!(
            seen,
            [
                ("replicas", Some("2"), "How many."),
                ("log", None, ""),
                ("log.level", Some("info"), "Which ones.")
            ]
        );
    }

    #[test]
    fn a_layout_that_is_read_wrongly_is_refused() {
        let text = "log:\n    level: info\n";
        assert!(read(text).is_err());
        let text = "log: {level: info}\nlevel: 3\n";
        let mut lines = read(text).unwrap();
        check(text, &lines).unwrap();
        lines[1].path = "log.format".into();
        assert!(check(text, &lines).is_err());
    }
}
