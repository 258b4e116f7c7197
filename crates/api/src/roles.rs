//! Who may do what: roles for users of SharedVolumes, and the least that the operator itself needs for them.
//! Rules only: whoever installs the operator binds them. The chart's rules are printed from here by `cargo xtask chart`.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::ObjectMeta;

use crate::{component, driver, efs, labels, openshift};

const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];
/// Reading is limited by name too: whoever lists or watches a single name needs the right for that name only.
const KEEP: [&str; 5] = ["get", "list", "watch", "update", "delete"];
const RBAC: &str = "rbac.authorization.k8s.io";

/// The Lease by which replicas agree who works.
pub const LEASE: &str = "aquifer-efs";

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
    vec![grant(
        "News for people, beside the objects that they are about.",
        rule("events.k8s.io", &["events"], &["create", "patch"]),
    )]
}

/// What the operator needs in its own namespace only.
pub fn namespace_grants() -> Vec<Grant> {
    vec![
        grant(
            "Leader election: to make the Lease that says which replica acts.",
            rule("coordination.k8s.io", &["leases"], &["create"]),
        ),
        grant(
            "Leader election: the Lease that says which replica acts.",
            named("coordination.k8s.io", &["leases"], &["get", "patch"], LEASE),
        ),
    ]
}

/// What the family `efs` needs in the whole cluster, with its driver in `namespace`.
///
/// Objects of fixed names are read and changed under these names only. `create` cannot be limited to a name, and is granted
/// without.
pub fn efs_grants(namespace: &str) -> Vec<Grant> {
    vec![
        grant(
            "SharedVolumes: what users ask for. Patch is for finalizers (ours, and that of aws-efs-operator when it is taken off); the spec is never written.",
            rule(efs::GROUP, &["sharedvolumes"], &["get", "list", "watch", "patch"]),
        ),
        grant("SharedVolumes: what became of it.", rule(efs::GROUP, &["sharedvolumes/status"], &["patch"])),
        grant(
            "EFS driver: whether the definition of SharedVolumes is being taken away. It is never installed or changed.",
            named("apiextensions.k8s.io", &["customresourcedefinitions"], &READ, efs::CRD_NAME),
        ),
        grant(
            "EFS driver: to make the object in which it reports; only the administrator changes its spec afterwards.",
            rule(component::GROUP, &["components"], &["create"]),
        ),
        grant(
            "EFS driver: what is wanted of it. SharedVolumes: whether it is there.",
            named(component::GROUP, &["components"], &READ, driver::COMPONENT),
        ),
        grant(
            "EFS driver: how it stands.",
            named(component::GROUP, &["components/status"], &["patch"], driver::COMPONENT),
        ),
        grant(
            "SharedVolumes: the volume and the claim behind each. Names follow the users' names, so they cannot be listed here.",
            rule(
                "",
                &["persistentvolumes", "persistentvolumeclaims"],
                &["get", "list", "watch", "create", "patch", "delete"],
            ),
        ),
        grant(
            "SharedVolumes: to name the pods that hold a claim which shall go away.",
            rule("", &["pods"], &["list"]),
        ),
        grant(
            "EFS driver: list and watch tell whether the worker label exists. Get and patch are for the node plugin, which can be granted only what the operator holds.",
            rule("", &["nodes"], &["get", "list", "watch", "patch"]),
        ),
        grant(
            "SharedVolumes: a namespace that goes away stops all repair in it. EFS driver: its namespace is made.",
            rule("", &["namespaces"], &["get", "list", "watch", "create"]),
        ),
        grant("EFS driver: its own namespace.", named("", &["namespaces"], &["update", "delete"], namespace)),
        grant(
            "EFS driver: to make the account of its node plugin.",
            rule("", &["serviceaccounts"], &["create"]),
        ),
        grant(
            "EFS driver: the account of its node plugin.",
            named("", &["serviceaccounts"], &KEEP, driver::SERVICE_ACCOUNT),
        ),
        grant("EFS driver: to make its node plugin.", rule("apps", &["daemonsets"], &["create"])),
        grant("EFS driver: its node plugin.", named("apps", &["daemonsets"], &KEEP, driver::DAEMON_SET)),
        grant(
            "EFS driver: to make what its node plugin may do. Without the verbs bind and escalate: only what is granted here can be passed on.",
            rule(RBAC, &["clusterroles", "clusterrolebindings"], &["create"]),
        ),
        grant(
            "EFS driver: the role of its node plugin.",
            named(RBAC, &["clusterroles"], &KEEP, driver::CLUSTER_ROLE),
        ),
        grant(
            "EFS driver: the binding of its node plugin.",
            named(RBAC, &["clusterrolebindings"], &KEEP, driver::CLUSTER_ROLE_BINDING),
        ),
        grant(
            "EFS driver: to make its registration, and the storage class of all shared volumes.",
            rule("storage.k8s.io", &["csidrivers", "storageclasses"], &["create"]),
        ),
        grant(
            "EFS driver: its registration.",
            named("storage.k8s.io", &["csidrivers"], &KEEP, driver::DRIVER_NAME),
        ),
        grant(
            "EFS driver: its storage class.",
            named("storage.k8s.io", &["storageclasses"], &KEEP, driver::STORAGE_CLASS),
        ),
        grant(
            "EFS driver on OpenShift: to make what its node plugin may do on its host. Elsewhere this grants nothing.",
            rule(openshift::GROUP, &["securitycontextconstraints"], &["create"]),
        ),
        grant(
            "EFS driver on OpenShift: what its node plugin may do on its host.",
            named(
                openshift::GROUP,
                &["securitycontextconstraints"],
                &KEEP,
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
    fn the_definition_that_is_read_is_that_of_shared_volumes() {
        use kube::CustomResourceExt as _;
        assert_eq!(efs::SharedVolume::crd().metadata.name.as_deref(), Some(efs::CRD_NAME));
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
    fn objects_of_fixed_names_can_be_made_by_the_operator_and_otherwise_reached_only_by_name() {
        let fixed = [
            "leases",
            "components",
            "components/status",
            "customresourcedefinitions",
            "serviceaccounts",
            "daemonsets",
            "clusterroles",
            "clusterrolebindings",
            "csidrivers",
            "storageclasses",
            "securitycontextconstraints",
        ];
        for rule in operator_rules_for("elsewhere").into_iter().chain(operator_namespace_rules()) {
            let about = |kinds: &[&str]| rule.resources.iter().flatten().any(|r| kinds.contains(&r.as_str()));
            let only = |verbs: &[&str]| rule.verbs.iter().all(|verb| verbs.contains(&verb.as_str()));
            let by_name = rule.resource_names.is_some();
            assert!(!about(&fixed) || by_name || only(&["create"]), "{rule:?}");
            // All namespaces are read.
            assert!(
                !about(&["namespaces"]) || by_name || only(&["get", "list", "watch", "create"]),
                "{rule:?}"
            );
        }
    }
}
