//! Who may do what: roles for users of SharedVolumes, and the least that the operator itself needs for them.
//! Rules only: whoever installs the operator binds them.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::ObjectMeta;

use crate::{component, driver, efs, labels, openshift};

const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];
const CHANGE: [&str; 3] = ["patch", "update", "delete"];
const RBAC: &str = "rbac.authorization.k8s.io";

/// Roles that join the built-in `admin`, `edit` and `view`, so that nobody needs a special permission to use
/// SharedVolumes. Each is complete by itself and can also be bound alone. None may write the status.
pub fn user_roles() -> Vec<ClusterRole> {
    let all: Vec<&str> = READ.into_iter().chain(WRITE).collect();
    [("admin", all.as_slice()), ("edit", all.as_slice()), ("view", READ.as_slice())]
        .map(|(role, verbs)| ClusterRole {
            metadata: ObjectMeta {
                name: Some(format!("aquifer-sharedvolumes-{role}")),
                labels: Some(BTreeMap::from([
                    (format!("{RBAC}/aggregate-to-{role}"), "true".to_owned()),
                    (labels::MANAGED_BY.to_owned(), labels::MANAGER.to_owned()),
                ])),
                ..ObjectMeta::default()
            },
            rules: Some(vec![rule(efs::GROUP, &["sharedvolumes"], verbs)]),
            aggregation_rule: None,
        })
        .into()
}

/// What the operator needs in the whole cluster for SharedVolumes and a driver in the default namespace.
pub fn operator_rules() -> Vec<PolicyRule> {
    operator_rules_for(driver::DEFAULT_NAMESPACE)
}

/// What the operator needs in the whole cluster for SharedVolumes and a driver in `namespace`.
///
/// Objects of fixed names are changed under these names only. `create` cannot be limited to a name, and is granted
/// without.
pub fn operator_rules_for(namespace: &str) -> Vec<PolicyRule> {
    vec![
        // The users' wishes. Patch is for our finalizer and for taking upstream's off; the spec is never written.
        rule(efs::GROUP, &["sharedvolumes"], &["get", "list", "watch", "patch"]),
        rule(efs::GROUP, &["sharedvolumes/status"], &["patch"]),
        // Lets a claim name its SharedVolume as an owner that waits for it, where the cluster checks that right.
        rule(efs::GROUP, &["sharedvolumes/finalizers"], &["update"]),
        // Where the driver reports. We make the object; only the administrator changes its spec afterwards.
        rule(component::GROUP, &["components"], &["get", "list", "watch", "create", "patch"]),
        rule(component::GROUP, &["components/status"], &["patch"]),
        // The pair behind each SharedVolume; names follow the users' names, so these cannot be limited by name.
        rule(
            "",
            &["persistentvolumes", "persistentvolumeclaims"],
            &["get", "list", "watch", "create", "patch", "update", "delete"],
        ),
        // To name the pods that hold a claim which shall go away.
        rule("", &["pods"], &["get", "list"]),
        // Reading tells whether the worker label exists. The four verbs are also exactly what the node plugin gets:
        // we can grant it only what we hold.
        rule("", &["nodes"], &["get", "list", "watch", "patch"]),
        // A terminating namespace stops all repair in it; one namespace is ours.
        rule("", &["namespaces"], &["get", "list", "watch", "create"]),
        named("", &["namespaces"], &CHANGE, namespace),
        // The driver.
        rule("", &["serviceaccounts"], &["get", "list", "watch", "create"]),
        named("", &["serviceaccounts"], &CHANGE, driver::SERVICE_ACCOUNT),
        rule("apps", &["daemonsets"], &["get", "list", "watch", "create"]),
        named("apps", &["daemonsets"], &CHANGE, driver::DAEMON_SET),
        rule(RBAC, &["clusterroles", "clusterrolebindings"], &["get", "list", "watch", "create"]),
        named(RBAC, &["clusterroles"], &CHANGE, driver::CLUSTER_ROLE),
        named(RBAC, &["clusterrolebindings"], &CHANGE, driver::CLUSTER_ROLE_BINDING),
        rule("storage.k8s.io", &["csidrivers", "storageclasses"], &["get", "list", "watch", "create"]),
        named("storage.k8s.io", &["csidrivers"], &CHANGE, driver::DRIVER_NAME),
        named("storage.k8s.io", &["storageclasses"], &CHANGE, driver::STORAGE_CLASS),
        // OpenShift only; a rule for a kind that is not served grants nothing.
        rule(openshift::GROUP, &["securitycontextconstraints"], &["get", "list", "watch", "create"]),
        named(
            openshift::GROUP,
            &["securitycontextconstraints"],
            &CHANGE,
            driver::SECURITY_CONTEXT_CONSTRAINTS,
        ),
        // Which kinds are served, and whether ours are being taken away. We never install or change them.
        rule("apiextensions.k8s.io", &["customresourcedefinitions"], &READ),
        // News for people, beside the objects that they are about.
        rule("events.k8s.io", &["events"], &["create", "patch"]),
    ]
}

/// What the operator needs in its own namespace only: the lease that says which replica acts.
pub fn operator_namespace_rules() -> Vec<PolicyRule> {
    vec![rule("coordination.k8s.io", &["leases"], &["get", "create", "update", "patch"])]
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

fn named(group: &str, resources: &[&str], verbs: &[&str], name: &str) -> PolicyRule {
    PolicyRule { resource_names: Some(vec![name.to_owned()]), ..rule(group, resources, verbs) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(rules: &[PolicyRule], group: &str, resource: &str, verb: &str) -> bool {
        let has = |list: &Option<Vec<String>>, what: &str| list.iter().flatten().any(|x| x == what);
        rules.iter().any(|r| {
            has(&r.api_groups, group) && has(&r.resources, resource) && r.verbs.iter().any(|v| v == verb)
        })
    }

    #[test]
    fn users_of_the_built_in_roles_get_sharedvolumes_and_nobody_gets_their_status() {
        let roles = user_roles();
        for (role, writes) in [("admin", true), ("edit", true), ("view", false)] {
            let label = format!("rbac.authorization.k8s.io/aggregate-to-{role}");
            let found: Vec<_> = roles
                .iter()
                .filter(|r| r.metadata.labels.iter().flatten().any(|(k, _)| *k == label))
                .collect();
            assert_eq!(found.len(), 1, "{role}");
            let granted = found[0].rules.clone().unwrap();
            assert!(allows(&granted, efs::GROUP, "sharedvolumes", "watch"));
            assert_eq!(allows(&granted, efs::GROUP, "sharedvolumes", "create"), writes, "{role}");
            assert!(!allows(&granted, efs::GROUP, "sharedvolumes/status", "patch"), "{role}");
        }
    }

    #[test]
    fn the_operator_has_no_wildcard_and_no_secret() {
        let rules: Vec<_> = operator_rules().into_iter().chain(operator_namespace_rules()).collect();
        for rule in &rules {
            let words = rule.api_groups.iter().chain(&rule.resources).flatten().chain(&rule.verbs);
            for word in words {
                assert!(
                    !["*", "secrets", "escalate", "bind", "impersonate"].contains(&word.as_str()),
                    "{rule:?}"
                );
            }
        }
    }

    #[test]
    fn the_operator_can_change_objects_of_fixed_names_only_under_these_names() {
        let fixed = [
            "namespaces",
            "serviceaccounts",
            "daemonsets",
            "clusterroles",
            "clusterrolebindings",
            "csidrivers",
            "storageclasses",
            "securitycontextconstraints",
        ];
        for rule in operator_rules_for("elsewhere") {
            let about_fixed = rule.resources.iter().flatten().any(|r| fixed.contains(&r.as_str()));
            let changes = rule.verbs.iter().any(|v| CHANGE.contains(&v.as_str()));
            assert!(!(about_fixed && changes) || rule.resource_names.is_some(), "{rule:?}");
        }
    }
}
