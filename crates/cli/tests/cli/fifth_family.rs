//! What it takes to add a family, shown with one that does not exist: it is copied into a copy of the tree, built there, and everything that goes
//! through the list of families knows it. Minutes, so only with `AQUIFER_FULL`. Changes nothing in this tree.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::install::{helm, objects};
use super::process::{stderr, stdout};

/// What the new family may touch beside its crate, its types in `api`, the lock and generated files.
const MOST: usize = 4;

/// A copy of the tree, with a target folder that survives for the next run.
struct Copy {
    tree: PathBuf,
    target: PathBuf,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl Copy {
    fn make() -> Result<Self> {
        let binary = Path::new(env!("CARGO_BIN_EXE_aquifer"));
        let built = binary.parent().context("the program is in no folder")?;
        let base = built.parent().context("no target folder")?.join("fifth-family");
        let copy = Self { tree: base.join("tree"), target: base.join("target") };
        if copy.tree.exists() {
            fs::remove_dir_all(&copy.tree)?;
        }
        for name in files(&root())? {
            let to = copy.tree.join(&name);
            fs::create_dir_all(to.parent().context("a file in no folder")?)?;
            fs::copy(root().join(&name), to).with_context(|| format!("cannot copy {name}"))?;
        }
        copy.borrow_dependencies(built)?;
        Ok(copy)
    }

    /// What others wrote is compiled already; links to it save minutes. Our own crates have another place here and are compiled anew.
    fn borrow_dependencies(&self, built: &Path) -> Result<()> {
        let to = self.target.join("debug");
        if to.exists() {
            return Ok(());
        }
        fs::create_dir_all(&to)?;
        for part in ["deps", "build", ".fingerprint"] {
            let done = Command::new("cp").arg("-al").arg(built.join(part)).arg(&to).output()?;
            ensure!(done.status.success(), "cannot link {part}: {}", stderr(&done));
        }
        Ok(())
    }

    /// Adds the family: its own files, and one line here and there.
    fn add_family(&self) -> Result<()> {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fifth_family");
        for name in ["crates", "xtask"] {
            let done = Command::new("cp").arg("-r").arg(fixture.join(name)).arg(&self.tree).output()?;
            ensure!(done.status.success(), "cannot copy the family into the tree: {}", stderr(&done));
        }
        self.edit("crates/api/src/lib.rs", "pub mod openshift;\n", "pub mod openshift;\npub mod tide;\n")?;
        let line = "aquifer-efs = { path = \"../efs\" }\n";
        let added = format!("{line}aquifer-tide = {{ path = \"../tide\" }}\n");
        self.edit("crates/families/Cargo.toml", line, &added)?;
        let line = "    aquifer_efs::family, //\n";
        self.edit("crates/families/src/lib.rs", line, &format!("{line}    aquifer_tide::family,\n"))?;
        self.edit("xtask/src/families.rs", "mod efs;\n", "mod efs;\nmod tide;\n")?;
        let line = "    &efs::Efs, //\n";
        self.edit("xtask/src/families.rs", line, &format!("{line}    &tide::Tide,\n"))
    }

    fn edit(&self, name: &str, from: &str, to: &str) -> Result<()> {
        let path = self.tree.join(name);
        let text = fs::read_to_string(&path)?;
        ensure!(text.matches(from).count() == 1, "{name} does not hold {from:?} once");
        Ok(fs::write(path, text.replace(from, to))?)
    }

    /// Files that are not as in this tree, but for the family's crate, `api`, the lock and what commands write.
    fn touched(&self) -> Result<Vec<String>> {
        let mut now = BTreeMap::new();
        read(&self.tree, "", &mut now)?;
        let differs =
            |name: &str, text: &str| fs::read_to_string(root().join(name)).ok().as_deref() != Some(text);
        let apart = |name: &str| {
            name == "Cargo.lock" || ["crates/tide/", "crates/api/"].iter().any(|own| name.starts_with(own))
        };
        let written = |text: &str| text.contains("Written by `cargo xtask");
        let all = now.iter().filter(|(name, text)| differs(name, text) && !apart(name) && !written(text));
        Ok(all.map(|(name, _)| name.clone()).collect())
    }

    /// Runs cargo in the copy, and gives what it printed.
    fn cargo(&self, arguments: &[&str]) -> Result<String> {
        let done = self.command(env!("CARGO")).args(arguments).output()?;
        ensure!(done.status.success(), "cargo {arguments:?}: {}{}", stdout(&done), stderr(&done));
        Ok(stdout(&done))
    }

    /// Runs a program that was built in the copy.
    fn run(&self, program: &str, arguments: &[&str]) -> Result<std::process::Output> {
        let mut command = self.command(self.target.join("debug").join(program));
        let kubeconfig = self.tree.join("kubeconfig");
        Ok(command.args(arguments).env("KUBECONFIG", kubeconfig).output()?)
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_") || text.starts_with("AQUIFER_") {
                command.env_remove(&name);
            }
        }
        command
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_NET_OFFLINE", "true");
        command.env("CARGO_MANIFEST_DIR", self.tree.join("xtask")).stdin(std::process::Stdio::null());
        command
    }
}

/// The files of a tree, as git knows them, with those that are new.
fn files(tree: &Path) -> Result<Vec<String>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let done = Command::new("git").args(arguments).current_dir(tree).output()?;
    ensure!(done.status.success(), "git ls-files: {}", stderr(&done));
    let names = stdout(&done);
    Ok(names.split('\0').filter(|name| tree.join(name).is_file()).map(str::to_owned).collect())
}

fn read(dir: &Path, below: &str, into: &mut BTreeMap<String, String>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let (path, name) = {
            let entry = entry?;
            (entry.path(), format!("{below}{}", entry.file_name().to_string_lossy()))
        };
        if path.is_dir() {
            read(&path, &format!("{name}/"), into)?;
        } else if let Ok(text) = fs::read_to_string(&path) {
            into.insert(name, text);
        }
    }
    Ok(())
}

#[test]
fn a_fifth_family_touches_four_files_and_is_known_everywhere() -> Result<()> {
    if std::env::var_os("AQUIFER_FULL").is_none() {
        println!("skipped: it builds a copy of the tree (AQUIFER_FULL=1 does it)");
        return Ok(());
    }
    let copy = Copy::make()?;
    copy.add_family()?;
    copy.cargo(&["build", "--package", "aquifer", "--package", "xtask"])?;
    for generated in ["crds", "chart"] {
        let done = copy.run("xtask", &[generated])?;
        ensure!(done.status.success(), "{generated}: {}", stderr(&done));
    }
    let touched = copy.touched()?;
    println!("beside its crate, api, the lock and generated files: {}", touched.join(", "));
    ensure!(!touched.is_empty() && touched.len() <= MOST, "{touched:?}");

    // Kinds: with the family, and only then.
    let crds = |families: &str| {
        Ok::<_, anyhow::Error>(stdout(&copy.run("aquifer", &["crds", "--families", families])?))
    };
    let (ours, others) = (crds("tide")?, crds("efs")?);
    ensure!(
        ours.contains("name: tides.tides.example") && ours.contains("name: components.aquifer.storage"),
        "{ours}"
    );
    ensure!(!ours.contains("sharedvolumes") && !others.contains("tides"), "{ours}{others}");
    let help = stdout(&copy.run("aquifer", &["run", "--help"])?);
    ensure!(help.contains("AQUIFER_TIDE_NAMESPACE") && help.contains("Tides, for a test"), "{help}");

    // Installation and chart: the same objects, among them the rights in the family's namespace and its Lease.
    let dry_run = copy.run("aquifer", &["install", "--dry-run", "--families", "efs,tide"])?;
    let mut installed = objects(&stdout(&dry_run));
    ensure!(installed.remove("Namespace /aquifer-system").is_some(), "{:?}", installed.keys());
    let mut command = helm();
    command.args(["template", "aquifer"]).arg(copy.tree.join("charts/aquifer"));
    command.args([
        "--namespace",
        "aquifer-system",
        "--kube-version",
        "1.36.0",
        "--set",
        "families={efs,tide}",
    ]);
    let rendered = command.output()?;
    ensure!(rendered.status.success(), "{}", stderr(&rendered));
    let text = stdout(&rendered).replace("managed-by: Helm", "managed-by: aquifer");
    let mut rendered = objects(&text);
    // Helm asks before it uninstalls; without Helm that is a command.
    rendered.retain(|_, object| object["metadata"]["annotations"]["helm.sh/hook"].is_null());
    ensure!(installed.keys().eq(rendered.keys()), "{:?}\n{:?}", installed.keys(), rendered.keys());
    for (key, object) in &installed {
        // The chart lists rules in the order of the families, and so does the installation.
        ensure!(object == &rendered[key], "{key}: {object}\n{}", rendered[key]);
    }
    for key in [
        "Role sea/aquifer-tide-namespace",
        "RoleBinding sea/aquifer-tide-namespace",
        "ClusterRole /aquifer-tides-view",
        "Namespace /sea",
    ] {
        ensure!(installed.contains_key(key), "no {key} in {:?}", installed.keys());
    }
    let own = installed["Role aquifer-system/aquifer"].to_string();
    ensure!(own.contains("aquifer-efs") && own.contains("aquifer-tide"), "{own}");
    let reasons = text.matches("# Tides: what users ask for.").count();
    ensure!(reasons == 1, "the chart does not say why: {reasons}");
    let server = copy.tree.join("charts/aquifer/files/rules/tide/tide-api/cluster.yaml");
    ensure!(server.is_file(), "the server's account has no rules");

    // `up` prints what it would do to a cluster before it asks.
    fs::write(
        copy.tree.join("kubeconfig"),
        "{apiVersion: v1, kind: Config, current-context: sea, contexts: [{name: sea, context: {cluster: sea, user: me}}], \
         clusters: [{name: sea, cluster: {server: 'http://127.0.0.1:9'}}], users: [{name: me, user: {}}]}",
    )?;
    let up = copy.run("xtask", &["up", "--context", "sea"])?;
    for word in [
        "CRD tides.tides.example",
        "ClusterRole aquifer-tides-view",
        "Tide sea/first (example)",
        "It moves the sea.",
    ] {
        ensure!(stdout(&up).contains(word), "no {word} in {}{}", stdout(&up), stderr(&up));
    }

    // Every rule that holds for families holds for this one: writers, flags, rights, and its place in the list of the lab.
    copy.cargo(&["test", "--package", "aquifer-families", "--package", "xtask", "--lib", "--bins"])?;
    Ok(())
}
