//! Who may do what, and why. Rules only: whoever installs the operator binds them. The chart's rules are printed from here by
//! `cargo xtask chart`.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::Family;

/// What it takes to look at objects.
pub const READ: [&str; 3] = ["get", "list", "watch"];
/// What it takes to keep an object of a fixed name. Reading is limited by name too: whoever lists or watches a single name needs
/// the right for that name only.
pub const KEEP: [&str; 5] = ["get", "list", "watch", "update", "delete"];
/// The API group of roles and bindings.
pub const RBAC: &str = "rbac.authorization.k8s.io";

const LEASES: &str = "coordination.k8s.io";

/// One rule and its reason. The chart prints both, so the reason is written for administrators.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// Who gets it.
    pub account: Account,
    /// Where it holds.
    pub scope: Scope,
    /// Who needs it, and for what.
    pub why: &'static str,
    /// What is granted.
    pub rule: PolicyRule,
}

impl Grant {
    /// A grant to the operator in the whole cluster.
    pub fn cluster(why: &'static str, rule: PolicyRule) -> Self {
        Self { account: Account::Operator, scope: Scope::Cluster, why, rule }
    }

    /// A grant to the operator in its own namespace.
    pub fn own_namespace(why: &'static str, rule: PolicyRule) -> Self {
        Self { scope: Scope::OwnNamespace, ..Self::cluster(why, rule) }
    }

    /// A grant to the operator in a namespace that a family works in, named by its chart value.
    pub fn namespace(value: &'static str, why: &'static str, rule: PolicyRule) -> Self {
        Self { scope: Scope::Namespace(value), ..Self::cluster(why, rule) }
    }
}

/// A service account in the operator's namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Account {
    /// Runs the controllers.
    Operator,
    /// Runs a server of a family, which has fewer rights than the operator.
    Server(&'static str),
}

impl Account {
    /// The name of the service account.
    pub fn service_account(self) -> String {
        match self {
            Self::Operator => "aquifer".to_owned(),
            Self::Server(name) => format!("aquifer-{name}"),
        }
    }

    /// The name in generated files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Server(name) => name,
        }
    }
}

/// Where a grant holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// In the whole cluster: ClusterRole and ClusterRoleBinding.
    Cluster,
    /// In the operator's own namespace: Role and RoleBinding.
    OwnNamespace,
    /// In the namespaces that this chart value names: Role and RoleBinding in each of them.
    Namespace(&'static str),
}

/// A namespace that a family works in and that exists before the operator is installed, or a namespace that the family makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkNamespace {
    /// The chart value that names it, such as `efs.namespace`. The value may be one name or a list of names.
    pub value: &'static str,
    /// The default of that value.
    pub default: &'static str,
}

/// The names of the namespaces that a family works in, by their chart values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespaces(BTreeMap<&'static str, String>);

impl Namespaces {
    /// The defaults of a family.
    pub fn defaults(family: &dyn Family) -> Self {
        Self(family.namespaces().into_iter().map(|one| (one.value, one.default.to_owned())).collect())
    }

    /// Expressions for a Helm template, which knows the administrator's choice.
    pub fn expressions(family: &dyn Family) -> Self {
        let expression = |one: WorkNamespace| (one.value, format!("{{{{ .Values.{} }}}}", one.value));
        Self(family.namespaces().into_iter().map(expression).collect())
    }

    /// The same with another choice for one value.
    #[must_use]
    pub fn with(mut self, value: &'static str, name: impl Into<String>) -> Self {
        self.0.insert(value, name.into());
        self
    }

    /// The name of a namespace; empty for a value that the family does not have.
    pub fn name(&self, value: &str) -> &str {
        self.0.get(value).map_or("", String::as_str)
    }
}

/// A right that no call shows, and the reason to hold it all the same. Each is proved by a test that fails without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The verb.
    pub verb: &'static str,
    /// The API group.
    pub group: &'static str,
    /// The resource.
    pub resource: &'static str,
    /// Why it is held, and the test that proves it.
    pub reason: &'static str,
}

/// The Lease by which replicas agree who runs a family.
pub fn lease(family: &dyn Family) -> String {
    aquifer_engine::process::lease_name(family.name())
}

/// What the operator needs whatever families it runs.
pub fn shared_grants() -> Vec<Grant> {
    vec![
        Grant::cluster(
            "Events for people, beside the objects that they are about.",
            rule("events.k8s.io", &["events"], &["create", "patch"]),
        ),
        Grant::own_namespace(
            "Leader election: to make the Leases that say which replica runs a family.",
            rule(LEASES, &["leases"], &["create"]),
        ),
    ]
}

/// What a family needs: its own grants, and its Lease.
pub fn grants(family: &dyn Family, namespaces: &Namespaces) -> Vec<Grant> {
    let lease = Grant::own_namespace(
        "Leader election: the Lease that says which replica runs this family.",
        named(LEASES, &["leases"], &["get", "patch"], &lease(family)),
    );
    let mut all = family.grants(namespaces);
    all.push(lease);
    all
}

/// The rules of one account.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rights {
    /// In the whole cluster.
    pub cluster: Vec<PolicyRule>,
    /// In the operator's own namespace.
    pub own_namespace: Vec<PolicyRule>,
    /// In the namespaces that families work in.
    pub namespaces: Vec<NamespaceRights>,
}

/// The rules of one account in one namespace that a family works in.
#[derive(Clone, Debug, PartialEq)]
pub struct NamespaceRights {
    /// The chart value that names the namespace.
    pub value: &'static str,
    /// The namespace.
    pub namespace: String,
    /// What the account may do there.
    pub rules: Vec<PolicyRule>,
}

impl NamespaceRights {
    /// The name of Role and RoleBinding. Two values may name one namespace, so it follows the value.
    pub fn role(&self, account: Account) -> String {
        format!("{}-{}", account.service_account(), self.value.replace('.', "-").to_lowercase())
    }
}

impl Rights {
    /// The rights of an account that serves these families, with their default namespaces.
    pub fn of(account: Account, families: &[&dyn Family]) -> Self {
        let mut rights = Self::default();
        rights.add(account, shared_grants(), &Namespaces::default());
        for &family in families {
            let namespaces = Namespaces::defaults(family);
            rights.add(account, grants(family, &namespaces), &namespaces);
        }
        rights
    }

    fn add(&mut self, account: Account, grants: Vec<Grant>, namespaces: &Namespaces) {
        for grant in grants.into_iter().filter(|grant| grant.account == account) {
            let rules = match grant.scope {
                Scope::Cluster => &mut self.cluster,
                Scope::OwnNamespace => &mut self.own_namespace,
                Scope::Namespace(value) => {
                    let place = self.namespaces.iter().position(|one| one.value == value);
                    let place = place.unwrap_or_else(|| {
                        let namespace = namespaces.name(value).to_owned();
                        self.namespaces.push(NamespaceRights { value, namespace, rules: Vec::new() });
                        self.namespaces.len() - 1
                    });
                    &mut self.namespaces[place].rules
                }
            };
            rules.push(grant.rule);
        }
    }
}

/// Verbs on all objects of some resources.
pub fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

/// Verbs on one object.
pub fn named(group: &str, resources: &[&str], verbs: &[&str], name: &str) -> PolicyRule {
    PolicyRule { resource_names: Some(vec![name.to_owned()]), ..rule(group, resources, verbs) }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use clap::ArgMatches;
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use kube::Client;

    use super::*;
    use crate::{Error, Field, Operator, Uninstall, Work};

    /// A family with a grant in each scope, and one for a server.
    struct Tide;

    #[async_trait]
    impl Family for Tide {
        fn name(&self) -> &'static str {
            "tide"
        }
        fn summary(&self) -> &'static str {
            "A family for tests"
        }
        fn kinds(&self) -> Vec<CustomResourceDefinition> {
            Vec::new()
        }
        fn namespaces(&self) -> Vec<WorkNamespace> {
            vec![WorkNamespace { value: "tide.namespace", default: "sea" }]
        }
        fn grants(&self, namespaces: &Namespaces) -> Vec<Grant> {
            let pods = || rule("", &["pods"], &["list"]);
            let by_name = named("", &["namespaces"], &["get"], namespaces.name("tide.namespace"));
            vec![
                Grant::cluster("For a test of the cluster.", by_name),
                Grant::own_namespace("For a test at home.", pods()),
                Grant::namespace("tide.namespace", "For a test in a namespace.", pods()),
                Grant {
                    account: Account::Server("tide-api"),
                    ..Grant::cluster("For a test of servers.", pods())
                },
            ]
        }
        fn words(&self) -> Vec<crate::Word> {
            Vec::new()
        }
        fn page(&self) -> &'static str {
            ""
        }
        fn fields(&self) -> Vec<Field> {
            Vec::new()
        }
        fn work(&self, _: &ArgMatches, _: &Operator) -> Result<Work, clap::Error> {
            Ok(Work::default())
        }
        async fn needed(&self, _: &Client) -> Result<Vec<String>, Error> {
            Ok(Vec::new())
        }
        fn uninstall(&self, _: Client) -> Option<Box<dyn Uninstall>> {
            None
        }
    }

    #[test]
    fn a_grant_holds_in_its_scope_and_for_its_account_only() {
        let rights = Rights::of(Account::Operator, &[&Tide]);
        let resources = |rules: &[PolicyRule]| -> Vec<String> {
            rules.iter().filter_map(|rule| rule.resources.clone()).flatten().collect()
        };
        assert_eq!(resources(&rights.cluster), ["events", "namespaces"]);
        assert_eq!(rights.cluster[1].resource_names.as_deref(), Some(&["sea".to_owned()][..]));
        assert_eq!(resources(&rights.own_namespace), ["leases", "pods", "leases"]);
        let [there] = rights.namespaces.as_slice() else { panic!("{:?}", rights.namespaces) };
        assert_eq!((there.namespace.as_str(), resources(&there.rules)), ("sea", vec!["pods".to_owned()]));
        assert_eq!(there.role(Account::Operator), "aquifer-tide-namespace");
        let server = Rights::of(Account::Server("tide-api"), &[&Tide]);
        assert_eq!((server.cluster.len(), server.own_namespace.len()), (1, 0));
    }

    #[test]
    fn a_template_names_the_namespace_by_its_value() {
        let grants = Tide.grants(&Namespaces::expressions(&Tide));
        let names = grants[0].rule.resource_names.as_deref();
        assert_eq!(names, Some(&["{{ .Values.tide.namespace }}".to_owned()][..]));
    }
}
