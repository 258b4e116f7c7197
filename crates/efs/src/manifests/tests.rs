//! The content of the driver's objects: what they say, and that the configuration reaches the right places.

use std::collections::BTreeMap;

use crate::names::{driver, labels};
use serde_json::{Value, json};

use super::*;

fn objects(config: &DriverConfig) -> Vec<Value> {
    manifests(config).iter().map(|manifest| manifest.intent.as_value().clone()).collect()
}

fn find(config: &DriverConfig, kind: &str) -> Value {
    objects(config).into_iter().find(|o| o["kind"] == kind).unwrap()
}

#[test]
fn every_object_has_the_kind_and_version_of_its_target() {
    for manifest in manifests(&DriverConfig::default()) {
        let object = manifest.intent.as_value();
        let kind = &manifest.target.kind;
        assert_eq!(
            (object["kind"].as_str(), object["apiVersion"].as_str()),
            (Some(&*kind.kind), Some(&*kind.api_version()))
        );
    }
}

#[test]
fn the_operator_makes_the_node_plugin_and_what_makes_it_known_and_nothing_that_gives_rights() {
    let kinds: Vec<Value> = objects(&DriverConfig::default()).iter().map(|one| one["kind"].clone()).collect();
    assert_eq!(kinds, ["DaemonSet", "CSIDriver", "StorageClass"]);
}

#[test]
fn every_object_is_labelled_as_ours() {
    for object in objects(&DriverConfig::default()) {
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels[labels::OWNED], "true", "{object}");
        assert_eq!(labels[labels::MANAGED_BY], labels::MANAGER, "{object}");
    }
}

#[test]
fn what_is_configured_reaches_every_place_that_names_it() {
    let config = DriverConfig {
        namespace: "elsewhere".into(),
        kubelet_dir: "/data/kubelet".into(),
        pull_secrets: vec!["registry".into()],
        resources: parse_resources(r#"{"plugin": {"limits": {"memory": "1Gi"}}}"#).unwrap(),
        ..DriverConfig::default()
    };
    let all = serde_json::to_string(&objects(&config)).unwrap();
    for default in [driver::DEFAULT_NAMESPACE, "/var/lib/kubelet", "64Mi"] {
        assert!(!all.contains(default), "{default}: {all}");
    }
    let pod = find(&config, "DaemonSet")["spec"]["template"]["spec"].clone();
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "registry"}]));
    assert_eq!(pod["containers"][0]["resources"], json!({"limits": {"memory": "1Gi"}}));
    assert_eq!(pod["containers"][1]["resources"]["requests"]["cpu"], "5m", "the others keep theirs");
    let socket = "/data/kubelet/plugins/efs.csi.aws.com/csi.sock";
    assert_eq!(pod["containers"][1]["env"][1]["value"], socket);
}

/// The node selector, and the terms of which one must hold.
fn scheduling(config: &DriverConfig) -> (Value, Vec<Vec<String>>) {
    let pod = find(config, "DaemonSet")["spec"]["template"]["spec"].clone();
    let required = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let brief = |e: &Value| format!("{} {}", e["key"].as_str().unwrap(), e["operator"].as_str().unwrap());
    let term = |term: &Value| term["matchExpressions"].as_array().unwrap().iter().map(brief).collect();
    let terms = required["nodeSelectorTerms"].as_array().unwrap().iter().map(term).collect();
    (pod["nodeSelector"].clone(), terms)
}

const NOT_FARGATE: &str = "eks.amazonaws.com/compute-type NotIn";

#[test]
fn workers_and_all_that_is_not_control_plane_get_the_driver_whatever_other_nodes_are_called() {
    {
        let (selector, terms) = scheduling(&DriverConfig::default());
        assert_eq!(selector, json!({"kubernetes.io/os": "linux"}));
        let not_control_plane = [
            "node-role.kubernetes.io/control-plane DoesNotExist",
            "node-role.kubernetes.io/master DoesNotExist",
            NOT_FARGATE,
        ];
        let worker = ["node-role.kubernetes.io/worker Exists", NOT_FARGATE];
        assert_eq!(terms, [worker.map(String::from).to_vec(), not_control_plane.map(String::from).to_vec()]);
    }
}

#[test]
fn a_configured_selector_replaces_the_choice_of_workers() {
    let pool = BTreeMap::from([("pool".to_owned(), "storage".to_owned())]);
    let config = DriverConfig { node_selector: Some(pool), ..DriverConfig::default() };
    let (selector, terms) = scheduling(&config);
    assert_eq!(selector, json!({"kubernetes.io/os": "linux", "pool": "storage"}));
    assert_eq!(terms, [[NOT_FARGATE]]);
    let every_node = DriverConfig { node_selector: Some(BTreeMap::new()), ..DriverConfig::default() };
    let (selector, terms) = scheduling(&every_node);
    assert_eq!((selector, terms), (json!({"kubernetes.io/os": "linux"}), vec![vec![NOT_FARGATE.to_owned()]]));
}

#[test]
fn no_tolerations_leave_the_field_out() {
    let config = DriverConfig { tolerations: vec![], ..DriverConfig::default() };
    assert!(find(&config, "DaemonSet")["spec"]["template"]["spec"].get("tolerations").is_none());
}

#[test]
fn the_node_plugin_on_plain_kubernetes() {
    insta::assert_yaml_snapshot!(find(&DriverConfig::default(), "DaemonSet"));
}

#[test]
fn what_makes_the_driver_known() {
    let rest: Vec<Value> = objects(&DriverConfig::default()).split_off(1);
    insta::assert_yaml_snapshot!(rest);
}
