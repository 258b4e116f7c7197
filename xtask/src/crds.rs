//! The CRDs as files, made from the types in `api`. The types are the source; the files are never edited.

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::{Context, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::process;

const HEADER: &str = "# Written by `cargo xtask crds` from the types in crates/api. Do not edit.\n";

/// Flags of `cargo xtask crds`.
#[derive(clap::Args)]
pub struct Args {
    /// Write nothing; fail when a file is not current
    #[arg(long)]
    check: bool,
}

/// Writes or checks the files.
pub fn run(args: &Args) -> Result<()> {
    if args.check { check() } else { write() }
}

/// Fails when a file is not what would be written now.
pub fn check() -> Result<()> {
    let (wanted, found) = (wanted()?, found()?);
    let differences = differences(&wanted, &found);
    if !differences.is_empty() {
        bail!("{}\nrun `cargo xtask crds` and commit the result", differences.join("\n"));
    }
    println!("{} CRDs are current", wanted.len());
    Ok(())
}

fn write() -> Result<()> {
    let (wanted, found, dir) = (wanted()?, found()?, dir());
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    for name in found.keys().filter(|name| !wanted.contains_key(*name)) {
        fs::remove_file(dir.join(name)).with_context(|| format!("cannot remove {name}"))?;
        println!("removed {name}");
    }
    for (name, text) in &wanted {
        if found.get(name) == Some(text) {
            println!("current {name}");
        } else {
            fs::write(dir.join(name), text).with_context(|| format!("cannot write {name}"))?;
            println!("wrote   {name}");
        }
    }
    Ok(())
}

fn dir() -> PathBuf {
    process::root().join("crates/api/crds")
}

/// File name to content, as the types say.
fn wanted() -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for crd in aquifer_api::crds() {
        let name = crd.metadata.name.clone().context("a CRD without a name")?;
        files.insert(
            format!("{name}.yaml"),
            yaml(&crd).with_context(|| format!("cannot print {name} as YAML"))?,
        );
    }
    Ok(files)
}

/// File name to content, as the folder has it.
fn found() -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    let dir = dir();
    if !dir.exists() {
        return Ok(files);
    }
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml")
            && let Some(name) = path.file_name()
        {
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            files.insert(name.to_string_lossy().into_owned(), text);
        }
    }
    Ok(files)
}

fn yaml(crd: &CustomResourceDefinition) -> Result<String> {
    // Through a value, so that keys come in one order whatever the order of the fields.
    let value = serde_json::to_value(crd)?;
    let text = serde_saphyr::to_string(&value)?;
    let again: serde_json::Value = serde_saphyr::from_str(&text)?;
    if again != value {
        bail!("the YAML does not read back as the same CRD");
    }
    Ok(format!("{HEADER}{}\n", text.trim_end()))
}

fn differences(wanted: &BTreeMap<String, String>, found: &BTreeMap<String, String>) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, text) in wanted {
        match found.get(name) {
            None => lines.push(format!("{name} is missing")),
            Some(old) if old != text => {
                let line = old.lines().zip(text.lines()).position(|(old, new)| old != new);
                let line = line.unwrap_or_else(|| old.lines().count().min(text.lines().count())) + 1;
                lines.push(format!("{name} is not current (first difference in line {line})"));
            }
            Some(_) => {}
        }
    }
    lines.extend(
        found.keys().filter(|name| !wanted.contains_key(*name)).map(|name| format!("{name} has no type")),
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn every_kind_of_difference_is_named() {
        let wanted = files(&[("a", "1\n2\n"), ("b", "1\n2\n"), ("c", "x\n")]);
        let found = files(&[("a", "1\n2\n"), ("b", "1\n3\n"), ("d", "x\n")]);
        assert_eq!(
            differences(&wanted, &found),
            ["b is not current (first difference in line 2)", "c is missing", "d has no type"]
        );
    }

    #[test]
    fn every_crd_can_be_printed() {
        assert_eq!(wanted().unwrap().len(), aquifer_api::crds().len());
    }
}
