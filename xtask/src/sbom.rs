//! The bill of materials of the operator's program, as CycloneDX 1.5 in JSON: what is linked into it, from where, under which licence.
//! The same sources and tools give the same bytes, so it holds no time and no random number.
//!
//! By hand, because the subcommands that write such files would have to be installed before an image can be built, and their output
//! holds a time and a random number. Cargo itself says what is linked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

/// The package of the program.
const PROGRAM: &str = "aquifer";
/// How CycloneDX names where packages of cargo come from.
const PURL: &str = "pkg:cargo";

/// A name and a version.
type Package = (String, String);

/// What cargo and the machine say.
struct Sources<'a> {
    /// The packages that are linked: one line each, as `cargo tree` prints them.
    tree: &'a str,
    /// What `cargo metadata` prints.
    metadata: &'a Value,
    /// Cargo.lock.
    lock: &'a str,
    /// The compiler's standard library and the C library, which are linked as well.
    libraries: &'a [Package],
}

/// The bill of the program that is built from this workspace for a target.
pub fn of(workspace: &Path, target: &str) -> Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let says = |program: &mut Command| -> Result<String> {
        let output =
            program.current_dir(workspace).output().with_context(|| format!("cannot run {program:?}"))?;
        ensure!(output.status.success(), "{program:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let tree = says(
        Command::new(&cargo).args(["tree", "--locked", "--package", PROGRAM, "--target", target]).args([
            "--edges",
            "normal,no-proc-macro",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ]),
    )?;
    let metadata = says(Command::new(&cargo).args(["metadata", "--locked", "--format-version", "1"]))?;
    let lock = std::fs::read_to_string(workspace.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let rust = says(Command::new(rustc).arg("-V"))?;
    let libc = says(Command::new("getconf").arg("GNU_LIBC_VERSION"))?;
    let libraries = [second("rust-std", &rust)?, second("glibc", &libc)?];
    let sources = Sources {
        tree: &tree,
        metadata: &serde_json::from_str(&metadata).context("cannot read what cargo metadata printed")?,
        lock: &lock,
        libraries: &libraries,
    };
    Ok(serde_json::to_string_pretty(&bill(&sources)?)? + "\n")
}

/// The version in a line like `rustc 1.95.0 (…)`.
fn second(name: &str, line: &str) -> Result<Package> {
    let version = line.split_whitespace().nth(1).with_context(|| format!("no version in {line:?}"))?;
    Ok((name.to_owned(), version.to_owned()))
}

fn bill(sources: &Sources<'_>) -> Result<Value> {
    let linked: BTreeSet<Package> = sources.tree.lines().filter_map(linked_package).collect();
    let root =
        linked.iter().find(|(name, _)| name == PROGRAM).context("cargo tree does not list the program")?;
    let mut packages: BTreeMap<Package, &Value> = BTreeMap::new();
    for package in sources.metadata["packages"].as_array().context("no packages in cargo metadata")? {
        packages.insert((text(&package["name"]), text(&package["version"])), package);
    }
    let checksums = checksums(sources.lock);
    let edges = edges(sources.metadata)?;
    let (mut components, mut dependencies, mut program) = (Vec::new(), Vec::new(), Value::Null);
    for package in &linked {
        let Some(described) = packages.get(package) else {
            bail!("cargo metadata does not know {package:?}")
        };
        let component = component(package, described, checksums.get(package));
        if package == root {
            program = component;
        } else {
            components.push(component);
        }
        let mut on: Vec<String> = edges
            .get(package)
            .into_iter()
            .flatten()
            .filter(|one| linked.contains(*one))
            .map(reference)
            .collect();
        if package == root {
            on.extend(sources.libraries.iter().map(generic));
        }
        dependencies.push(json!({ "ref": reference(package), "dependsOn": on }));
    }
    for library in sources.libraries {
        let (name, version) = library;
        let purl = generic(library);
        components.push(
            json!({ "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl }),
        );
        dependencies.push(json!({ "ref": purl, "dependsOn": [] }));
    }
    program["type"] = "application".into();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": program },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// The package of a line like `serde v1.0.0 (proc-macro) (*)`.
fn linked_package(line: &str) -> Option<Package> {
    let mut words = line.split_whitespace();
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    Some((name.to_owned(), version.to_owned()))
}

fn component(package: &Package, described: &Value, checksum: Option<&String>) -> Value {
    let (name, version) = package;
    let purl = reference(package);
    let mut component = json!({ "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, "scope": "required" });
    if let Some(licence) = described["license"].as_str() {
        // What cargo still takes for "or" is none in an expression.
        component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
    }
    if let Some(checksum) = checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    component
}

fn reference((name, version): &Package) -> String {
    format!("{PURL}/{name}@{version}")
}

fn generic((name, version): &Package) -> String {
    format!("pkg:generic/{name}@{version}")
}

/// What each package depends on, of everything that cargo resolved.
fn edges(metadata: &Value) -> Result<BTreeMap<Package, BTreeSet<Package>>> {
    let mut by_id = BTreeMap::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        by_id.insert(text(&package["id"]), (text(&package["name"]), text(&package["version"])));
    }
    let mut edges = BTreeMap::new();
    for node in metadata["resolve"]["nodes"].as_array().context("cargo metadata resolved nothing")? {
        let is_normal = |dep: &&Value| {
            dep["dep_kinds"].as_array().into_iter().flatten().any(|kind| kind["kind"].is_null())
        };
        let deps = node["deps"].as_array().into_iter().flatten().filter(is_normal);
        let on: BTreeSet<Package> = deps.filter_map(|dep| by_id.get(&text(&dep["pkg"])).cloned()).collect();
        let package =
            by_id.get(&text(&node["id"])).context("cargo metadata resolved what it does not describe")?;
        edges.insert(package.clone(), on);
    }
    Ok(edges)
}

/// The checksums of packages from a registry. Cargo.lock has one line for each field.
fn checksums(lock: &str) -> BTreeMap<Package, String> {
    let field = |block: &str, name: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""));
        line.map(|value| value.trim_end_matches('"').to_owned())
    };
    let blocks = lock.split("[[package]]").skip(1);
    blocks
        .filter_map(|block| {
            Some(((field(block, "name")?, field(block, "version")?), field(block, "checksum")?))
        })
        .collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_linked_is_listed_with_licence_and_checksum() {
        let package = |name: &str, licence: &str| json!({ "id": name, "name": name, "version": "1.0.0", "license": licence });
        let metadata = json!({
            "packages": [package("aquifer", "Apache-2.0"), package("used", "MIT/Apache-2.0"), package("test-only", "MIT")],
            "resolve": { "nodes": [
                { "id": "aquifer", "deps": [
                    { "pkg": "used", "dep_kinds": [{ "kind": null }] }, { "pkg": "test-only", "dep_kinds": [{ "kind": "dev" }] }] },
                { "id": "used", "deps": [{ "pkg": "test-only", "dep_kinds": [{ "kind": null }] }] },
                { "id": "test-only", "deps": [] },
            ] },
        });
        let sources = Sources {
            tree: "aquifer v1.0.0 (/somewhere)\nused v1.0.0\nused v1.0.0 (*)\n",
            metadata: &metadata,
            lock: "[[package]]\nname = \"used\"\nversion = \"1.0.0\"\nsource = \"registry\"\nchecksum = \"abc\"\n",
            libraries: &[("glibc".into(), "2.36".into())],
        };
        let bill = bill(&sources).unwrap();
        assert_eq!(bill["metadata"]["component"]["type"], "application");
        assert_eq!(
            bill["components"],
            json!([
                { "type": "library", "bom-ref": "pkg:cargo/used@1.0.0", "name": "used", "version": "1.0.0", "purl": "pkg:cargo/used@1.0.0",
                  "scope": "required", "licenses": [{ "expression": "MIT OR Apache-2.0" }], "hashes": [{ "alg": "SHA-256", "content": "abc" }] },
                { "type": "library", "bom-ref": "pkg:generic/glibc@2.36", "name": "glibc", "version": "2.36", "purl": "pkg:generic/glibc@2.36" },
            ])
        );
        assert_eq!(
            bill["dependencies"],
            json!([
                { "ref": "pkg:cargo/aquifer@1.0.0", "dependsOn": ["pkg:cargo/used@1.0.0", "pkg:generic/glibc@2.36"] },
                { "ref": "pkg:cargo/used@1.0.0", "dependsOn": [] },
                { "ref": "pkg:generic/glibc@2.36", "dependsOn": [] },
            ])
        );
    }

    #[test]
    fn the_bill_of_this_checkout_is_complete_and_always_the_same() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let text = of(workspace, &target).unwrap();
        assert_eq!(text, of(workspace, &target).unwrap());
        assert!(!text.contains(&*workspace.to_string_lossy()), "it names the place of the checkout");
        let bill: Value = serde_json::from_str(&text).unwrap();
        let components = bill["components"].as_array().unwrap();
        let of_name = |name: &str| components.iter().find(|one| one["name"] == name);
        for linked in ["aquifer-engine", "kube", "rustls", "aws-lc-sys", "rust-std", "glibc"] {
            assert!(of_name(linked).is_some(), "{linked} is missing");
        }
        // Of tests, of other programs, and what runs only while compiling.
        for other in ["aquifer-lab", "xtask", "insta", "proptest", "ring", "serde_derive"] {
            assert!(of_name(other).is_none(), "{other} is not in the program");
        }
        for one in components.iter().filter(|one| one["purl"].as_str().unwrap().starts_with(PURL)) {
            let ours = one["name"].as_str().unwrap().starts_with("aquifer");
            assert!(one["licenses"][0]["expression"].is_string(), "{one}");
            assert_eq!(one["hashes"][0]["content"].as_str().map(str::len), (!ours).then_some(64), "{one}");
        }
    }
}
