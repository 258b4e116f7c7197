//! What the operator asked a cluster's API server for, summarized from the audit log: each kind of question once, so that it
//! can be kept and compared. Judges nothing.
//!
//! Recorded is every call by a service account of the operator's namespace, and every write under a field manager of the operator's by
//! any other user, which should not exist.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use aquifer_family::{Account, Rights};
use aquifer_lab::audit::{self, Audit, Call, Mark};
use aquifer_lab::install::NAMESPACE;
use serde::{Deserialize, Serialize};

/// Stands for all namespaces but the operator's own and those that rules name, and for all names that no rule names.
pub const ANY: &str = "*";

/// Field managers of ours that are not the operator: people with the command line. Those of the lab begin with its name.
const NOT_THE_OPERATOR: [&str; 2] = ["aquifer-install", "aquifer-uninstall"];

/// One kind of question to an API server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Usage {
    /// Where: the cluster's name.
    pub cluster: String,
    /// Who asked.
    pub user: String,
    /// The field manager of a write; else empty.
    pub manager: String,
    /// What RBAC calls it. An apply that made its object counts as `patch` and as `create`: both are needed for it.
    pub verb: String,
    /// The API group.
    pub group: String,
    /// The plural, with its subresource: `sharedvolumes/status`.
    pub resource: String,
    /// Empty when the question was about the whole cluster.
    pub namespace: String,
    /// Empty when the question named no object.
    pub name: String,
    /// Whether the asker had the right.
    pub allowed: bool,
}

impl Usage {
    /// Whether this is a write of an operator that ran as another user than its own account.
    pub fn is_another_account(&self) -> bool {
        !is_account(&self.user)
    }
}

/// Distils the kept audit logs of a directory into one file for each cluster there, and removes them.
pub fn summarize_all(dir: &Path) -> Result<()> {
    for (cluster, log) in audit::kept(dir)? {
        record(&cluster, &log, dir)?;
        fs::remove_file(log.path()).with_context(|| format!("cannot remove {}", log.path().display()))?;
    }
    Ok(())
}

/// Appends what happened in a cluster to its file in a directory.
fn record(cluster: &str, log: &Audit, into: &Path) -> Result<()> {
    let found = summarize(cluster, log)?;
    if found.is_empty() {
        return Ok(());
    }
    let mut text = String::new();
    for usage in &found {
        text += &serde_json::to_string(usage)?;
        text.push('\n');
    }
    let path = into.join(format!("{cluster}.jsonl"));
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Everything that clusters recorded in a directory. An absent directory holds nothing.
pub fn read(dir: &Path) -> Result<BTreeSet<Usage>> {
    let mut all = BTreeSet::new();
    let Ok(entries) = fs::read_dir(dir) else { return Ok(all) };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for line in text.lines() {
            let usage =
                serde_json::from_str(line).with_context(|| format!("{} is not a record", path.display()))?;
            all.insert(usage);
        }
    }
    Ok(all)
}

fn summarize(cluster: &str, audit: &Audit) -> Result<BTreeSet<Usage>> {
    let mut found = BTreeSet::new();
    let named = Named::by_rules();
    audit.each(audit.beginning(), Mark::END, |call| {
        if !call.resource.is_empty() && is_of_the_operator(&call) {
            let usage = brief(cluster, &call, &named);
            // A create that an apply implies is checked by the server but not written down.
            if call.verb == "patch" && call.code == 201 {
                found.insert(Usage { verb: "create".into(), ..usage.clone() });
            }
            found.insert(usage);
        }
    })?;
    Ok(found)
}

fn brief(cluster: &str, call: &Call, named: &Named) -> Usage {
    let known = |word: &str, is: bool| if word.is_empty() || is { word.to_owned() } else { ANY.to_owned() };
    let resource = match call.subresource.as_str() {
        "" => call.resource.clone(),
        part => format!("{}/{part}", call.resource),
    };
    Usage {
        cluster: cluster.to_owned(),
        user: call.user.clone(),
        manager: call.manager(),
        verb: call.verb.clone(),
        group: call.group.clone(),
        resource,
        namespace: known(&call.namespace, named.namespaces.contains(&call.namespace)),
        name: known(&call.name, named.objects.contains(&call.name)),
        allowed: !call.denied,
    }
}

fn is_of_the_operator(call: &Call) -> bool {
    is_account(&call.user) || is_manager(&call.manager())
}

fn is_account(user: &str) -> bool {
    user.strip_prefix("system:serviceaccount:")
        .and_then(|rest| rest.split_once(':'))
        .is_some_and(|(namespace, _)| namespace == NAMESPACE)
}

/// Controllers are known by their name. The lease is not: whoever uses the engine holds one, the family of its own tests too.
fn is_manager(manager: &str) -> bool {
    manager.starts_with("aquifer-")
        && !manager.starts_with("aquifer-lab")
        && !NOT_THE_OPERATOR.contains(&manager)
}

/// What rules name.
struct Named {
    namespaces: BTreeSet<String>,
    objects: BTreeSet<String>,
}

impl Named {
    fn by_rules() -> Self {
        let rights =
            Rights::by_default(Account::Operator, &aquifer_families::all(), aquifer_lab::install::NAMESPACE);
        let own = std::iter::once(NAMESPACE.to_owned());
        let namespaces = own.chain(rights.namespaces.iter().map(|one| one.namespace.clone())).collect();
        let narrow = rights.namespaces.into_iter().flat_map(|one| one.rules);
        let rules = rights.cluster.into_iter().chain(rights.own_namespace).chain(narrow);
        Self { namespaces, objects: rules.filter_map(|rule| rule.resource_names).flatten().collect() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use aquifer_lab::install::USER;
    use serde_json::{Value, json};

    fn event(user: &str, verb: &str, uri: &str, object: &Value, code: u16) -> String {
        let decision = if code == 403 { "forbid" } else { "allow" };
        let event = json!({
            "stage": "ResponseComplete", "verb": verb, "requestURI": uri, "user": {"username": user},
            "objectRef": object, "responseStatus": {"code": code},
            "annotations": {"authorization.k8s.io/decision": decision},
        });
        format!("{event}\n")
    }

    fn recorded(log: &str) -> Vec<Usage> {
        let dir = tempfile::tempdir().unwrap();
        // Two clusters of one name add up.
        for n in 1..=2 {
            std::fs::write(dir.path().join(format!("one.{n}.audit")), log).unwrap();
        }
        summarize_all(dir.path()).unwrap();
        assert!(audit::kept(dir.path()).unwrap().is_empty(), "summarized logs are removed");
        read(dir.path()).unwrap().into_iter().collect()
    }

    #[test]
    fn many_questions_of_one_kind_are_one_line() {
        let mut log = String::new();
        for n in 0..20 {
            let claim = json!({"resource": "persistentvolumeclaims", "namespace": format!("t{n}"), "name": format!("c{n}")});
            log += &event(USER, "get", "/x", &claim, 200);
            log += &event("system:kube-controller-manager", "get", "/x", &claim, 200);
        }
        let found = recorded(&log);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].namespace.as_str(), found[0].name.as_str()), (ANY, ANY));
        assert!(found[0].allowed && !found[0].is_another_account());
    }

    #[test]
    fn names_that_rules_name_and_refusals_are_kept() {
        let class = json!({"resource": "storageclasses", "apiGroup": "storage.k8s.io", "name": "efs-sc"});
        let status =
            json!({"resource": "pods", "subresource": "status", "namespace": NAMESPACE, "name": "x"});
        let log = event(USER, "delete", "/x", &class, 200) + &event(USER, "patch", "/x", &status, 403);
        let found = recorded(&log);
        let brief: Vec<_> = found
            .iter()
            .map(|usage| {
                (usage.resource.as_str(), usage.namespace.as_str(), usage.name.as_str(), usage.allowed)
            })
            .collect();
        assert_eq!(brief, [("storageclasses", "", "efs-sc", true), ("pods/status", NAMESPACE, ANY, false)]);
    }

    #[test]
    fn an_apply_that_made_its_object_needed_two_rights() {
        let volume = json!({"resource": "persistentvolumes", "name": "x"});
        let found = recorded(&event(USER, "patch", "/x?fieldManager=aquifer-efs-volumes", &volume, 201));
        let verbs: Vec<&str> = found.iter().map(|usage| usage.verb.as_str()).collect();
        assert_eq!(verbs, ["create", "patch"]);
    }

    #[test]
    fn an_operator_that_runs_as_admin_is_seen_by_its_field_manager() {
        let volume = json!({"resource": "persistentvolumes", "name": "x"});
        let by = |manager: &str| event("admin", "patch", &format!("/x?fieldManager={manager}"), &volume, 200);
        let found = recorded(&(by("aquifer-efs-volumes") + &by("aquifer-efs-driver")));
        assert!(found.len() == 2 && found.iter().all(Usage::is_another_account), "{found:?}");
        let others = ["aquifer-uninstall", "aquifer-lab", "kubectl", "proving-wells", "aquifer%2Flease"];
        assert_eq!(recorded(&others.map(by).concat()), []);
    }
}
