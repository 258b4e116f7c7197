//! Where the Kubernetes programs come from: a directory that the user names, or a build that is made once and cached. Starts none of them.
//!
//! The build is one program that acts as the one whose name it is started under (`lab/kubernetes`). It is
//! cached outside the checkout under a name made from all that went into it, so a fresh clone finds it again.

pub(crate) mod go;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

pub(crate) const ETCD: &str = "etcd";
pub(crate) const API_SERVER: &str = "kube-apiserver";
pub(crate) const CONTROLLER_MANAGER: &str = "kube-controller-manager";
pub(crate) const SCHEDULER: &str = "kube-scheduler";
pub(crate) const KUBELET: &str = "kubelet";
pub(crate) const KUBE_PROXY: &str = "kube-proxy";
pub(crate) const KUBECTL: &str = "kubectl";

/// The names that the built program answers to.
const NAMES: [&str; 7] = [ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KUBELET, KUBE_PROXY, KUBECTL];
/// Without these there is no cluster.
const REQUIRED: [&str; 3] = [ETCD, API_SERVER, KUBECTL];

/// A directory with the Kubernetes programs.
#[derive(Debug, Clone)]
pub struct Programs {
    dir: PathBuf,
}

impl Programs {
    /// Finds the programs, or builds them, which takes minutes, shows progress on standard error, and is done once. Blocks.
    pub fn find() -> Result<Self> {
        if let Some(dir) = std::env::var_os("KUBEBUILDER_ASSETS").filter(|dir| !dir.is_empty()) {
            return Self::given(Path::new(&dir));
        }
        Ok(Self { dir: go::Build::of(&source_dir("kubernetes"), "go")?.cached_in(&cache()?)? })
    }

    /// The user's own programs. They come first and are never replaced silently by a build.
    fn given(dir: &Path) -> Result<Self> {
        let missing: Vec<&str> = REQUIRED.into_iter().filter(|name| !dir.join(name).is_file()).collect();
        ensure!(
            missing.is_empty(),
            "KUBEBUILDER_ASSETS is {}, but {} is not there: put it there, or unset the variable to build Kubernetes from source",
            dir.display(),
            missing.join(", ")
        );
        let dir = dir.canonicalize().with_context(|| format!("cannot look at {}", dir.display()))?;
        Ok(Self { dir })
    }

    /// The directory that holds them.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of one, such as `kubectl`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Whether there is one of this name. What `KUBEBUILDER_ASSETS` names may have few.
    pub fn has(&self, name: &str) -> bool {
        self.path(name).is_file()
    }
}

/// A recipe of this checkout.
pub(crate) fn source_dir(recipe: &str) -> PathBuf {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_dir.ancestors().nth(2).unwrap_or(crate_dir).join("lab").join(recipe)
}

/// Where everything that is built once is kept.
pub(crate) fn cache() -> Result<PathBuf> {
    cache_dir(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"))
}

fn cache_dir(xdg: Option<OsString>, home: Option<OsString>) -> Result<PathBuf> {
    let xdg = xdg.map(PathBuf::from).filter(|path| path.is_absolute());
    let base =
        xdg.or_else(|| home.filter(|home| !home.is_empty()).map(|home| Path::new(&home).join(".cache")));
    Ok(base.context("no place for a cache: set HOME or XDG_CACHE_HOME")?.join("aquifer"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_cache_is_where_the_user_keeps_caches() {
        let dir =
            |xdg: Option<&str>, home: Option<&str>| cache_dir(xdg.map(Into::into), home.map(Into::into));
        assert_eq!(dir(Some("/c"), Some("/h")).unwrap(), Path::new("/c/aquifer"));
        assert_eq!(dir(None, Some("/h")).unwrap(), Path::new("/h/.cache/aquifer"));
        assert_eq!(dir(Some("relative"), Some("/h")).unwrap(), Path::new("/h/.cache/aquifer"));
        assert!(dir(None, None).is_err());
    }

    #[test]
    fn given_programs_that_are_incomplete_are_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("etcd"), "").unwrap();
        let error = Programs::given(dir.path()).unwrap_err().to_string();
        assert!(error.contains("kube-apiserver, kubectl"), "{error}");
    }

    #[test]
    fn given_programs_need_no_controller_manager() {
        let dir = tempfile::tempdir().unwrap();
        for name in REQUIRED {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let programs = Programs::given(dir.path()).unwrap();
        assert!(!programs.has(CONTROLLER_MANAGER));
    }
}
