//! Files that are made from code: written into a folder of their own, or compared with what is there. What they say is not
//! decided here.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result, bail};

/// File name to content.
pub type Files = BTreeMap<String, String>;

/// Makes the files of a folder that have this extension what they should be.
pub fn write(dir: &Path, extension: &str, wanted: &Files) -> Result<()> {
    let found = found(dir, extension)?;
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    for name in found.keys().filter(|name| !wanted.contains_key(*name)) {
        fs::remove_file(dir.join(name)).with_context(|| format!("cannot remove {name}"))?;
        println!("removed {name}");
    }
    for (name, text) in wanted {
        if found.get(name) == Some(text) {
            println!("current {name}");
        } else {
            fs::write(dir.join(name), text).with_context(|| format!("cannot write {name}"))?;
            println!("wrote   {name}");
        }
    }
    Ok(())
}

/// Fails when a file is not what would be written now.
pub fn check(dir: &Path, extension: &str, wanted: &Files, command: &str) -> Result<()> {
    let differences = differences(wanted, &found(dir, extension)?);
    if !differences.is_empty() {
        bail!("{}:\n{}\nrun `{command}` and commit the result", dir.display(), differences.join("\n"));
    }
    Ok(())
}

/// File name to content, as the folder has it.
fn found(dir: &Path, extension: &str) -> Result<Files> {
    let mut files = Files::new();
    if !dir.exists() {
        return Ok(files);
    }
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension)
            && let Some(name) = path.file_name()
        {
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            files.insert(name.to_string_lossy().into_owned(), text);
        }
    }
    Ok(files)
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
}
