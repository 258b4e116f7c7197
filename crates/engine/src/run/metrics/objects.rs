//! Objects by kind and readiness, counted in the caches when a scraper asks: nothing is counted while nobody looks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::MetricType;

use crate::lock::lock;
use crate::readiness::Census;
use crate::runtime::Runtime;
use crate::store::Store;

/// What there is of one kind, and its age.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReadyLabels {
    kind: String,
    ready: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabels {
    kind: String,
    reason: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabels {
    kind: String,
}

/// The caches of all subjects, by kind.
#[derive(Clone, Default)]
pub(super) struct Objects(Arc<Mutex<BTreeMap<String, Subjects>>>);

/// The caches of one controller that hold its subjects: several when it watches several namespaces.
#[derive(Clone)]
struct Subjects {
    controller: &'static str,
    stores: Vec<Arc<Store>>,
    runtime: Runtime,
}

impl Objects {
    /// Whether objects of this kind are counted in the caches of this controller: of several that have the same subjects, only
    /// the first one counts them.
    pub fn counts(&self, kind: &str, controller: &'static str) -> bool {
        self.lock().get(kind).is_none_or(|subjects| subjects.controller == controller)
    }

    pub fn add(&self, kind: &str, controller: &'static str, store: Arc<Store>, runtime: &Runtime) {
        let new = || Subjects { controller, stores: Vec::new(), runtime: runtime.clone() };
        self.lock().entry(kind.to_owned()).or_insert_with(new).stores.push(store);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Subjects>> {
        lock(&self.0)
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Objects")
    }
}

impl Collector for Objects {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let subjects = self.lock().clone();
        let counted: Vec<(String, Census, f64)> = subjects
            .into_iter()
            .map(|(kind, subjects)| {
                let census =
                    subjects.stores.iter().map(|store| store.census()).fold(Census::default(), Census::and);
                let age = census.oldest_deletion.map(|since| subjects.runtime.now().duration_since(since));
                (kind, census, age.map_or(0.0, |age| age.as_secs_f64().max(0.0)))
            })
            .collect();
        let help =
            "Objects by kind and by the status of their condition Ready. Every replica counts all of them";
        let mut objects = encoder.encode_descriptor("objects", help, None, MetricType::Gauge)?;
        for (kind, census, _) in &counted {
            for (ready, count) in
                [("True", census.ready), ("False", census.not_ready), ("Unknown", census.unknown)]
            {
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                objects.encode_family(&ReadyLabels { kind: kind.clone(), ready })?.encode_gauge(&count)?;
            }
        }
        // A metric without a value would be a heading alone.
        if counted.iter().any(|(_, census, _)| !census.reasons.is_empty()) {
            let help = "Objects whose condition Ready is not True, by kind and reason; the reason is empty where there is no condition yet. Every replica counts all of them";
            let mut why = encoder.encode_descriptor("objects_not_ready", help, None, MetricType::Gauge)?;
            for (kind, census, _) in &counted {
                for (reason, count) in &census.reasons {
                    let labels = ReasonLabels { kind: kind.clone(), reason: reason.clone() };
                    let count = i64::try_from(*count).unwrap_or(i64::MAX);
                    why.encode_family(&labels)?.encode_gauge(&count)?;
                }
            }
        }
        let help =
            "Age of the oldest deletion of this kind that has not come to its end; 0 when there is none";
        let mut oldest =
            encoder.encode_descriptor("oldest_deletion_seconds", help, None, MetricType::Gauge)?;
        for (kind, _, age) in &counted {
            oldest.encode_family(&KindLabels { kind: kind.clone() })?.encode_gauge(age)?;
        }
        Ok(())
    }
}
