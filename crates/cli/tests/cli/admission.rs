//! The optional policy of the chart: the API server refuses at once what the operator refuses later, and nothing else.

use std::collections::BTreeMap;
use std::process::Output;

use anyhow::{Context as _, Result, anyhow, ensure};
use aquifer_lab::kit::DEADLINE;
use aquifer_lab::{Cluster, Lab, eventually, install};

use super::install::rendered;
use super::process::{operator, output, stderr, stdout};
use super::running::{apply, kubectl};

const ONE: &str = "fsap-00000000000000001";
const TWO: &str = "fsap-00000000000000002";
const ROOT: &str = "";
/// The root as well: the field is there, and holds nothing.
const NULL: &str = "null";

/// What administrators have made.
const STAGE: &str = r#"
{apiVersion: v1, kind: Namespace, metadata: {name: team-a}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: gold, labels: {tier: gold, zone: "1"}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: gold-test, labels: {tier: gold, zone: "1", env: test}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: gold-old, labels: {tier: gold, zone: "1", old: ""}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: gold-nowhere, labels: {tier: gold}}}
---
apiVersion: aws-efs.managed.openshift.io/v1alpha1
kind: SharedFileSystem
metadata: {name: by-name}
spec:
  fileSystemID: fs-00000001
  allowRoot: null
  allowedNamespaces: {names: [team-a, gold], selector: null}
  allowedAccessPoints: {perNamespace: [{namespace: team-a, accessPoints: [fsap-00000000000000001]}]}
---
apiVersion: aws-efs.managed.openshift.io/v1alpha1
kind: SharedFileSystem
metadata: {name: by-label}
spec:
  fileSystemID: fs-00000002
  allowRoot: true
  allowedNamespaces:
    selector:
      matchLabels: {tier: gold}
      matchExpressions:
        - {key: tier, operator: In, values: [gold, silver]}
        - {key: env, operator: NotIn, values: [test]}
        - {key: zone, operator: Exists}
        - {key: old, operator: DoesNotExist}
  allowedAccessPoints: {all: true}
---
apiVersion: aws-efs.managed.openshift.io/v1alpha1
kind: SharedFileSystem
metadata: {name: everybody-nothing}
spec:
  fileSystemID: fs-00000003
  allowedNamespaces: {selector: {}}
  allowedAccessPoints: null
---
apiVersion: aws-efs.managed.openshift.io/v1alpha1
kind: SharedFileSystem
metadata: {name: nobody}
spec: {fileSystemID: fs-00000004, allowRoot: true, allowedAccessPoints: {all: true}}
---
apiVersion: aws-efs.managed.openshift.io/v1alpha1
kind: SharedFileSystem
metadata: {name: no-root}
spec: {fileSystemID: fs-00000007, allowedNamespaces: {names: [team-a]}, allowedAccessPoints: {all: true}}
---
apiVersion: aws-efs.managed.openshift.io/v1alpha1
kind: SharedFileSystem
metadata: {name: one-of-two}
spec: {fileSystemID: fs-00000005, allowRoot: true, allowedNamespaces: {names: [team-a]}}
---
apiVersion: aws-efs.managed.openshift.io/v1alpha1
kind: SharedFileSystem
metadata: {name: two-of-two}
spec: {fileSystemID: fs-00000005, allowRoot: true, allowedNamespaces: {names: [gold]}}
"#;

const NAMESPACES: [&str; 5] = ["team-a", "gold", "gold-test", "gold-old", "gold-nowhere"];
/// The last is named by nobody.
const FILE_SYSTEMS: [&str; 6] =
    ["fs-00000001", "fs-00000002", "fs-00000003", "fs-00000004", "fs-00000005", "fs-00000006"];
const SOLE: [&str; 5] = ["by-name", "by-label", "everybody-nothing", "nobody", "no-root"];

/// A SharedVolume that somebody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wish {
    namespace: &'static str,
    file_system: &'static str,
    point: &'static str,
}

impl Wish {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for namespace in NAMESPACES {
            for file_system in FILE_SYSTEMS {
                all.extend([ONE, TWO, ROOT].map(|point| Self { namespace, file_system, point }));
            }
        }
        let with_nothing = [
            ("team-a", "fs-00000001", NULL),
            ("gold", "fs-00000002", NULL),
            ("team-a", "fs-00000006", NULL),
            ("team-a", "fs-00000007", ONE),
            ("team-a", "fs-00000007", ROOT),
            ("team-a", "fs-00000007", NULL),
        ];
        all.extend(with_nothing.map(|(namespace, file_system, point)| Self {
            namespace,
            file_system,
            point,
        }));
        all
    }

    fn name(self) -> String {
        let point = if self.point.is_empty() { "root" } else { self.point };
        format!("{}-{point}", self.file_system)
    }

    fn yaml(self) -> String {
        let Self { namespace, file_system, point } = self;
        let point = if point.is_empty() { String::new() } else { format!(", accessPointID: {point}") };
        format!(
            "{{apiVersion: aws-efs.managed.openshift.io/v1alpha1, kind: SharedVolume, \
             metadata: {{name: {}, namespace: {namespace}}}, spec: {{fileSystemID: {file_system}{point}}}}}",
            self.name()
        )
    }
}

/// Creates something, or only tries; as somebody, or as the administrator.
fn create(cluster: &Cluster, yaml: &str, more: &[&str]) -> Result<Output> {
    let file = cluster.dir().join("wish.yaml");
    std::fs::write(&file, yaml)?;
    Ok(cluster.kubectl().args(["create", "--filename"]).arg(&file).args(more).output()?)
}

/// What the operator says of each: whether it is allowed.
async fn judged_by_operator(cluster: &Cluster, wishes: &[Wish]) -> Result<BTreeMap<Wish, bool>> {
    let all: Vec<String> = wishes.iter().map(|wish| wish.yaml()).collect();
    let made = create(cluster, &all.join("\n---\n"), &[])?;
    ensure!(made.status.success(), "{}", stderr(&made));
    eventually(DEADLINE, "the operator has judged all", || async {
        let columns = r#"jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name} {.status.conditions[?(@.type=="Allowed")].reason}{"\n"}{end}"#;
        let text = kubectl(cluster, &["get", "sharedvolumes", "-A", "-o", columns])?;
        let mut verdicts = BTreeMap::new();
        for line in text.lines() {
            let [namespace, name, reason] = line.split(' ').collect::<Vec<_>>()[..] else { continue };
            let wish = wishes.iter().find(|wish| wish.namespace == namespace && wish.name() == name);
            let wish = wish.with_context(|| format!("nobody asked for {line}"))?;
            match reason {
                "Allowed" | "Unrestricted" => verdicts.insert(*wish, true),
                "NotAllowed" => verdicts.insert(*wish, false),
                _ => None,
            };
        }
        if verdicts.len() == wishes.len() { Ok(Some(verdicts)) } else { Err(anyhow!("{text}")) }
    })
    .await
}

#[tokio::test]
async fn the_policy_refuses_what_the_operator_refuses_and_never_more() -> Result<()> {
    let cluster = Lab::test_cluster().start().await?;
    apply(&cluster, &stdout(&output(&["crds"])))?;
    kubectl(&cluster, &["wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"])?;
    let account = install::identity(&cluster).await?;
    // `kubectl apply` leaves fields out that hold null.
    let staged = create(&cluster, STAGE, &[])?;
    ensure!(staged.status.success(), "{}", stderr(&staged));
    let wishes = Wish::all();
    let mut running = operator(&cluster, &account, "judge", &["--efs-driver=external"])?;
    running.ready(DEADLINE).await?;
    let verdicts = judged_by_operator(&cluster, &wishes).await?;
    ensure!(
        verdicts.values().any(|allowed| *allowed) && verdicts.values().any(|allowed| !allowed),
        "{verdicts:?}"
    );
    for (kind, name, field) in [
        ("sharedvolume/fs-00000007-null", "team-a", "\"accessPointID\":null"),
        ("sharedfilesystem/by-name", "", "\"selector\":null"),
        ("sharedfilesystem/everybody-nothing", "", "\"allowedAccessPoints\":null"),
    ] {
        let stored = kubectl(&cluster, &["get", kind, "--namespace", name, "-o", "json"])?;
        ensure!(stored.replace(": ", ":").contains(field), "the server has not kept {field}: {stored}");
    }
    // One that is refused, and stays.
    let kept = Wish { namespace: "gold-old", file_system: "fs-00000002", point: ONE };
    ensure!(!verdicts[&kept], "{kept:?}");
    for wish in wishes.iter().filter(|wish| **wish != kept) {
        kubectl(&cluster, &["delete", "sharedvolume", "--wait=false", "-n", wish.namespace, &wish.name()])?;
    }
    eventually(DEADLINE, "all others are gone", || async {
        let left = kubectl(&cluster, &["get", "sharedvolumes", "-A", "-o", "name"])?;
        if left.lines().count() == 1 { Ok(Some(())) } else { Err(anyhow!("{left}")) }
    })
    .await?;

    let policies = rendered(&["--set", "efs.admissionPolicy.enabled=true"]);
    // Those that limit the operator itself are installed in any case.
    let for_tenants = |key: &str| key.ends_with("-tenancy") || key.ends_with("-sole");
    let policies: Vec<_> = policies
        .iter()
        .filter(|(key, _)| key.starts_with("ValidatingAdmission") && for_tenants(key))
        .collect();
    ensure!(policies.len() == 4, "{:?}", policies.iter().map(|(key, _)| key).collect::<Vec<_>>());
    for (_, policy) in policies {
        apply(&cluster, &policy.to_string())?;
    }
    // The server has looked whether what they say fits the kinds.
    eventually(DEADLINE, "the server has checked the policies", || async {
        let said =
            kubectl(&cluster, &["get", "validatingadmissionpolicies", "-o", "jsonpath={.items[*].status}"])?;
        ensure!(!said.contains("warning"), "{said}");
        // Those that limit the operator are there as well.
        Ok((said.matches("observedGeneration").count() == 4).then_some(()))
    })
    .await?;

    // Nobody says that it is the only one, so nothing is refused.
    for wish in wishes.iter().filter(|wish| **wish != kept) {
        let tried = create(&cluster, &wish.yaml(), &["--dry-run=server"])?;
        ensure!(tried.status.success(), "{wish:?}: {}", stderr(&tried));
    }
    for name in SOLE {
        kubectl(&cluster, &["label", "sharedfilesystem", name, "aquifer.storage/sole=true"])?;
    }
    let refused = Wish { namespace: "team-a", file_system: "fs-00000004", point: ROOT };
    eventually(DEADLINE, "the label counts", || async {
        Ok((!create(&cluster, &refused.yaml(), &["--dry-run=server"])?.status.success()).then_some(()))
    })
    .await?;
    let mut denied = 0;
    for wish in wishes.iter().filter(|wish| **wish != kept) {
        let tried = create(&cluster, &wish.yaml(), &["--dry-run=server"])?;
        // Of two that name one file system neither can have the label: what none of them allows the operator refuses.
        let left_to_operator = wish.file_system == "fs-00000005";
        let wanted = verdicts[wish] || left_to_operator;
        ensure!(tried.status.success() == wanted, "{wish:?} should be {wanted}: {}", stderr(&tried));
        if !wanted {
            denied += 1;
            ensure!(stderr(&tried).contains("administrator of the cluster"), "{}", stderr(&tried));
        }
    }
    println!(
        "{} wishes, {denied} refused by the policy, none of them allowed by the operator",
        wishes.len() - 1
    );

    // What was there before is not judged anew: not by marks, finalizers or status, and it can go.
    let name = kept.name();
    let target = ["sharedvolume", &name, "-n", kept.namespace];
    kubectl(&cluster, &[&["annotate"], &target[..], &["note=1"]].concat())?;
    kubectl(
        &cluster,
        &[
            &["patch"],
            &target[..],
            &["--subresource=status", "--type=merge", "-p", r#"{"status":{"message":"m"}}"#],
        ]
        .concat(),
    )?;
    let moved = r#"{"spec":{"accessPointID":"fsap-00000000000000002"}}"#;
    let change = [&["patch"], &target[..], &["--type=merge", "-p", moved]].concat();
    let done = cluster.kubectl().args(&change).output()?;
    ensure!(!done.status.success() && stderr(&done).contains("spec.allowedNamespaces"), "{done:?}");
    // The operator itself is never refused.
    kubectl(
        &cluster,
        &[
            "create",
            "clusterrolebinding",
            "all",
            "--clusterrole=cluster-admin",
            &format!("--user={}", install::USER),
        ],
    )?;
    let as_operator = format!("--as={}", install::USER);
    let by_operator = [&change[..], &["--dry-run=server", &as_operator]].concat();
    kubectl(&cluster, &by_operator)?;
    kubectl(&cluster, &[&["delete"], &target[..], &["--timeout=30s"]].concat())?;

    // The word of the label is kept true, in both directions.
    let labelled = cluster
        .kubectl()
        .args(["label", "sharedfilesystem", "one-of-two", "aquifer.storage/sole=true"])
        .output()?;
    ensure!(!labelled.status.success() && stderr(&labelled).contains("two-of-two"), "{labelled:?}");
    let second = "{apiVersion: aws-efs.managed.openshift.io/v1alpha1, kind: SharedFileSystem, metadata: {name: second}, \
        spec: {fileSystemID: fs-00000001}}";
    let made = create(&cluster, second, &[])?;
    ensure!(
        !made.status.success() && stderr(&made).contains("SharedFileSystem by-name names fs-00000001"),
        "{made:?}"
    );
    running.stop().await?;
    cluster.stop().await
}
