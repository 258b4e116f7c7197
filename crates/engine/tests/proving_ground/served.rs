//! Servers beside controllers, in simulated time: replies that wait for a grant, feeds, and requests that end in a deletion. Every
//! replica serves, one leads.

use std::sync::Arc;
use std::time::Duration;

use aquifer_engine::Key;
use aquifer_engine::process::{Family, Runnable};
use aquifer_engine::runtime::Runtime;
use aquifer_engine::serve::Server;
use aquifer_engine::simulation::{Delays, Process, World, run};
use futures::StreamExt;

use crate::desk::{Call, Desk, Desks, Front, Leavers, Told, Wish};
use crate::family::{Kinds, WellSpec, spring, well, well_status};
use crate::springs::Springs;

const RUN: &str = "served";

/// Two processes with their servers.
async fn two(world: &World) -> Vec<(Process, Arc<Server<Desk>>)> {
    let mut started = Vec::new();
    for name in ["one", "two"] {
        let desks = Desks::default();
        let process = world.start(name, |_, _| {
            let controllers: Vec<Box<dyn Runnable>> = vec![
                Box::new(Springs { kinds: Kinds::new(), run: RUN.into(), decider: None }),
                Box::new(Leavers { kinds: Kinds::new() }),
            ];
            let servers: Vec<Box<dyn Runnable>> = vec![Box::new(Front(desks.clone()))];
            vec![Family { name: "proving".into(), controllers, servers }]
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        let open = desks.all().pop().expect("the process runs its server");
        started.push((process, open.server));
    }
    started
}

fn play(script: impl AsyncFnOnce(&World, Vec<(Process, Arc<Server<Desk>>)>)) {
    play_with(Delays::LONG, script);
}

fn play_with(delays: Delays, script: impl AsyncFnOnce(&World, Vec<(Process, Arc<Server<Desk>>)>)) {
    let kinds = Kinds::new();
    let served = [kinds.well.clone(), kinds.spring.clone()];
    let played = run(1, delays, &served, async |world| {
        let started = two(world).await;
        script(world, started).await;
    });
    played.unwrap();
}

fn call(well: &str, wish: Wish) -> Call {
    Call { well: Key::namespaced("ns", well), wish }
}

fn make_well(world: &World, name: &str, want: u64) {
    let kinds = Kinds::new();
    world.model.put(&kinds.well, well(&kinds, "ns", name, RUN, &WellSpec::new(want, &[])));
}

#[test]
fn a_reply_waits_at_every_replica_until_the_grant_is_stored() {
    play(async |world, started| {
        let kinds = Kinds::new();
        make_well(world, "a", 3);
        let asked = started.iter().map(|(_, server)| async {
            let told = server.handle(&call("a", Wish::Grant), Duration::from_mins(5)).await.unwrap();
            let stored = well_status(&world.model.object(&kinds.well.at("ns", "a")).unwrap()).allotted;
            (told, stored)
        });
        let grants = async {
            tokio::time::sleep(Duration::from_mins(1)).await;
            world.model.put(&kinds.spring, spring(&kinds, "ns", RUN, 10));
        };
        let (told, ()) = tokio::join!(futures::future::join_all(asked), grants);
        assert_eq!(told, [(Told::Granted(3), Some(3)), (Told::Granted(3), Some(3))]);
    });
}

#[test]
fn a_reply_that_waits_in_vain_comes_when_its_time_is_over_and_unknown_names_are_not_waited_for() {
    play(async |world, started| {
        make_well(world, "a", 3); // and no spring
        let (process, server) = &started[0];
        let begun = Runtime::instant();
        let told = server.handle(&call("a", Wish::Grant), Duration::from_secs(30)).await;
        assert_eq!(told, Ok(Told::NotYet));
        let took = begun.elapsed();
        // A moment before, because of the last look.
        assert!((Duration::from_secs(29)..=Duration::from_secs(30)).contains(&took), "{took:?}");
        let told = server.handle(&call("nobody", Wish::Grant), Duration::from_mins(5)).await;
        assert_eq!(told, Ok(Told::NoSuchWell));
        let before = world.history().len();
        for name in ["", "..", "a/status", "a%2Fstatus"] {
            let told = server.handle(&call(name, Wish::Grant), Duration::ZERO).await;
            assert_eq!(told, Ok(Told::NoSuchWell), "{name:?}");
        }
        let history = world.history();
        let asked = history[before..].iter().find(|line| line.contains("GET") && line.contains("/ns/wells"));
        assert_eq!(asked, None, "what cannot be a name is not asked for");
        let metrics = process.metrics().text();
        let counted = r#"aquifer_server_requests_total{server="proving-desk",outcome="ok"} 6"#;
        assert!(metrics.contains(counted), "{metrics}");
    });
}

#[test]
fn who_invents_names_makes_few_reads() {
    play(async |world, started| {
        let (_, server) = &started[0];
        tokio::time::sleep(Duration::from_secs(30)).await; // the caches are complete
        let reads = || world.history().iter().filter(|line| line.contains("/wells/")).count();
        let ask = async |name: &str| server.handle(&call(name, Wish::Grant), Duration::ZERO).await;
        let (before, begun) = (reads(), Runtime::instant());
        let names: Vec<String> = (0..2000).map(|number| format!("invented-{}", number % 500)).collect();
        let told = futures::future::join_all(names.iter().map(|name| ask(name))).await;
        let (read, took) = (reads() - before, begun.elapsed());
        let most = 100 + 20 * usize::try_from(took.as_secs() + 1).unwrap();
        assert!((1..=most).contains(&read), "{read} reads in {took:?}");
        let refused = told.iter().filter(|told| told.is_err()).count();
        assert!(refused > 0 && told.contains(&Ok(Told::NoSuchWell)), "{refused} of 2000 were refused");
    });
}

#[test]
fn a_name_that_comes_into_being_is_known_as_soon_as_the_watch_shows_it() {
    play_with(Delays::NONE, async |world, started| {
        let (_, server) = &started[0];
        tokio::time::sleep(Duration::from_secs(30)).await; // the caches are complete
        let ask = async || server.handle(&call("late", Wish::Grant), Duration::ZERO).await;
        let reads = || world.history().iter().filter(|line| line.contains("/wells/late")).count();
        assert_eq!((ask().await, ask().await, reads()), (Ok(Told::NoSuchWell), Ok(Told::NoSuchWell), 1));
        make_well(world, "late", 1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(ask().await, Ok(Told::NotYet));
        let asked = world
            .history()
            .iter()
            .filter(|line| line.contains("GET") && line.contains("/wells/late"))
            .count();
        assert_eq!(asked, 1, "the cache shows it");
    });
}

#[test]
fn a_feed_shows_the_latest_reply_and_only_when_it_is_another_one() {
    play(async |world, started| {
        let kinds = Kinds::new();
        make_well(world, "a", 3);
        let server = Arc::clone(&started[1].1);
        let mut feed = Box::pin(server.feed(call("a", Wish::Grant)));
        world.model.put(&kinds.spring, spring(&kinds, "ns", RUN, 10));
        assert_eq!(feed.next().await, Some(Ok(Told::Granted(3))));
        for want in [5, 5, 8] {
            make_well(world, "a", want);
            tokio::time::sleep(Duration::from_mins(1)).await;
        }
        make_well(world, "b", 1); // somebody else's
        assert_eq!(
            feed.next().await,
            Some(Ok(Told::Granted(8))),
            "what lies between is not kept for slow readers"
        );
        let more = tokio::time::timeout(Duration::from_mins(10), feed.next()).await;
        assert!(more.is_err(), "nothing has changed: {more:?}");
        world.model.delete(&kinds.well.at("ns", "a"));
        assert_eq!(feed.next().await, Some(Ok(Told::NoSuchWell)));
    });
}

#[test]
fn a_request_that_ends_in_a_deletion_is_recorded_by_any_replica_and_the_leader_deletes() {
    play(async |world, started| {
        let kinds = Kinds::new();
        make_well(world, "a", 3);
        make_well(world, "b", 3);
        for (_, server) in &started {
            assert_eq!(server.handle(&call("a", Wish::Leave), Duration::ZERO).await, Ok(Told::Noted));
        }
        assert!(world.rests(Duration::from_mins(1), Duration::from_mins(10)).await);
        assert!(world.model.object(&kinds.well.at("ns", "a")).is_none());
        assert!(world.model.object(&kinds.well.at("ns", "b")).is_some());
        let deletes: Vec<String> =
            world.history().into_iter().filter(|line| line.contains("DELETE")).collect();
        assert_eq!(deletes.len(), 1, "{deletes:#?}");
    });
}
