//! Installing: the chart and `aquifer install` give the same objects, words that are wrong are refused clearly, and a real
//! control plane takes it all.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use anyhow::{Context as _, Result, ensure};
use aquifer_family::rights;
use aquifer_family::{Account, Grant, Rights, Scope, Settings};
use aquifer_lab::{Cluster, Lab};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::{Value, json};

use super::process::{aquifer, output, stderr, stdout};
use super::running::{apply, kubectl};

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// The real Helm. It builds itself once, which one test waits for and the others with it.
pub fn helm() -> Command {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let mut command = Command::new(PROGRAM.get_or_init(|| aquifer_lab::recipe::program("helm").unwrap()));
    for name in ["KUBECONFIG", "HELM_NAMESPACE", "HELM_KUBECONTEXT"] {
        command.env_remove(name);
    }
    command
}

/// The chart of this checkout.
pub fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/aquifer")
}

pub fn template(arguments: &[&str]) -> Output {
    let mut command = helm();
    command.args(["template", "aquifer"]).arg(chart());
    command.args(["--namespace", "aquifer-system", "--kube-version", "1.36.0"]);
    command.args(arguments).output().unwrap()
}

/// The objects of a YAML stream by kind, namespace and name.
pub fn objects(yaml: &str) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for document in yaml.split("---\n").filter(|text| text.lines().any(|line| line.starts_with("kind:"))) {
        let object: Value = serde_saphyr::from_str(document).unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let meta = &object["metadata"];
        let key = format!("{} {}/{}", text(&object["kind"]), text(&meta["namespace"]), text(&meta["name"]));
        assert!(all.insert(key.clone(), object).is_none(), "{key} is there twice");
    }
    all
}

pub fn rendered(arguments: &[&str]) -> BTreeMap<String, Value> {
    let done = template(arguments);
    assert!(done.status.success(), "{}", stderr(&done));
    objects(&stdout(&done))
}

#[test]
fn the_chart_passes_helms_own_checks() {
    let done = helm().args(["lint", "--strict"]).arg(chart()).output().unwrap();
    assert!(done.status.success(), "{}{}", stdout(&done), stderr(&done));
}

#[test]
fn install_gives_the_same_objects_as_the_chart() {
    let mut chart = rendered(&[]);
    // Made by Helm for the moment of an uninstall; `aquifer uninstall` looks by itself.
    chart.retain(|_, object| object["metadata"]["annotations"]["helm.sh/hook"].is_null());
    for object in chart.values_mut() {
        let manager = &mut object["metadata"]["labels"][MANAGED_BY];
        assert_eq!(*manager, "Helm");
        *manager = "aquifer".into();
    }
    let mut ours = objects(&stdout(&output(&["install", "--dry-run"])));
    // Helm makes the namespace itself.
    assert!(ours.remove("Namespace /aquifer-system").is_some());
    assert_eq!(ours.keys().collect::<Vec<_>>(), chart.keys().collect::<Vec<_>>());
    for (key, object) in &ours {
        assert_eq!(object, &chart[key], "{key}");
    }
}

#[test]
fn what_can_be_chosen_in_both_gives_the_same_objects_too() {
    let values = "replicas=3,image.repository=registry.example/a,image.tag=v9,efs.tenancy=Restricted";
    let chart = rendered(&["--set", values]);
    let chosen = ["--replicas", "3", "--image", "registry.example/a:v9", "--efs-tenancy", "Restricted"];
    let ours = output(&[&["install", "--dry-run"], &chosen[..]].concat());
    let key = "Deployment aquifer-system/aquifer";
    assert_eq!(objects(&stdout(&ours))[key]["spec"], chart[key]["spec"]);
}

/// What the code grants to the operator when nothing is chosen.
fn operator_rights() -> Rights {
    Rights::by_default(Account::Operator, &aquifer_families::default(), "aquifer-system")
}

#[test]
fn the_charts_rules_are_those_of_the_code_and_follow_the_drivers_namespace() {
    let all = rendered(&["--set", "efs.namespace=elsewhere"]);
    let rules = |key: &str| -> Vec<PolicyRule> { serde_json::from_value(all[key]["rules"].clone()).unwrap() };
    let in_cluster = |grants: Vec<Grant>| grants.into_iter().filter(|grant| grant.scope == Scope::Cluster);
    let efs = aquifer_families::named("efs").unwrap();
    let elsewhere = Settings::defaults(efs, "aquifer-system").with("efs.namespace", "elsewhere");
    let of_code: Vec<PolicyRule> = in_cluster(rights::shared_grants())
        .chain(in_cluster(rights::grants(efs, &elsewhere)))
        .map(|grant| grant.rule)
        .collect();
    assert_eq!(rules("ClusterRole /aquifer"), of_code);
    assert_eq!(rules("Role aquifer-system/aquifer"), operator_rights().own_namespace);
    for role in efs.user_roles() {
        let name = role.metadata.name.unwrap();
        assert_eq!(rules(&format!("ClusterRole /{name}")), role.rules.unwrap());
    }
}

#[test]
fn every_rendered_rule_of_the_operator_has_its_reason_above_it() {
    let text = stdout(&template(&["--show-only", "templates/clusterrole.yaml"]));
    let lines: Vec<&str> = text.lines().collect();
    let rules: Vec<usize> =
        (0..lines.len()).filter(|&place| lines[place].starts_with("  - apiGroups")).collect();
    assert_eq!(rules.len(), operator_rights().cluster.len());
    for place in rules {
        assert!(lines[place - 1].trim_start().starts_with("# "), "{}", lines[place]);
    }
}

#[test]
fn uninstalling_the_chart_keeps_our_kinds() {
    let all = rendered(&[]);
    let kinds: Vec<_> = all.values().filter(|one| one["kind"] == "CustomResourceDefinition").collect();
    assert_eq!(kinds.len(), aquifer_families::crds(&aquifer_families::all()).len());
    for kind in kinds {
        assert_eq!(kind["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    }
    assert!(!rendered(&["--set", "crds.install=false"]).keys().any(|key| key.starts_with("CustomResource")));
}

#[test]
fn of_a_driver_of_another_owner_nothing_is_installed_and_no_right_is_given() {
    let chart = rendered(&["--set", "efs.driver=external"]);
    let ours = objects(&stdout(&output(&["install", "--dry-run", "--efs-driver", "external"])));
    for all in [&chart, &ours] {
        let of_driver: Vec<&String> =
            all.keys().filter(|key| key.contains("efs-csi") || key.ends_with("/aquifer-efs")).collect();
        assert_eq!(of_driver, Vec::<&String>::new());
        assert!(!all.keys().any(|key| key.starts_with("Role aquifer-efs/")), "{:?}", all.keys());
        let rules = all["ClusterRole /aquifer"]["rules"].to_string();
        assert!(!rules.contains("csidrivers") && rules.contains("persistentvolumes"), "{rules}");
    }
    assert_eq!(chart["ClusterRole /aquifer"]["rules"], ours["ClusterRole /aquifer"]["rules"]);
}

#[test]
fn on_openshift_the_chart_makes_the_constraints_of_the_node_plugin_and_elsewhere_it_does_not() {
    let key = "SecurityContextConstraints /efs-csi-scc";
    assert!(!rendered(&[]).contains_key(key));
    let all = rendered(&["--api-versions", "security.openshift.io/v1", "--set", "efs.namespace=elsewhere"]);
    assert_eq!(all[key]["users"], json!(["system:serviceaccount:elsewhere:efs-csi-node-sa"]));
}

#[test]
fn what_was_made_for_a_driver_stays_when_the_chart_is_uninstalled() {
    let all = rendered(&[]);
    let kept = [
        "Namespace /aquifer-efs",
        "ServiceAccount aquifer-efs/efs-csi-node-sa",
        "ClusterRole /efs-csi-node-role",
        "ClusterRoleBinding /efs-csi-node-binding",
    ];
    for key in kept {
        assert_eq!(all[key]["metadata"]["annotations"]["helm.sh/resource-policy"], "keep", "{key}");
    }
}

#[test]
fn optional_parts_come_when_asked_for() {
    let values = "metrics.serviceMonitor.enabled=true,podDisruptionBudget.enabled=false,rbac.userRoles=false,\
        efs.nodeSelector.pool=storage,efs.images.plugin=registry.example/efs@sha256:0,efs.kubeletDir=/data/kubelet,\
        efs.resources.plugin.limits.memory=1Gi,efs.imagePullSecrets[0].name=one,efs.imagePullSecrets[1].name=two,image.digest=sha256:";
    let all = rendered(&["--set", &format!("{values}{}", "0".repeat(64))]);
    let monitor = &all["ServiceMonitor aquifer-system/aquifer"]["spec"];
    assert_eq!(monitor["endpoints"][0]["port"], "metrics");
    assert!(!all.keys().any(|key| key.starts_with("NetworkPolicy")));
    assert!(!all.keys().any(|key| key.starts_with("PodDisruptionBudget")));
    assert!(!all.keys().any(|key| key.contains("sharedvolumes-admin")));
    let pod = &all["Deployment aquifer-system/aquifer"]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(pod["image"], format!("localhost/aquifer@sha256:{}", "0".repeat(64)));
    let environment = pod["env"].as_array().unwrap();
    for (name, value) in [
        ("AQUIFER_EFS_NODE_SELECTOR", "pool=storage"),
        ("AQUIFER_EFS_PLUGIN_IMAGE", "registry.example/efs@sha256:0"),
        ("AQUIFER_EFS_KUBELET_DIR", "/data/kubelet"),
        ("AQUIFER_EFS_RESOURCES", r#"{"plugin":{"limits":{"memory":"1Gi"}}}"#),
        ("AQUIFER_EFS_PULL_SECRETS", "one,two"),
    ] {
        assert!(environment.contains(&json!({ "name": name, "value": value })), "{environment:?}");
    }
}

#[test]
fn the_chart_always_says_who_may_use_a_file_system_that_nobody_names() {
    // The last as with `--reuse-values` and the values of a release that knew no tenancy.
    for (value, said) in [("Open", "Open"), ("Restricted", "Restricted"), ("null", "Open")] {
        let all = rendered(&["--set", &format!("efs.tenancy={value}")]);
        let pod = &all["Deployment aquifer-system/aquifer"]["spec"]["template"]["spec"]["containers"][0];
        let environment = pod["env"].as_array().unwrap();
        assert!(environment.contains(&json!({ "name": "AQUIFER_EFS_TENANCY", "value": said })), "{value}");
    }
}

#[test]
fn every_variable_of_the_chart_is_one_that_the_operator_reads() {
    let known = stdout(&output(&["run", "--help"]));
    let values = "efs.nodeSelector.a=b,efs.images.plugin=x,efs.images.registrar=x,efs.images.liveness=x,\
        efs.resources.plugin.limits.cpu=1,efs.imagePullSecrets[0].name=a";
    let all = rendered(&["--set", values]);
    let pod = &all["Deployment aquifer-system/aquifer"]["spec"]["template"]["spec"]["containers"][0];
    for variable in pod["env"].as_array().unwrap() {
        let name = variable["name"].as_str().unwrap();
        assert!(known.contains(&format!("[env: {name}=]")), "{name}");
    }
}

#[test]
fn values_that_are_wrong_are_refused_by_name() {
    for (value, words) in [
        ("families[0]=nfs", &["/families/0", "efs"][..]),
        ("families=null", &["families"]),
        ("replicas=two", &["/replicas", "integer"]),
        ("replicas=-1", &["/replicas"]),
        ("efs.namespace=Not_This", &["/efs/namespace", "Not_This"]),
        ("log.level=verbose", &["/log/level", "verbose"]),
        ("efs.kubeletDir=kubelet", &["/efs/kubeletDir"]),
        ("efs.resources.driver.limits.cpu=1", &["/efs/resources", "driver"]),
        ("efs.imagePullSecrets[0].key=a", &["/efs/imagePullSecrets/0"]),
        ("efs.driver=maybe", &["/efs/driver", "managed", "external"]),
        ("efs.tenancy=Closed", &["/efs/tenancy", "Open", "Restricted"]),
        ("lease.duration=soon", &["/lease/duration", "soon"]),
        ("health.maxWatchSilence=long", &["/health/maxWatchSilence", "long"]),
        ("metrics.port=8080", &["/metrics/port"]),
        ("metrics.port=80", &["/metrics/port", "1,024"]),
        ("extraArgs[0]=run", &["/extraArgs/0"]),
        ("extraEnv[0].value=x", &["/extraEnv/0", "name"]),
        ("updateStrategy.type=Sometimes", &["/updateStrategy/type", "Recreate"]),
        ("probes.liveness.path=/x", &["/probes/liveness", "path"]),
        ("podDisruptionBudget.unhealthyPodEvictionPolicy=Maybe", &["AlwaysAllow", "IfHealthyBudget"]),
        ("topologySpreadConstraints[0].maxSkew=1", &["/topologySpreadConstraints/0", "topologyKey"]),
        ("serviceAccount.name=other", &["/serviceAccount", "name"]),
        ("nameOverride=other", &["nameOverride", "not allowed"]),
        ("networkPolicy=null", &["networkPolicy"]),
        ("networkPolicy.egress.apiServerCIDRs[0]=here", &["/networkPolicy/egress/apiServerCIDRs/0", "here"]),
        ("image.digest=abc", &["/image/digest"]),
        ("resources.limits.memory=much", &["/resources/limits/memory"]),
        ("replica=3", &["replica", "not allowed"]),
        (
            "metrics.service.enabled=false,metrics.serviceMonitor.enabled=true",
            &["needs metrics.service.enabled"],
        ),
    ] {
        let done = template(&["--set", value]);
        assert!(!done.status.success(), "{value} is accepted");
        for word in words {
            assert!(stderr(&done).contains(word), "{value} does not say {word}: {}", stderr(&done));
        }
    }
}

#[test]
fn completions_name_commands_and_flags_for_every_usual_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let text = stdout(&output(&["completions", shell]));
        for word in ["install", "uninstall", "completions", "dry-run", "efs"] {
            assert!(text.contains(word), "{word} for {shell}");
        }
    }
    assert!(!output(&["completions", "dos"]).status.success());
}

#[test]
fn as_a_plugin_it_is_called_kubectl_aquifer() {
    let dir = tempfile::tempdir().unwrap();
    let plugin = dir.path().join("kubectl-aquifer");
    symlink(env!("CARGO_BIN_EXE_aquifer"), &plugin).unwrap();
    let help = stdout(&Command::new(&plugin).arg("--help").output().unwrap());
    assert!(help.contains("Usage: kubectl aquifer <COMMAND>"), "{help}");
    let help = stdout(&Command::new(&plugin).args(["efs", "uninstall", "--help"]).output().unwrap());
    assert!(help.contains("Usage: kubectl aquifer efs uninstall"), "{help}");
}

#[test]
fn version_works_without_a_cluster() {
    let client = output(&["version", "--client"]);
    assert_eq!(stdout(&client), format!("aquifer {}\n", env!("CARGO_PKG_VERSION")));
    let no_cluster = output(&["version", "--kubeconfig", "/does/not/exist"]);
    assert!(no_cluster.status.success());
    assert!(stdout(&no_cluster).contains("operator: unknown (cannot read /does/not/exist"), "{no_cluster:?}");
}

/// The binary as the administrator of a cluster.
fn ours(cluster: &Cluster, arguments: &[&str]) -> Result<Output> {
    Ok(aquifer().args(arguments).arg("--kubeconfig").arg(cluster.kubeconfig()).output()?)
}

fn succeeds(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    let done = ours(cluster, arguments)?;
    ensure!(done.status.success(), "aquifer {arguments:?}: {}{}", stdout(&done), stderr(&done));
    Ok(stdout(&done))
}

#[tokio::test]
async fn it_installs_again_and_again_and_uninstalls_only_when_nothing_needs_it() -> Result<()> {
    let cluster = Lab::test_cluster().start().await?;
    let said = succeeds(&cluster, &["version"])?;
    ensure!(said.contains("operator: not installed") && said.contains("kubernetes: v1."), "{said}");

    // Through kubectl first, as a careful person does it; the server warns of nothing.
    let printed = stdout(&output(&["install", "--dry-run"]));
    let count = objects(&printed).len();
    let said = apply(&cluster, &printed)?;
    ensure!(said.lines().count() == count, "{said}");

    // Then by ourselves: the fields are taken over, and afterwards there is nothing left to do.
    succeeds(&cluster, &["install"])?;
    let said = succeeds(&cluster, &["install"])?;
    ensure!(
        said.contains(&format!("{count} objects: 0 created, 0 changed, {count} as they should be")),
        "{said}"
    );
    let said = succeeds(&cluster, &["install", "--replicas", "1"])?;
    ensure!(said.contains("0 created, 1 changed"), "{said}");
    ensure!(said.contains("changed   Deployment aquifer-system/aquifer"), "{said}");
    let said = succeeds(&cluster, &["version"])?;
    ensure!(
        said.contains(&format!("operator: {} (image localhost/aquifer", env!("CARGO_PKG_VERSION"))),
        "{said}"
    );

    // What is not said stays.
    let image = "registry.example/aquifer:v9";
    succeeds(&cluster, &["install", "--image", image])?;
    let said = succeeds(&cluster, &["install", "--families", "efs,efs"])?;
    ensure!(said.contains("0 created, 0 changed") && said.contains(&format!("image: {image}")), "{said}");
    let replicas = kubectl(
        &cluster,
        &["get", "deployment", "-n", "aquifer-system", "aquifer", "-o", "jsonpath={.spec.replicas}"],
    )?;
    ensure!(replicas == "1", "{replicas}");
    // One serves a cluster, wherever it is.
    for arguments in [&["install", "-n", "elsewhere"][..], &["uninstall", "--yes", "-n", "elsewhere"]] {
        let refused = ours(&cluster, arguments)?;
        ensure!(!refused.status.success(), "{refused:?}");
        ensure!(stderr(&refused).contains("installed in namespace aquifer-system"), "{refused:?}");
    }

    // No node runs the pods, so waiting ends with what is missing.
    let waited = ours(&cluster, &["install", "--wait", "--timeout", "1"])?;
    ensure!(!waited.status.success() && stderr(&waited).contains("not ready after 1 s"), "{waited:?}");

    // The plugin, found by kubectl itself.
    let dir = tempfile::tempdir()?;
    symlink(env!("CARGO_BIN_EXE_aquifer"), dir.path().join("kubectl-aquifer"))?;
    let path = std::env::join_paths(
        std::iter::once(dir.path().to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )?;
    let done = cluster.kubectl().args(["aquifer", "version"]).env("PATH", path).output()?;
    ensure!(done.status.success() && stdout(&done).contains("kubernetes: v1."), "{done:?}");

    // Objects of ours keep it, and are named.
    apply(
        &cluster,
        "apiVersion: aws-efs.managed.openshift.io/v1alpha1
kind: SharedVolume
metadata: {name: data, namespace: default, finalizers: [aquifer.storage/shared-volume]}
spec: {fileSystemID: fs-0123456789abcdef0, accessPointID: fsap-0123456789abcdef0}
---
apiVersion: aquifer.storage/v1alpha1
kind: Component
metadata: {name: efs-driver}
spec: {}
",
    )?;
    for arguments in [&["uninstall", "--yes"][..], &["uninstall", "--yes", "--crds"]] {
        let refused = ours(&cluster, arguments)?;
        let said = stderr(&refused);
        ensure!(!refused.status.success(), "{refused:?}");
        for word in
            ["SharedVolume default/data", "Component efs-driver is installed", "aquifer efs uninstall"]
        {
            ensure!(said.contains(word), "no {word} in {said}");
        }
    }
    kubectl(&cluster, &["get", "deployment", "-n", "aquifer-system", "aquifer"])?;

    // Whoever changes to another way of installing leaves them where they are, with what the node plugin needs.
    let said = succeeds(&cluster, &["uninstall", "--yes", "--keep-objects"])?;
    ensure!(!said.contains("efs-csi-node"), "{said}");
    kubectl(&cluster, &["get", "namespace", "aquifer-efs"])?;
    kubectl(&cluster, &["get", "clusterrolebinding", "efs-csi-node-binding"])?;
    kubectl(&cluster, &["get", "sharedvolume", "data"])?;
    kubectl(&cluster, &["get", "component", "efs-driver"])?;
    // A driver that was taken away stays away, and that is said; an uninstall forgets it.
    let removed = r#"{"spec":{"desired":"Removed"}}"#;
    kubectl(&cluster, &["patch", "component", "efs-driver", "--type=merge", "-p", removed])?;
    let said = succeeds(&cluster, &["install", "-n", "elsewhere"])?;
    ensure!(said.contains("Component efs-driver is marked as removed"), "{said}");
    let done = r#"{"status":{"observedGeneration":2,"conditions":[{"type":"Ready","status":"False","reason":"Removed",
        "message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}"#;
    kubectl(
        &cluster,
        &["patch", "component", "efs-driver", "--subresource=status", "--type=merge", "-p", done],
    )?;
    let released = r#"{"metadata":{"finalizers":null}}"#;
    kubectl(&cluster, &["patch", "sharedvolume", "data", "--type=merge", "-p", released])?;
    kubectl(&cluster, &["delete", "sharedvolume", "data"])?;
    let asked = ours(&cluster, &["uninstall"])?;
    ensure!(!asked.status.success() && stderr(&asked).contains("--yes"), "{asked:?}");
    let said = succeeds(&cluster, &["uninstall", "--dry-run"])?;
    ensure!(said.contains("Deployment elsewhere/aquifer") && !said.contains("CustomResource"), "{said}");
    // One that was cut short after the operator had gone goes on in the right place, and takes along what the operator made.
    kubectl(&cluster, &["delete", "deployment", "-n", "elsewhere", "aquifer"])?;
    apply(
        &cluster,
        "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: aquifer-efs, namespace: elsewhere}, spec: {}}",
    )?;
    let said = succeeds(&cluster, &["uninstall", "--yes"])?;
    ensure!(
        said.contains("deleted   ClusterRole aquifer") && said.contains("definitions of the kinds stay"),
        "{said}"
    );
    let place = |title: &str| said.find(&format!("deleted   {title}\n")).with_context(|| said.clone());
    let last = place("ClusterRoleBinding aquifer")?;
    for title in ["Component efs-driver", "Lease elsewhere/aquifer-efs", "ServiceAccount elsewhere/aquifer"] {
        ensure!(place(title)? < last, "{title} comes after what shows where to go on: {said}");
    }
    let left = kubectl(&cluster, &["get", "crds", "-o", "name"])?;
    ensure!(left.contains("sharedvolumes.aws-efs"), "{left}");
    let left = kubectl(
        &cluster,
        &["get", "clusterroles,clusterrolebindings", "-l", "app.kubernetes.io/part-of=aquifer"],
    )?;
    ensure!(left.is_empty(), "{left}");
    let left = kubectl(&cluster, &["get", "namespaces", "-o", "name"])?;
    ensure!(!left.contains("namespace/aquifer-efs"), "{left}");
    succeeds(&cluster, &["uninstall", "--yes", "--crds"])?;
    let left = kubectl(&cluster, &["get", "crds", "-o", "name"])?;
    ensure!(!left.contains("sharedvolumes.aws-efs"), "{left}");
    let said = succeeds(&cluster, &["uninstall", "--yes", "--crds"])?;
    ensure!(said.contains("nothing of Aquifer"), "{said}");
    cluster.stop().await
}

#[tokio::test]
async fn a_definition_of_another_tool_is_left_alone_until_it_is_to_be_taken_over() -> Result<()> {
    const NAME: &str = "sharedvolumes.aws-efs.managed.openshift.io";
    let cluster = Lab::test_cluster().start().await?;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../api/crds/{NAME}.yaml"));
    kubectl(&cluster, &["create", "-f", file.to_str().context("a path that is not text")?])?;
    let version = || kubectl(&cluster, &["get", "crd", NAME, "-o", "jsonpath={.metadata.resourceVersion}"]);
    kubectl(&cluster, &["wait", "--for=condition=Established", "crd", NAME, "--timeout=30s"])?;
    let before = version()?;

    let said = succeeds(&cluster, &["install"])?;
    let left = format!(
        "left      CustomResourceDefinition {NAME} (not installed by Aquifer; --take-over replaces it)"
    );
    ensure!(said.contains(&left), "{said}");
    ensure!(said.contains("created   CustomResourceDefinition components.aquifer.storage"), "{said}");
    let said = succeeds(&cluster, &["uninstall", "--yes", "--crds"])?;
    ensure!(said.contains("components.aquifer.storage") && !said.contains(NAME), "{said}");
    ensure!(version()? == before, "the definition was changed");

    let said = succeeds(&cluster, &["install", "--take-over"])?;
    ensure!(said.contains(&format!("changed   CustomResourceDefinition {NAME}")), "{said}");
    let said = succeeds(&cluster, &["install"])?;
    ensure!(said.contains("0 created, 0 changed") && !said.contains("left "), "{said}");
    cluster.stop().await
}

#[tokio::test]
async fn a_namespace_that_somebody_else_made_for_the_driver_stops_the_installation() -> Result<()> {
    let cluster = Lab::test_cluster().start().await?;
    kubectl(&cluster, &["create", "namespace", "aquifer-efs"])?;
    let refused = ours(&cluster, &["install"])?;
    ensure!(!refused.status.success(), "{refused:?}");
    for word in ["cannot use Namespace aquifer-efs: it is not Aquifer's", "--take-over"] {
        ensure!(stderr(&refused).contains(word), "no {word} in {refused:?}");
    }
    let left = kubectl(&cluster, &["get", "clusterrolebindings,crds", "-o", "name"])?;
    ensure!(!left.contains("efs") && !left.contains("aquifer"), "something was made: {left}");
    let by_helm = helm()
        .args(["install", "aquifer"])
        .arg(chart())
        .args(["--namespace", "aquifer-system", "--create-namespace", "--kubeconfig"])
        .arg(cluster.kubeconfig())
        .output()?;
    ensure!(!by_helm.status.success(), "{by_helm:?}");
    ensure!(stderr(&by_helm).contains("Namespace \"aquifer-efs\" in namespace \"\" exists"), "{by_helm:?}");

    let said = succeeds(&cluster, &["install", "--take-over"])?;
    ensure!(said.contains("changed   Namespace aquifer-efs"), "{said}");
    let enforced = "jsonpath={.metadata.labels.pod-security\\.kubernetes\\.io/enforce}";
    let enforced = kubectl(&cluster, &["get", "namespace", "aquifer-efs", "-o", enforced])?;
    ensure!(enforced == "privileged", "{enforced}");
    cluster.stop().await
}

#[tokio::test]
async fn helm_installs_upgrades_and_keeps_the_kinds_and_install_leaves_a_release_alone() -> Result<()> {
    let cluster = Lab::test_cluster().start().await?;
    let run = |arguments: &[&str]| -> Result<String> {
        let home = cluster.dir().join("helm");
        let done = helm()
            .args(arguments)
            .args(["--namespace", "aquifer-system", "--kubeconfig"])
            .arg(cluster.kubeconfig())
            .envs(["CACHE", "CONFIG", "DATA"].map(|what| (format!("HELM_{what}_HOME"), home.join(what))))
            .output()?;
        ensure!(done.status.success(), "helm {arguments:?}: {}{}", stdout(&done), stderr(&done));
        Ok(stdout(&done))
    };
    let chart = chart();
    let chart = chart.to_str().context("a path that is not text")?;
    let notes = run(&["install", "aquifer", chart, "--create-namespace"])?;
    ensure!(notes.contains("aquifer efs uninstall"), "{notes}");
    // A second release would be a second operator for the same objects.
    let second = run(&["install", "other", chart]).unwrap_err().to_string();
    ensure!(second.contains("cannot be imported into the current release"), "{second}");

    for arguments in [&["install"][..], &["uninstall", "--yes"]] {
        let refused = ours(&cluster, arguments)?;
        ensure!(!refused.status.success(), "{refused:?}");
        ensure!(stderr(&refused).contains("belongs to the Helm release aquifer"), "{refused:?}");
    }

    run(&["upgrade", "aquifer", chart, "--set", "replicas=3"])?;
    let replicas = kubectl(
        &cluster,
        &["get", "deployment", "-n", "aquifer-system", "aquifer", "-o", "jsonpath={.spec.replicas}"],
    )?;
    ensure!(replicas == "3", "{replicas}");

    // Nothing runs the pod that would look whether something needs it.
    run(&["uninstall", "aquifer", "--no-hooks"])?;
    let left = kubectl(&cluster, &["get", "crds", "-o", "name"])?;
    ensure!(left.contains("sharedvolumes.aws-efs") && left.contains("components.aquifer.storage"), "{left}");
    // The release is gone, so its kinds may be taken over.
    let said = succeeds(&cluster, &["install"])?;
    ensure!(
        said.contains("changed   CustomResourceDefinition") || said.contains("created   Deployment"),
        "{said}"
    );
    // And back to Helm, with objects of ours in place.
    apply(
        &cluster,
        "{apiVersion: aquifer.storage/v1alpha1, kind: Component, metadata: {name: efs-driver}, spec: {}}",
    )?;
    succeeds(&cluster, &["uninstall", "--yes", "--keep-objects"])?;
    run(&["install", "aquifer", chart, "--take-ownership"])?;
    kubectl(&cluster, &["get", "component", "efs-driver"])?;
    cluster.stop().await
}
