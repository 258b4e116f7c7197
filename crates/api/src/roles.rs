//! Who may do what: roles for users of SharedVolumes, and the least that the operator itself needs for them.
//! Rules only: whoever installs the operator binds them. The chart's rules are printed from here by `cargo xtask chart`.

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

/// One rule of the operator and its reason. The chart prints both, so the reason is written for administrators.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// Who needs it, and for what.
    pub why: &'static str,
    /// What is granted.
    pub rule: PolicyRule,
}

/// What the operator needs in the whole cluster for SharedVolumes and a driver in the default namespace.
pub fn operator_rules() -> Vec<PolicyRule> {
    operator_rules_for(driver::DEFAULT_NAMESPACE)
}

/// What the operator needs in the whole cluster for SharedVolumes and a driver in `namespace`.
pub fn operator_rules_for(namespace: &str) -> Vec<PolicyRule> {
    shared_grants().into_iter().chain(efs_grants(namespace)).map(|grant| grant.rule).collect()
}

/// What the operator needs in its own namespace only: the lease that says which replica acts.
pub fn operator_namespace_rules() -> Vec<PolicyRule> {
    namespace_grants().into_iter().map(|grant| grant.rule).collect()
}

/// What every family needs in the whole cluster.
pub fn shared_grants() -> Vec<Grant> {
    vec![
        grant(
            "Which kinds are served, and whether ours are being taken away. They are never installed or changed.",
            rule("apiextensions.k8s.io", &["customresourcedefinitions"], &READ),
        ),
        grant(
            "News for people, beside the objects that they are about.",
            rule("events.k8s.io", &["events"], &["create", "patch"]),
        ),
    ]
}

/// What the operator needs in its own namespace only.
pub fn namespace_grants() -> Vec<Grant> {
    vec![grant(
        "Leader election: the Lease that says which replica acts.",
        rule("coordination.k8s.io", &["leases"], &["get", "create", "update", "patch"]),
    )]
}

/// What the family `efs` needs in the whole cluster, with its driver in `namespace`.
///
/// Objects of fixed names are changed under these names only. `create` cannot be limited to a name, and is granted
/// without.
pub fn efs_grants(namespace: &str) -> Vec<Grant> {
    vec![
        grant(
            "SharedVolumes: what users ask for. Patch is for finalizers (ours, and that of aws-efs-operator when it is taken off); the spec is never written.",
            rule(efs::GROUP, &["sharedvolumes"], &["get", "list", "watch", "patch"]),
        ),
        grant("SharedVolumes: what became of it.", rule(efs::GROUP, &["sharedvolumes/status"], &["patch"])),
        grant(
            "SharedVolumes: to be named as the owner that waits for its claim, where the cluster checks that right.",
            rule(efs::GROUP, &["sharedvolumes/finalizers"], &["update"]),
        ),
        grant(
            "EFS driver: where it reports. The object is made once; only the administrator changes its spec afterwards.",
            rule(component::GROUP, &["components"], &["get", "list", "watch", "create", "patch"]),
        ),
        grant("EFS driver: how it stands.", rule(component::GROUP, &["components/status"], &["patch"])),
        grant(
            "SharedVolumes: the volume and the claim behind each. Names follow the users' names, so they cannot be listed here.",
            rule(
                "",
                &["persistentvolumes", "persistentvolumeclaims"],
                &["get", "list", "watch", "create", "patch", "update", "delete"],
            ),
        ),
        grant(
            "SharedVolumes: to name the pods that hold a claim which shall go away.",
            rule("", &["pods"], &["get", "list"]),
        ),
        grant(
            "EFS driver: reading tells whether the worker label exists. Patch is for the node plugin, which can be granted only what the operator holds.",
            rule("", &["nodes"], &["get", "list", "watch", "patch"]),
        ),
        grant(
            "SharedVolumes: a namespace that goes away stops all repair in it. EFS driver: its namespace is made.",
            rule("", &["namespaces"], &["get", "list", "watch", "create"]),
        ),
        grant("EFS driver: its own namespace.", named("", &["namespaces"], &CHANGE, namespace)),
        grant(
            "EFS driver: the account of its node plugin.",
            rule("", &["serviceaccounts"], &["get", "list", "watch", "create"]),
        ),
        grant(
            "EFS driver: the account of its node plugin, to repair and remove it.",
            named("", &["serviceaccounts"], &CHANGE, driver::SERVICE_ACCOUNT),
        ),
        grant(
            "EFS driver: its node plugin.",
            rule("apps", &["daemonsets"], &["get", "list", "watch", "create"]),
        ),
        grant(
            "EFS driver: its node plugin, to repair and remove it.",
            named("apps", &["daemonsets"], &CHANGE, driver::DAEMON_SET),
        ),
        grant(
            "EFS driver: what its node plugin may do. Without the verbs bind and escalate: only what is granted here can be passed on.",
            rule(RBAC, &["clusterroles", "clusterrolebindings"], &["get", "list", "watch", "create"]),
        ),
        grant(
            "EFS driver: the role of its node plugin, to repair and remove it.",
            named(RBAC, &["clusterroles"], &CHANGE, driver::CLUSTER_ROLE),
        ),
        grant(
            "EFS driver: the binding of its node plugin, to repair and remove it.",
            named(RBAC, &["clusterrolebindings"], &CHANGE, driver::CLUSTER_ROLE_BINDING),
        ),
        grant(
            "EFS driver: its registration, and the storage class of all shared volumes.",
            rule("storage.k8s.io", &["csidrivers", "storageclasses"], &["get", "list", "watch", "create"]),
        ),
        grant(
            "EFS driver: its registration, to repair and remove it.",
            named("storage.k8s.io", &["csidrivers"], &CHANGE, driver::DRIVER_NAME),
        ),
        grant(
            "EFS driver: its storage class, to repair and remove it.",
            named("storage.k8s.io", &["storageclasses"], &CHANGE, driver::STORAGE_CLASS),
        ),
        grant(
            "EFS driver on OpenShift: what its node plugin may do on its host. Elsewhere this grants nothing.",
            rule(openshift::GROUP, &["securitycontextconstraints"], &["get", "list", "watch", "create"]),
        ),
        grant(
            "EFS driver on OpenShift: the same, to repair and remove it.",
            named(
                openshift::GROUP,
                &["securitycontextconstraints"],
                &CHANGE,
                driver::SECURITY_CONTEXT_CONSTRAINTS,
            ),
        ),
    ]
}

fn grant(why: &'static str, rule: PolicyRule) -> Grant {
    Grant { why, rule }
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
    fn every_grant_says_why() {
        for grant in shared_grants().into_iter().chain(efs_grants("x")).chain(namespace_grants()) {
            assert!(
                grant.why.len() > 20 && grant.why.ends_with('.') && !grant.why.contains('\n'),
                "{grant:?}"
            );
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
