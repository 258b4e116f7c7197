//! Decisions made by another process, over HTTP. The process is this test program, started again.

use std::io::{BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use aquifer_engine::model::{Model, WriteFault};
use aquifer_engine::remote::{Remote, router};
use tokio::net::TcpListener;

use crate::cluster_run::ClusterRun;
use crate::family::Kinds;
use crate::house::House;
use crate::quiet::passes;
use crate::wells::Wells;

const RUN: &str = "AQUIFER_PROVING_RUN";
const PORT: &str = "AQUIFER_PROVING_PORT";
const SAYS: &str = "decisions are made at port ";

/// The other process. As an ordinary test it has nothing to do.
#[tokio::test]
async fn the_process_that_decides() {
    let (Ok(run), Ok(port)) = (std::env::var(RUN), std::env::var(PORT)) else { return };
    let house = House::new(Arc::new(WriteFault::default()), false);
    let wells = Wells {
        kinds: Kinds::new(),
        runtime: aquifer_engine::runtime::Runtime::system(),
        run,
        house: Arc::new(house),
        keys: Arc::new(Model::default()),
        decider: None,
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.parse().unwrap())).await.unwrap();
    println!("{SAYS}{}", listener.local_addr().unwrap().port());
    let decisions = axum::serve(listener, router(Arc::new(wells)));
    // Ends with whoever started it.
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0]));
    tokio::select! {
        end = async { decisions.await } => end.unwrap(),
        _ = ended => {}
    }
}

struct Process {
    child: Child,
    port: u16,
}

impl Process {
    fn start(run: &str, port: u16) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "decider::the_process_that_decides", "--nocapture"])
            .env(RUN, run)
            .env(PORT, port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The test harness prints the test's name on the same line first.
        let port = lines.map_while(Result::ok).find_map(|line| line.split_once(SAYS)?.1.trim().parse().ok());
        Self { port: port.expect("it says where it decides"), child }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_can_be_made_by_another_process_and_without_it_nothing_is_done() {
    let mut run = ClusterRun::new("remote").await;
    let process = Process::start(&run.run, 0);
    let port = process.port;
    run.decider = Some(Remote::new(format!("http://127.0.0.1:{port}/decide").parse().unwrap()));
    run.start().await;
    run.play(0).await;
    run.until("both wells flow", async || run.arrived(0).await).await.unwrap();
    drop(process);
    let before = passes(&run.metrics(), "proving-wells", "transient");
    let configmaps = run.picture().await;
    run.play(1).await;
    run.until("a pass has failed for want of a decision", async || {
        Ok((passes(&run.metrics(), "proving-wells", "transient") > before).then_some(()))
    })
    .await
    .unwrap();
    let untouched = |name: &&String| name.starts_with("ConfigMap") || name.starts_with("Meter");
    let now = run.picture().await;
    assert!(
        configmaps.keys().filter(untouched).eq(now.keys().filter(untouched)),
        "nothing is done without a decision"
    );
    let process = Process::start(&run.run, port);
    run.until("it goes on with the next process", async || run.arrived(1).await).await.unwrap();
    assert!(run.created().values().all(|n| *n == 1), "{:?}", run.created());
    run.stop().await;
    drop(process);
}
