//! The parts of the Helm chart that are made from code and from the families' own files: CRDs, rules with their reasons, user roles, and
//! each family's values, their schema and its templates. The templates around them are written by hand.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use aquifer_family::rights;
use aquifer_family::{Family, Grant, InstalledObject, Scope, Settings, When};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use serde_json::Value;
use xtask::queries;

use crate::generated::{Args, Files, Folder};
use crate::{crds, process};

const COMMAND: &str = "cargo xtask chart";
/// The name of the folders for what belongs to no family.
const SHARED: &str = "shared";

/// Writes or checks the files.
pub fn run(args: Args) -> Result<()> {
    if args.check {
        return check();
    }
    for folder in folders()? {
        folder.write()?;
    }
    check_version()
}

/// Fails when a file is not what would be written now, or the chart has another version than the workspace.
pub fn check() -> Result<()> {
    for folder in folders()? {
        folder.check(COMMAND)?;
    }
    check_version()?;
    println!("the chart is current");
    Ok(())
}

fn folders() -> Result<Vec<Folder>> {
    let families = aquifer_families::all();
    let chart = process::root().join("charts/aquifer");
    let all = |name: &str, files: Files| Folder::whole(chart.join(name), files);
    Ok(vec![
        all("files/crds", definitions(&families)?),
        all("files/rules", rules(&families)),
        all("files/objects", objects(&families)?),
        all("files/user-roles", user_roles(&families)),
        all("templates/families", templates(&families)?),
        Folder::some_of(chart.join("files"), alerts()?),
        Folder::some_of(chart.clone(), values(&families)?),
    ])
}

fn definitions(families: &[&dyn Family]) -> Result<Files> {
    let mut files = Files::new();
    let shared = (SHARED, aquifer_api::shared_crds());
    for (folder, crds) in families.iter().map(|family| (family.name(), family.kinds())).chain([shared]) {
        let within = |(name, text)| (format!("{folder}/{name}"), text);
        files.extend(crds::files(crds, COMMAND)?.into_iter().map(within));
    }
    Ok(files)
}

/// One file for each family, account and scope. Its place says which: see templates/clusterrole.yaml and templates/role.yaml.
fn rules(families: &[&dyn Family]) -> Files {
    let mut texts = Files::new();
    let shared = (SHARED, rights::shared_grants());
    let of = |family: &&dyn Family| (family.name(), rights::grants(*family, &Settings::expressions(*family)));
    for (folder, grants) in families.iter().map(of).chain([shared]) {
        for grant in grants {
            let scope = match grant.scope {
                Scope::Cluster => "cluster".to_owned(),
                Scope::OwnNamespace => "own-namespace".to_owned(),
                Scope::Namespace(value) => format!("namespaces/{value}"),
            };
            let name = format!("{folder}/{}/{scope}.yaml", grant.account.name());
            let text = match grant.when.map(condition) {
                Some(condition) => format!("{{{{- if {condition} }}}}\n{}{{{{- end }}}}\n", printed(&grant)),
                None => printed(&grant),
            };
            *texts.entry(name).or_insert_with(header) += &text;
        }
    }
    texts
}

/// One file for each object that an installation makes for a family, numbered in the order in which they are made.
fn objects(families: &[&dyn Family]) -> Result<Files> {
    let mut files = Files::new();
    for family in families {
        let all = family.installed(&Settings::expressions(*family));
        for (number, InstalledObject { object, when, needs }) in all.into_iter().enumerate() {
            let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
            let served = needs.map(|api| format!("(.Capabilities.APIVersions.Has {api:?})"));
            let mut text = serde_saphyr::to_string(&object)?;
            for condition in when.map(condition).into_iter().chain(served) {
                text = format!("{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n");
            }
            files.insert(format!("{}/{number:02}-{kind}.yaml", family.name()), header() + &text);
        }
    }
    Ok(files)
}

/// The condition of a template for what depends on a setting.
fn condition(When { value, is }: When) -> String {
    format!("(eq .Values.{value} {is:?})")
}

fn user_roles(families: &[&dyn Family]) -> Files {
    let of = |family: &&dyn Family| {
        let text: String = family.user_roles().iter().map(user_role).collect();
        (format!("{}.yaml", family.name()), header() + &text)
    };
    families.iter().map(of).collect()
}

fn templates(families: &[&dyn Family]) -> Result<Files> {
    let of = |family: &&dyn Family| {
        let text = source(*family, "templates.tpl")?;
        let header = format!(
            "{{{{- /* Written by `{COMMAND}` from crates/{}/chart. Do not edit. */ -}}}}\n",
            family.name()
        );
        Ok((format!("_{}.tpl", family.name()), header + &text))
    };
    families.iter().map(of).collect()
}

/// The groups of rules of the alerts that the docs offer.
fn alerts() -> Result<Files> {
    let file = queries::ALERTS;
    let text =
        fs::read_to_string(process::root().join(file)).with_context(|| format!("cannot read {file}"))?;
    let (_, spec) = text.split_once("\nspec:\n").with_context(|| format!("{file} has no spec"))?;
    let lines: Option<String> =
        spec.lines().map(|line| Some(format!("{}\n", line.strip_prefix("  ")?))).collect();
    let lines = lines.with_context(|| format!("{file} has something behind its spec"))?;
    let header = format!("# Written by `{COMMAND}` from {file}. Do not edit.\n");
    Ok(Files::from([("alerts.yaml".to_owned(), header + &lines)]))
}

/// values.yaml and its schema: what every installation has, with what each family adds.
fn values(families: &[&dyn Family]) -> Result<Files> {
    let here = "xtask/src/chart and crates/*/chart";
    let mut blocks = Vec::new();
    let mut schema: Value = serde_json::from_str(include_str!("chart/values.schema.json"))?;
    for family in families {
        blocks.push(source(*family, "values.yaml")?.trim_end().to_owned());
        let own: Value = serde_json::from_str(&source(*family, "values.schema.json")?)
            .with_context(|| format!("cannot read the schema of {}", family.name()))?;
        schema["properties"][family.name()] = own;
        if let Some(required) = schema["required"].as_array_mut() {
            required.push(family.name().into());
        }
    }
    let names: Vec<&str> = families.iter().map(|family| family.name()).collect();
    schema["properties"]["families"]["items"]["enum"] = names.into();
    let text = include_str!("chart/values.yaml").replace("# FAMILIES", &blocks.join("\n\n"));
    let header = format!("# Written by `{COMMAND}` from {here}. Do not edit.\n");
    schema["$comment"] = header.trim_start_matches("# ").trim_end().into();
    Ok(Files::from([
        ("values.yaml".to_owned(), header + &text),
        ("values.schema.json".to_owned(), serde_json::to_string_pretty(&schema)? + "\n"),
    ]))
}

/// A file that a family has for the chart.
fn source(family: &dyn Family, name: &str) -> Result<String> {
    let path: PathBuf = process::root().join("crates").join(family.name()).join("chart").join(name);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

fn header() -> String {
    format!("# Written by `{COMMAND}` from what the families say of themselves. Do not edit.\n")
}

fn printed(grant: &Grant) -> String {
    format!("# {}\n{}", grant.why, item(&grant.rule, ""))
}

fn user_role(role: &ClusterRole) -> String {
    let mut text = String::new();
    let name = role.metadata.name.as_deref().unwrap_or_default();
    let to = name.rsplit('-').next().unwrap_or_default();
    let _ = writeln!(text, "- name: {name}");
    let _ =
        writeln!(text, "  why: Whoever has the role {to} in a namespace, or in the cluster, has this too.");
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

    fn all_rules() -> Vec<(String, String)> {
        rules(&aquifer_families::all()).into_iter().collect()
    }

    #[test]
    fn printed_rules_read_back_as_the_same_rules() {
        for family in aquifer_families::all() {
            let grants = rights::grants(family, &Settings::defaults(family, "aquifer-system"));
            let text: String = grants.iter().map(printed).collect();
            let read: Vec<PolicyRule> = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(read, grants.into_iter().map(|grant| grant.rule).collect::<Vec<_>>());
        }
    }

    #[test]
    fn every_printed_rule_has_its_reason_above_it() {
        for (name, text) in all_rules() {
            let lines: Vec<&str> = text.lines().collect();
            for (place, _) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("- ")) {
                assert!(lines[place - 1].starts_with("# "), "{name}: {}", lines[place]);
            }
        }
    }

    #[test]
    fn each_family_has_its_rules_in_its_own_folder_and_shared_ones_are_apart() {
        let names: Vec<String> = all_rules().into_iter().map(|(name, _)| name).collect();
        for folder in aquifer_families::all().iter().map(|family| family.name()).chain([SHARED]) {
            for scope in ["cluster", "own-namespace"] {
                assert!(names.contains(&format!("{folder}/operator/{scope}.yaml")), "{names:?}");
            }
        }
    }
}
