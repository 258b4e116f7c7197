//! The content of the driver's objects: what they say, and that the configuration reaches the right places.

use std::collections::BTreeMap;

use crate::names::{driver, labels};
use k8s_openapi::api::rbac::v1::ClusterRole;
use serde_json::{Value, json};

use super::*;

fn openshift() -> DriverConfig {
    DriverConfig { scc_api: true, ..DriverConfig::default() }
}

fn objects(config: &DriverConfig) -> Vec<Value> {
    manifests(config).iter().map(|manifest| manifest.intent.as_value().clone()).collect()
}

fn find(config: &DriverConfig, kind: &str) -> Value {
    objects(config).into_iter().find(|o| o["kind"] == kind).unwrap()
}

fn kinds(config: &DriverConfig) -> Vec<String> {
    objects(config).iter().map(|object| object["kind"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_object_has_the_kind_and_version_of_its_target() {
    for manifest in manifests(&openshift()) {
        let object = manifest.intent.as_value();
        let kind = &manifest.target.kind;
        assert_eq!(
            (object["kind"].as_str(), object["apiVersion"].as_str()),
            (Some(&*kind.kind), Some(&*kind.api_version()))
        );
    }
}

#[test]
fn objects_come_in_the_order_of_their_making_and_constraints_only_on_openshift() {
    let plain = [
        "Namespace",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "DaemonSet",
        "CSIDriver",
        "StorageClass",
    ];
    assert_eq!(kinds(&DriverConfig::default()), plain);
    let mut with_constraints = plain.to_vec();
    with_constraints.insert(4, "SecurityContextConstraints");
    assert_eq!(kinds(&openshift()), with_constraints);
}

#[test]
fn every_object_is_labelled_as_ours() {
    for object in objects(&openshift()) {
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels[labels::OWNED], "true", "{object}");
        assert_eq!(labels[labels::MANAGED_BY], labels::MANAGER, "{object}");
    }
}

#[test]
fn another_namespace_reaches_every_place_that_names_it() {
    let config = DriverConfig { namespace: "elsewhere".into(), ..openshift() };
    let all = serde_json::to_string(&objects(&config)).unwrap();
    assert!(!all.contains(driver::DEFAULT_NAMESPACE));
    assert_eq!(find(&config, "Namespace")["metadata"]["name"], "elsewhere");
    assert_eq!(find(&config, "ClusterRoleBinding")["subjects"][0]["namespace"], "elsewhere");
    assert_eq!(
        find(&config, "SecurityContextConstraints")["users"][0],
        "system:serviceaccount:elsewhere:efs-csi-node-sa"
    );
}

#[test]
fn pod_security_labels_are_there_when_wanted_and_others_may_set_them_when_not() {
    let enforce = "pod-security.kubernetes.io/enforce";
    assert_eq!(find(&DriverConfig::default(), "Namespace")["metadata"]["labels"][enforce], "privileged");
    let without = DriverConfig { pod_security_labels: false, ..DriverConfig::default() };
    let namespace = manifests(&without).remove(0);
    assert!(namespace.intent.as_value()["metadata"]["labels"].get(enforce).is_none());
    assert!(namespace.tolerate.contains(&"/metadata/labels/pod-security.kubernetes.io~1*"));
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
    for config in [DriverConfig::default(), openshift()] {
        let (selector, terms) = scheduling(&config);
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
    let config = DriverConfig { node_selector: Some(pool), ..openshift() };
    let (selector, terms) = scheduling(&config);
    assert_eq!(selector, json!({"kubernetes.io/os": "linux", "pool": "storage"}));
    assert_eq!(terms, [[NOT_FARGATE]]);
    let every_node = DriverConfig { node_selector: Some(BTreeMap::new()), ..openshift() };
    let (selector, terms) = scheduling(&every_node);
    assert_eq!((selector, terms), (json!({"kubernetes.io/os": "linux"}), vec![vec![NOT_FARGATE.to_owned()]]));
}

#[test]
fn no_tolerations_leave_the_field_out() {
    let config = DriverConfig { tolerations: vec![], ..DriverConfig::default() };
    assert!(find(&config, "DaemonSet")["spec"]["template"]["spec"].get("tolerations").is_none());
}

#[test]
fn the_operator_may_grant_the_node_plugin_its_role() {
    let role: ClusterRole = serde_json::from_value(find(&DriverConfig::default(), "ClusterRole")).unwrap();
    let held: Vec<_> = crate::rights::grants("x").into_iter().map(|grant| grant.rule).collect();
    for rule in role.rules.unwrap() {
        let holds = |own: &k8s_openapi::api::rbac::v1::PolicyRule| {
            own.resource_names.is_none()
                && own.api_groups == rule.api_groups
                && own.resources == rule.resources
                && rule.verbs.iter().all(|verb| own.verbs.contains(verb))
        };
        assert!(held.iter().any(holds), "{rule:?}");
    }
}

#[test]
fn the_node_plugin_on_plain_kubernetes() {
    insta::assert_yaml_snapshot!(find(&DriverConfig::default(), "DaemonSet"));
}

#[test]
fn the_constraints_on_openshift() {
    insta::assert_yaml_snapshot!(find(&openshift(), "SecurityContextConstraints"));
}

#[test]
fn everything_else_on_openshift() {
    let rest: Vec<Value> = objects(&openshift())
        .into_iter()
        .filter(|object| object["kind"] != "DaemonSet" && object["kind"] != "SecurityContextConstraints")
        .collect();
    insta::assert_yaml_snapshot!(rest);
}
