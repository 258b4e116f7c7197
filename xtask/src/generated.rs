//! Files that are made from code: written into a folder, or compared with what is there. What they say is not decided here.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The flags of every command that writes files from code.
#[derive(Clone, Copy, clap::Args)]
pub struct Args {
    /// Write nothing; fail when a file is not current
    #[arg(long)]
    pub check: bool,
}

/// Path within a folder to content.
pub type Files = BTreeMap<String, String>;

/// Files of a folder, as they should be.
pub struct Folder {
    dir: PathBuf,
    wanted: Files,
    /// Whether nothing else belongs there.
    whole: bool,
}

impl Folder {
    /// A folder that holds these files and no others.
    pub fn whole(dir: PathBuf, wanted: Files) -> Self {
        Self { dir, wanted, whole: true }
    }

    /// Some files of a folder that others live in, too.
    pub fn some_of(dir: PathBuf, wanted: Files) -> Self {
        Self { dir, wanted, whole: false }
    }

    /// Makes the files what they should be.
    pub fn write(&self) -> Result<()> {
        let found = self.found()?;
        for name in found.keys().filter(|name| !self.wanted.contains_key(*name)) {
            fs::remove_file(self.dir.join(name)).with_context(|| format!("cannot remove {name}"))?;
            println!("removed {name}");
        }
        for (name, text) in &self.wanted {
            if found.get(name) == Some(text) {
                println!("current {name}");
                continue;
            }
            let path = self.dir.join(name);
            let parent = path.parent().unwrap_or(&self.dir);
            fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
            fs::write(&path, text).with_context(|| format!("cannot write {name}"))?;
            println!("wrote   {name}");
        }
        Ok(())
    }

    /// Fails when a file is not what would be written now.
    pub fn check(&self, command: &str) -> Result<()> {
        let differences = differences(&self.wanted, &self.found()?);
        if !differences.is_empty() {
            bail!(
                "{}:\n{}\nrun `{command}` and commit the result",
                self.dir.display(),
                differences.join("\n")
            );
        }
        Ok(())
    }

    /// The files that are there.
    fn found(&self) -> Result<Files> {
        let mut files = Files::new();
        if self.whole {
            read(&self.dir, "", &mut files)?;
        } else {
            for name in self.wanted.keys() {
                if let Ok(text) = fs::read_to_string(self.dir.join(name)) {
                    files.insert(name.clone(), text);
                }
            }
        }
        Ok(files)
    }
}

fn read(dir: &Path, below: &str, files: &mut Files) -> Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let entry = entry?;
        let (path, name) = (entry.path(), format!("{below}{}", entry.file_name().to_string_lossy()));
        if path.is_dir() {
            read(&path, &format!("{name}/"), files)?;
        } else {
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            files.insert(name, text);
        }
    }
    Ok(())
}

fn differences(wanted: &Files, found: &Files) -> Vec<String> {
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
        found.keys().filter(|name| !wanted.contains_key(*name)).map(|name| format!("{name} has no source")),
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(pairs: &[(&str, &str)]) -> Files {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn every_kind_of_difference_is_named() {
        let wanted = files(&[("a", "1\n2\n"), ("b", "1\n2\n"), ("c", "x\n")]);
        let found = files(&[("a", "1\n2\n"), ("b", "1\n3\n"), ("d", "x\n")]);
        assert_eq!(
            differences(&wanted, &found),
            ["b is not current (first difference in line 2)", "c is missing", "d has no source"]
        );
    }

    #[test]
    fn a_whole_folder_loses_what_has_no_source_and_others_keep_it() {
        let dir = tempfile::tempdir().unwrap();
        let (own, old) = (files(&[("a/b.yaml", "x\n")]), dir.path().join("a/old.yaml"));
        fs::create_dir_all(dir.path().join("a")).unwrap();
        fs::write(&old, "y\n").unwrap();
        let some = Folder::some_of(dir.path().to_path_buf(), own.clone());
        assert!(some.check("x").is_err());
        some.write().unwrap();
        some.check("x").unwrap();
        assert!(old.exists());
        let whole = Folder::whole(dir.path().to_path_buf(), own);
        assert!(whole.check("x").unwrap_err().to_string().contains("a/old.yaml has no source"));
        whole.write().unwrap();
        whole.check("x").unwrap();
        assert!(!old.exists());
    }
}
