//! What the operator and its users may do for SharedVolumes. Rules only: whoever installs the operator binds them.

use std::collections::BTreeMap;

use aquifer_api::{component, efs, openshift};
use aquifer_family::rights::{KEEP, RBAC, READ, named, rule};
use aquifer_family::{Grant, Held};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::ObjectMeta;

use crate::names::{driver, labels};

const WRITE: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// Roles that join the built-in `admin`, `edit` and `view`, so that nobody needs a special permission to use
/// SharedVolumes. Each is complete by itself and can also be bound alone. None may write the status.
pub(crate) fn user_roles() -> Vec<ClusterRole> {
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

/// What the operator needs, with the driver in `namespace`.
///
/// Objects of fixed names are read and changed under these names only. `create` cannot be limited to a name, and is granted without.
///
/// All of it holds in the whole cluster. The driver's namespace is made and deleted by this family itself, and a Role in it could neither
/// exist before the namespace nor outlive it; so the ServiceAccount and the DaemonSet of the node plugin are granted cluster-wide, by name.
pub(crate) fn grants(namespace: &str) -> Vec<Grant> {
    vec![
        Grant::cluster(
            "SharedVolumes: what users ask for. Patch is for finalizers (ours, and that of aws-efs-operator when it is taken off); the spec is never written.",
            rule(efs::GROUP, &["sharedvolumes"], &["get", "list", "watch", "patch"]),
        ),
        Grant::cluster(
            "SharedVolumes: what became of it.",
            rule(efs::GROUP, &["sharedvolumes/status"], &["patch"]),
        ),
        Grant::cluster(
            "SharedVolumes: what administrators allow. The spec is never written.",
            rule(efs::GROUP, &["sharedfilesystems"], &READ),
        ),
        Grant::cluster(
            "SharedFileSystems: who uses them.",
            rule(efs::GROUP, &["sharedfilesystems/status"], &["patch"]),
        ),
        Grant::cluster(
            "EFS driver: whether the definition of SharedVolumes is being taken away. It is never installed or changed.",
            named("apiextensions.k8s.io", &["customresourcedefinitions"], &READ, efs::CRD_NAME),
        ),
        Grant::cluster(
            "EFS driver: to make the object in which it reports; only the administrator changes its spec afterwards.",
            rule(component::GROUP, &["components"], &["create"]),
        ),
        Grant::cluster(
            "EFS driver: what is wanted of it. SharedVolumes: whether it is there.",
            named(component::GROUP, &["components"], &READ, driver::COMPONENT),
        ),
        Grant::cluster(
            "EFS driver: how it stands.",
            named(component::GROUP, &["components/status"], &["patch"], driver::COMPONENT),
        ),
        Grant::cluster(
            "SharedVolumes: the volume and the claim behind each. Names follow the users' names, so they cannot be listed here.",
            rule(
                "",
                &["persistentvolumes", "persistentvolumeclaims"],
                &["get", "list", "watch", "create", "patch", "delete"],
            ),
        ),
        Grant::cluster(
            "SharedVolumes: to name the pods that hold a claim which shall go away.",
            rule("", &["pods"], &["list"]),
        ),
        Grant::cluster(
            "EFS driver: for its node plugin, which can be granted only what the operator holds.",
            rule("", &["nodes"], &["get", "list", "watch", "patch"]),
        ),
        Grant::cluster(
            "SharedVolumes: a namespace that goes away stops all repair in it. EFS driver: its namespace is made.",
            rule("", &["namespaces"], &["get", "list", "watch", "create"]),
        ),
        Grant::cluster(
            "EFS driver: its own namespace.",
            named("", &["namespaces"], &["update", "delete"], namespace),
        ),
        Grant::cluster(
            "EFS driver: to make the account of its node plugin.",
            rule("", &["serviceaccounts"], &["create"]),
        ),
        Grant::cluster(
            "EFS driver: the account of its node plugin.",
            named("", &["serviceaccounts"], &KEEP, driver::SERVICE_ACCOUNT),
        ),
        Grant::cluster("EFS driver: to make its node plugin.", rule("apps", &["daemonsets"], &["create"])),
        Grant::cluster(
            "EFS driver: its node plugin.",
            named("apps", &["daemonsets"], &KEEP, driver::DAEMON_SET),
        ),
        Grant::cluster(
            "EFS driver: to make what its node plugin may do. Without the verbs bind and escalate: only what is granted here can be passed on.",
            rule(RBAC, &["clusterroles", "clusterrolebindings"], &["create"]),
        ),
        Grant::cluster(
            "EFS driver: the role of its node plugin.",
            named(RBAC, &["clusterroles"], &KEEP, driver::CLUSTER_ROLE),
        ),
        Grant::cluster(
            "EFS driver: the binding of its node plugin.",
            named(RBAC, &["clusterrolebindings"], &KEEP, driver::CLUSTER_ROLE_BINDING),
        ),
        Grant::cluster(
            "EFS driver: to make its registration, and the storage class of all shared volumes.",
            rule("storage.k8s.io", &["csidrivers", "storageclasses"], &["create"]),
        ),
        Grant::cluster(
            "EFS driver: its registration.",
            named("storage.k8s.io", &["csidrivers"], &KEEP, driver::DRIVER_NAME),
        ),
        Grant::cluster(
            "EFS driver: its storage class.",
            named("storage.k8s.io", &["storageclasses"], &KEEP, driver::STORAGE_CLASS),
        ),
        Grant::cluster(
            "EFS driver on OpenShift: to make what its node plugin may do on its host. Elsewhere this grants nothing.",
            rule(openshift::GROUP, &["securitycontextconstraints"], &["create"]),
        ),
        Grant::cluster(
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

const PASSED_ON: &str = "the node plugin's role has it, and the server lets only those pass a right on who hold it; proved by \
    rights::without_a_right_of_the_node_plugin_its_role_is_refused_and_named";

/// As short as possible: a right that nobody can show is better taken away.
pub(crate) const HELD: &[Held] = &[
    Held { verb: "get", group: "", resource: "nodes", reason: PASSED_ON },
    Held { verb: "list", group: "", resource: "nodes", reason: PASSED_ON },
    Held { verb: "watch", group: "", resource: "nodes", reason: PASSED_ON },
    Held { verb: "patch", group: "", resource: "nodes", reason: PASSED_ON },
];

#[cfg(test)]
mod tests {
    use k8s_openapi::api::rbac::v1::PolicyRule;

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
        for Grant { rule, .. } in grants("somewhere") {
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
    fn objects_of_fixed_names_can_be_made_by_the_operator_and_otherwise_reached_only_by_name() {
        let fixed = [
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
        for Grant { rule, .. } in grants("elsewhere") {
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
