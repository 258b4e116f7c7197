//! A writer that does not lead: a service that lets guests draw from a well. Every replica answers; steps only create, or
//! compare and swap.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aquifer_base::{Sealed, Uid};
use aquifer_engine::cluster::Cluster;
use aquifer_engine::model::Model;
use aquifer_engine::process::{Context, Family, Runnable};
use aquifer_engine::runtime::Runtime;
use aquifer_engine::serve::{Answer, Server, Service};
use aquifer_engine::simulation::{Delays, run};
use aquifer_engine::store::Store;
use aquifer_engine::stores::Stores;
use aquifer_engine::{Class, Failure, Key, Mint, Record, Step, View, Watch};
use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::cluster_run::ClusterRun;
use crate::family::{Kinds, SECRET, WellSpec, well};

struct Guests {
    kinds: Kinds,
    /// Breaks the rule of servers.
    greedy: bool,
}

struct Visit {
    well: Key,
    uid: Uid,
    guest: String,
}

#[derive(Debug, PartialEq)]
enum Reply {
    NoSuchWell,
    /// The guest's key is in this Secret.
    Welcome {
        secret: String,
    },
    NotYet,
}

impl Service for Guests {
    type Request = Visit;
    type Reply = Reply;

    fn name(&self) -> &'static str {
        "proving-guests"
    }
    fn owner(&self, visit: &Visit) -> (Key, Option<Uid>) {
        (visit.well.clone(), Some(visit.uid.clone()))
    }
    fn answer(&self, visit: &Visit, view: &View<'_>, _: Timestamp) -> Answer<Reply> {
        let well = view.get(&self.kinds.well.key(&visit.well));
        let secret = SECRET.at(&visit.well.namespace, &format!("{}-guest-{}", visit.well.name, visit.guest));
        let key = view.get(&secret);
        if well.absent() {
            return Answer::now(Reply::NoSuchWell);
        }
        let mut steps = Vec::new();
        if key.absent() {
            steps.push(Step::Mint(Mint::new(secret.key.clone(), "guest")));
        }
        if let Some(well) = well.present()
            && well.at(&format!("/status/guests/{}", visit.guest)).is_none()
        {
            let guests = BTreeMap::from([(visit.guest.as_str(), "welcome")]);
            let record = Record::new(self.kinds.well.key(&visit.well), well.identity());
            steps.push(Step::Record(record.set("guests", &guests)));
        }
        if self.greedy
            && let Some(well) = well.present()
        {
            steps.push(Step::delete(self.kinds.well.key(&visit.well), well.identity()));
        }
        let reply =
            key.present().map_or(Reply::NotYet, |secret| Reply::Welcome { secret: secret.uid().to_owned() });
        Answer::now(reply).after(steps)
    }
    fn mint(&self, _: &str) -> Result<BTreeMap<String, Sealed>, Failure> {
        Ok(BTreeMap::from([("key".to_owned(), Sealed::new("a guest's key"))]))
    }
}

fn server(cluster: Arc<dyn Cluster>, greedy: bool) -> Server<Guests> {
    let kinds = Kinds::new();
    // A cache that has seen nothing yet says that there is no well: it must not be believed.
    let store = Store::new(Watch::subjects(kinds.well.clone()));
    store.relist_begins();
    store.relist_ends(Timestamp::UNIX_EPOCH);
    let mut stores = Stores::default();
    stores.add(Arc::new(store));
    Server::new(Guests { kinds, greedy }, cluster, stores, Runtime::system())
}

#[tokio::test]
async fn a_server_answers_from_live_reads_where_its_cache_has_nothing_and_makes_things_once() {
    let model = Arc::new(Model::default());
    let kinds = Kinds::new();
    let made = model.put(&kinds.well, well(&kinds, "ns", "a", "run", &WellSpec::new(1, &[])));
    let visit = |well: &str| Visit {
        well: Key::namespaced("ns", well),
        uid: Uid::new(made.uid()),
        guest: "ada".into(),
    };
    let server = server(Arc::clone(&model) as Arc<dyn Cluster>, false);
    assert_eq!(server.handle(&visit("b"), Duration::ZERO).await, Ok(Reply::NoSuchWell));
    let first = server.handle(&visit("a"), Duration::ZERO).await.unwrap();
    let writes = model.log().len();
    assert!(matches!(first, Reply::Welcome { .. }), "{first:?}");
    assert_eq!(server.handle(&visit("a"), Duration::ZERO).await.unwrap(), first);
    assert_eq!(model.log().len(), writes, "a repeated request writes nothing");
}

/// A server in a process: one guest comes as soon as there is a well, and tells what was answered.
struct Entrance {
    well: Key,
    uid: Uid,
    answered: tokio::sync::mpsc::UnboundedSender<Result<Reply, Failure>>,
}

impl Runnable for Entrance {
    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let kinds = Kinds::new();
            let watches = vec![Watch::subjects(kinds.well.clone())];
            let server = Server::start(Guests { kinds, greedy: false }, watches, &context);
            let visit = Visit { well: self.well, uid: self.uid, guest: "ada".into() };
            let _ = self.answered.send(server.handle(&visit, Duration::ZERO).await);
            context.shutdown.cancelled().await;
        })
    }
}

#[test]
fn every_replica_serves_from_caches_that_the_process_fills() {
    let kinds = Kinds::new();
    let played = run(1, Delays::LONG, &[kinds.well.clone(), SECRET], async |world| {
        let made = world.model.put(&kinds.well, well(&kinds, "ns", "a", "run", &WellSpec::new(1, &[])));
        let (answered, mut answers) = tokio::sync::mpsc::unbounded_channel();
        let processes = ["one", "two"].map(|name| {
            let (well, uid, answered) = (made.key(), Uid::new(made.uid()), answered.clone());
            let servers: Vec<Box<dyn Runnable>> = vec![Box::new(Entrance { well, uid, answered })];
            world.start(name, |_, _| vec![Family { name: "guests".into(), controllers: Vec::new(), servers }])
        });
        let replies = [answers.recv().await.unwrap(), answers.recv().await.unwrap()];
        assert!(matches!(&replies[0], Ok(Reply::Welcome { .. })), "{replies:?}");
        assert_eq!(replies[0], replies[1], "one of them leads, both answer, and there is one key");
        assert_eq!(world.model.objects(&SECRET).len(), 1);
        for process in processes {
            process.stop().await.expect("it stops in order");
        }
    });
    played.unwrap();
}

#[tokio::test]
async fn a_server_that_wants_to_delete_is_refused_before_it_does_anything() {
    let model = Arc::new(Model::default());
    let kinds = Kinds::new();
    let made = model.put(&kinds.well, well(&kinds, "ns", "a", "run", &WellSpec::new(1, &[])));
    let server = server(Arc::clone(&model) as Arc<dyn Cluster>, true);
    let visit = Visit { well: made.key(), uid: Uid::new(made.uid()), guest: "ada".into() };
    let failure = server.handle(&visit, Duration::ZERO).await.unwrap_err();
    assert_eq!(failure.class, Class::Bug);
    assert_eq!(model.log(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_guests_at_two_replicas_beside_the_leader_lose_nothing_and_make_nothing_twice() {
    let run = ClusterRun::new("guests").await;
    run.start().await;
    run.play(0).await;
    let uid = Uid::new(run.the_well("a").await.unwrap().uid());
    let replicas = [server(Arc::new(run.api.clone()), false), server(Arc::new(run.api.clone()), false)];
    let visits = (0..12).map(|n| {
        let visit = Visit {
            well: Key::namespaced(&run.namespace, "a"),
            uid: uid.clone(),
            guest: format!("guest{}", n / 2), // each comes to both replicas
        };
        let replica = &replicas[n % 2];
        async move {
            for _ in 0..20 {
                match replica.handle(&visit, Duration::ZERO).await {
                    Ok(reply) => return (visit.guest, format!("{reply:?}")),
                    Err(failure) => assert_eq!(failure.class, Class::Transient, "{failure}"),
                }
            }
            panic!("{} was never answered", visit.guest);
        }
    });
    let replies = futures::future::join_all(visits).await;
    for pair in replies.chunks(2) {
        assert_eq!(pair[0], pair[1], "both replicas speak of the same key");
    }
    run.until("both wells flow", async || run.arrived(0).await).await.unwrap();
    let guests = run.the_well("a").await.unwrap();
    let guests = guests.at("/status/guests").and_then(|g| g.as_object()).map(serde_json::Map::len);
    assert_eq!(guests, Some(6), "the leader's status writes have kept all of them");
    run.stop().await;
}
