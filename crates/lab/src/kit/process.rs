//! The operator as a program of its own, as users run it. Looks at it from outside only: its exit, its log, its endpoints.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::{DEADLINE, metrics};
use crate::eventually;
use crate::install::Account;

/// How long a stopping operator may finish what it is doing.
const STOPS_WITHIN: Duration = Duration::from_secs(30);
/// The path of the metrics.
const METRICS: &str = "/metrics";
/// How much of a log is in an error message.
const LAST_LINES: usize = 25;

/// A running `aquifer run`. Dropping it kills it.
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program under an account, with more arguments of `aquifer run`; what it says is in the file `log`. The kernel ends
    /// it with the thread that calls this, whatever happens to that one.
    pub fn start(program: &Path, account: &Account, log: &Path, arguments: &[&str]) -> Result<Self> {
        Self::start_as(program, &account.kubeconfig, log, arguments)
    }

    /// The same as any user, for people who run it by hand. Tests use [`Process::start`].
    pub fn start_as(program: &Path, kubeconfig: &Path, log: &Path, arguments: &[&str]) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(["run", "--kubeconfig"]);
        command.arg(kubeconfig).args(["--http-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]);
        command.args(arguments);
        // Settings of the person who runs this must not reach it.
        for (name, _) in
            std::env::vars().filter(|(name, _)| name.starts_with("AQUIFER_") || name == "KUBECONFIG")
        {
            command.env_remove(name);
        }
        // A group of its own: Ctrl-C reaches only us, and we stop it in order.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { child, log: log.to_path_buf() })
    }

    /// Everything that it has said.
    pub fn log(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The last lines of its log, as a paragraph for an error message.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        format!("\nthe end of its log:\n  {}", lines[lines.len().saturating_sub(LAST_LINES)..].join("\n  "))
    }

    /// Where it serves health, and where metrics, as it says itself.
    pub async fn addresses(&mut self) -> Result<(SocketAddr, SocketAddr)> {
        let began = Instant::now();
        loop {
            let log = self.log();
            if let (Some(health), Some(metrics)) = (address_in(&log, "/livez"), address_in(&log, METRICS)) {
                return Ok((health, metrics));
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("the operator ended with {status}{}", self.log_tail());
            }
            ensure!(
                began.elapsed() < DEADLINE,
                "the operator does not say where it listens{}",
                self.log_tail()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Status and body of a path, at the address that is said to serve it.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        self.get_beside(path, path).await
    }

    /// Status and body of a path at the address that serves another one.
    pub async fn get_beside(&self, served: &str, path: &str) -> Result<(u16, String)> {
        let address = address_in(&self.log(), served)
            .with_context(|| format!("it does not serve {served} yet{}", self.log_tail()))?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(request.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            parse(&answer)
        })
        .await?
    }

    /// Waits until it says that it is ready.
    pub async fn ready(&mut self, deadline: Duration) -> Result<()> {
        self.addresses().await?;
        let ready = eventually(deadline, "the operator is ready", || async {
            match self.get("/readyz").await? {
                (200, _) => Ok(Some(())),
                (code, body) => Err(anyhow!("{code} {body}")),
            }
        });
        ready.await.with_context(|| self.log_tail())
    }

    /// The sum of a metric over all its labels.
    pub async fn metric(&self, name: &str) -> Result<u64> {
        Ok(metrics::sum(&self.get(METRICS).await?.1, name, &[]))
    }

    /// Waits until it acts.
    pub async fn leads(&self) -> Result<()> {
        let leads = eventually(DEADLINE, "the operator leads", || async {
            Ok((self.metric("aquifer_leader").await? >= 1).then_some(()))
        });
        leads.await.with_context(|| self.log_tail())
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?).context("no process id")?;
        kill_process(pid, signal).context("cannot send a signal to the operator")
    }

    /// Waits until it ends by itself, however long that takes.
    pub async fn until_ended(&mut self) -> Result<ExitStatus> {
        loop {
            if let Some(status) = self.child.try_wait().context("cannot wait for the operator")? {
                return Ok(status);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits for its end, with a deadline.
    pub async fn ended(&mut self) -> Result<ExitStatus> {
        let ended = tokio::time::timeout(STOPS_WITHIN, self.until_ended()).await;
        ended.unwrap_or_else(|_| bail!("the operator does not end{}", self.log_tail()))
    }

    /// Asks it to end, and fails when it does not do so in order. It is killed then.
    pub async fn stop(mut self) -> Result<()> {
        // It may have ended in between.
        let _ = self.signal(Signal::TERM);
        let status = self.ended().await?;
        ensure!(status.success(), "the operator did not stop cleanly: {status}{}", self.log_tail());
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address in the line that says where a path is served: `address=127.0.0.1:80` or `"address":"127.0.0.1:80"`.
fn address_in(log: &str, path: &str) -> Option<SocketAddr> {
    let line = log.lines().find(|line| {
        line.split_once("Serving ").is_some_and(|(_, what)| what.split([' ', '"']).any(|word| word == path))
    })?;
    ["address=", "\"address\":\""].iter().find_map(|field| {
        let (_, rest) = line.split_once(field)?;
        rest.split(|c: char| c == '"' || c.is_whitespace()).next()?.parse().ok()
    })
}

fn parse(answer: &str) -> Result<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n").context("the reply is not HTTP")?;
    let code =
        head.split(' ').nth(1).and_then(|code| code.parse().ok()).context("the reply has no status")?;
    Ok((code, body.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_address_of_a_path_is_found_in_both_forms_of_the_log() {
        let port = |log: &str, path: &str| address_in(log, path).map(|address| address.port());
        let text = "connecting to address=127.0.0.1:6443\n\
            INFO aquifer_engine::process: Serving /livez and /readyz address=127.0.0.1:4711\n\
            INFO aquifer_engine::process: Serving /metrics address=127.0.0.1:4712\n";
        let json = r#"{"fields":{"message":"Serving /livez and /readyz","address":"127.0.0.1:4711"}}
            {"fields":{"message":"Serving /metrics","address":"127.0.0.1:4712"}}"#;
        for log in [text, json] {
            assert_eq!((port(log, "/livez"), port(log, "/readyz")), (Some(4711), Some(4711)));
            assert_eq!((port(log, "/metrics"), port(log, "/other")), (Some(4712), None));
        }
    }

    #[test]
    fn status_and_body_of_a_reply_are_read() {
        let reply = "HTTP/1.1 503 Service Unavailable\r\n\r\nnot synced";
        assert_eq!(parse(reply).unwrap(), (503, "not synced".to_owned()));
        assert!(parse("nonsense").is_err());
    }
}
