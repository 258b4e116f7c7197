//! Checks that links between the pages lead somewhere: to a file that exists, and to a heading that it has. Addresses on the web are not asked.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::process;

/// Where pages are, besides the root.
const FOLDERS: [&str; 3] = ["docs", "crates", "lab"];

/// Fails when a link leads nowhere.
pub fn check() -> Result<()> {
    let root = process::root();
    let mut pages = BTreeMap::new();
    collect(&root, false, &mut pages)?;
    for folder in FOLDERS {
        collect(&root.join(folder), true, &mut pages)?;
    }
    let dead = dead(&pages, Path::exists);
    if !dead.is_empty() {
        bail!("links that lead nowhere:\n{}", dead.join("\n").replace(&format!("{}/", root.display()), ""));
    }
    Ok(())
}

fn collect(dir: &Path, deep: bool, pages: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() && deep {
            collect(&path, deep, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            pages.insert(path, text);
        }
    }
    Ok(())
}

fn dead(pages: &BTreeMap<PathBuf, String>, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut dead = Vec::new();
    for (page, text) in pages {
        for link in links(text) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match page.parent() {
                Some(dir) if !file.is_empty() => plain(&dir.join(file)),
                _ => page.clone(),
            };
            let found = match pages.get(&target) {
                Some(text) if !heading.is_empty() => headings(text).any(|name| name == heading),
                Some(_) => true,
                None => exists(&target),
            };
            if !found {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    dead
}

/// The targets of links, except those on the web. Code is no place for links.
fn links(text: &str) -> Vec<&str> {
    let mut code = false;
    let lines = text.lines().filter(|line| {
        code ^= line.trim_start().starts_with("```");
        !code
    });
    let targets = lines.flat_map(|line| line.split("](").skip(1)).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://") && !target.contains(' ')).collect()
}

/// The headings as links name them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter(|line| line.starts_with('#')).map(|line| {
        let name = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        name.chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect()
    })
}

/// The path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, part| {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
        plain
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_files_and_dead_headings_are_found() {
        let pages = BTreeMap::from([
            (
                PathBuf::from("/r/docs/a.md"),
                "[b](../b.md#two-words), [c](../b.md#none), [d](gone.md), [web](https://example.com/x), [self](#here)\n# Here\n```\n[code](x)\n```\n"
                    .to_owned(),
            ),
            (PathBuf::from("/r/b.md"), "## Two `words`\n[there](there.txt)".to_owned()),
        ]);
        let found = dead(&pages, |path| path == Path::new("/r/there.txt"));
        assert_eq!(found, ["/r/docs/a.md: ../b.md#none", "/r/docs/a.md: gone.md"]);
    }
}
