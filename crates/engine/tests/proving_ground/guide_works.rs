//! The controller of docs/write-a-controller.md, in the model and in the simulation; and that the page shows this very code.

use std::sync::Arc;
use std::time::Duration;

use aquifer_engine::model::{Model, Sim, walk};
use aquifer_engine::process::Family;
use aquifer_engine::simulation::{Delays, run};
use serde_json::json;

use crate::guide::{CONFIG_MAP, GREETING, Greetings};

const CODE: &str = include_str!("guide.rs");
const PAGE: &str = include_str!("../../../../docs/write-a-controller.md");

fn greet(model: &Model, text: &str) {
    model.put(&GREETING, json!({"metadata": {"namespace": "ns", "name": "hello"}, "spec": {"text": text}}));
}

#[tokio::test]
async fn a_crash_at_any_write_changes_nothing_about_the_end() {
    let start = || Sim::new(Greetings, Arc::new(Model::default()));
    let script = async |sim: &Sim<Greetings>| {
        greet(&sim.model, "hello");
        sim.settle().await;
        greet(&sim.model, "good morning");
        sim.settle().await;
    };
    let report = walk(start, script, |_| json!({})).await;
    assert!(report.points >= 4, "{report:?}");
    assert_eq!(report.divergent, Vec::<String>::new());
}

#[tokio::test]
async fn a_config_map_of_another_owner_is_left_alone_and_named() {
    let sim = Sim::new(Greetings, Arc::new(Model::default()));
    sim.model.put(&CONFIG_MAP, json!({"metadata": {"namespace": "ns", "name": "hello"}, "data": {"a": "b"}}));
    greet(&sim.model, "hello");
    sim.settle().await;
    let greeting = sim.model.object(&GREETING.at("ns", "hello")).unwrap();
    assert_eq!(greeting.condition("Ready").unwrap()["reason"], "NameTaken");
    assert_eq!(sim.model.object(&CONFIG_MAP.at("ns", "hello")).unwrap().text("/data/a"), "b");
}

#[test]
fn a_whole_process_writes_and_deletes_it() {
    let played = run(1, Delays::LONG, &[GREETING, CONFIG_MAP], async |world| {
        let family =
            || vec![Family { name: "guide".into(), controllers: vec![Box::new(Greetings)], servers: vec![] }];
        let process = world.start("one", |_, _| family());
        greet(&world.model, "hello");
        assert!(world.rests(Duration::from_secs(20), Duration::from_mins(5)).await);
        let written = world.model.object(&CONFIG_MAP.at("ns", "hello")).expect("the ConfigMap");
        assert_eq!(written.text("/data/text"), "hello");
        world.model.delete(&GREETING.at("ns", "hello"));
        assert!(world.rests(Duration::from_secs(20), Duration::from_mins(5)).await);
        assert!(world.model.objects(&GREETING).is_empty() && world.model.objects(&CONFIG_MAP).is_empty());
        process.stop().await.expect("it stops in order");
    });
    played.unwrap();
}

#[test]
fn the_page_shows_this_code_and_it_is_short() {
    assert!(PAGE.contains(&format!("```rust\n{CODE}```\n")), "copy guide.rs into docs/write-a-controller.md");
    assert!(CODE.lines().count() < 100, "{} lines", CODE.lines().count());
    let test = include_str!("guide_works.rs").split("#[tokio::test]\n").nth(1).expect("the first test");
    assert!(PAGE.contains(test.trim_end()), "copy the first test of guide_works.rs into the page, too");
}
