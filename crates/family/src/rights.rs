//! Who may do what, and why. Rules only: whoever installs the operator binds them. The chart's rules are printed from here by
//! `cargo xtask chart`.

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::{Family, Settings, When};

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
    /// The setting under which it is needed; nobody has it otherwise.
    pub when: Option<When>,
    /// What somebody could do with it who has stolen the account's token; empty when another grant says it. `docs/security.md` lists these
    /// sentences for administrators.
    pub abuse: &'static str,
}

impl Grant {
    /// A grant to the operator in the whole cluster.
    pub fn cluster(why: &'static str, rule: PolicyRule) -> Self {
        Self { account: Account::Operator, scope: Scope::Cluster, why, rule, when: None, abuse: "" }
    }

    /// A grant to the operator in its own namespace.
    pub fn own_namespace(why: &'static str, rule: PolicyRule) -> Self {
        Self { scope: Scope::OwnNamespace, ..Self::cluster(why, rule) }
    }

    /// A grant to the operator in a namespace that a family works in, named by its chart value.
    pub fn namespace(value: &'static str, why: &'static str, rule: PolicyRule) -> Self {
        Self { scope: Scope::Namespace(value), ..Self::cluster(why, rule) }
    }

    /// The same grant, with what a thief could do with it.
    #[must_use]
    pub fn abuse(self, abuse: &'static str) -> Self {
        Self { abuse, ..self }
    }

    /// The same grant, needed under a setting only.
    #[must_use]
    pub fn when(self, when: When) -> Self {
        Self { when: Some(when), ..self }
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
        )
        .abuse("write events that are not true, beside any object"),
        Grant::own_namespace(
            "Leader election: to make the Leases that say which replica runs a family.",
            rule(LEASES, &["leases"], &["create"]),
        )
        .abuse("hold the Leases in the operator's namespace, so that no replica works"),
    ]
}

/// What a family needs under any settings: its own grants, and its Lease.
pub fn grants(family: &dyn Family, settings: &Settings) -> Vec<Grant> {
    let lease = Grant::own_namespace(
        "Leader election: the Lease that says which replica runs this family.",
        named(LEASES, &["leases"], &["get", "patch"], &lease(family)),
    );
    let mut all = family.grants(settings);
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
    /// The rights of an account that serves these families, under the settings that were chosen for each.
    pub fn of(account: Account, families: &[(&dyn Family, Settings)]) -> Self {
        let mut rights = Self::default();
        rights.add(account, shared_grants(), &Settings::default());
        for (family, settings) in families {
            rights.add(account, grants(*family, settings), settings);
        }
        rights
    }

    /// The same with the default settings, for an operator in this namespace.
    pub fn by_default(account: Account, families: &[&dyn Family], own_namespace: &str) -> Self {
        let with_defaults = |family: &&'_ _| Settings::defaults(*family, own_namespace);
        let settings: Vec<Settings> = families.iter().map(with_defaults).collect();
        let families: Vec<_> = families.iter().copied().zip(settings).collect();
        Self::of(account, &families)
    }

    fn add(&mut self, account: Account, grants: Vec<Grant>, settings: &Settings) {
        let needed = |grant: &Grant| grant.account == account && settings.meet(grant.when);
        for grant in grants.into_iter().filter(needed) {
            let rules = match grant.scope {
                Scope::Cluster => &mut self.cluster,
                Scope::OwnNamespace => &mut self.own_namespace,
                Scope::Namespace(value) => {
                    let place = self.namespaces.iter().position(|one| one.value == value);
                    let place = place.unwrap_or_else(|| {
                        let namespace = settings.get(value).to_owned();
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
    use crate::{Error, Field, Operator, Setting, Uninstall, Work};

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
        fn settings(&self) -> Vec<Setting> {
            let mode = Setting { value: "tide.mode", default: "high" };
            vec![Setting { value: "tide.namespace", default: "sea" }, mode]
        }
        fn grants(&self, settings: &Settings) -> Vec<Grant> {
            let pods = || rule("", &["pods"], &["list"]);
            let by_name = named("", &["namespaces"], &["get"], settings.get("tide.namespace"));
            vec![
                Grant::cluster("For a test of the cluster.", by_name),
                Grant::own_namespace("For a test at home.", pods()),
                Grant::cluster("For a test of settings.", rule("", &["nodes"], &["list"]))
                    .when(When { value: "tide.mode", is: "low" }),
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
        let rights = Rights::by_default(Account::Operator, &[&Tide], "home");
        let resources = |rules: &[PolicyRule]| -> Vec<String> {
            rules.iter().filter_map(|rule| rule.resources.clone()).flatten().collect()
        };
        assert_eq!(resources(&rights.cluster), ["events", "namespaces"]);
        assert_eq!(rights.cluster[1].resource_names.as_deref(), Some(&["sea".to_owned()][..]));
        assert_eq!(resources(&rights.own_namespace), ["leases", "pods", "leases"]);
        let [there] = rights.namespaces.as_slice() else { panic!("{:?}", rights.namespaces) };
        assert_eq!((there.namespace.as_str(), resources(&there.rules)), ("sea", vec!["pods".to_owned()]));
        assert_eq!(there.role(Account::Operator), "aquifer-tide-namespace");
        let server = Rights::by_default(Account::Server("tide-api"), &[&Tide], "home");
        assert_eq!((server.cluster.len(), server.own_namespace.len()), (1, 0));
    }

    #[test]
    fn a_grant_that_depends_on_a_setting_is_there_under_that_setting_only() {
        let about_nodes = |mode: &str| {
            let settings = Settings::defaults(&Tide, "home").with("tide.mode", mode);
            let rights = Rights::of(Account::Operator, &[(&Tide, settings)]);
            rights.cluster.iter().any(|rule| rule.resources.iter().flatten().any(|one| one == "nodes"))
        };
        assert!(about_nodes("low") && !about_nodes("high"));
    }

    #[test]
    fn a_template_names_the_namespace_by_its_value() {
        let grants = Tide.grants(&Settings::expressions(&Tide));
        let names = grants[0].rule.resource_names.as_deref();
        assert_eq!(names, Some(&["{{ .Values.tide.namespace }}".to_owned()][..]));
    }
}
