//! What must hold for every family, and for all of them together.

use std::collections::{BTreeMap, BTreeSet};

use aquifer_family::rights::{self, READ, Scope};
use aquifer_family::{Account, Field, Grant, Rights, Settings};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;

use super::*;

fn names(crds: &[CustomResourceDefinition]) -> Vec<String> {
    crds.iter().filter_map(|crd| crd.metadata.name.clone()).collect()
}

#[test]
fn every_kind_belongs_to_one_family_or_is_shared() {
    let names_of_all = names(&crds(&all()));
    let distinct: BTreeSet<&String> = names_of_all.iter().collect();
    assert_eq!(distinct.len(), names_of_all.len(), "{names_of_all:?}");
    assert_eq!(names(&crds(&[])), names(&aquifer_api::shared_crds()));
}

/// Printed files must not move.
#[test]
fn definitions_come_in_a_stable_order() {
    let mut chosen = all();
    chosen.reverse();
    let names_of_all = names(&crds(&chosen));
    assert!(names_of_all.is_sorted(), "{names_of_all:?}");
}

#[test]
fn names_are_plain_words_and_the_default_is_in_the_list() {
    for family in all() {
        assert!(family.name().chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()));
        assert!(named(family.name()).is_some());
        assert!(!family.summary().is_empty() && !family.summary().ends_with('.'));
    }
    assert_eq!(default().len(), DEFAULT.len());
    let distinct: BTreeSet<&str> = all().iter().map(|family| family.name()).collect();
    assert_eq!(distinct.len(), all().len());
}

#[test]
fn flags_and_variables_carry_the_familys_name_and_do_not_collide() {
    let mut command = clap::Command::new("run");
    for family in all() {
        let before: BTreeSet<String> = command.get_arguments().map(|arg| arg.get_id().to_string()).collect();
        command = family.flags(command);
        for arg in command.get_arguments().filter(|arg| !before.contains(arg.get_id().as_str())) {
            let (flag, variable) = (
                arg.get_long().unwrap_or_default(),
                arg.get_env().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            );
            let upper = family.name().to_uppercase();
            assert!(flag.starts_with(&format!("{}-", family.name())), "--{flag}");
            assert_eq!(variable, format!("AQUIFER_{}", flag.replace('-', "_").to_uppercase()), "{upper}");
            assert_eq!(arg.get_id(), flag, "ids of all families share one command");
        }
    }
    command.debug_assert();
}

#[test]
fn a_foreign_kind_says_what_happens_without_it() {
    for kind in all().into_iter().flat_map(Family::needs) {
        assert!(kind.without.ends_with('.') && !kind.group.is_empty(), "{kind:?}");
    }
}

#[test]
fn variables_of_an_installation_are_those_of_flags() {
    for family in all() {
        let command = family.flags(clap::Command::new("run"));
        for (variable, _) in family.environment() {
            assert!(
                command.get_arguments().any(|arg| arg.get_env().is_some_and(|name| name == variable)),
                "{variable}"
            );
        }
    }
}

fn leaves(schema: &Value, path: &str, into: &mut Vec<String>) {
    match schema.get("properties").and_then(Value::as_object) {
        Some(properties) => {
            for (name, below) in properties {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                leaves(below, &path, into);
            }
        }
        None => into.push(path.to_owned()),
    }
}

/// The paths of all fields, by kind.
fn schemas(crds: Vec<CustomResourceDefinition>) -> BTreeMap<String, Vec<String>> {
    let paths = |crd: CustomResourceDefinition| {
        let json = serde_json::to_value(&crd).unwrap();
        let mut paths = Vec::new();
        leaves(&json["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "", &mut paths);
        (crd.spec.names.kind, paths)
    };
    crds.into_iter().map(paths).collect()
}

#[test]
fn every_field_of_every_kind_has_exactly_one_writer() {
    let fields: Vec<Field> = all().into_iter().flat_map(Family::fields).collect();
    let one_writer = |kind: &str, object: Option<&str>, paths: &[String]| {
        for path in paths {
            let entries: Vec<_> = fields
                .iter()
                .filter(|field| field.kind == kind && field.object == object && field.covers(path))
                .collect();
            // Conditions have one field in the schema and one entry for each type.
            let conditions: BTreeSet<_> = entries.iter().filter_map(|field| field.condition()).collect();
            assert_eq!(entries.len(), conditions.len().max(1), "{kind} {object:?} {path}: {entries:?}");
        }
    };
    for family in all() {
        for (kind, paths) in schemas(family.kinds()) {
            one_writer(&kind, None, &paths);
        }
    }
    for (kind, paths) in schemas(aquifer_api::shared_crds()) {
        let objects: BTreeSet<Option<&str>> =
            fields.iter().filter(|field| field.kind == kind).map(|field| field.object).collect();
        assert!(!objects.is_empty() && !objects.contains(&None), "{kind} is shared: {objects:?}");
        for object in objects {
            one_writer(&kind, object, &paths);
        }
    }
}

#[test]
fn the_table_names_no_field_that_does_not_exist_and_no_kind_of_another_family() {
    for family in all() {
        let mut known = schemas(family.kinds());
        known.extend(schemas(aquifer_api::shared_crds()));
        for field in family.fields().into_iter().filter(|field| !field.path.starts_with("metadata.")) {
            assert!(
                known.get(field.kind).is_some_and(|paths| paths.iter().any(|path| field.covers(path))),
                "{field:?}"
            );
        }
    }
}

fn all_grants() -> Vec<Grant> {
    let of = |family: &'static dyn Family| rights::grants(family, &Settings::defaults(family, "home"));
    rights::shared_grants().into_iter().chain(all().into_iter().flat_map(of)).collect()
}

#[test]
fn no_account_has_a_wildcard_or_a_right_to_gain_rights() {
    for Grant { rule, .. } in all_grants() {
        let words = rule.api_groups.iter().chain(&rule.resources).flatten().chain(&rule.verbs);
        for word in words {
            assert!(!["*", "escalate", "bind", "impersonate"].contains(&word.as_str()), "{rule:?}");
        }
    }
}

#[test]
fn every_grant_says_why() {
    for grant in all_grants() {
        let why = grant.why;
        assert!(why.len() > 20 && why.ends_with('.') && !why.contains('\n'), "{grant:?}");
    }
}

/// Administrators must know what they risk.
#[test]
fn what_a_thief_could_do_with_the_rights_is_said_in_few_lines_on_the_page_about_security_or_of_the_family() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let families = all();
    let pages = std::iter::once("docs/security.md").chain(families.iter().map(|family| family.page()));
    let page: String = pages.map(|page| std::fs::read_to_string(root.join(page)).unwrap()).collect();
    let lines: Vec<&str> =
        all_grants().iter().map(|grant| grant.abuse).filter(|line| !line.is_empty()).collect();
    assert!(lines.len() <= 12, "more than a person reads: {lines:#?}");
    for line in &lines {
        assert!(
            page.contains(&format!("\n- {line}\n")),
            "neither docs/security.md nor the page of its family says: {line}"
        );
    }
    // Of each resource that can be written, something is said.
    let written = |grant: &&Grant| grant.rule.verbs.iter().any(|verb| !READ.contains(&verb.as_str()));
    for grant in all_grants().iter().filter(written) {
        let kind =
            |resource: &str| resource.split('/').next().unwrap_or_default().trim_end_matches('s').to_owned();
        let resources = grant.rule.resources.iter().flatten().map(|one| kind(one));
        for resource in resources {
            let about = |other: &&Grant| {
                !other.abuse.is_empty()
                    && other.rule.resources.iter().flatten().any(|one| kind(one) == resource)
            };
            assert!(all_grants().iter().any(|other| about(&other)), "{resource}");
        }
    }
}

#[test]
fn a_grant_in_a_namespace_names_a_value_of_its_family() {
    for family in all() {
        let known = |value: &str| family.settings().iter().any(|one| one.value == value);
        for grant in family.grants(&Settings::defaults(family, "home")) {
            if let Scope::Namespace(value) = grant.scope {
                assert!(known(value), "{grant:?}");
            }
            assert!(grant.when.is_none_or(|when| known(when.value)), "{grant:?}");
        }
        // A choice of an installation is found by the variable of its value.
        let command = family.flags(clap::Command::new("run"));
        for one in family.settings() {
            assert!(one.value.starts_with(&format!("{}.", family.name())), "{one:?}");
            let variable = format!("AQUIFER_{}", one.value.replace('.', "_").to_uppercase());
            let is = |arg: &clap::Arg| arg.get_env().is_some_and(|name| *name == *variable);
            assert!(command.get_arguments().any(is), "{variable}");
        }
    }
}

#[test]
fn what_an_installation_makes_says_that_it_is_ours() {
    for family in all() {
        for one in family.installed(&Settings::defaults(family, "home")) {
            let object = &one.object;
            for field in ["apiVersion", "kind"] {
                assert!(object[field].is_string(), "{object}");
            }
            let labels = &object["metadata"]["labels"];
            assert_eq!(labels[aquifer_api::labels::PART_OF], aquifer_api::labels::MANAGER, "{object}");
            assert_eq!(labels[aquifer_api::labels::MANAGED_BY], aquifer_api::labels::MANAGER, "{object}");
        }
    }
}

#[test]
fn leases_are_held_under_the_familys_name_only() {
    let rights = Rights::by_default(Account::Operator, &all(), "home");
    let about_leases = |rule: &&PolicyRule| rule.resources.iter().flatten().any(|one| one == "leases");
    let leases: Vec<&PolicyRule> = rights.own_namespace.iter().filter(about_leases).collect();
    assert_eq!(leases.len(), all().len() + 1);
    for rule in leases {
        assert!(rule.resource_names.is_some() || rule.verbs == ["create"], "{rule:?}");
    }
    assert!(!rights.cluster.iter().any(|rule| about_leases(&rule)));
}

#[test]
fn failures_can_show_in_the_status_of_every_kind_that_a_controller_reports_on() {
    let fields: Vec<_> = all().into_iter().flat_map(aquifer_family::Family::fields).collect();
    let conditions = |kind: &str| -> BTreeSet<&str> {
        fields
            .iter()
            .filter(|field| field.kind == kind)
            .filter_map(aquifer_family::Field::condition)
            .collect()
    };
    let reported: BTreeSet<&str> =
        fields.iter().filter(|field| field.condition().is_some()).map(|field| field.kind).collect();
    assert!(reported.contains("SharedVolume"), "{reported:?}");
    for kind in reported {
        assert!(
            conditions(kind).is_superset(&BTreeSet::from(["Ready", "Progressing"])),
            "{kind}: {:?}",
            conditions(kind)
        );
    }
}

#[test]
fn every_family_has_words_and_a_page_that_exists() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for family in all() {
        assert!(!family.words().is_empty(), "{}", family.name());
        assert!(root.join(family.page()).exists(), "{}", family.page());
    }
}
