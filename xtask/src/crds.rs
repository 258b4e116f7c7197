//! The CRDs as files, made from the types in `api`. The types are the source; the files are never edited.

use anyhow::{Context, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::generated::{Args, Files, Folder};
use crate::process;

const COMMAND: &str = "cargo xtask crds";

/// Writes or checks the files.
pub fn run(args: Args) -> Result<()> {
    if args.check { check() } else { folder()?.write() }
}

/// Fails when a file is not what would be written now.
pub fn check() -> Result<()> {
    folder()?.check(COMMAND)?;
    println!("the CRDs are current");
    Ok(())
}

fn folder() -> Result<Folder> {
    let dir = process::root().join("crates/api/crds");
    Ok(Folder::whole(dir, files(all(), COMMAND)?))
}

/// The definitions of all kinds of ours.
pub fn all() -> Vec<CustomResourceDefinition> {
    aquifer_families::crds(&aquifer_families::all())
}

/// File name to content, as the types say; the first line names the command that writes it.
pub fn files(crds: Vec<CustomResourceDefinition>, command: &str) -> Result<Files> {
    let mut files = Files::new();
    for crd in crds {
        let name = crd.metadata.name.clone().context("a CRD without a name")?;
        let yaml = yaml(&crd).with_context(|| format!("cannot print {name} as YAML"))?;
        let header = format!("# Written by `{command}` from the types in crates/api. Do not edit.\n");
        files.insert(format!("{name}.yaml"), header + &yaml);
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
    Ok(format!("{}\n", text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crd_can_be_printed() {
        assert_eq!(files(all(), COMMAND).unwrap().len(), all().len());
    }
}
