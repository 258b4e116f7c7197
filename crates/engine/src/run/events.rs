//! Events: news for people about an object. A repetition counts up the event that is there instead of making another.

use std::collections::BTreeMap;
use std::sync::Mutex;

use aquifer_base::names::short_hash;
use serde_json::{Value, json};

use crate::cluster::{ApiError, Verb};
use crate::lock::lock;
use crate::object::{Kind, Object, ObjectRef};
use crate::runtime::Runtime;
use crate::status::{Condition, EventType, cut};
use crate::writer::Writer;

const EVENT: Kind = Kind::namespaced("events.k8s.io", "v1", "Event", "events");
/// Kubernetes refuses longer notes.
const NOTE_LIMIT: usize = 1024;
/// Kubernetes refuses longer names; the hash and its dot need the rest.
const NAME_LIMIT: usize = 253 - 17;
/// Events whose repetitions are counted; older ones begin at two again.
const COUNTED: usize = 1024;
/// Why events are written.
const TOLD: &str = "people are told of a condition";

/// The events of one controller.
pub(crate) struct Events {
    controller: &'static str,
    runtime: Runtime,
    counts: Mutex<BTreeMap<String, u32>>,
}

impl Events {
    pub fn new(controller: &'static str, runtime: Runtime) -> Self {
        Self { controller, runtime, counts: Mutex::default() }
    }

    /// Tells people of a condition that came about. A failure to tell is no failure of the pass.
    pub async fn publish(&self, writer: &Writer<'_>, kind: &Kind, subject: &Object, condition: &Condition) {
        let (target, body) = self.event(kind, subject, condition);
        let written = match writer.write(&target, Verb::Create(body), TOLD).await {
            Err(ApiError::AlreadyExists) => {
                let now = self.now();
                let count = self.count(&target.key.name);
                let body = json!({"series": {"count": count, "lastObservedTime": now}});
                writer.write(&target, Verb::Merge { body, status: false }, TOLD).await
            }
            other => other,
        };
        if let Err(error) = written {
            tracing::warn!(object = %subject.key(), %error, "An event could not be published");
        }
    }

    fn event(&self, kind: &Kind, subject: &Object, condition: &Condition) -> (ObjectRef, Value) {
        let note = cut(&condition.message, NOTE_LIMIT);
        let same = format!("{}/{}/{}/{note}", subject.uid(), self.controller, condition.reason);
        let name = format!("{}.{}", cut(subject.name(), NAME_LIMIT), short_hash(same.as_bytes()));
        // News about objects of the cluster are kept where administrators look for them.
        let namespace = Some(subject.namespace()).filter(|ns| !ns.is_empty()).unwrap_or("default");
        let target = EVENT.at(namespace, &name);
        let mut regarding = json!({"apiVersion": kind.api_version(), "kind": kind.kind,
            "name": subject.name(), "uid": subject.uid()});
        if kind.namespaced {
            regarding["namespace"] = json!(subject.namespace());
        }
        let body = json!({
            "apiVersion": EVENT.api_version(),
            "kind": EVENT.kind,
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": self.now(),
            "type": condition.event.unwrap_or(EventType::Warning).as_str(),
            "reason": condition.reason,
            "note": note,
            "action": "Reconcile",
            "regarding": regarding,
            "reportingController": self.controller,
            "reportingInstance": self.controller,
        });
        (target, body)
    }

    /// With microseconds, as the API server wants it.
    fn now(&self) -> String {
        format!("{:.6}", self.runtime.now())
    }

    /// How often an event that is there has been told, this time included.
    fn count(&self, name: &str) -> u32 {
        let mut counts = lock(&self.counts);
        if counts.len() >= COUNTED {
            counts.clear();
        }
        let count = counts.entry(name.to_owned()).or_insert(1);
        *count += 1;
        *count
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::failure::FailureReason;
    use crate::lease::Leadership;
    use crate::model::Model;
    use crate::status::State;

    const WELL: Kind = Kind::namespaced("test.aquifer.storage", "v1", "Well", "wells");

    #[tokio::test]
    async fn a_repetition_counts_up_and_other_news_is_another_event() {
        let model = Arc::new(Model::default());
        let events = Events::new("wells", Runtime::system());
        let well = model.put(&WELL, json!({"metadata": {"namespace": "ns", "name": "a"}}));
        let leadership = Leadership::always();
        let writer = Writer { cluster: &*model, leadership: &leadership, manager: "wells" };
        let dry = |message: &str| Condition::new("Ready", State::False, FailureReason::Waiting, message);
        for message in ["no water", "no water", "no water", "no rain"] {
            events.publish(&writer, &WELL, &well, &dry(message)).await;
        }
        let told = model.objects(&EVENT);
        assert_eq!(told.len(), 2, "{told:?}");
        let counts: Vec<&Value> = told.iter().map(|event| &event.0["series"]["count"]).collect();
        assert!(counts.contains(&&json!(3)) && counts.contains(&&Value::Null), "{counts:?}");
        assert!(told.iter().all(|event| event.text("/regarding/uid") == well.uid()));
    }
}
