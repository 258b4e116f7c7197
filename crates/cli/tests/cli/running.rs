//! The binary at work on a real control plane, under the operator's own account.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use aquifer_lab::kit::{DEADLINE, Process, TestCluster};
use aquifer_lab::{Call, Cluster, Lab, eventually, install};
use rustix::process::Signal;

use super::process::{aquifer, operator, output, stderr, stdout};

const SHARED_VOLUME: &str = "apiVersion: aws-efs.managed.openshift.io/v1alpha1
kind: SharedVolume
metadata: {name: NAME, namespace: default}
spec: {fileSystemID: fs-0123456789abcdef0, accessPointID: ACCESS_POINT}
";

/// A cluster that was set up with the binary and kubectl.
struct Installed(TestCluster);

impl Deref for Installed {
    type Target = TestCluster;

    fn deref(&self) -> &TestCluster {
        &self.0
    }
}

impl Installed {
    async fn start() -> Result<Self> {
        let cluster = Lab::test_cluster().start().await?;
        let crds = stdout(&output(&["crds"]));
        let said = apply(&cluster, &crds)?;
        ensure!(said.contains("sharedvolumes.aws-efs.managed.openshift.io created"), "{said}");
        kubectl(&cluster, &["wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"])?;
        install::user_roles(&cluster.client()?).await?;
        let account = install::identity(&cluster).await?;
        Ok(Self(TestCluster { cluster, account }))
    }

    fn operator(&self, identity: &str) -> Result<Process> {
        operator(&self.cluster, &self.account, identity, &[])
    }

    fn share(&self, name: &str, access_point: &str) -> Result<()> {
        let body = SHARED_VOLUME.replace("NAME", name).replace("ACCESS_POINT", access_point);
        apply(&self.cluster, &body).map(drop)
    }

    fn wait_ready(&self, name: &str) -> Result<()> {
        self.kubectl(&["wait", "--for=condition=Ready", &format!("sv/{name}"), "--timeout=30s"]).map(drop)
    }

    fn wait_driver(&self) -> Result<()> {
        // The operator makes its Component in its own time, and kubectl does not wait for what is not there.
        for what in ["create", "condition=Ready"] {
            self.kubectl(&["wait", &format!("--for={what}"), "component/efs-driver", "--timeout=30s"])?;
        }
        Ok(())
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        kubectl(&self.cluster, arguments)
    }

    fn holder(&self) -> Result<String> {
        self.lease("holderIdentity")
    }

    /// A field of the Lease.
    fn lease(&self, field: &str) -> Result<String> {
        let field = format!("jsonpath={{.spec.{field}}}");
        self.kubectl(&["get", "lease", "-n", "aquifer-system", "aquifer-efs", "-o", &field])
    }
}

pub fn kubectl(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    let done = cluster.kubectl().args(arguments).output()?;
    ensure!(done.status.success(), "kubectl {arguments:?}: {}{}", stdout(&done), stderr(&done));
    Ok(stdout(&done))
}

pub fn apply(cluster: &Cluster, yaml: &str) -> Result<String> {
    let mut command = cluster.kubectl();
    command.args(["apply", "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().context("no pipe")?.write_all(yaml.as_bytes())?;
    let done = child.wait_with_output()?;
    ensure!(done.status.success(), "kubectl apply: {}{}", stdout(&done), stderr(&done));
    ensure!(!stderr(&done).to_lowercase().contains("warning"), "kubectl apply warns: {}", stderr(&done));
    Ok(stdout(&done))
}

/// More clients than are served at a time, at both ports: half of them say nothing, the others only half of what they want.
fn crowd((health, metrics): (SocketAddr, SocketAddr)) -> Result<Vec<TcpStream>> {
    let mut crowd = Vec::new();
    for number in 0..200 {
        let mut client = TcpStream::connect(if number % 4 < 2 { health } else { metrics })?;
        if number % 2 == 0 {
            client.write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\n")?;
        }
        crowd.push(client);
    }
    Ok(crowd)
}

#[tokio::test]
async fn an_operator_runs_answers_looks_again_and_hands_over() -> Result<()> {
    let installed = Installed::start().await?;
    let again = apply(&installed.cluster, &stdout(&output(&["crds"])))?;
    assert!(
        again.lines().all(|line| line.ends_with("unchanged")),
        "the definitions are stored as they are printed: {again}"
    );

    let mut first = installed.operator("first")?;
    first.ready(DEADLINE).await?;
    first.leads().await?;
    installed.share("data", "fsap-0123456789abcdef0")?;
    installed.wait_ready("data")?;
    installed.wait_driver()?;
    assert_eq!(first.get("/livez").await?, (200, "alive\n".into()));
    // Each has a port of its own, and not the other's paths.
    assert_eq!(first.get_beside("/livez", "/metrics").await?.0, 404);
    assert_eq!(first.get_beside("/metrics", "/livez").await?.0, 404);
    let crowd = crowd(first.addresses().await?)?;
    for path in ["/livez", "/readyz", "/metrics"] {
        let asked = Instant::now();
        assert_eq!(first.get(path).await?.0, 200);
        assert!(asked.elapsed() < Duration::from_secs(2), "{path} took {:?}", asked.elapsed());
    }
    drop(crowd);
    let (_, metrics) = first.get("/metrics").await?;
    for controller in ["aquifer-efs-volumes", "aquifer-efs-driver"] {
        let line = format!("aquifer_controller_passes_total{{controller=\"{controller}\",outcome=\"ok\"}}");
        assert!(metrics.contains(&line), "no {line} in\n{metrics}");
    }
    assert!(installed.holder()?.starts_with("first_"), "{}", installed.holder()?);

    // Asked to look at everything again, it finds nothing to do.
    let mark = installed.settled().await?;
    let passes = first.metric("aquifer_controller_passes_total").await?;
    first.signal(Signal::HUP)?;
    eventually(DEADLINE, "every object is looked at", || async {
        let now = first.metric("aquifer_controller_passes_total").await?;
        if now >= passes + 2 { Ok(Some(())) } else { Err(anyhow!("{passes} passes, then {now}")) }
    })
    .await?;
    installed.settled().await?;
    assert_eq!(installed.writes_since(mark)?, Vec::<Call>::new());

    // A second one is ready and idle; it takes over when the first is killed, and makes nothing a second time.
    let mut second = installed.operator("second")?;
    second.ready(DEADLINE).await?;
    assert_eq!(second.metric("aquifer_leader").await?, 0);
    let uids = |kinds: &str| {
        let columns = "custom-columns=KIND:.kind,NAME:.metadata.name,UID:.metadata.uid";
        installed.kubectl(&["get", kinds, "-A", "--no-headers", "-o", columns])
    };
    let ours = "pv,pvc,daemonset,csidriver,storageclass,component";
    let before = uids(ours)?;
    let mark = installed.cluster.audit().mark()?;
    first.signal(Signal::KILL)?;
    let killed = Instant::now();
    first.ended().await?;
    installed.share("more", "fsap-0fedcba9876543210")?;
    second.leads().await?;
    let took = killed.elapsed();
    println!("taken over {:.1} s after kill -9", took.as_secs_f64());
    assert!(took < Duration::from_secs(20), "{took:?}");
    installed.wait_ready("more")?;
    installed.settled().await?;
    let after = uids(ours)?;
    for line in before.lines() {
        assert!(after.contains(line), "{line} is not in\n{after}");
    }
    let made: Vec<_> =
        installed.writes_since(mark)?.into_iter().filter(|call| !call.name.contains("more")).collect();
    assert_eq!(made, Vec::<Call>::new(), "only the new SharedVolume is worked on");

    // It ends when asked to, and the next one need not wait for the lease.
    second.signal(Signal::TERM)?;
    let ended = second.ended().await?;
    assert_eq!(ended.code(), Some(0), "{}", second.log());
    assert_eq!(installed.holder()?, "");
    let asked = Instant::now();
    let third = installed.operator("third")?;
    third.leads().await?;
    println!("leads {:.1} s after its start, the lease was given back", asked.elapsed().as_secs_f64());
    Ok(())
}

#[tokio::test]
async fn an_operator_that_cannot_renew_its_lease_ends_and_says_why() -> Result<()> {
    let installed = Installed::start().await?;
    let mut operator = installed.operator("lonely")?;
    operator.leads().await?;
    installed.cluster.stop_program("kube-apiserver").await?;
    let stopped = Instant::now();
    let ended = operator.ended().await?;
    println!("ended {:.1} s after the API server", stopped.elapsed().as_secs_f64());
    assert!(!ended.success());
    let log = operator.log();
    assert!(log.contains("the Lease aquifer-system/aquifer-efs was not renewed"), "{log}");
    assert!(log.lines().last().unwrap_or_default().starts_with("aquifer: "), "{log}");
    installed.cluster.start_program("kube-apiserver").await?;
    // Its successor, as a restarted container would be, waits longer by its flags: the same pause does not end it.
    // It would wait as long as that for the Lease of a dead one, too.
    installed.kubectl(&["delete", "lease", "-n", "aquifer-system", "aquifer-efs"])?;
    let patience = ["--lease-duration=60s", "--lease-renew-deadline=45s"];
    let mut patient = super::process::operator(&installed.cluster, &installed.account, "patient", &patience)?;
    patient.leads().await?;
    let holder = installed.holder()?;
    installed.cluster.stop_program("kube-apiserver").await?;
    let paused = tokio::time::timeout(Duration::from_secs(9), patient.until_ended()).await;
    installed.cluster.start_program("kube-apiserver").await?;
    assert!(paused.is_err(), "it ended: {}", patient.log());
    let before = installed.lease("renewTime")?;
    eventually(DEADLINE, "the Lease is renewed", || async {
        Ok((installed.lease("renewTime")? != before).then_some(()))
    })
    .await?;
    assert_eq!(installed.holder()?, holder);
    patient.stop().await
}

#[tokio::test]
async fn an_uninstall_asks_first_reports_what_holds_it_and_can_be_repeated() -> Result<()> {
    let installed = Installed::start().await?;
    let operator = installed.operator("one")?;
    operator.leads().await?;
    installed.share("data", "fsap-0123456789abcdef0")?;
    installed.wait_ready("data")?;
    installed.wait_driver()?;
    apply(
        &installed.cluster,
        "{apiVersion: v1, kind: PersistentVolume, metadata: {name: by-hand}, spec: {capacity: {storage: 1Gi}, \
         accessModes: [ReadWriteMany], csi: {driver: efs.csi.aws.com, volumeHandle: fs-0123456789abcdef1}}}",
    )?;
    let uninstall = |more: &[&str]| {
        let mut command = aquifer();
        command.args(["efs", "uninstall", "--kubeconfig"]).arg(installed.cluster.kubeconfig()).args(more);
        command.output()
    };

    // Nobody there to ask: nothing happens.
    let refused = uninstall(&[])?;
    assert!(!refused.status.success());
    assert!(stdout(&refused).contains("SharedVolume default/data"), "{}", stdout(&refused));
    assert!(stderr(&refused).contains("--yes"), "{}", stderr(&refused));
    assert_eq!(installed.kubectl(&["get", "component", "efs-driver", "-o", "jsonpath={.spec.desired}"])?, "");
    installed.wait_ready("data")?;

    // Something holds it: it says what, and that it goes on.
    let held = uninstall(&["--yes", "--timeout", "4"])?;
    assert!(!held.status.success());
    assert!(
        stderr(&held).contains("cannot finish within 4 s") && stderr(&held).contains("by-hand"),
        "{}",
        stderr(&held)
    );
    installed.kubectl(&["delete", "pv", "by-hand"])?;
    let done = uninstall(&["--yes"])?;
    println!("{}", stdout(&done));
    assert!(done.status.success(), "{}", stderr(&done));
    assert!(stdout(&done).contains("are gone"), "{}", stdout(&done));
    for kinds in ["sv,pv,pvc", "daemonset,csidriver,storageclass"] {
        let arguments = ["get", kinds, "--ignore-not-found", "-o", "name", "-A"];
        assert_eq!(installed.kubectl(&arguments)?, "", "{kinds}");
    }
    let again = uninstall(&["--yes"])?;
    assert!(again.status.success(), "{}", stderr(&again));
    drop(operator);
    Ok(())
}
