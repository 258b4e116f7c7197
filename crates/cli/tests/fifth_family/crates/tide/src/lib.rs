//! A family that exists only in a test: one kind, a controller in one namespace, a server, and a flag.

mod controller;

use aquifer_api::tide::{Tide, TideReason};
use aquifer_engine::{FailureReason, PauseReason};
use aquifer_engine::process::{Context, Runnable};
use aquifer_family::rights::{READ, rule};
use aquifer_family::{
    Account, Error, Family, Field, ForeignKind, Grant, InstalledObject, Operator, Setting, Settings, Uninstall, Word, Work,
    Writer,
};
use async_trait::async_trait;
use clap::{Arg, ArgMatches, Command};
use futures::future::BoxFuture;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ObjectMeta;
use kube::{Client, CustomResourceExt as _};

const NAMESPACE: &str = "tide.namespace";
const CONTROLLER: Writer = Writer::Controller(controller::NAME);

pub(crate) const FIELDS: &[Field] = &[
    Field::of("Tide", "spec.height", Writer::User),
    Field::of("Tide", "status.conditions[Progressing]", CONTROLLER),
    Field::of("Tide", "status.conditions[Ready]", CONTROLLER),
    Field::of("Tide", "status.observedGeneration", CONTROLLER),
];

/// The family `tide`.
pub fn family() -> &'static dyn Family {
    &Sea
}

struct Sea;

#[async_trait]
impl Family for Sea {
    fn name(&self) -> &'static str {
        "tide"
    }
    fn summary(&self) -> &'static str {
        "Tides, for a test"
    }
    fn kinds(&self) -> Vec<CustomResourceDefinition> {
        vec![Tide::crd()]
    }
    fn needs(&self) -> Vec<ForeignKind> {
        vec![ForeignKind { group: "moon.example", kind: "Moon", without: "Tides stay as they are." }]
    }
    fn settings(&self) -> Vec<Setting> {
        vec![Setting { value: NAMESPACE, default: "sea" }]
    }
    fn installed(&self, settings: &Settings) -> Vec<InstalledObject> {
        let labels = serde_json::json!({"app.kubernetes.io/part-of": "aquifer", "app.kubernetes.io/managed-by": "aquifer"});
        vec![InstalledObject::new(&serde_json::json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": settings.get(NAMESPACE), "labels": labels}}))]
    }
    fn grants(&self, _: &Settings) -> Vec<Grant> {
        let group = aquifer_api::tide::GROUP;
        vec![
            Grant::namespace(NAMESPACE, "Tides: what users ask for.", rule(group, &["tides"], &READ)),
            Grant::namespace(NAMESPACE, "Tides: what became of them.", rule(group, &["tides/status"], &["patch"]))
                .abuse("say of tides what is not so"),
            Grant::cluster("Tides: which moons there are.", rule("moon.example", &["moons"], &["list"])),
            Grant {
                account: Account::Server("tide-api"),
                ..Grant::cluster("Server of tides: what it answers with.", rule(group, &["tides"], &["list"]))
            },
        ]
    }
    fn user_roles(&self) -> Vec<ClusterRole> {
        let metadata = ObjectMeta {
            name: Some("aquifer-tides-view".to_owned()),
            labels: Some([("rbac.authorization.k8s.io/aggregate-to-view".to_owned(), "true".to_owned())].into()),
            ..ObjectMeta::default()
        };
        let rules = Some(vec![rule(aquifer_api::tide::GROUP, &["tides"], &READ)]);
        vec![ClusterRole { metadata, rules, aggregation_rule: None }]
    }
    fn fields(&self) -> Vec<Field> {
        FIELDS.to_vec()
    }
    fn words(&self) -> Vec<Word> {
        Word::reasons::<TideReason>("Tide").chain(Word::reasons::<FailureReason>("Tide")).chain(Word::reasons::<PauseReason>("Tide")).collect()
    }
    fn page(&self) -> &'static str {
        "crates/tide/README.md"
    }
    fn flags(&self, command: Command) -> Command {
        let namespace = Arg::new("tide-namespace")
            .long("tide-namespace")
            .env("AQUIFER_TIDE_NAMESPACE")
            .default_value("sea")
            .help("Namespace of the tides");
        command.next_help_heading("Tide").arg(namespace)
    }
    fn work(&self, flags: &ArgMatches, _: &Operator) -> Result<Work, clap::Error> {
        let namespace = flags.get_one::<String>("tide-namespace").cloned().unwrap_or_default();
        Ok(Work { controllers: vec![Box::new(controller::Tides { namespace })], servers: vec![Box::new(Api)] })
    }
    fn environment(&self) -> Vec<(&'static str, String)> {
        vec![("AQUIFER_TIDE_NAMESPACE", "sea".to_owned())]
    }
    async fn needed(&self, _: &Client) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }
    fn uninstall(&self, _: Client) -> Option<Box<dyn Uninstall>> {
        None
    }
    fn examples(&self) -> &'static [&'static str] {
        &["crates/tide/examples/tide.yaml"]
    }
}

/// A server that answers nothing until it is asked to end.
struct Api;

impl Runnable for Api {
    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ()> {
        Box::pin(async move { context.shutdown.cancelled().await })
    }
}
