//! The list of all metrics, for the reference. Made from what a scraper reads, so it cannot say anything else than that.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::Metrics;
use crate::object::{Kind, Object};
use crate::runtime::Runtime;
use crate::store::Store;
use crate::watch::Watch;

/// One metric as people look it up.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Described {
    /// As a scraper gets it; a histogram's without `_bucket`, `_sum` and `_count`.
    pub name: String,
    /// `counter`, `gauge`, `histogram` or `info`.
    pub kind: String,
    /// Names of its labels.
    pub labels: Vec<String>,
    /// What it counts.
    pub help: String,
}

/// Every metric that the process can have, by name.
pub fn described() -> Vec<Described> {
    // A metric without a value is not in the text, so each gets one.
    let metrics = Metrics::default();
    metrics.pass("", "", 0.0, 1);
    metrics.live_pass("");
    metrics.panicked("");
    metrics.served("", "", 0.0);
    metrics.depth("", 0);
    metrics.api_call("", "", 0.0);
    metrics.leading("", true);
    let kind = Kind::namespaced("", "v1", "", "");
    let subjects = Watch::subjects(kind.clone());
    metrics.contact(&subjects.scope(), Timestamp::UNIX_EPOCH);
    metrics.watch_failed(&kind, "");
    let store = metrics.subjects("", Store::new(subjects), &Runtime::system());
    store.upsert(
        Object(serde_json::json!({ "metadata": { "name": "not-ready-yet" } })),
        Timestamp::UNIX_EPOCH,
    );
    parse(&metrics.text())
}

fn parse(text: &str) -> Vec<Described> {
    let mut found: BTreeMap<&str, Described> = BTreeMap::new();
    let mut help = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some((family, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let suffix = match kind {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            let name = format!("{family}{suffix}");
            let help = help.trim_end_matches('.').to_owned();
            found.insert(family, Described { name, kind: kind.to_owned(), labels: Vec::new(), help });
        } else if let Some((name, rest)) = line.split_once('{') {
            // Of several names that fit the longest one: a histogram's has an ending, and one name may be the beginning of another.
            let fits = found.values_mut().filter(|metric| name.starts_with(&metric.name));
            let family = fits.max_by_key(|metric| metric.name.len());
            let labels = rest.split('}').next().unwrap_or_default();
            let names = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
            if let Some(metric) = family.filter(|metric| metric.labels.is_empty()) {
                metric.labels = names.filter(|name| name != "le").collect();
            }
        }
    }
    found.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_registered_metric_is_described() {
        let registered = include_str!("../metrics.rs").matches("registry.register(").count();
        let all = described();
        let collected = ["aquifer_objects", "aquifer_oldest_deletion_seconds", "process_"];
        let (collected, registered_ones): (Vec<_>, Vec<_>) =
            all.iter().partition(|metric| collected.iter().any(|start| metric.name.starts_with(start)));
        assert_eq!(registered_ones.len(), registered, "give each metric a value in described(): {all:#?}");
        assert_eq!(collected.len(), 7, "{all:#?}");
    }

    #[test]
    fn names_labels_and_help_are_those_that_a_scraper_reads() {
        let all = described();
        let of = |name: &str| all.iter().find(|metric| metric.name == name).unwrap();
        let passes = of("aquifer_controller_passes_total");
        assert_eq!((passes.kind.as_str(), passes.help.as_str()), ("counter", "Passes by outcome"));
        assert_eq!(passes.labels, ["controller", "outcome"]);
        assert_eq!(of("aquifer_controller_pass_seconds").labels, ["controller"], "without le");
        assert_eq!(of("aquifer_leader").labels, ["family"]);
        assert_eq!(of("aquifer_api_call_seconds").labels, ["verb", "result"]);
        assert_eq!(of("aquifer_objects").labels, ["kind", "ready"]);
        assert_eq!(of("aquifer_objects_not_ready").labels, ["kind", "reason"]);
        assert_eq!(of("aquifer_build_info").labels, ["version"]);
    }
}
