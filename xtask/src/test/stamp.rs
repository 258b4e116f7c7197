//! Whether the lab has changed since its tests of itself last passed. The stamp is in the user's cache, beside what the lab built.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use aquifer_lab::Lab;
use sha2::{Digest, Sha256};

use crate::process;

/// The package of the lab.
pub const PACKAGE: &str = "aquifer-lab";
/// What the lab is made of.
const SOURCES: [&str; 3] = ["Cargo.lock", "crates/lab", "lab"];

/// The lab's sources as they were when this was made.
pub struct Stamp(PathBuf);

impl Stamp {
    /// Of the sources as they are now: made before the tests are built, because sources may change while tests run.
    pub fn now() -> Result<Self> {
        Ok(Self(Lab::cache()?.join("lab-tests-passed").join(hash(&process::root())?)))
    }

    /// Whether the lab's tests passed with these sources.
    pub fn is_green(&self) -> bool {
        self.0.exists()
    }

    /// Notes that they did.
    pub fn write(&self) -> Result<()> {
        let dir = self.0.parent().context("no folder for the stamp")?;
        // One is enough: another checkout with other sources has its tests run once more.
        if dir.exists() {
            fs::remove_dir_all(dir).with_context(|| format!("cannot empty {}", dir.display()))?;
        }
        fs::create_dir_all(dir)
            .and_then(|()| fs::write(&self.0, ""))
            .with_context(|| format!("cannot write {}", self.0.display()))
    }
}

/// Of the names and contents of all files.
fn hash(root: &Path) -> Result<String> {
    let mut files = Vec::new();
    for source in SOURCES {
        collect(&root.join(source), &mut files)?;
    }
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        let content = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().into_owned();
        hash.update(format!("{name}\n{}\n", content.len()));
        hash.update(content);
    }
    Ok(format!("{:x}", hash.finalize()))
}

fn collect(path: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    if !path.is_dir() {
        into.push(path.to_path_buf());
        return Ok(());
    }
    for entry in fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))? {
        collect(&entry?.path(), into)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_change_of_the_lab_gives_another_hash_and_nothing_else_does() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("Cargo.lock", "1");
        write("crates/lab/src/lib.rs", "one");
        write("lab/tools/main.go", "package main");
        let first = hash(root.path()).unwrap();
        write("crates/efs/src/lib.rs", "another crate");
        assert_eq!(hash(root.path()).unwrap(), first);
        write("crates/lab/src/lib.rs", "two");
        let second = hash(root.path()).unwrap();
        assert_ne!(second, first);
        write("lab/tools/more.go", "");
        assert_ne!(hash(root.path()).unwrap(), second);
    }
}
