//! The operator as a process of its own, as a user runs it. Never looks into it except through its HTTP port, its log and /proc.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::{Child, Command},
    time::timeout,
};

use crate::process;

/// How long a stopping operator may finish what it is doing.
const PATIENCE: Duration = Duration::from_secs(15);

/// A running operator.
pub struct Operator {
    child: Child,
    http: SocketAddr,
    log: PathBuf,
}

/// Builds the operator and gives its program.
pub fn build(optimised: bool) -> Result<PathBuf> {
    let mut cargo = process::cargo(&["build", "--package", "aquifer", "--bin", "aquifer"]);
    if optimised {
        cargo.arg("--release");
    }
    eprintln!("building the operator{}", if optimised { " with optimisation" } else { "" });
    process::run(&mut cargo)?;
    Ok(process::target_dir().join(if optimised { "release" } else { "debug" }).join("aquifer"))
}

impl Operator {
    /// Starts the program against a cluster, with these families. It dies with us, whatever happens to us.
    ///
    /// Must be called on the main thread: the kernel ties the child's life to the thread that started it.
    pub fn start(program: &Path, families: &str, kubeconfig: &Path, log: &Path) -> Result<Self> {
        let http = free_port()?;
        let file = fs::File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(["run", "--families", families, "--kubeconfig"])
            .arg(kubeconfig)
            .arg(format!("--http-listen={http}"))
            // A group of its own: Ctrl-C reaches us alone, and we stop it in order.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { child, http, log: log.to_path_buf() })
    }

    /// Waits until the operator says that it is ready.
    pub async fn ready(&mut self, deadline: Duration) -> Result<()> {
        let url = format!("http://{}/readyz", self.http);
        let mut last = anyhow!("it was not asked yet");
        let wait = async {
            loop {
                if let Some(status) = self.child.try_wait()? {
                    bail!("the operator ended with {status} before it was ready{}", tail(&self.log));
                }
                match get(self.http, "/readyz").await {
                    Ok(200) => return Ok(()),
                    Ok(code) => last = anyhow!("{url} answers {code}"),
                    Err(error) => last = error.context(url.clone()),
                }
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
        };
        match timeout(deadline, wait).await {
            Ok(result) => result,
            Err(_) => {
                bail!("the operator is not ready after {} s: {last:#}{}", deadline.as_secs(), tail(&self.log))
            }
        }
    }

    /// Its process id.
    pub fn pid(&self) -> Result<u32> {
        self.child.id().context("the operator has ended")
    }

    /// Where health and metrics are served.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// Waits until it ends by itself, which it should not.
    pub async fn ended(&mut self) -> Result<ExitStatus> {
        self.child.wait().await.context("cannot wait for the operator")
    }

    /// The last lines of its log, as a paragraph for an error message.
    pub fn log_tail(&self) -> String {
        tail(&self.log)
    }

    /// Asks it to end, and ends it when it does not.
    pub async fn stop(mut self) -> Result<()> {
        if let Some(pid) = self.child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
            // It may have ended in between.
            let _ = kill_process(pid, Signal::TERM);
        }
        match timeout(PATIENCE, self.child.wait()).await {
            Ok(status) if status.as_ref().is_ok_and(ExitStatus::success) => Ok(()),
            Ok(status) => bail!("the operator did not stop cleanly: {}{}", status?, tail(&self.log)),
            Err(_) => {
                self.child.kill().await.context("cannot end the operator")?;
                bail!(
                    "the operator did not stop within {} s and was killed{}",
                    PATIENCE.as_secs(),
                    tail(&self.log)
                )
            }
        }
    }
}

/// A port that was free a moment ago. We have to know it before the operator starts.
fn free_port() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on 127.0.0.1")?;
    Ok(listener.local_addr()?)
}

/// The status code of a plain GET. A whole HTTP client would be too much for this.
async fn get(address: SocketAddr, path: &str) -> Result<u16> {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
        let mut reply = Vec::new();
        stream.take(4096).read_to_end(&mut reply).await?;
        let reply = String::from_utf8_lossy(&reply).into_owned();
        reply.split(' ').nth(1).and_then(|code| code.parse().ok()).context("the reply is not HTTP")
    };
    timeout(Duration::from_secs(2), ask).await.context("no reply within 2 s")?
}

fn tail(log: &Path) -> String {
    const LINES: usize = 25;
    match fs::read(log) {
        Err(error) => format!("\n(its log {} cannot be read: {error})", log.display()),
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let lines: Vec<&str> = text.lines().collect();
            let last = &lines[lines.len().saturating_sub(LINES)..];
            format!("\nthe end of its log:\n  {}", last.join("\n  "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_status_code_of_a_reply_is_read() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 256];
            let read = stream.read(&mut request).await.unwrap();
            stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\n\r\nnot synced").await.unwrap();
            String::from_utf8_lossy(&request[..read]).into_owned()
        });
        assert_eq!(get(address, "/readyz").await.unwrap(), 503);
        assert!(server.await.unwrap().starts_with("GET /readyz HTTP/1.0\r\n"));
    }

    #[test]
    fn only_the_end_of_a_long_log_is_shown() {
        let log = std::env::temp_dir().join(format!("aquifer-xtask-tail-{}", std::process::id()));
        let lines: Vec<String> = (0..100).map(|n| format!("line {n}")).collect();
        fs::write(&log, lines.join("\n")).unwrap();
        let text = tail(&log);
        fs::remove_file(&log).unwrap();
        assert!(text.contains("line 99") && !text.contains("line 74\n"), "{text}");
    }
}
