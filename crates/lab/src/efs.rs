//! A stand-in for AWS EFS, and for the images of its CSI driver, on a cluster with nodes. Installs no driver: whoever is tested does.
//!
//! The file systems are directories of the machine, and a *service* outside of all nodes answers for their mounts, as AWS does
//! (`lab/efs`). The driver's node plugin finds it by a socket in a directory of the node that the driver's DaemonSet mounts; it mounts FUSE,
//! hands the mount over to the service, and is not needed any more. So mounts outlive the plugin's pods, and what one node writes all others
//! see.
//!
//! The service keeps what an access point promises: whoever uses a mount is its user, and its root directory is all that is seen.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::Cluster;
use crate::access::write_private;
use crate::cluster::blocking;
use crate::recipe::{self, Image};

const RECIPE: &str = "efs";
const DESCRIBED: &str = "described.json";
/// Where the plugin looks for the service, on its node. The DaemonSet mounts the directory.
const SOCKET: &str = "run/efs/lab.sock";

/// Builds the program and its image, unless they are cached. A start does it too; here the wait can be explained. Blocks.
pub fn prepare() -> Result<()> {
    recipe::image(RECIPE).map(drop)
}

/// What is seen through an access point, and as whom.
#[derive(Debug, Clone, Serialize)]
pub struct AccessPoint {
    /// Whoever uses it is this user.
    pub uid: u32,
    /// And this group.
    pub gid: u32,
    /// The directory of the file system that is its root.
    pub root: String,
    /// With which permissions the root is made when it is not there, as in `0750`. Without them a mount fails then.
    pub permissions: Option<String>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Described {
    file_systems: BTreeMap<String, FileSystem>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct FileSystem {
    access_points: BTreeMap<String, AccessPoint>,
}

/// The file systems that a cluster can mount. When this is dropped they cannot be reached any more; their files go with the cluster.
#[derive(Debug)]
pub struct FileSystems {
    dir: PathBuf,
    image: Image,
    described: Mutex<Described>,
    service: Child,
}

impl FileSystems {
    /// Starts the service for a cluster, which gets the driver's images. There is no file system yet.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let image = blocking(|| recipe::image(RECIPE)).await?;
        cluster.import_image(&image.archive).await?;
        let dir = cluster.dir().join(RECIPE);
        let sockets = (1..=cluster.node_count()).map(|number| socket(cluster, number));
        let sockets: Vec<PathBuf> = sockets.collect::<Result<_>>()?;
        ensure!(!sockets.is_empty(), "cluster {} has no nodes that could mount", cluster.name());
        let (service, dir) = blocking(move || {
            std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
            Ok((start(&dir, &sockets)?, dir))
        })
        .await?;
        let it = Self { dir, image, described: Mutex::default(), service };
        it.describe(|_| Ok(()))?;
        Ok(it)
    }

    /// The image of all containers of the driver's node plugin: the plugin, the registrar and the liveness probe.
    pub fn image(&self) -> &str {
        &self.image.name
    }

    /// Makes a file system and gives its directory on this machine.
    pub fn file_system(&self, id: &str) -> Result<PathBuf> {
        let root = self.dir.join(id);
        std::fs::create_dir_all(&root).with_context(|| format!("cannot make {}", root.display()))?;
        self.describe(|described| {
            described.file_systems.entry(id.to_owned()).or_default();
            Ok(())
        })?;
        Ok(root)
    }

    /// Makes an access point of a file system.
    pub fn access_point(&self, file_system: &str, id: &str, point: AccessPoint) -> Result<()> {
        self.describe(|described| {
            let file_system = described.file_systems.get_mut(file_system);
            let file_system = file_system.with_context(|| format!("no file system for {id} was made"))?;
            file_system.access_points.insert(id.to_owned(), point);
            Ok(())
        })
    }

    /// The service reads it at every mount, so it is always whole.
    fn describe(&self, change: impl FnOnce(&mut Described) -> Result<()>) -> Result<()> {
        let mut described = self.described.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut described)?;
        let new = self.dir.join("described.new");
        write_private(&new, &serde_json::to_string(&*described)?)?;
        std::fs::rename(new, self.dir.join(DESCRIBED)).context("cannot describe the file systems")
    }
}

impl Drop for FileSystems {
    fn drop(&mut self) {
        // What serves the mounts ends with it.
        let _ = self.service.kill();
        let _ = self.service.wait();
    }
}

/// The node's end of the way to the service, as the machine sees it.
fn socket(cluster: &Cluster, number: usize) -> Result<PathBuf> {
    let node = cluster.node(number)?;
    let pid = node.pid().with_context(|| format!("node {} does not run", node.name()))?;
    Ok(Path::new("/proc").join(pid.as_raw_nonzero().to_string()).join("root").join(SOCKET))
}

/// Its standard input is a pipe from this process, and it ends with that.
fn start(dir: &Path, sockets: &[PathBuf]) -> Result<Child> {
    for socket in sockets {
        let parent = socket.parent().context("a socket without a directory")?;
        std::fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    }
    let log = dir.join("service.log");
    let mut service = Command::new(recipe::program(RECIPE)?)
        .arg("service")
        .arg(dir)
        .args(sockets)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(File::create(&log).with_context(|| format!("cannot write {}", log.display()))?)
        .spawn()
        .context("cannot start the service of the file systems")?;
    let mut said = String::new();
    let stdout = service.stdout.take().context("no output of the service")?;
    BufReader::new(stdout).read_line(&mut said)?;
    if said.trim() != "ready" {
        let _ = service.kill();
        let _ = service.wait();
        let words = std::fs::read_to_string(&log).unwrap_or_default();
        anyhow::bail!("the service of the file systems did not start: {said}{words}");
    }
    Ok(service)
}
