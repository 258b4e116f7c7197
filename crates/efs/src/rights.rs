//! What the operator and its users may do for SharedVolumes. Rules only: whoever installs the operator binds them.

use std::collections::BTreeMap;

use aquifer_api::{component, efs};
use aquifer_family::Grant;
use aquifer_family::rights::{KEEP, RBAC, READ, named, rule};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::ObjectMeta;

use crate::installed::{MANAGED, NAMESPACE};
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

/// What the operator needs.
///
/// Objects of fixed names are read and changed under these names only. `create` cannot be limited to a name, and is granted without. What
/// makes anything privileged (namespace, account, roles and bindings of the node plugin) is made by the installation: see
/// [`crate::installed`]. Where another owner manages the driver, there is no right to anything of it.
pub(crate) fn grants() -> Vec<Grant> {
    let mut all = for_volumes();
    all.extend(for_driver().into_iter().map(|grant| grant.when(MANAGED)));
    all
}

fn for_volumes() -> Vec<Grant> {
    vec![
        Grant::cluster(
            "SharedVolumes: what users ask for. Patch is for finalizers (ours, and that of aws-efs-operator when it is taken off); the spec is never written.",
            rule(efs::GROUP, &["sharedvolumes"], &["get", "list", "watch", "patch"]),
        )
        .abuse("change the spec of any SharedVolume, and so the data that its pods see when they start again"),
        Grant::cluster(
            "SharedVolumes: what became of it.",
            rule(efs::GROUP, &["sharedvolumes/status"], &["patch"]),
        )
        .abuse("write statuses of SharedVolumes and of the Component that are not true"),
        Grant::cluster(
            "SharedVolumes: what administrators allow. The spec is never written.",
            rule(efs::GROUP, &["sharedfilesystems"], &READ),
        ),
        Grant::cluster(
            "SharedFileSystems: who uses them.",
            rule(efs::GROUP, &["sharedfilesystems/status"], &["patch"]),
        )
        .abuse("say of a SharedFileSystem that nobody uses it"),
        Grant::cluster(
            "EFS driver: whether the definition of SharedVolumes is being taken away. It is never installed or changed.",
            named("apiextensions.k8s.io", &["customresourcedefinitions"], &READ, efs::CRD_NAME),
        ),
        Grant::cluster(
            "EFS driver: to make the object in which it reports; only the administrator changes its spec afterwards.",
            rule(component::GROUP, &["components"], &["create"]),
        )
        .abuse("make Components, which mean nothing to anybody but this operator"),
        Grant::cluster(
            "EFS driver: what is wanted of it. SharedVolumes: whether it is there.",
            named(component::GROUP, &["components"], &READ, driver::COMPONENT),
        ),
        Grant::cluster(
            "EFS driver: how it stands.",
            named(component::GROUP, &["components/status"], &["patch"], driver::COMPONENT),
        ),
        Grant::cluster(
            "SharedVolumes: the volume and the claim behind each. Names follow the users' names, so they cannot be listed here; the policies aquifer-efs-volumes and aquifer-efs-claims limit these rights to volumes of the EFS driver and claims of its storage class.",
            rule(
                "",
                &["persistentvolumes", "persistentvolumeclaims"],
                &["get", "list", "watch", "create", "patch", "delete"],
            ),
        )
        .abuse("make volumes of the EFS driver with claims in any namespace, and so get at every file system that the nodes reach; take away those that are there, and so stop their pods from starting (no file is deleted)"),
        Grant::cluster(
            "SharedVolumes: to name the pods that hold a claim which shall go away.",
            rule("", &["pods"], &["list"]),
        )
        .abuse("read the pods of all namespaces, with what is written in their specs; no Secret and no ConfigMap"),
        Grant::cluster(
            "SharedVolumes: a namespace that goes away stops all repair in it. EFS driver: whether its namespace is the installation's.",
            rule("", &["namespaces"], &READ),
        )
        .abuse("read all namespaces, volumes, claims, SharedVolumes and SharedFileSystems"),
    ]
}

fn for_driver() -> Vec<Grant> {
    vec![
        Grant::namespace(
            NAMESPACE,
            "EFS driver: whether the account of its node plugin is there.",
            named("", &["serviceaccounts"], &READ, driver::SERVICE_ACCOUNT),
        ),
        Grant::namespace(
            NAMESPACE,
            "EFS driver: to make its node plugin.",
            rule("apps", &["daemonsets"], &["create"]),
        )
        .abuse("run what it likes as root on all nodes, in the driver's namespace, where the driver is managed; this is the power of an administrator, and with a driver of another owner nobody has it"),
        Grant::namespace(
            NAMESPACE,
            "EFS driver: its node plugin.",
            named("apps", &["daemonsets"], &KEEP, driver::DAEMON_SET),
        ),
        Grant::cluster(
            "EFS driver: to make its registration, and the storage class of all shared volumes.",
            rule("storage.k8s.io", &["csidrivers", "storageclasses"], &["create"]),
        )
        .abuse("make CSIDrivers and StorageClasses, such as a default class that catches the claims of others; change or delete those of the EFS driver, where the driver is managed"),
        Grant::cluster(
            "EFS driver: its registration.",
            named("storage.k8s.io", &["csidrivers"], &KEEP, driver::DRIVER_NAME),
        ),
        Grant::cluster(
            "EFS driver: its storage class.",
            named("storage.k8s.io", &["storageclasses"], &KEEP, driver::STORAGE_CLASS),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use aquifer_family::{Account, Rights, Scope, Settings};
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
        for Grant { rule, .. } in grants() {
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
            "csidrivers",
            "storageclasses",
        ];
        for Grant { rule, .. } in grants() {
            let about = |kinds: &[&str]| rule.resources.iter().flatten().any(|r| kinds.contains(&r.as_str()));
            let only = |verbs: &[&str]| rule.verbs.iter().all(|verb| verbs.contains(&verb.as_str()));
            let by_name = rule.resource_names.is_some();
            assert!(!about(&fixed) || by_name || only(&["create"]), "{rule:?}");
            // All namespaces are read, and none is made or changed.
            assert!(!about(&["namespaces"]) || only(&READ), "{rule:?}");
        }
    }

    #[test]
    fn nothing_that_gives_power_over_nodes_can_be_made_outside_the_drivers_namespace() {
        for Grant { rule, scope, .. } in grants() {
            let resources = rule.resources.iter().flatten().map(String::as_str);
            let workloads = ["pods", "daemonsets", "deployments", "statefulsets", "jobs", "serviceaccounts"];
            let writes = rule.verbs.iter().any(|verb| !READ.contains(&verb.as_str()));
            for resource in resources {
                let place = Scope::Namespace(NAMESPACE);
                assert!(!workloads.contains(&resource) || !writes || scope == place, "{rule:?}");
                assert!(!["nodes", "roles", "clusterroles", "rolebindings"].contains(&resource), "{rule:?}");
            }
        }
    }

    #[test]
    fn with_a_driver_of_another_owner_there_is_no_right_to_anything_of_it() {
        let settings = Settings::default().with(MANAGED.value, "external");
        let rights = Rights::of(Account::Operator, &[(crate::family(), settings)]);
        assert_eq!(rights.namespaces, []);
        for rule in rights.cluster {
            assert!(!rule.api_groups.iter().flatten().any(|group| group == "storage.k8s.io"), "{rule:?}");
        }
    }
}
