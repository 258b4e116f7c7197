//! Starts the binary and looks at it from outside: its exit, its words, its endpoints. Ends only what it started.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use aquifer_lab::eventually;
use aquifer_lab::install::Account;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub const DEADLINE: Duration = Duration::from_secs(30);

/// The binary, without the settings of whoever runs the tests.
pub fn aquifer() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_aquifer"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AQUIFER_") || name == "KUBECONFIG")
    {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub fn output(arguments: &[&str]) -> Output {
    aquifer().args(arguments).output().unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A running `aquifer run`.
pub struct Operator {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
}

impl Operator {
    /// Takes an account, not a file: what is tested never runs as administrator.
    pub fn start(account: &Account, identity: &str) -> Result<Self> {
        let mut child = aquifer()
            .arg("run")
            .arg("--kubeconfig")
            .arg(&account.kubeconfig)
            .args(["--http-listen", "127.0.0.1:0", "--log-format", "json", "--identity", identity])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let log = Arc::new(Mutex::new(Vec::new()));
        let (pipe, lines) = (child.stderr.take().context("no pipe")?, Arc::clone(&log));
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                lines.lock().unwrap().push(line);
            }
        });
        Ok(Self { child, log })
    }

    pub fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    /// Where it listens, as it says itself.
    async fn address(&self) -> Result<String> {
        eventually(DEADLINE, "the operator says where it listens", || async {
            let lines = self.log.lock().unwrap().clone();
            let mut said = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let address = said.find_map(|line| line["fields"]["http"].as_str().map(ToOwned::to_owned));
            address.map(Some).ok_or_else(|| anyhow!("{}", lines.join("\n")))
        })
        .await
    }

    /// Status and body of an endpoint.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        let address = self.address().await?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(&address)?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(request.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            let (head, body) = answer.split_once("\r\n\r\n").context("no body")?;
            let code = head.split(' ').nth(1).context("no status")?.parse()?;
            Ok((code, body.to_owned()))
        })
        .await?
    }

    /// Waits until its caches have answered.
    pub async fn ready(&self) -> Result<()> {
        eventually(DEADLINE, "the operator is ready", || async {
            match self.get("/readyz").await? {
                (200, _) => Ok(Some(())),
                (code, body) => Err(anyhow!("{code} {body}\n{}", self.log())),
            }
        })
        .await
    }

    /// The sum of a metric over all its labels.
    pub async fn metric(&self, name: &str) -> Result<u64> {
        let (_, text) = self.get("/metrics").await?;
        let ours = text.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        Ok(ours.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum())
    }

    pub async fn leads(&self) -> Result<()> {
        eventually(DEADLINE, "the operator leads", || async {
            if self.metric("aquifer_leader").await? == 1 {
                Ok(Some(()))
            } else {
                Err(anyhow!("{}", self.log()))
            }
        })
        .await
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id())?).context("no pid")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> Result<ExitStatus> {
        let (child, log) = (&mut self.child, &self.log);
        let mut ended = None;
        for _ in 0..600 {
            ended = child.try_wait()?;
            if ended.is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        ended.with_context(|| format!("it does not end:\n{}", log.lock().unwrap().join("\n")))
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
