//! Checks the alerts that the docs offer: they can be applied, and every metric that they ask for exists.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process;

const FILE: &str = "docs/alerts.yaml";
const PAGE: &str = "docs/operations.md";

/// Fails when an alert is incomplete, asks for a metric that is not among `names`, or is not explained.
pub fn check(names: &BTreeSet<String>) -> Result<()> {
    let read = |file: &str| {
        fs::read_to_string(process::root().join(file)).with_context(|| format!("cannot read {file}"))
    };
    let mistakes = mistakes(&read(FILE)?, &read(PAGE)?, names)?;
    if !mistakes.is_empty() {
        bail!("{FILE}:\n{}", mistakes.join("\n"));
    }
    Ok(())
}

fn mistakes(text: &str, page: &str, names: &BTreeSet<String>) -> Result<Vec<String>> {
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
        let unknown = metrics(text("/expr")).into_iter().filter(|metric| !names.contains(metric));
        mistakes
            .extend(unknown.map(|metric| format!("alert `{name}` asks for {metric}, which does not exist")));
        if !page.contains(&format!("| `{name}` |")) {
            mistakes.push(format!("alert `{name}` is not explained in {PAGE}"));
        }
    }
    Ok(mistakes)
}

/// The names of ours in an expression. A histogram is known by its name without the ending.
fn metrics(expression: &str) -> Vec<String> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = expression.split(|c| !word(c)).filter(|name| name.starts_with("aquifer_"));
    let plain = |name: &str| {
        let endings = ["_bucket", "_sum", "_count"];
        endings.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name).to_owned()
    };
    words.map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_on_a_metric_that_does_not_exist_is_named() {
        let rule = "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nspec:\n  groups:\n  - name: a\n    rules:\n    \
            - alert: Slow\n      expr: rate(aquifer_pass_seconds_sum[5m]) / aquifer_gone > 1\n      labels: {severity: info}\n      \
            annotations: {summary: s, description: d}\n";
        let names = BTreeSet::from(["aquifer_pass_seconds".to_owned()]);
        let found = mistakes(rule, "| `Slow` | wait |", &names).unwrap();
        assert_eq!(found, ["alert `Slow` asks for aquifer_gone, which does not exist"]);
        let found = mistakes(&rule.replace("{severity: info}", "{}"), "", &names).unwrap();
        assert_eq!(found.len(), 3, "{found:?}");
    }
}
