//! Checks the alerts that the docs offer: they can be applied, and every metric and label that they and the dashboard ask for exists.

use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use xtask::queries::{self, ALERTS, Known};

use crate::process;

const PAGE: &str = "docs/operations.md";

/// Fails when an alert is incomplete or not explained, or when something asks for what is not `known`.
pub fn check(known: &Known) -> Result<()> {
    let read = |file: &str| {
        fs::read_to_string(process::root().join(file)).with_context(|| format!("cannot read {file}"))
    };
    let mut mistakes = mistakes(&read(ALERTS)?, &read(PAGE)?)?;
    mistakes.extend(queries::all(&process::root())?.iter().flat_map(|question| known.lacks(question, &[])));
    if !mistakes.is_empty() {
        bail!("alerts and dashboard:\n{}", mistakes.join("\n"));
    }
    Ok(())
}

fn mistakes(text: &str, page: &str) -> Result<Vec<String>> {
    let file: Value = serde_saphyr::from_str(text).context("cannot read it as YAML")?;
    let mut mistakes = Vec::new();
    if file["kind"] != "PrometheusRule" || file["apiVersion"] != "monitoring.coreos.com/v1" {
        mistakes.push("it is not a PrometheusRule".to_owned());
    }
    let groups = file["spec"]["groups"].as_array().context("it has no groups")?;
    let rules = groups.iter().filter_map(|group| group["rules"].as_array()).flatten();
    for rule in rules {
        let text = |pointer: &str| rule.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let name = text("/alert");
        for needed in
            ["/alert", "/expr", "/labels/severity", "/annotations/summary", "/annotations/description"]
        {
            if text(needed).is_empty() {
                mistakes.push(format!("alert `{name}` has no {needed}"));
            }
        }
        if !page.contains(&format!("| `{name}` |")) {
            mistakes.push(format!("alert `{name}` is not explained in {PAGE}"));
        }
    }
    Ok(mistakes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_that_is_incomplete_or_not_explained_is_named() {
        let rule = "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nspec:\n  groups:\n  - name: a\n    rules:\n    \
            - alert: Slow\n      expr: aquifer_x > 1\n      labels: {severity: info}\n      \
            annotations: {summary: s, description: d}\n";
        assert_eq!(mistakes(rule, "| `Slow` | wait |").unwrap(), [""; 0]);
        let found = mistakes(&rule.replace("{severity: info}", "{}"), "").unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
