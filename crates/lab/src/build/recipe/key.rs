//! The part of a cached name that distinguishes contents: it changes with everything that is put in and with how it is made. Builds
//! nothing.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use crate::control_plane::hex;

/// Of what is made from the files of some recipes by the installed Go, by programs with these arguments. Places must be left out of
/// the arguments: another checkout finds the same.
pub(crate) fn key_of(sources: &[&Path], arguments: &[OsString]) -> Result<String> {
    key_with(&go_version("go")?, sources, arguments)
}

fn go_version(go: &str) -> Result<Vec<u8>> {
    let output =
        Command::new(go).args(["env", "GOVERSION"]).env("GOTOOLCHAIN", "local").output().context(
            "the lab's programs are built with Go, but there is no `go` on the PATH (Debian: golang)",
        )?;
    ensure!(
        output.status.success(),
        "the lab's programs are built with Go, but `{go} env GOVERSION` fails ({}): {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(output.stdout)
}

fn key_with(go: &[u8], sources: &[&Path], arguments: &[OsString]) -> Result<String> {
    let mut hash = Sha256::new();
    let mut add = |part: &[u8]| {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    };
    add(go);
    for argument in arguments {
        add(argument.as_encoded_bytes());
    }
    for source in sources {
        let mut files: Vec<PathBuf> = std::fs::read_dir(source)
            .with_context(|| format!("there is no recipe {}", source.display()))?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_file())
            .collect();
        files.sort();
        for file in files {
            add(file.file_name().unwrap_or_default().as_encoded_bytes());
            add(&std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?);
        }
    }
    Ok(hex(&hash.finalize()[..8]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_changed_argument_compiler_or_file_is_another_key_and_another_place_is_not() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for dir in [&here, &there] {
            std::fs::write(dir.path().join("main.go"), "package main").unwrap();
        }
        let key = |go: &str, dir: &tempfile::TempDir, arguments: &[&str]| {
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            key_with(go.as_bytes(), &[dir.path()], &arguments).unwrap()
        };
        let first = key("go1.26.8", &here, &["build", "-trimpath"]);
        assert_eq!(first, key("go1.26.8", &there, &["build", "-trimpath"]));
        for other in [&["build"][..], &["build", "-trimpath", "-race"], &["build-trimpath"]] {
            assert_ne!(first, key("go1.26.8", &here, other), "{other:?}");
        }
        assert_ne!(first, key("go1.27.0", &here, &["build", "-trimpath"]));
        std::fs::write(there.path().join("main.go"), "package other").unwrap();
        assert_ne!(first, key("go1.26.8", &there, &["build", "-trimpath"]));
    }

    #[test]
    fn a_go_that_does_not_print_its_version_is_an_error() {
        let error = go_version("false").unwrap_err().to_string();
        assert!(error.contains("`false env GOVERSION` fails"), "{error}");
        let error = format!("{:#}", go_version("no-such-go").unwrap_err());
        assert!(error.contains("Debian: golang"), "{error}");
    }
}
