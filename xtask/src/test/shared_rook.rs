//! The cluster with Rook that system tests share: a process of its own starts it while the other rings run, and tests attach to it.
//! It ends with this process, however that ends.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use aquifer_lab::Lab;

use crate::rights;

const ENDS_WITHIN: Duration = Duration::from_mins(2);

/// The process that holds the cluster. It reads from a pipe whose other end only this process has, and stops the cluster when the
/// kernel closes that one.
pub struct SharedRook {
    holder: Child,
    name: String,
}

impl SharedRook {
    /// What the process says.
    pub fn log() -> PathBuf {
        Lab::root().join("shared-rook.log")
    }

    /// Begins to start the cluster.
    pub fn start() -> Result<Self> {
        let name = format!("test-{}-rook", std::process::id());
        let log = Self::log();
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let program = std::env::current_exe().context("cannot find the program of this process")?;
        let holder = Command::new(program)
            .args(["lab", "hold", &name])
            .env(aquifer_lab::audit::KEEP_IN, rights::dir())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("cannot start the process for the shared cluster")?;
        Ok(Self { holder, name })
    }

    /// The name of the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Ends the cluster and waits until it has ended.
    pub fn stop(mut self) -> Result<()> {
        drop(self.holder.stdin.take());
        let began = Instant::now();
        while self.holder.try_wait()?.is_none() {
            if began.elapsed() > ENDS_WITHIN {
                bail!("cannot end the shared cluster {}; see {}", self.name, Self::log().display());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}
