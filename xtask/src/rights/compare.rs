//! Compares what the chart grants to the operator with what it asked for in tests. Pure: reads and prints nothing.

use std::collections::BTreeSet;

use aquifer_family::rights;
use aquifer_family::{Account, Grant, Held, Scope, Settings};
use aquifer_lab::install::NAMESPACE;

use super::usage::Usage;

/// One verb on one resource, as a rule grants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// The reason that the chart gives.
    pub why: &'static str,
    /// Who has it.
    pub account: Account,
    pub verb: String,
    pub group: String,
    pub resource: String,
    /// The only object that it is for.
    pub name: Option<String>,
    /// The only namespace that it holds in.
    pub namespace: Option<String>,
}

impl Right {
    fn covers(&self, usage: &Usage) -> bool {
        (&self.verb, &self.group, &self.resource) == (&usage.verb, &usage.group, &usage.resource)
            && self.name.as_ref().is_none_or(|name| *name == usage.name)
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == usage.namespace)
            && user(self.account) == usage.user
    }

    /// The resource as kubectl writes it, with the one object and the one namespace that it is about.
    pub fn place(&self) -> String {
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let name = self.name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
        let namespace = self.namespace.as_ref().map(|name| format!(" in {name}")).unwrap_or_default();
        format!("{}{group}{name}{namespace}", self.resource)
    }
}

/// The user that an account is to the API server.
pub fn user(account: Account) -> String {
    format!("system:serviceaccount:{NAMESPACE}:{}", account.service_account())
}

/// The exceptions of all families.
pub fn held() -> Vec<Held> {
    aquifer_families::all().into_iter().flat_map(aquifer_family::Family::held).collect()
}

/// What the chart grants, right by right.
pub fn granted() -> Vec<Right> {
    let mut rights: Vec<Right> =
        rights::shared_grants().iter().flat_map(|grant| taken_apart(grant, &Settings::default())).collect();
    for family in aquifer_families::all() {
        let settings = Settings::defaults(family, NAMESPACE);
        let grants = rights::grants(family, &settings);
        let needed = grants.iter().filter(|grant| settings.meet(grant.when));
        rights.extend(needed.flat_map(|grant| taken_apart(grant, &settings)));
    }
    rights
}

/// What a thief of an account's token could do, a line for each sort of thing.
pub fn breadth() -> Vec<&'static str> {
    let of_families = aquifer_families::all().into_iter().flat_map(|family| {
        let settings = Settings::defaults(family, NAMESPACE);
        rights::grants(family, &settings)
    });
    let all = rights::shared_grants().into_iter().chain(of_families);
    all.map(|grant| grant.abuse).filter(|line| !line.is_empty()).collect()
}

fn taken_apart(grant: &Grant, settings: &Settings) -> Vec<Right> {
    let rule = &grant.rule;
    let namespace = match grant.scope {
        Scope::Cluster => None,
        Scope::OwnNamespace => Some(NAMESPACE.to_owned()),
        Scope::Namespace(value) => Some(settings.get(value).to_owned()),
    };
    let names: Vec<Option<String>> = match &rule.resource_names {
        Some(names) => names.iter().cloned().map(Some).collect(),
        None => vec![None],
    };
    let mut rights = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            for name in &names {
                rights.extend(rule.verbs.iter().map(|verb| Right {
                    why: grant.why,
                    account: grant.account,
                    verb: verb.clone(),
                    group: group.clone(),
                    resource: resource.clone(),
                    name: name.clone(),
                    namespace: namespace.clone(),
                }));
            }
        }
    }
    rights
}

/// How a right stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Tests used it.
    Used,
    /// No call can show its use, and there is a reason to hold it.
    Held(&'static str),
    /// Nothing needs it, as far as tests show.
    Unused,
}

/// What came out.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Every right, in the order of the chart.
    pub rights: Vec<(Right, Standing)>,
    /// Asked for without a right that the chart would grant: a rule is missing.
    pub missing: BTreeSet<Usage>,
    /// Allowed by a rule that is not ours.
    pub beyond: BTreeSet<Usage>,
    /// Refused although the chart grants it: the rights had been taken away, such as an uninstall.
    pub taken: BTreeSet<Usage>,
    /// Writes of an operator that was not its own account.
    pub other_accounts: BTreeSet<Usage>,
    /// Exceptions that are used after all, or that are about nothing.
    pub needless: Vec<Held>,
}

impl Verdict {
    pub fn unused(&self) -> impl Iterator<Item = &Right> {
        self.rights.iter().filter(|(_, standing)| *standing == Standing::Unused).map(|(right, _)| right)
    }

    pub fn count(&self, is: impl Fn(Standing) -> bool) -> usize {
        self.rights.iter().filter(|(_, standing)| is(*standing)).count()
    }

    /// Whether there is nothing to do.
    pub fn is_good(&self) -> bool {
        self.unused().next().is_none()
            && self.missing.is_empty()
            && self.beyond.is_empty()
            && self.other_accounts.is_empty()
            && self.needless.is_empty()
    }
}

/// Compares.
pub fn compare(granted: Vec<Right>, used: &BTreeSet<Usage>, held: &[Held]) -> Verdict {
    let mut verdict = Verdict::default();
    // Accounts with fewer rights are there to be refused; what they do counts for nothing.
    let accounts: BTreeSet<String> =
        granted.iter().map(|right| right.account).chain([Account::Operator]).map(user).collect();
    let of_our_accounts = || used.iter().filter(|usage| accounts.contains(&usage.user));
    verdict.other_accounts = used.iter().filter(|usage| usage.is_another_account()).cloned().collect();
    for usage in of_our_accounts() {
        let covered = granted.iter().any(|right| right.covers(usage));
        let list = match (covered, usage.allowed) {
            (true, true) => continue,
            (true, false) => &mut verdict.taken,
            (false, true) => &mut verdict.beyond,
            (false, false) => &mut verdict.missing,
        };
        list.insert(usage.clone());
    }
    let mut excused = Vec::new();
    for right in granted {
        let used = of_our_accounts().any(|usage| usage.allowed && right.covers(usage));
        let excuse = held.iter().find(|held| {
            (held.verb, held.group, held.resource) == (&right.verb, &right.group, &right.resource)
        });
        let standing = match (used, excuse) {
            (true, _) => Standing::Used,
            (false, Some(held)) => {
                excused.push((held.verb, held.group, held.resource));
                Standing::Held(held.reason)
            }
            (false, None) => Standing::Unused,
        };
        verdict.rights.push((right, standing));
    }
    verdict.needless = held
        .iter()
        .filter(|held| !excused.contains(&(held.verb, held.group, held.resource)))
        .copied()
        .collect();
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right(verb: &str, resource: &str) -> Right {
        Right {
            why: "For a test.",
            verb: verb.into(),
            group: String::new(),
            resource: resource.into(),
            name: None,
            account: Account::Operator,
            namespace: None,
        }
    }

    fn usage(verb: &str, resource: &str) -> Usage {
        Usage {
            cluster: "one".into(),
            user: user(Account::Operator),
            manager: String::new(),
            verb: verb.into(),
            group: String::new(),
            resource: resource.into(),
            namespace: "*".into(),
            name: "*".into(),
            allowed: true,
        }
    }

    fn of(usages: impl IntoIterator<Item = Usage>) -> BTreeSet<Usage> {
        usages.into_iter().collect()
    }

    #[test]
    fn what_nothing_used_is_named_with_its_reason() {
        let granted = vec![right("get", "pods"), right("list", "pods")];
        let verdict = compare(granted, &of([usage("get", "pods")]), &[]);
        let unused: Vec<_> = verdict.unused().map(|right| (right.verb.as_str(), right.why)).collect();
        assert_eq!(unused, [("list", "For a test.")]);
        assert!(!verdict.is_good());
    }

    #[test]
    fn a_right_for_one_name_or_in_own_namespace_is_used_only_there() {
        let named = Right { name: Some("ours".into()), ..right("delete", "namespaces") };
        let own_namespace = Right { namespace: Some(NAMESPACE.into()), ..right("get", "leases") };
        let granted = vec![named, own_namespace];
        let elsewhere = of([usage("delete", "namespaces"), usage("get", "leases")]);
        let verdict = compare(granted.clone(), &elsewhere, &[]);
        assert_eq!((verdict.unused().count(), verdict.beyond.len()), (2, 2));
        let there = of([
            Usage { name: "ours".into(), ..usage("delete", "namespaces") },
            Usage { namespace: NAMESPACE.into(), ..usage("get", "leases") },
        ]);
        assert!(compare(granted, &there, &[]).is_good());
    }

    #[test]
    fn refusals_are_a_missing_rule_unless_the_right_was_taken_away() {
        let refused = |verb: &str| Usage { allowed: false, ..usage(verb, "pods") };
        let used = of([usage("get", "pods"), refused("get"), refused("list")]);
        let verdict = compare(vec![right("get", "pods")], &used, &[]);
        assert_eq!(verdict.taken, of([refused("get")]));
        assert_eq!(verdict.missing, of([refused("list")]));
        assert!(!verdict.is_good());
    }

    #[test]
    fn an_account_with_fewer_rights_proves_nothing_and_harms_nothing() {
        let lesser = |allowed| Usage {
            user: format!("{}-less", user(Account::Operator)),
            allowed,
            ..usage("get", "pods")
        };
        let verdict = compare(vec![right("get", "pods")], &of([lesser(true), lesser(false)]), &[]);
        assert_eq!(verdict.unused().count(), 1);
        assert!(verdict.missing.is_empty() && verdict.beyond.is_empty() && verdict.other_accounts.is_empty());
    }

    #[test]
    fn each_account_has_its_own_rights() {
        let server = Account::Server("api");
        let granted = vec![right("get", "pods"), Right { account: server, ..right("list", "pods") }];
        let by_server = |verb: &str| Usage { user: user(server), ..usage(verb, "pods") };
        assert!(compare(granted.clone(), &of([usage("get", "pods"), by_server("list")]), &[]).is_good());
        let verdict = compare(granted, &of([usage("list", "pods"), by_server("get")]), &[]);
        assert_eq!((verdict.unused().count(), verdict.beyond.len()), (2, 2));
    }

    #[test]
    fn a_right_in_a_named_namespace_is_used_only_there() {
        let granted = vec![Right { namespace: Some("rook-ceph".into()), ..right("get", "pods") }];
        let there = Usage { namespace: "rook-ceph".into(), ..usage("get", "pods") };
        assert!(compare(granted.clone(), &of([there.clone()]), &[]).is_good());
        let verdict = compare(granted.clone(), &of([usage("get", "pods")]), &[]);
        assert_eq!((verdict.unused().count(), verdict.beyond.len()), (1, 1));
        // A watch of all namespaces needs a right in all of them.
        let everywhere = Usage { namespace: String::new(), ..there };
        assert_eq!(compare(granted, &of([everywhere]), &[]).beyond.len(), 1);
    }

    #[test]
    fn an_operator_that_runs_as_admin_is_never_good() {
        let admin = Usage { user: "admin".into(), ..usage("patch", "pods") };
        let verdict = compare(Vec::new(), &of([admin.clone()]), &[]);
        assert_eq!(verdict.other_accounts, of([admin]));
        assert!(!verdict.is_good());
    }

    #[test]
    fn an_exception_must_be_needed() {
        const HERE: &[Held] = &[Held { verb: "patch", group: "", resource: "nodes", reason: "passed on" }];
        let granted = vec![right("patch", "nodes")];
        assert!(compare(granted.clone(), &of([]), HERE).is_good());
        assert_eq!(compare(granted, &of([usage("patch", "nodes")]), HERE).needless.len(), 1);
        assert_eq!(compare(Vec::new(), &of([]), HERE).needless.len(), 1);
    }

    #[test]
    fn every_rule_of_the_chart_is_taken_apart() {
        let all = granted();
        let find = |verb: &str, resource: &str| {
            all.iter().find(|right| right.verb == verb && right.resource == resource)
        };
        assert!(find("get", "leases").is_some_and(|right| right.namespace.is_some()));
        assert!(find("delete", "daemonsets").is_some_and(|right| right.name.is_some()));
        assert!(find("create", "daemonsets").is_some_and(|right| right.name.is_none()));
    }
}
