//! What an installation makes: its content, and that the settings reach the right places.

use aquifer_engine::Kind;
use aquifer_engine::model::Model;
use serde_json::Value;

use super::*;
use crate::kinds::{NAMESPACE as NAMESPACES, SERVICE_ACCOUNT};
use crate::names::driver;

/// What the operator looks at of what an installation makes.
pub(crate) fn place() -> Vec<(Kind, Value)> {
    let kind =
        |object: &Value| [NAMESPACES, SERVICE_ACCOUNT].into_iter().find(|kind| object["kind"] == *kind.kind);
    let all = objects(&settings()).into_iter().map(|one| one.object);
    all.filter_map(|object| Some((kind(&object)?, object))).collect()
}

/// Puts it into a model of a cluster.
pub(crate) fn prepare(model: &Model) {
    for (kind, object) in place() {
        model.put(&kind, object);
    }
}

fn settings() -> Settings {
    Settings::defaults(crate::family(), "aquifer-system")
}

fn find<'a>(all: &'a [InstalledObject], kind: &str) -> &'a Value {
    &all.iter().find(|one| one.object["kind"] == kind).unwrap().object
}

#[test]
fn another_namespace_reaches_every_place_that_names_it() {
    let all = objects(&settings().with(NAMESPACE, "elsewhere"));
    let namespace = |text: &str| text.contains(&format!("\"{}\"", driver::DEFAULT_NAMESPACE));
    assert!(all.iter().all(|one| !namespace(&one.object.to_string())));
    assert_eq!(find(&all, "Namespace")["metadata"]["name"], "elsewhere");
    assert_eq!(find(&all, "ClusterRoleBinding")["subjects"][0]["namespace"], "elsewhere");
    let users = &find(&all, "SecurityContextConstraints")["users"];
    assert_eq!(users[0], "system:serviceaccount:elsewhere:efs-csi-node-sa");
}

#[test]
fn of_a_driver_of_another_owner_nothing_is_made_and_the_policies_always_are() {
    let external = settings().with(MANAGED.value, "external");
    let all = objects(&external);
    let kinds = all.iter().filter(|one| external.meet(one.when)).map(|one| one.object["kind"].clone());
    let policy = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
    assert_eq!(kinds.collect::<Vec<_>>(), [policy, policy].concat());
}

#[test]
fn constraints_are_only_for_clusters_that_have_their_api() {
    for one in objects(&settings()) {
        let constraints = one.object["kind"] == "SecurityContextConstraints";
        assert_eq!(one.needs.is_some(), constraints, "{one:?}");
    }
}

#[test]
fn what_an_installation_makes() {
    let all: Vec<Value> = objects(&settings()).into_iter().map(|one| one.object).collect();
    insta::assert_yaml_snapshot!(all);
}
