//! Decisions of two controllers made by another process. The process is this test program, started again.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use aquifer_engine::model::{Model, WriteFault};
use aquifer_engine::remote::{Decisions, Remote};
use aquifer_lab::kit::mask::State;

use crate::cluster_run::ClusterRun;
use crate::family::Kinds;
use crate::house::House;
use crate::quiet::passes;
use crate::springs::Springs;
use crate::wells::Wells;

const RUN: &str = "AQUIFER_PROVING_RUN";
const SOCKET: &str = "AQUIFER_PROVING_SOCKET";
const SAYS: &str = "decisions are made here";

/// The other process. As an ordinary test it has nothing to do.
#[tokio::test]
async fn the_process_that_decides() {
    let (Ok(run), Ok(socket)) = (std::env::var(RUN), std::env::var(SOCKET)) else { return };
    let house = House::new(Arc::new(WriteFault::default()), false);
    let wells = Wells {
        kinds: Kinds::new(),
        runtime: aquifer_engine::runtime::Runtime::system(),
        run: run.clone(),
        house: Arc::new(house),
        keys: Arc::new(Model::default()),
        decider: None,
    };
    let springs = Springs { kinds: Kinds::new(), run, decider: None };
    let decisions = Decisions::default().of(Arc::new(wells)).of(Arc::new(springs));
    println!("{SAYS}");
    // Ends with whoever started it.
    #[allow(clippy::disallowed_methods, reason = "it runs in a real process, never in a simulation")]
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0]));
    tokio::select! {
        end = decisions.serve(Path::new(&socket)) => end.unwrap(),
        _ = ended => {}
    }
}

struct Process {
    child: Child,
}

impl Process {
    fn start(run: &str, socket: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "decider::the_process_that_decides", "--nocapture"])
            .env(RUN, run)
            .env(SOCKET, socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The test harness prints the test's name on the same line first.
        let said = lines.any(|line| line.is_ok_and(|line| line.contains(SAYS)));
        assert!(said, "it says that it decides");
        Self { child }
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
    let socket: PathBuf = std::env::temp_dir().join(format!("aquifer-proving-{}.socket", std::process::id()));
    let process = Process::start(&run.run, &socket);
    run.decider = Some(Remote::new(&socket));
    run.start().await;
    run.play(0).await;
    run.until("both wells flow", async || run.arrived(0).await).await.unwrap();
    drop(process);
    let before = passes(&run.metrics(), "proving-wells", "transient");
    let before_step = run.picture().await;
    run.play(1).await;
    run.until("a pass has failed for want of a decision", async || {
        Ok((passes(&run.metrics(), "proving-wells", "transient") > before).then_some(()))
    })
    .await
    .unwrap();
    let children = |mut picture: State| {
        picture.retain(|name, _| name.starts_with("ConfigMap") || name.starts_with("Meter"));
        picture
    };
    assert_eq!(children(run.picture().await), children(before_step), "nothing is done without a decision");
    let process = Process::start(&run.run, &socket);
    run.until("it goes on with the next process", async || run.arrived(1).await).await.unwrap();
    assert!(run.created().values().all(|n| *n == 1), "{:?}", run.created());
    run.stop().await;
    drop(process);
    std::fs::remove_file(socket).unwrap();
}
