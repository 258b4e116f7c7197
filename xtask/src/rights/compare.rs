//! Compares what the chart grants to the operator with what it asked for in tests. Pure: reads and prints nothing.

use std::collections::BTreeSet;

use aquifer_api::{driver, roles};
use aquifer_lab::install::{NAMESPACE, USER};

use super::usage::Usage;

/// One verb on one resource, as a rule grants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// The reason that the chart gives.
    pub why: &'static str,
    pub verb: String,
    pub group: String,
    pub resource: String,
    /// The only object that it is for.
    pub name: Option<String>,
    /// In the operator's own namespace only.
    pub in_own_namespace: bool,
}

impl Right {
    fn covers(&self, usage: &Usage) -> bool {
        (&self.verb, &self.group, &self.resource) == (&usage.verb, &usage.group, &usage.resource)
            && self.name.as_ref().is_none_or(|name| *name == usage.name)
            && (!self.in_own_namespace || usage.namespace == NAMESPACE)
    }

    /// The resource as kubectl writes it, with the one object that it is about.
    pub fn place(&self) -> String {
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let name = self.name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
        format!("{}{group}{name}", self.resource)
    }
}

/// A right that no call shows, and what it is for all the same. Each is proved by a test that fails without it.
#[derive(Debug)]
pub struct Held {
    pub verb: &'static str,
    pub group: &'static str,
    pub resource: &'static str,
    pub reason: &'static str,
}

/// As short as possible: a right that no test can show is better taken away.
pub const HELD: &[Held] = &[
    Held { verb: "get", group: "", resource: "nodes", reason: PASSED_ON },
    Held { verb: "patch", group: "", resource: "nodes", reason: PASSED_ON },
];

const PASSED_ON: &str = "the node plugin's role has it, and the server lets only those pass a right on who hold it; proved by \
    rights::without_a_right_of_the_node_plugin_its_role_is_refused_and_named";

/// What the chart grants, right by right.
pub fn granted() -> Vec<Right> {
    let wide = roles::shared_grants().into_iter().chain(roles::efs_grants(driver::DEFAULT_NAMESPACE));
    let all =
        wide.map(|grant| (grant, false)).chain(roles::namespace_grants().into_iter().map(|g| (g, true)));
    let mut rights = Vec::new();
    for (roles::Grant { why, rule }, in_own_namespace) in all {
        let names: Vec<Option<String>> = match &rule.resource_names {
            Some(names) => names.iter().cloned().map(Some).collect(),
            None => vec![None],
        };
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for name in &names {
                    rights.extend(rule.verbs.iter().map(|verb| Right {
                        why,
                        verb: verb.clone(),
                        group: group.clone(),
                        resource: resource.clone(),
                        name: name.clone(),
                        in_own_namespace,
                    }));
                }
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
    /// Nothing needs it, as far as tests tell.
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
    pub disguised: BTreeSet<Usage>,
    /// Exceptions that are used after all, or that are about nothing.
    pub needless: Vec<&'static Held>,
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
            && self.disguised.is_empty()
            && self.needless.is_empty()
    }
}

/// Compares.
pub fn compare(granted: Vec<Right>, used: &BTreeSet<Usage>, held: &'static [Held]) -> Verdict {
    let mut verdict = Verdict::default();
    // Accounts with fewer rights are there to be refused; what they do counts for nothing.
    let of_the_operator = || used.iter().filter(|usage| usage.user == USER);
    verdict.disguised = used.iter().filter(|usage| usage.is_in_disguise()).cloned().collect();
    for usage in of_the_operator() {
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
        let used = of_the_operator().any(|usage| usage.allowed && right.covers(usage));
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
    verdict.needless =
        held.iter().filter(|held| !excused.contains(&(held.verb, held.group, held.resource))).collect();
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
            in_own_namespace: false,
        }
    }

    fn usage(verb: &str, resource: &str) -> Usage {
        Usage {
            cluster: "one".into(),
            user: USER.into(),
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
        let home = Right { in_own_namespace: true, ..right("get", "leases") };
        let granted = vec![named, home];
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
        let lesser = |allowed| Usage { user: format!("{USER}-less"), allowed, ..usage("get", "pods") };
        let verdict = compare(vec![right("get", "pods")], &of([lesser(true), lesser(false)]), &[]);
        assert_eq!(verdict.unused().count(), 1);
        assert!(verdict.missing.is_empty() && verdict.beyond.is_empty() && verdict.disguised.is_empty());
    }

    #[test]
    fn an_operator_that_runs_as_admin_is_never_good() {
        let admin = Usage { user: "admin".into(), ..usage("patch", "pods") };
        let verdict = compare(Vec::new(), &of([admin.clone()]), &[]);
        assert_eq!(verdict.disguised, of([admin]));
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
        assert!(find("get", "leases").is_some_and(|right| right.in_own_namespace));
        assert!(find("delete", "daemonsets").is_some_and(|right| right.name.is_some()));
        assert!(find("create", "daemonsets").is_some_and(|right| right.name.is_none()));
    }
}
