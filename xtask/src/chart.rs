//! The parts of the Helm chart that are made from code: CRDs, and the rules of `aquifer_api::roles` with their reasons. The
//! templates around them are written by hand.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, bail};
use aquifer_api::roles::{self, Grant};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};

use crate::generated::{self, Files};
use crate::{crds, process};

const COMMAND: &str = "cargo xtask chart";
/// Filled in by the chart, which knows the user's choice.
const EFS_NAMESPACE: &str = "{{ .Values.efs.namespace }}";

/// Flags of `cargo xtask chart`.
#[derive(clap::Args)]
pub struct Args {
    /// Write nothing; fail when a file is not current
    #[arg(long)]
    check: bool,
}

/// Writes or checks the files.
pub fn run(args: &Args) -> Result<()> {
    if args.check {
        return check();
    }
    for (dir, files) in folders()? {
        generated::write(&process::root().join(dir), "yaml", &files)?;
    }
    check_version()
}

/// Fails when a file is not what would be written now, or the chart has another version than the workspace.
pub fn check() -> Result<()> {
    for (dir, files) in folders()? {
        generated::check(&process::root().join(dir), "yaml", &files, COMMAND)?;
    }
    check_version()?;
    println!("the chart is current");
    Ok(())
}

fn folders() -> Result<[(&'static str, Files); 3]> {
    let rules = [
        ("shared", roles::shared_grants()),
        ("efs", roles::efs_grants(EFS_NAMESPACE)),
        ("namespace", roles::namespace_grants()),
    ];
    let rules = rules.map(|(name, grants)| (format!("{name}.yaml"), header() + &printed(&grants)));
    let users = [("efs.yaml".to_owned(), header() + &user_roles(&roles::user_roles()))];
    Ok([
        ("charts/aquifer/files/crds", crds::files(COMMAND)?),
        ("charts/aquifer/files/rules", rules.into()),
        ("charts/aquifer/files/user-roles", users.into()),
    ])
}

fn header() -> String {
    format!("# Written by `{COMMAND}` from crates/api/src/roles.rs. Do not edit.\n")
}

fn printed(grants: &[Grant]) -> String {
    let mut text = String::new();
    for Grant { why, rule } in grants {
        let _ = writeln!(text, "# {why}");
        text += &item(rule, "");
    }
    text
}

fn user_roles(roles: &[ClusterRole]) -> String {
    let mut text = String::new();
    for role in roles {
        let name = role.metadata.name.as_deref().unwrap_or_default();
        let to = name.rsplit('-').next().unwrap_or_default();
        let _ = writeln!(text, "- name: {name}");
        let _ = writeln!(
            text,
            "  why: Whoever has the role {to} in a namespace, or in the cluster, has this too."
        );
        text += "  labels:\n";
        // Who manages the object is said by whoever installs it.
        let labels = role.metadata.labels.iter().flatten();
        for (key, value) in labels.filter(|(key, _)| *key != aquifer_api::labels::MANAGED_BY) {
            let _ = writeln!(text, "    {key}: {value:?}");
        }
        text += "  rules:\n";
        for rule in role.rules.iter().flatten() {
            text += &item(rule, "    ");
        }
    }
    text
}

/// A rule as an item of a YAML list. Lists of words are the same in JSON and in YAML.
fn item(rule: &PolicyRule, indent: &str) -> String {
    let lists = [
        ("apiGroups", rule.api_groups.as_ref()),
        ("resources", rule.resources.as_ref()),
        ("resourceNames", rule.resource_names.as_ref()),
        ("verbs", Some(&rule.verbs)),
    ];
    let mut text = String::new();
    for (key, words) in lists {
        let Some(words) = words else { continue };
        let start = if text.is_empty() { "- " } else { "  " };
        let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
        let _ = writeln!(text, "{indent}{start}{key}: [{}]", words.join(", "));
    }
    text
}

fn check_version() -> Result<()> {
    let path = process::root().join("charts/aquifer/Chart.yaml");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    for key in ["version", "appVersion"] {
        let wanted = format!("{key}: {}", env!("CARGO_PKG_VERSION"));
        if !text.lines().any(|line| line == wanted) {
            bail!("charts/aquifer/Chart.yaml should say `{wanted}`, as Cargo.toml does");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_rules_read_back_as_the_same_rules() {
        let grants = roles::efs_grants("somewhere");
        let read: Vec<PolicyRule> = serde_saphyr::from_str(&printed(&grants)).unwrap();
        assert_eq!(read, grants.into_iter().map(|grant| grant.rule).collect::<Vec<_>>());
    }

    #[test]
    fn every_printed_rule_has_its_reason_above_it() {
        let text = printed(&roles::efs_grants("somewhere"));
        let lines: Vec<&str> = text.lines().collect();
        for (place, _) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("- ")) {
            assert!(lines[place - 1].starts_with("# "), "{}", lines[place]);
        }
    }
}
