//! What the chart makes of its values, one test for each part that can be chosen.

use anyhow::{Result, ensure};
use aquifer_lab::Lab;
use serde_json::{Value, json};

use super::install::{chart, rendered};
use super::process::{aquifer, output, stderr, stdout};
use super::running::apply;

const DEPLOYMENT: &str = "Deployment aquifer-system/aquifer";

#[test]
fn the_port_of_the_metrics_is_one_wherever_it_is_said() {
    let all = rendered(&["--set", "metrics.port=9402,health.maxWatchSilence=10m"]);
    let service = &all["Service aquifer-system/aquifer-metrics"]["spec"];
    assert_eq!(service["ports"][0]["port"], 9402);
    assert_eq!(service["ports"][0]["targetPort"], "metrics");
    let pod = &all["Deployment aquifer-system/aquifer"]["spec"]["template"]["spec"]["containers"][0];
    let ports = json!([{ "name": "http", "containerPort": 8080, "protocol": "TCP" },
        { "name": "metrics", "containerPort": 9402, "protocol": "TCP" }]);
    assert_eq!(pod["ports"], ports);
    let environment = pod["env"].as_array().unwrap();
    for (name, value) in [("AQUIFER_METRICS_LISTEN", "0.0.0.0:9402"), ("AQUIFER_MAX_WATCH_SILENCE", "10m")] {
        assert!(environment.contains(&json!({ "name": name, "value": value })), "{environment:?}");
    }
}

#[test]
fn a_network_policy_lets_scrapers_read_metrics_and_nothing_else() {
    let scrapers = "networkPolicy.enabled=true,networkPolicy.scrapers.namespaceSelector.matchLabels.team=watch,\
        networkPolicy.scrapers.podSelector.matchLabels.app=prometheus";
    let policy = |more: &str| {
        let all = rendered(&["--set", &format!("{scrapers}{more}")]);
        let pod = &all["Deployment aquifer-system/aquifer"]["spec"]["template"]["metadata"]["labels"];
        let spec = all["NetworkPolicy aquifer-system/aquifer"]["spec"].clone();
        assert_eq!(&spec["podSelector"]["matchLabels"], pod);
        spec
    };
    let spec = policy("");
    assert_eq!(spec["policyTypes"], json!(["Ingress"]));
    assert_eq!(
        spec["ingress"],
        json!([{
            "from": [{ "namespaceSelector": { "matchLabels": { "team": "watch" } },
                "podSelector": { "matchLabels": { "app": "prometheus" } } }],
            "ports": [{ "port": "metrics", "protocol": "TCP" }],
        }])
    );
    assert_eq!(spec["egress"], Value::Null);
    let spec =
        policy(",networkPolicy.egress.enabled=true,networkPolicy.egress.apiServerCIDRs={10.96.0.1/32}");
    assert_eq!(spec["policyTypes"], json!(["Ingress", "Egress"]));
    let ports = |ports: &[(u16, &str)]| {
        let each = ports.iter().map(|(port, protocol)| json!({ "port": port, "protocol": protocol }));
        Value::Array(each.collect())
    };
    assert_eq!(
        spec["egress"],
        json!([{ "ports": ports(&[(53, "UDP"), (53, "TCP")]) },
            { "ports": ports(&[(443, "TCP"), (6443, "TCP")]), "to": [{ "ipBlock": { "cidr": "10.96.0.1/32" } }] }])
    );
}

#[test]
fn the_durations_of_the_lease_reach_the_operator() {
    let all = rendered(&["--set", "lease.duration=60s,lease.renewDeadline=45s,lease.retryPeriod=5s"]);
    let container = &all[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0];
    for (name, value) in [("DURATION", "60s"), ("RENEW_DEADLINE", "45s"), ("RETRY_PERIOD", "5s")] {
        let wanted = json!({ "name": format!("AQUIFER_LEASE_{name}"), "value": value });
        assert!(container["env"].as_array().unwrap().contains(&wanted), "{wanted}");
    }
}

/// The spec of the operator's pods, with these values.
fn pods(values: &str) -> Value {
    rendered(&["--set", values])[DEPLOYMENT]["spec"]["template"]["spec"].clone()
}

#[test]
fn more_flags_variables_and_volumes_are_added_to_what_the_chart_sets() {
    let usual = pods("log.level=info");
    let spec = pods(
        "extraArgs={--efs-tolerations=gpu,--log-level=debug},extraEnv[0].name=SSL_CERT_DIR,extraEnv[0].value=/certs,\
         extraVolumes[0].name=certs,extraVolumes[0].configMap.name=ca,\
         extraVolumeMounts[0].name=certs,extraVolumeMounts[0].mountPath=/certs",
    );
    let container = &spec["containers"][0];
    assert_eq!(container["args"], json!(["run", "--efs-tolerations=gpu", "--log-level=debug"]));
    let mut environment = usual["containers"][0]["env"].as_array().unwrap().clone();
    // Of several with one name the last counts.
    environment.push(json!({ "name": "SSL_CERT_DIR", "value": "/certs" }));
    assert_eq!(container["env"], Value::Array(environment));
    assert_eq!(container["volumeMounts"], json!([{ "name": "certs", "mountPath": "/certs" }]));
    assert_eq!(spec["volumes"], json!([{ "name": "certs", "configMap": { "name": "ca" } }]));
    assert!(usual["volumes"].is_null() && usual["containers"][0]["volumeMounts"].is_null());
}

#[test]
fn common_labels_are_on_every_object_and_pod_and_take_none_of_ours_away() {
    let name = "app\\.kubernetes\\.io/name";
    let all = rendered(&[
        "--set",
        &format!(
            "commonLabels.team=storage,commonLabels.{name}=other,podLabels.tier=low,podLabels.team=mine"
        ),
        "--set",
        "networkPolicy.enabled=true,metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.labels.release=prom",
    ]);
    for (key, object) in &all {
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels["team"], "storage", "{key}");
        assert_ne!(labels["app.kubernetes.io/name"], "other", "{key}");
    }
    assert_eq!(all["ServiceMonitor aquifer-system/aquifer"]["metadata"]["labels"]["release"], "prom");
    let deployment = &all[DEPLOYMENT]["spec"];
    assert_eq!(
        deployment["template"]["metadata"]["labels"],
        json!({ "app.kubernetes.io/name": "aquifer", "app.kubernetes.io/component": "operator", "team": "mine", "tier": "low" })
    );
    // A selector cannot be changed by an upgrade, so it has nothing of the user's.
    assert_eq!(deployment["selector"]["matchLabels"].as_object().unwrap().len(), 2);
    let job = &all["Job aquifer-system/aquifer-uninstall-check"]["spec"]["template"]["metadata"]["labels"];
    assert_eq!(job["team"], "storage");
}

#[test]
fn replicas_are_spread_over_nodes_or_as_it_is_chosen() {
    let labels = json!({ "matchLabels": { "app.kubernetes.io/name": "aquifer", "app.kubernetes.io/component": "operator" } });
    let constraint = |key: &str, when: &str, selector: &Value| json!({ "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector });
    let usual = constraint("kubernetes.io/hostname", "ScheduleAnyway", &labels);
    assert_eq!(pods("log.level=info")["topologySpreadConstraints"], json!([usual]));
    let chosen = |number: usize, key: &str| {
        let one = format!("topologySpreadConstraints[{number}]");
        format!("{one}.maxSkew=1,{one}.topologyKey={key},{one}.whenUnsatisfiable=DoNotSchedule")
    };
    let own = json!({ "matchLabels": { "a": "b" } });
    let values = format!(
        "{},{},topologySpreadConstraints[1].labelSelector.matchLabels.a=b",
        chosen(0, "zone"),
        chosen(1, "rack")
    );
    let wanted =
        [("zone", &labels), ("rack", &own)].map(|(key, selector)| constraint(key, "DoNotSchedule", selector));
    assert_eq!(pods(&values)["topologySpreadConstraints"], json!(wanted));
}

#[test]
fn security_probes_and_the_way_of_updating_follow_the_values() {
    let values = "podSecurityContext.runAsUser=1234,securityContext.privileged=false,probes.liveness.failureThreshold=9,\
        probes.readiness.periodSeconds=7,probes.startup.initialDelaySeconds=3,priorityClassName=system-cluster-critical";
    let spec = pods(values);
    assert_eq!(spec["priorityClassName"], "system-cluster-critical");
    let context =
        json!({ "runAsNonRoot": true, "runAsUser": 1234, "seccompProfile": { "type": "RuntimeDefault" } });
    assert_eq!(spec["securityContext"], context);
    let container = &spec["containers"][0];
    assert_eq!(container["securityContext"]["privileged"], false);
    assert_eq!(container["securityContext"]["capabilities"], json!({ "drop": ["ALL"] }));
    let probe = |path: &str| json!({ "path": path, "port": "http" });
    assert_eq!(
        container["livenessProbe"],
        json!({ "httpGet": probe("/livez"), "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 9 })
    );
    assert_eq!(
        container["readinessProbe"],
        json!({ "httpGet": probe("/readyz"), "periodSeconds": 7, "timeoutSeconds": 2 })
    );
    assert_eq!(container["startupProbe"]["initialDelaySeconds"], 3);
    let recreate = "updateStrategy.type=Recreate,updateStrategy.rollingUpdate=null";
    assert_eq!(rendered(&["--set", recreate])[DEPLOYMENT]["spec"]["strategy"], json!({ "type": "Recreate" }));
}

#[test]
fn a_drain_takes_one_replica_at_a_time_and_is_not_held_up_by_one_that_is_not_ready() {
    const KEY: &str = "PodDisruptionBudget aquifer-system/aquifer";
    let spec = &rendered(&[])[KEY]["spec"];
    assert_eq!(
        (&spec["maxUnavailable"], &spec["unhealthyPodEvictionPolicy"]),
        (&json!(1), &json!("AlwaysAllow"))
    );
    let other = rendered(&["--set", "podDisruptionBudget.unhealthyPodEvictionPolicy=IfHealthyBudget"]);
    assert_eq!(other[KEY]["spec"]["unhealthyPodEvictionPolicy"], "IfHealthyBudget");
}

#[test]
fn the_account_and_the_roles_of_the_operator_can_be_left_to_others() {
    let usual = rendered(&[]);
    let without = |values: &str| {
        let left = rendered(&["--set", values]);
        usual.keys().filter(|key| !left.contains_key(*key)).cloned().collect::<Vec<_>>()
    };
    assert_eq!(without("serviceAccount.create=false"), ["ServiceAccount aquifer-system/aquifer"]);
    let roles = without("rbac.create=false");
    for role in ["ClusterRole /aquifer", "ClusterRoleBinding /aquifer", "Role aquifer-system/aquifer"] {
        assert!(roles.iter().any(|one| one == role), "{role} is not in {roles:?}");
    }
    assert!(roles.iter().all(|one| one.contains("Role")), "{roles:?}");
    assert_eq!(pods("serviceAccount.create=false")["serviceAccountName"], "aquifer");
}

#[test]
fn alerts_and_dashboard_are_those_of_the_repository_and_carry_their_labels() {
    let read = |file: &str| std::fs::read_to_string(chart().join(file)).unwrap();
    let usual = rendered(&[]);
    assert!(!usual.keys().any(|key| key.starts_with("PrometheusRule") || key.starts_with("ConfigMap")));
    let all = rendered(&[
        "--set",
        "metrics.prometheusRule.enabled=true,metrics.prometheusRule.labels.release=prom,metrics.dashboard.enabled=true,\
         metrics.dashboard.annotations.folder=Storage",
    ]);
    let rule = &all["PrometheusRule aquifer-system/aquifer"];
    assert_eq!(rule["metadata"]["labels"]["release"], "prom");
    let offered: Value = serde_saphyr::from_str(&read("../../docs/alerts.yaml")).unwrap();
    assert_eq!(rule["spec"], offered["spec"]);
    let dashboard = &all["ConfigMap aquifer-system/aquifer-dashboard"];
    assert_eq!(dashboard["metadata"]["labels"]["grafana_dashboard"], "1");
    assert_eq!(dashboard["metadata"]["annotations"], json!({ "folder": "Storage" }));
    let shown: Value = serde_json::from_str(dashboard["data"]["aquifer.json"].as_str().unwrap()).unwrap();
    assert_eq!(shown, serde_json::from_str::<Value>(&read("files/dashboard.json")).unwrap());
    assert_eq!(shown["uid"], "aquifer");
}

/// What Helm makes before an uninstall.
const CHECK: [&str; 4] = [
    "ServiceAccount aquifer-system/aquifer-uninstall-check",
    "ClusterRole /aquifer-uninstall-check",
    "ClusterRoleBinding /aquifer-uninstall-check",
    "Job aquifer-system/aquifer-uninstall-check",
];

#[test]
fn before_an_uninstall_a_job_looks_that_may_only_list_and_is_as_strict_as_the_operator() {
    let values = "image.tag=v9,nodeSelector.pool=a,imagePullSecrets[0].name=registry";
    let all = rendered(&["--set", values]);
    for key in CHECK {
        let annotations = &all[key]["metadata"]["annotations"];
        assert_eq!(annotations["helm.sh/hook"], "pre-delete", "{key}");
        assert_eq!(annotations["helm.sh/hook-delete-policy"], "before-hook-creation,hook-succeeded", "{key}");
    }
    let [_, role, _, job] = CHECK;
    for rule in all[role]["rules"].as_array().unwrap() {
        assert_eq!(rule["verbs"], json!(["list"]), "{rule}");
        assert!(!rule.to_string().contains('*'), "{rule}");
    }
    let (operator, check) =
        (&all[DEPLOYMENT]["spec"]["template"]["spec"], &all[job]["spec"]["template"]["spec"]);
    for same in ["securityContext", "nodeSelector", "imagePullSecrets"] {
        assert!(!check[same].is_null() && check[same] == operator[same], "{same}: {check}");
    }
    let (operator, check) = (&operator["containers"][0], &check["containers"][0]);
    for same in ["image", "securityContext", "resources"] {
        assert_eq!(check[same], operator[same], "{same}");
    }
    let told = ["uninstall", "--check", "--helm-release=aquifer/1", "--namespace=aquifer-system"];
    assert_eq!(check["args"], json!(told));
    // The operator's Service and its other selectors do not find the pod.
    let selector = &all[DEPLOYMENT]["spec"]["selector"]["matchLabels"];
    assert_ne!(&all[job]["spec"]["template"]["metadata"]["labels"], selector);

    let all = rendered(&["--set", "uninstall.check=false"]);
    for key in CHECK {
        assert!(!all.contains_key(key), "{key}");
    }
}

#[tokio::test]
async fn the_check_names_what_is_left_changes_nothing_and_needs_no_more_than_its_role() -> Result<()> {
    let cluster = Lab::test_cluster().start().await?;
    apply(&cluster, &stdout(&output(&["crds"])))?;
    apply(&cluster, "{apiVersion: v1, kind: Namespace, metadata: {name: aquifer-system}}")?;
    let all = rendered(&[]);
    for key in &CHECK[..3] {
        apply(&cluster, &all[*key].to_string())?;
    }
    let (_, kubeconfig) = cluster.service_account("aquifer-system", "aquifer-uninstall-check").await?;
    let arguments = ["uninstall", "--check", "--helm-release=aquifer/3", "--namespace=aquifer-system"];
    let check = || aquifer().args(arguments).arg("--kubeconfig").arg(&kubeconfig).output();
    let mark = cluster.audit().mark()?;
    let nothing = check()?;
    ensure!(nothing.status.success(), "{nothing:?}");
    ensure!(stdout(&nothing).contains("Nothing needs the operator"), "{nothing:?}");
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
    let refused = check()?;
    ensure!(refused.status.code() == Some(1), "{refused:?}");
    for word in [
        "SharedVolume default/data",
        "Component efs-driver is installed",
        "aquifer efs uninstall",
        "helm uninstall aquifer --namespace aquifer-system --no-hooks",
        "helm rollback aquifer 3 --namespace aquifer-system",
    ] {
        ensure!(stderr(&refused).contains(word), "no {word} in {refused:?}");
    }
    let user = "system:serviceaccount:aquifer-system:aquifer-uninstall-check";
    let calls: Vec<_> = cluster.audit().since(mark)?.into_iter().filter(|call| call.user == user).collect();
    let listed = |kind: &str| calls.iter().any(|call| call.verb == "list" && call.resource == kind);
    ensure!(calls.iter().all(|call| call.verb == "list"), "{calls:?}");
    for kind in ["components", "sharedvolumes", "daemonsets"] {
        ensure!(listed(kind), "{kind} was not listed: {calls:?}");
    }
    cluster.stop().await
}
