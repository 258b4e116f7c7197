//! The controller of SharedFileSystems: says who uses the file system. Whether a SharedVolume is allowed is decided with the
//! SharedVolume ([`crate::volumes`]).

use std::collections::BTreeMap;

use aquifer_api::shared_file_system::{
    NamespaceUse, SharedFileSystemReason, SharedFileSystemSpec, SharedFileSystemStatus,
};
use aquifer_engine::{
    Condition, Controller, Key, Kind, Plan, Report, Seen, Shape, State, SubjectOf, View, Wakes, Watch,
};
use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::json;

use crate::fields::FIELDS;
use crate::kinds::{SHARED_FILE_SYSTEM, SHARED_VOLUME};
use crate::volumes::{file_system_of, file_system_topic, readable};

/// Field manager and name in logs and metrics.
pub const NAME: &str = "aquifer-efs-file-systems";
/// So many namespaces are named.
const SHOWN: usize = 100;

/// The controller; it has no settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileSystems;

#[async_trait]
impl Controller for FileSystems {
    type Spec = SharedFileSystemSpec;
    type Status = SharedFileSystemStatus;
    /// The SharedVolumes that name the file system.
    type World = Seen<Vec<Key>>;

    fn name(&self) -> &'static str {
        NAME
    }

    fn kind(&self) -> Kind {
        SHARED_FILE_SYSTEM
    }

    fn watches(&self) -> Vec<Watch> {
        vec![
            Watch::subjects(SHARED_FILE_SYSTEM).topics(|found| vec![file_system_of(found)]),
            Watch::new(SHARED_VOLUME, |shared| Wakes::Topic(file_system_of(shared)))
                .topics(|shared| vec![file_system_of(shared)])
                .facts(|shared| json!(file_system_of(shared))),
        ]
    }

    fn shape(&self) -> Shape {
        Shape::of(FIELDS, &SHARED_FILE_SYSTEM.kind, NAME)
    }

    fn observe(&self, subject: &SubjectOf<Self>, view: &View<'_>) -> Self::World {
        let spec = subject.object.as_ref().and_then(|known| known.spec.as_ref().ok());
        let file_system = spec.map(|spec| spec.file_system_id.as_str()).unwrap_or_default();
        view.cached_topic(&SHARED_VOLUME, &file_system_topic(file_system))
    }

    fn decide(&self, subject: &SubjectOf<Self>, users: &Self::World, _: Timestamp) -> Plan {
        let known = subject.object.as_ref().filter(|known| known.deleting.is_none());
        let (Some(Ok(spec)), Some(users)) = (known.map(|known| &known.spec), users.known()) else {
            return Plan::none();
        };
        Plan::none().status(report(spec, users).soon())
    }

    fn summarize(&self, report: &Report, _deleting: bool, status: &mut SharedFileSystemStatus) {
        if let Some(ready) = report.get("Ready") {
            status.message = Some(ready.message.clone());
        }
    }
}

fn report(spec: &SharedFileSystemSpec, users: &[Key]) -> Report {
    let (status, namespaces) = used_by(users);
    let selector = spec.allowed_namespaces.selector.as_ref().map(readable).transpose();
    let ready = match selector {
        Ok(_) => {
            let message = format!("SharedVolumes that name it: {}, namespaces: {namespaces}", users.len());
            Condition::new("Ready", State::True, SharedFileSystemReason::Enforced, message)
        }
        Err(why) => {
            let message = format!("spec.allowedNamespaces.selector selects nothing: {why}; correct it");
            Condition::new("Ready", State::False, SharedFileSystemReason::BadSelector, message).warning()
        }
    };
    Report::new(&status).condition(ready)
}

/// Who uses it, and how many namespaces that are.
fn used_by(users: &[Key]) -> (SharedFileSystemStatus, usize) {
    let mut namespaces: BTreeMap<&str, usize> = BTreeMap::new();
    for user in users {
        *namespaces.entry(&user.namespace).or_default() += 1;
    }
    let shown = namespaces.iter().take(SHOWN).map(|(namespace, shared_volumes)| NamespaceUse {
        namespace: (*namespace).to_owned(),
        shared_volumes: *shared_volumes,
    });
    let status = SharedFileSystemStatus {
        shared_volumes: Some(users.len()),
        namespaces: shown.collect(),
        ..SharedFileSystemStatus::default()
    };
    (status, namespaces.len())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use aquifer_engine::Object;
    use aquifer_engine::model::{Model, Sim};

    use super::*;

    async fn status(selector: serde_json::Value) -> Object {
        let model = Arc::new(Model::default());
        for (namespace, name, file_system) in
            [("a", "one", "fs-1"), ("a", "two", "fs-1"), ("b", "one", "fs-1"), ("c", "one", "fs-2")]
        {
            model.put(
                &SHARED_VOLUME,
                json!({"metadata": {"namespace": namespace, "name": name}, "spec": {"fileSystemID": file_system}}),
            );
        }
        model.put(
            &SHARED_FILE_SYSTEM,
            json!({"metadata": {"name": "data"}, "spec": {"fileSystemID": "fs-1",
                "allowedNamespaces": {"selector": selector}}}),
        );
        let sim = Sim::new(FileSystems, model);
        sim.settle().await;
        assert_eq!(sim.settle().await.writes, 0, "it rests");
        sim.model.object(&SHARED_FILE_SYSTEM.at("", "data")).unwrap()
    }

    #[tokio::test]
    async fn it_says_who_uses_it() {
        let found = status(json!({})).await;
        assert_eq!(found.text("/status/message"), "SharedVolumes that name it: 3, namespaces: 2");
        assert_eq!(found.0["status"]["sharedVolumes"], 3);
        let namespaces =
            json!([{"namespace": "a", "sharedVolumes": 2}, {"namespace": "b", "sharedVolumes": 1}]);
        assert_eq!(found.0["status"]["namespaces"], namespaces);
        assert_eq!(found.condition("Ready").unwrap()["reason"], "Enforced");
    }

    #[test]
    fn the_first_hundred_namespaces_are_named_and_all_are_counted() {
        let users: Vec<Key> =
            (0..150).map(|number| Key::namespaced(format!("n{number:03}"), "data")).collect();
        let (status, namespaces) = used_by(&users);
        assert_eq!((status.shared_volumes, status.namespaces.len(), namespaces), (Some(150), SHOWN, 150));
    }

    #[tokio::test]
    async fn a_selector_that_kubernetes_would_not_take_is_reported() {
        // The second would select every namespace.
        for (operator, values) in [("Near", json!(["b"])), ("NotIn", json!([])), ("Exists", json!(["b"]))] {
            let selector =
                json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
            let ready = status(selector).await.condition("Ready").cloned().unwrap();
            assert_eq!(
                (&ready["status"], &ready["reason"]),
                (&json!("False"), &json!("BadSelector")),
                "{ready}"
            );
        }
    }
}
