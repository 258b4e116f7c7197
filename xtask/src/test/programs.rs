//! The test programs: cargo builds them, and they are run one by one, so that each has its own time. Runs none of them.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::Ring;
use super::budget::{self, families};
use crate::process;

/// Packages whose integration tests drive whole programs.
const SYSTEM: [&str; 3] = ["aquifer-lab", "aquifer", "aquifer-system"];
/// The one whose tests are sorted by family.
const PRODUCT: &str = "aquifer-system";

/// A test program.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    pub ring: Ring,
    pub package: String,
    /// As cargo names it; a package may have a library and a program.
    pub target: String,
    executable: PathBuf,
    /// The folder of the package, where its tests run.
    dir: PathBuf,
}

/// A part of a program's tests that is run and measured on its own.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The family that the part belongs to; its package may already say so.
    pub family: Option<String>,
    /// Arguments of the test program that select it.
    pub arguments: Vec<String>,
}

impl Part {
    pub fn title(&self) -> String {
        self.family.as_ref().map(|family| format!(" ({family})")).unwrap_or_default()
    }
}

impl Program {
    /// A command that runs it as cargo would.
    pub fn command(&self) -> Command {
        let mut command = process::command(&self.executable.to_string_lossy());
        command.current_dir(&self.dir).env("CARGO_MANIFEST_DIR", &self.dir);
        command
    }

    /// The names of its tests.
    pub fn tests(&self) -> Result<Vec<String>> {
        let text = process::output(self.command().args(["--list", "--format", "terse"]))?;
        Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }

    /// What is run of it on its own: tests of the whole product are sorted by family, all others are run as one.
    pub fn parts(&self, only: Option<&str>) -> Result<Vec<Part>> {
        if self.package != PRODUCT || self.ring != Ring::System {
            return Ok(vec![Part::default()]);
        }
        Ok(parts_of(&self.tests()?, only))
    }
}

/// The families' parts of the product's tests, and the rest.
fn parts_of(tests: &[String], only: Option<&str>) -> Vec<Part> {
    let prefix = |family: &str| format!("{family}::");
    let mut parts = Vec::new();
    for family in families() {
        let has = tests.iter().any(|test| test.starts_with(&prefix(family)));
        if has && only.is_none_or(|only| only == family) {
            parts.push(Part { family: Some(family.to_owned()), arguments: vec![prefix(family)] });
        }
    }
    if only.is_none() {
        let arguments =
            families().into_iter().flat_map(|family| ["--skip".to_owned(), prefix(family)]).collect();
        parts.push(Part { family: None, arguments });
    }
    parts
}

/// Builds the test programs of some rings, and says how long that took. Only those of a family when one is named.
pub fn build(rings: &[Ring], family: Option<&str>) -> Result<(Vec<Program>, Duration)> {
    let packages = packages()?;
    let begin = Instant::now();
    let mut cargo = process::cargo(&["test", "--no-run", "--message-format", "json-render-diagnostics"]);
    cargo.args(selection(rings, family, &packages));
    // Progress and errors of the compiler go to the terminal.
    let shown = process::show(&cargo);
    let output =
        cargo.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        bail!("cannot build the tests: `{shown}` failed ({})", output.status);
    }
    let mut programs: Vec<Program> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(program)
        .filter(|program| rings.contains(&program.ring))
        .collect();
    programs.sort_by(|a, b| (a.ring, &a.package, &a.target).cmp(&(b.ring, &b.package, &b.target)));
    Ok((programs, begin.elapsed()))
}

/// The arguments for cargo that select the tests of rings.
fn selection(rings: &[Ring], family: Option<&str>, packages: &[Package]) -> Vec<String> {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for package in packages {
        let of_family = family.is_none_or(|family| {
            package.name == budget::package(family)
                || (package.name == PRODUCT && rings.contains(&Ring::System))
        });
        let ring = if SYSTEM.contains(&package.name.as_str()) { Ring::System } else { Ring::Cluster };
        if of_family && (rings.contains(&Ring::Pure) || (package.has_tests() && rings.contains(&ring))) {
            names.insert(&package.name);
        }
    }
    let mut args: Vec<String> = names.iter().flat_map(|name| ["-p".to_owned(), (*name).to_owned()]).collect();
    if rings.contains(&Ring::Pure) {
        args.extend(["--lib", "--bins"].map(str::to_owned));
    }
    if rings.iter().any(|ring| *ring != Ring::Pure) {
        args.extend(["--test", "*"].map(str::to_owned));
    }
    args
}

/// A test program in a line of cargo's messages.
fn program(line: &str) -> Option<Program> {
    let artifact: Artifact = serde_json::from_str(line).ok()?;
    let executable =
        artifact.executable.filter(|_| artifact.reason == "compiler-artifact" && artifact.profile.test)?;
    let dir = Path::new(&artifact.manifest_path).parent()?.to_path_buf();
    let package = artifact.package_id.rsplit(['#', '/']).next()?;
    // Either `path#name@version` or, when the folder has the name of the package, `path#version`.
    let package = match package.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => dir.file_name()?.to_string_lossy().into_owned(),
    };
    let ring = match artifact.target.kind.first()?.as_str() {
        "test" if SYSTEM.contains(&package.as_str()) => Ring::System,
        "test" => Ring::Cluster,
        _ => Ring::Pure,
    };
    Some(Program { ring, package, target: artifact.target.name, executable, dir })
}

#[derive(Deserialize)]
struct Artifact {
    reason: String,
    package_id: String,
    manifest_path: String,
    target: ArtifactTarget,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct ArtifactTarget {
    kind: Vec<String>,
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    targets: Vec<PackageTarget>,
}

#[derive(Deserialize)]
struct PackageTarget {
    kind: Vec<String>,
}

impl Package {
    fn has_tests(&self) -> bool {
        self.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "test"))
    }
}

fn packages() -> Result<Vec<Package>> {
    let text = process::output(&mut process::cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Metadata =
        serde_json::from_str(&text).context("cannot read what `cargo metadata` printed")?;
    Ok(metadata.packages)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, kind: &str) -> Package {
        Package { name: name.into(), targets: vec![PackageTarget { kind: vec![kind.into()] }] }
    }

    fn all() -> Vec<Package> {
        vec![
            package("aquifer-base", "lib"),
            package("aquifer-efs", "test"),
            package("aquifer-lab", "test"),
            package("aquifer-system", "test"),
        ]
    }

    #[test]
    fn integration_tests_of_programs_are_system_tests_and_all_others_cluster_tests() {
        assert_eq!(selection(&[Ring::Cluster], None, &all()).join(" "), "-p aquifer-efs --test *");
        let system = selection(&[Ring::System], None, &all()).join(" ");
        assert_eq!(system, "-p aquifer-lab -p aquifer-system --test *");
        let pure = selection(&[Ring::Pure], None, &all()).join(" ");
        assert!(
            pure.starts_with("-p aquifer-base -p aquifer-efs") && pure.ends_with("--lib --bins"),
            "{pure}"
        );
    }

    #[test]
    fn a_family_is_its_package_and_its_part_of_the_products_tests() {
        let chosen = selection(&Ring::ALL, Some("efs"), &all()).join(" ");
        assert_eq!(chosen, "-p aquifer-efs -p aquifer-system --lib --bins --test *");
        let tests = ["chart::one".to_owned(), "efs::two".to_owned()];
        let only: Vec<_> = parts_of(&tests, Some("efs")).into_iter().map(|part| part.arguments).collect();
        assert_eq!(only, [["efs::"]]);
        let every = parts_of(&tests, None);
        let skipped: Vec<String> = families().iter().map(|family| format!("--skip {family}::")).collect();
        assert_eq!(every.last().map(|part| part.arguments.join(" ")), Some(skipped.join(" ")));
        assert_eq!(parts_of(&tests[..1], Some("efs")), []);
    }

    #[test]
    fn a_test_program_is_recognised_in_cargos_messages() {
        let line = |kind: &str, test: bool, id: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"{id}","manifest_path":"/w/crates/efs/Cargo.toml",
                "target":{{"kind":["{kind}"],"name":"efs"}},"profile":{{"test":{test}}},"executable":"/t/efs-1"}}"#
            )
        };
        let found = program(&line("test", true, "path+file:///w/crates/efs#aquifer-efs@0.1.0")).unwrap();
        assert_eq!((found.ring, found.package.as_str()), (Ring::Cluster, "aquifer-efs"));
        let found = program(&line("lib", true, "path+file:///w/crates/efs#0.1.0")).unwrap();
        assert_eq!((found.ring, found.package.as_str()), (Ring::Pure, "efs"));
        assert_eq!(program(&line("bin", false, "path+file:///w/crates/efs#0.1.0")), None);
        assert_eq!(program("not JSON"), None);
    }
}
