//! Builds the Kubernetes program with Go, once for each content. Downloads no toolchain: the installed Go is used as it is.

use std::fmt::Write;
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};

use super::NAMES;
use crate::building::Work;
use crate::control_plane::hex;
use crate::directory::open_lock;

/// The file that the names are links to.
const PROGRAM: &str = "kubernetes";
const LONGEST_BUILD: Duration = Duration::from_hours(1);
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// A build that can be made: source, compiler and flags.
#[derive(Debug)]
pub(super) struct Build {
    source: PathBuf,
    go: String,
    go_version: String,
    /// Of Kubernetes, such as `v1.36.3`.
    version: String,
}

impl Build {
    /// Looks at the source and at the compiler, and says what to install when that is not enough.
    pub(super) fn of(source: &Path, go: &str) -> Result<Self> {
        let module = read(&source.join("go.mod"))?;
        let version = module
            .lines()
            .find_map(|line| {
                line.trim()
                    .strip_prefix("require ")
                    .unwrap_or(line.trim())
                    .strip_prefix("k8s.io/kubernetes v")
            })
            .and_then(|rest| rest.split_whitespace().next())
            .map(|number| format!("v{number}"))
            .with_context(|| format!("{}/go.mod requires no k8s.io/kubernetes", source.display()))?;
        let needed = module
            .lines()
            .find_map(|line| line.strip_prefix("go "))
            .map(str::trim)
            .with_context(|| format!("{}/go.mod names no Go version", source.display()))?;
        let advice = format!(
            "Building Kubernetes {version} for the lab needs Go {needed} or newer. \
             Install it (Debian: `apt install golang`, from backports where the release has an older one), \
             or set KUBEBUILDER_ASSETS to a directory that has etcd, kube-apiserver and kubectl"
        );
        let output = Command::new(go)
            .args(["env", "GOVERSION"])
            .env("GOTOOLCHAIN", "local")
            .current_dir(source)
            .output();
        let output = match output {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                bail!("Go is not installed: there is no `{go}` on the PATH. {advice}")
            }
            other => other.with_context(|| format!("cannot run {go}"))?,
        };
        // A Go that is too old for go.mod may refuse even this question; what it says then names both versions.
        ensure!(
            output.status.success(),
            "{go} does not work: {}. {advice}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        let go_version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        ensure!(
            at_least(go_version.trim_start_matches("go"), needed),
            "the installed Go is {go_version}, which is too old. {advice}"
        );
        Ok(Self { source: source.to_path_buf(), go: go.to_owned(), go_version, version })
    }

    /// The directory with the finished program, built now if it is not there yet.
    pub(super) fn cached_in(&self, cache: &Path) -> Result<PathBuf> {
        let name = format!("kubernetes-{}", self.key()?);
        let dir = cache.join(&name);
        if dir.join(PROGRAM).is_file() {
            return Ok(dir);
        }
        std::fs::create_dir_all(cache).with_context(|| format!("cannot make {}", cache.display()))?;
        let lock = open_lock(&cache.join(format!("{name}.lock")))?;
        self.wait_for_turn(&lock, cache)?;
        // Another process may have built it while this one waited.
        if !dir.join(PROGRAM).is_file() {
            self.build_into(cache, &name, &dir)?;
        }
        Ok(dir)
    }

    fn wait_for_turn(&self, lock: &File, cache: &Path) -> Result<()> {
        let mut progress = Progress::new(format!(
            "waiting for another process that builds Kubernetes {} (once; cached in {})",
            self.version,
            cache.display()
        ));
        loop {
            match flock(lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(()),
                Err(rustix::io::Errno::WOULDBLOCK) => progress.wait()?,
                Err(error) => return Err(error).context("cannot lock the cache"),
            }
        }
    }

    /// Under another name first: what has the right name is always whole.
    fn build_into(&self, cache: &Path, name: &str, dir: &Path) -> Result<()> {
        let what = format!(
            "building Kubernetes {} from source (about 5 minutes, once; cached in {})",
            self.version,
            dir.display()
        );
        let mut work = Work::begin(cache, name, &what)?;
        let content = work.content()?;
        let mut go = Command::new(&self.go);
        go.args(self.arguments()).arg("-o").arg(content.join(PROGRAM)).arg(".").current_dir(&self.source);
        go.envs([
            ("GOTOOLCHAIN", "local"),
            ("CGO_ENABLED", "0"),
            ("GOFLAGS", "-mod=readonly"),
            ("GOWORK", "off"),
        ]);
        let mut progress = Progress::new(what);
        progress.say();
        work.run(&mut go)?;
        progress.say();
        for name in NAMES {
            symlink(PROGRAM, content.join(name))?;
        }
        // Left over only if the program was deleted from within.
        if dir.exists() {
            std::fs::remove_dir_all(dir)?;
        }
        std::fs::rename(&content, dir).with_context(|| format!("cannot make {}", dir.display()))
    }

    fn arguments(&self) -> Vec<String> {
        let mut numbers = self.version.trim_start_matches('v').split('.');
        let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        let mut flags = String::from("-s -w");
        for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
            for (variable, value) in
                [("gitVersion", self.version.as_str()), ("gitMajor", major), ("gitMinor", minor)]
            {
                let _ = write!(flags, " -X {package}.{variable}={value}");
            }
        }
        vec!["build".into(), "-trimpath".into(), "-ldflags".into(), flags]
    }

    /// Changes with everything that the program is made of.
    fn key(&self) -> Result<String> {
        let mut hash = Sha256::new();
        let mut parts = vec![self.go_version.clone(), self.arguments().join(" ")];
        for file in ["main.go", "go.mod", "go.sum"] {
            parts.push(read(&self.source.join(file))?);
        }
        for part in parts {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        Ok(hex(&hash.finalize()[..8]))
    }
}

/// Says on standard error what is awaited, every few seconds, and gives up in the end.
pub(crate) struct Progress {
    what: String,
    started: Instant,
    said: Instant,
}

impl Progress {
    /// Shows progress until a child has ended. A child is ended when this wait is given up.
    pub(crate) fn until_ended(
        &mut self,
        child: &mut std::process::Child,
    ) -> Result<std::process::ExitStatus> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if let Err(error) = self.wait() {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        }
    }

    pub(crate) fn new(what: String) -> Self {
        Self { what, started: Instant::now(), said: Instant::now() }
    }

    /// A short pause; then a line if one is due.
    pub(crate) fn wait(&mut self) -> Result<()> {
        std::thread::sleep(Duration::from_millis(200));
        ensure!(self.started.elapsed() < LONGEST_BUILD, "gave up after an hour: {}", self.what);
        if self.said.elapsed() >= PROGRESS_EVERY {
            self.say();
        }
        Ok(())
    }

    pub(crate) fn say(&mut self) {
        self.said = Instant::now();
        eprintln!("{}: {} s", self.what, self.started.elapsed().as_secs());
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

pub(crate) fn last_lines(log: &Path) -> Result<String> {
    let text = read(log)?;
    let lines: Vec<&str> = text.lines().collect();
    Ok(lines[lines.len().saturating_sub(20)..].join("\n"))
}

/// Compares dotted numbers; a part that is not a number (`26rc1`) counts by its leading digits.
fn at_least(have: &str, need: &str) -> bool {
    let numbers = |text: &str| -> Vec<u32> {
        let digits = |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>();
        text.split('.').map(|part| digits(part).parse().unwrap_or(0)).chain([0, 0, 0]).take(3).collect()
    };
    numbers(have) >= numbers(need)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A Go that answers with this version, and "builds" by writing its arguments to the output file.
    fn fake_go(dir: &Path, version: &str) -> String {
        let path = dir.join("fake-go");
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = env ] && {{ echo {version}; exit; }}\necho built >> {}/builds\n\
             while [ \"$1\" != -o ]; do shift; done; echo program > \"$2\"\n",
            dir.display()
        );
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }

    fn source(dir: &Path) -> PathBuf {
        let source = dir.join("source");
        std::fs::create_dir_all(&source).unwrap();
        std::fs::write(
            source.join("go.mod"),
            "module x\n\ngo 1.26.0\n\nrequire (\n\tk8s.io/kubernetes v1.36.3\n)\n",
        )
        .unwrap();
        std::fs::write(source.join("go.sum"), "").unwrap();
        std::fs::write(source.join("main.go"), "package main").unwrap();
        source
    }

    #[test]
    fn without_go_the_error_says_what_to_install() {
        let dir = tempfile::tempdir().unwrap();
        let error = Build::of(&source(dir.path()), "no-such-go").unwrap_err().to_string();
        for word in [
            "Go is not installed",
            "v1.36.3",
            "Go 1.26.0 or newer",
            "apt install golang",
            "KUBEBUILDER_ASSETS",
        ] {
            assert!(error.contains(word), "{word} is not in: {error}");
        }
    }

    #[test]
    fn a_go_that_is_too_old_is_refused_before_the_build() {
        let dir = tempfile::tempdir().unwrap();
        let go = fake_go(dir.path(), "go1.19.8");
        let error = Build::of(&source(dir.path()), &go).unwrap_err().to_string();
        assert!(error.contains("go1.19.8, which is too old"), "{error}");
    }

    #[test]
    fn two_that_need_the_program_at_once_build_it_once_and_a_change_builds_it_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (source, cache) = (source(dir.path()), dir.path().join("cache"));
        let go = fake_go(dir.path(), "go1.26.8");
        let builds = || std::fs::read_to_string(dir.path().join("builds")).unwrap().lines().count();
        let build = || Build::of(&source, &go).unwrap().cached_in(&cache).unwrap();
        let (first, second) = std::thread::scope(|scope| {
            let other = scope.spawn(build);
            (build(), other.join().unwrap())
        });
        assert_eq!(first, second);
        assert_eq!(builds(), 1);
        for name in NAMES {
            assert_eq!(std::fs::read_to_string(first.join(name)).unwrap(), "program\n");
        }
        std::fs::write(source.join("main.go"), "package main // changed").unwrap();
        assert_ne!(build(), first);
        assert_eq!(builds(), 2);
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(at_least("1.26.8", "1.26.0"));
        assert!(at_least("1.26", "1.26.0"));
        assert!(at_least("1.26rc1", "1.26.0"));
        assert!(!at_least("1.9.9", "1.26.0"));
    }
}
