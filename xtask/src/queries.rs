//! The questions that our alerts and our dashboard ask Prometheus: which metrics and labels they need, and whether these exist.
//! Reads only as much of PromQL as that takes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The alerts, of which the chart has a copy.
pub const ALERTS: &str = "docs/alerts.yaml";
/// The dashboard in the chart.
pub const DASHBOARD: &str = "charts/aquifer/files/dashboard.json";

/// Labels that Prometheus adds to whatever it reads.
const SCRAPED: [&str; 2] = ["instance", "job"];
/// Words before a list of labels.
const GROUPINGS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
/// Words that are neither metrics nor followed by labels.
const KEYWORDS: [&str; 6] = ["and", "or", "unless", "bool", "offset", "inf"];

/// A question, and the labels that its answers are shown with.
#[derive(Debug, PartialEq, Eq)]
pub struct Question {
    /// Who asks, for people.
    pub asker: String,
    /// In PromQL.
    pub expression: String,
    /// Named in a legend or a message.
    pub shown: BTreeSet<String>,
}

/// Metrics that exist, with their labels.
#[derive(Debug, Default)]
pub struct Known(BTreeMap<String, BTreeSet<String>>);

impl Known {
    /// What a scraper has read.
    pub fn scraped(text: &str) -> Self {
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some(end) = line.find(['{', ' ']) else { continue };
            let labels = all.entry(line[..end].to_owned()).or_default();
            labels.extend(labels_in(&line[end..]));
        }
        Self(all)
    }

    /// One more: its name, its type and its labels, as the reference has them.
    pub fn add(&mut self, name: &str, kind: &str, labels: &[String]) {
        let labels: BTreeSet<String> = labels.iter().cloned().collect();
        if kind == "histogram" {
            let with_le = labels.iter().cloned().chain(["le".to_owned()]).collect();
            self.0.insert(format!("{name}_bucket"), with_le);
            for ending in ["_sum", "_count"] {
                self.0.insert(format!("{name}{ending}"), labels.clone());
            }
        } else {
            self.0.insert(name.to_owned(), labels);
        }
    }

    /// What a question needs and does not get. Metrics of `absent_when_well` may be missing.
    pub fn lacks(&self, question: &Question, absent_when_well: &[&str]) -> Vec<String> {
        let Needs { metrics, grouped } = needs(&question.expression);
        let asker = &question.asker;
        let mut mistakes = Vec::new();
        let mut labels: BTreeSet<&str> = SCRAPED.into();
        let mut all_known = true;
        for (name, matched) in &metrics {
            let Some(known) = self.0.get(name) else {
                all_known = false;
                if !absent_when_well.contains(&name.as_str()) {
                    mistakes.push(format!("{asker} asks for {name}, which does not exist"));
                }
                continue;
            };
            labels.extend(known.iter().map(String::as_str));
            let missing =
                matched.iter().filter(|label| !known.contains(*label) && !SCRAPED.contains(&label.as_str()));
            mistakes.extend(
                missing.map(|label| format!("{asker} asks for the label {label} of {name}, which has none")),
            );
        }
        if metrics.is_empty() {
            mistakes.push(format!("{asker} asks for no metric"));
        }
        if all_known {
            let missing =
                grouped.iter().chain(&question.shown).filter(|label| !labels.contains(label.as_str()));
            mistakes.extend(
                missing.map(|label| format!("{asker} uses the label {label}, which no metric of it has")),
            );
        }
        mistakes
    }
}

/// All questions of a checkout.
pub fn all(root: &Path) -> Result<Vec<Question>> {
    let read =
        |file: &str| fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"));
    let alerts: Value =
        serde_saphyr::from_str(&read(ALERTS)?).with_context(|| format!("cannot read {ALERTS} as YAML"))?;
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)?)
        .with_context(|| format!("cannot read {DASHBOARD} as JSON"))?;
    let (of_alerts, of_dashboard) = (of_alerts(&alerts), of_dashboard(&dashboard));
    ensure!(!of_alerts.is_empty(), "{ALERTS} asks nothing");
    ensure!(!of_dashboard.is_empty(), "{DASHBOARD} asks nothing");
    Ok(of_alerts.into_iter().chain(of_dashboard).collect())
}

fn of_alerts(file: &Value) -> Vec<Question> {
    let groups = file["spec"]["groups"].as_array().into_iter().flatten();
    let rules = groups.filter_map(|group| group["rules"].as_array()).flatten();
    let question = |rule: &Value| Question {
        asker: format!("alert `{}`", text(&rule["alert"])),
        expression: text(&rule["expr"]),
        shown: braced(&rule["annotations"].to_string(), "$labels."),
    };
    rules.map(question).collect()
}

fn of_dashboard(file: &Value) -> Vec<Question> {
    let mut all = Vec::new();
    for panel in file["panels"].as_array().into_iter().flatten() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            all.push(Question {
                asker: format!("panel `{}`", text(&panel["title"])),
                expression: text(&target["expr"]),
                shown: braced(&text(&target["legendFormat"]), ""),
            });
        }
    }
    all
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// What stands in double braces behind a prefix.
fn braced(text: &str, prefix: &str) -> BTreeSet<String> {
    let parts = text.split("{{").skip(1).filter_map(|part| part.split_once("}}"));
    parts.filter_map(|(inner, _)| inner.trim().strip_prefix(prefix)).map(str::to_owned).collect()
}

/// The names of labels in braces, of a matcher or of a line that was scraped.
fn labels_in(text: &str) -> Vec<String> {
    let mut labels = Vec::new();
    let mut rest = text.strip_prefix('{').unwrap_or_default();
    while let Some(end) = rest.find(['=', '!', '}']) {
        if rest[end..].starts_with('}') {
            break;
        }
        labels.push(rest[..end].trim_matches([',', ' ']).to_owned());
        let Some(value) = rest[end..].find('"').map(|quote| &rest[end + quote + 1..]) else { break };
        rest = &value[end_of_string(value)..];
    }
    labels
}

/// Where a string that has begun is over: behind its closing quotation mark.
fn end_of_string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

/// What an expression needs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needs {
    /// Metrics, each with the labels that it is selected by.
    metrics: Vec<(String, Vec<String>)>,
    /// Labels that it is grouped or joined by.
    grouped: BTreeSet<String>,
}

fn needs(expression: &str) -> Needs {
    let mut needs = Needs::default();
    let mut rest = expression;
    while let Some(c) = rest.chars().next() {
        if c == '"' {
            rest = &rest[1 + end_of_string(&rest[1..])..];
        } else if c == '[' {
            rest = rest.split_once(']').map_or("", |(_, after)| after);
        } else if c.is_ascii_alphabetic() || c == '_' {
            let end =
                rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':').unwrap_or(rest.len());
            let (word, after) = (&rest[..end], rest[end..].trim_start());
            rest = after;
            if GROUPINGS.contains(&word) {
                let Some((list, after)) = after.strip_prefix('(').and_then(|list| list.split_once(')'))
                else {
                    continue;
                };
                needs.grouped.extend(
                    list.split(',').map(|label| label.trim().to_owned()).filter(|label| !label.is_empty()),
                );
                rest = after;
            } else if !after.starts_with('(') && !KEYWORDS.contains(&word) && !is_aggregation(word) {
                needs.metrics.push((word.to_owned(), labels_in(after)));
                rest = past_braces(after);
            }
        } else if c.is_ascii_digit() {
            // A number or a duration; its unit is no metric.
            rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.');
        } else {
            rest = &rest[c.len_utf8()..];
        }
    }
    needs
}

/// Words that may have their grouping before their argument, as in `sum by (kind) (…)`.
fn is_aggregation(word: &str) -> bool {
    ["sum", "min", "max", "avg", "count", "group", "stddev", "topk", "bottomk", "quantile"].contains(&word)
}

fn past_braces(text: &str) -> &str {
    if !text.starts_with('{') {
        return text;
    }
    let mut rest = &text[1..];
    while let Some(at) = rest.find(['"', '}']) {
        if rest[at..].starts_with('}') {
            return &rest[at + 1..];
        }
        rest = &rest[at + 1..];
        rest = &rest[end_of_string(rest)..];
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRAPE: &str = "# TYPE aquifer_passes counter\naquifer_passes_total{controller=\"a\",outcome=\"o{k\\\"\"} 3\n\
        aquifer_seconds_bucket{controller=\"a\",le=\"1.0\"} 2\naquifer_seconds_sum{controller=\"a\"} 2\nup 1\n";

    fn lacks(expression: &str, shown: &[&str]) -> Vec<String> {
        let shown = shown.iter().map(|&label| label.to_owned()).collect();
        let question = Question { asker: "it".into(), expression: expression.into(), shown };
        Known::scraped(SCRAPE).lacks(&question, &["aquifer_panics_total"])
    }

    #[test]
    fn metrics_matchers_and_groupings_are_found() {
        let needs = needs(
            "sum by (controller, le) (rate(aquifer_seconds_bucket{controller!=\"x}\",le=~\".*\"}[$__rate_interval]))\n \
             / count(up) > 0.5 and on (instance) time() - 1e3 * offset 5m",
        );
        let wanted = [("aquifer_seconds_bucket", &["controller", "le"][..]), ("up", &[])];
        let wanted =
            wanted.map(|(name, labels)| (name.to_owned(), labels.iter().map(|&l| l.to_owned()).collect()));
        assert_eq!(needs.metrics, Vec::from(wanted));
        assert_eq!(Vec::from_iter(needs.grouped), ["controller", "instance", "le"]);
    }

    #[test]
    fn what_does_not_exist_is_named() {
        assert_eq!(
            lacks("sum by (controller) (rate(aquifer_passes_total{outcome=\"ok\"}[5m]))", &["controller"]),
            [""; 0]
        );
        assert_eq!(
            lacks("histogram_quantile(0.9, sum by (le) (rate(aquifer_seconds_bucket[5m])))", &[]),
            [""; 0]
        );
        assert_eq!(lacks("up and on (instance) up", &["instance"]), [""; 0]);
        assert_eq!(lacks("rate(aquifer_panics_total[5m])", &[]), [""; 0], "that may be");
        for (expression, shown, word) in [
            ("aquifer_gone > 1", &[][..], "aquifer_gone, which does not exist"),
            ("aquifer_passes_total{kind=\"a\"}", &[], "the label kind of aquifer_passes_total"),
            ("sum by (kind) (up)", &[], "the label kind, which"),
            ("aquifer_seconds_sum{le=\"1\"}", &[], "the label le of"),
            ("up", &["kind"], "the label kind, which"),
            ("1 + 1", &[], "no metric"),
        ] {
            let found = lacks(expression, shown);
            assert!(found.len() == 1 && found[0].contains(word), "{expression}: {found:?}");
        }
    }

    #[test]
    fn the_reference_knows_the_parts_of_a_histogram() {
        let mut known = Known::default();
        known.add("a_seconds", "histogram", &["kind".into()]);
        known.add("b_total", "counter", &[]);
        let lacks = |expression: &str| {
            let question =
                Question { asker: "it".into(), expression: expression.into(), shown: BTreeSet::new() };
            known.lacks(&question, &[])
        };
        for good in ["a_seconds_bucket{le=\"1\",kind=\"x\"}", "a_seconds_count{kind=\"x\"}", "b_total"] {
            assert_eq!(lacks(good), [""; 0], "{good}");
        }
        for bad in ["a_seconds", "a_seconds_sum{le=\"1\"}", "b_total{kind=\"x\"}"] {
            assert_eq!(lacks(bad).len(), 1, "{bad}");
        }
    }
}
