//! The family in the in-memory model: a fault at every write point, in milliseconds.

use std::collections::BTreeMap;
use std::sync::Arc;

use aquifer_engine::cluster::{ApiError, Cluster};
use aquifer_engine::model::{Mode, Model, Scene, Settled, Sim, walk};
use aquifer_engine::secret::StoredSecret;
use aquifer_engine::{Key, Kind, Object};
use serde_json::{Value, json};

use crate::family::{
    CLAIM, CONFIG_MAP, FINALIZER, Kinds, SECRET, WellSpec, condition, spring, well, well_status,
};
use crate::house::House;
use crate::springs::Springs;
use crate::story::{Action, STEPS, actions};
use crate::wells::{Wells, fingerprint};

const RUN: &str = "model";

/// Both controllers and the pump house around one model.
pub struct Stage {
    pub wells: Sim<Wells>,
    pub springs: Sim<Springs>,
    pub house: Arc<House>,
    pub kinds: Kinds,
}

impl Stage {
    pub fn new(idempotent: bool) -> Self {
        let model = Arc::new(Model::default());
        let house = House::new(Arc::clone(&model.fault), idempotent);
        let kinds = Kinds::new();
        let wells = Wells {
            kinds: kinds.clone(),
            runtime: aquifer_engine::runtime::Runtime::system(),
            run: RUN.into(),
            house: Arc::new(Arc::clone(&house)),
            keys: Arc::clone(&model) as Arc<dyn Cluster>,
            decider: None,
        };
        let springs = Springs { kinds: kinds.clone(), run: RUN.into(), decider: None };
        Self { wells: Sim::new(wells, Arc::clone(&model)), springs: Sim::new(springs, model), house, kinds }
    }

    pub fn spring(&self, capacity: u64) {
        self.model().put(&self.kinds.spring, spring(&self.kinds, "ns", RUN, capacity));
    }

    pub fn well(&self, name: &str, spec: &WellSpec) {
        self.model().put(&self.kinds.well, well(&self.kinds, "ns", name, RUN, spec));
    }

    pub fn the_well(&self, name: &str) -> Object {
        self.model().object(&self.kinds.well.at("ns", name)).expect("the well is there")
    }

    pub fn delete(&self, name: &str) {
        self.model().delete(&self.kinds.well.at("ns", name));
    }

    pub fn names(&self, kind: &Kind) -> Vec<String> {
        self.model().objects(kind).iter().map(|o| o.name().to_owned()).collect()
    }
}

impl Scene for Stage {
    fn model(&self) -> &Model {
        &self.wells.model
    }

    /// Both controllers until neither has anything left to do.
    async fn settle(&self) -> Settled {
        let mut all = Settled::default();
        for _ in 0..40 {
            let (one, two) = (self.springs.settle().await, self.wells.settle().await);
            let quiet = one.writes + two.writes == 0;
            all.writes += one.writes + two.writes;
            all.failures.extend(one.failures.into_iter().chain(two.failures));
            if quiet {
                return all;
            }
        }
        panic!("the two controllers never come to rest: {all:?}");
    }
}

/// Users play a step of the story.
fn act(stage: &Stage, step: usize) {
    for action in actions(step) {
        match action {
            Action::Spring(capacity) => stage.spring(capacity),
            Action::Well(name, spec) => stage.well(name, &spec),
            Action::Delete(name) => stage.delete(name),
        }
    }
}

/// The sum of what is allotted or in use never exceeds the capacity, at any write.
pub fn never_too_much(model: &Model, kinds: &Kinds) {
    let mut held = BTreeMap::new();
    let mut capacity = 0;
    for (target, object) in model.history() {
        if target.kind == kinds.spring {
            capacity = object.and_then(|o| o.at("/spec/capacity").and_then(Value::as_u64)).unwrap_or(0);
        } else if target.kind == kinds.well {
            let status = object.as_ref().map(well_status).unwrap_or_default();
            held.insert(target.clone(), status.allotted.unwrap_or(0).max(status.using));
            let sum: u64 = held.values().sum();
            assert!(
                sum <= capacity,
                "{sum} of {capacity} are given away after a write to {target}: {held:?}"
            );
        }
    }
}

/// What is true outside: how many pumps were made and run, and whether they know the right key.
fn outside(stage: &Stage) -> Value {
    let keys: Vec<String> =
        stage.model().objects(&SECRET).iter().map(StoredSecret::of).map(|key| fingerprint(&key)).collect();
    let house = &stage.house;
    let pumps = house.pumps();
    let known = pumps.iter().all(|pump| keys.contains(&pump.key));
    let sizes: Vec<u64> = pumps.iter().map(|p| p.size).collect();
    json!({"made": house.made(), "sizes": sizes, "keys": known, "most": house.most() <= 10})
}

/// What makes a walk harder.
#[derive(Clone, Copy, PartialEq)]
enum Twist {
    None,
    /// A repeated order gives the same pump.
    Idempotent,
    /// The caches of the children do not move while a step of the story is worked on; then they catch up.
    StaleCaches,
    /// Meters are served only in the last step but one.
    LateKind,
}

async fn walk_through(steps: usize, twist: Twist) {
    let script = async |stage: &Stage| {
        stage.model().serve(&stage.kinds.meter, twist != Twist::LateKind);
        for step in 0..steps {
            if twist == Twist::StaleCaches {
                for kind in [&CONFIG_MAP, &CLAIM, &stage.kinds.meter] {
                    stage.wells.freeze(kind);
                }
            }
            act(stage, step);
            stage.settle().await;
            stage.wells.thaw();
            stage.model().serve(&stage.kinds.meter, twist != Twist::LateKind || step >= 1);
            stage.settle().await;
        }
    };
    let judge = |stage: &Stage| {
        never_too_much(stage.model(), &stage.kinds);
        outside(stage)
    };
    let report = walk(|| Stage::new(twist == Twist::Idempotent), script, judge).await;
    println!(
        "walk of {steps} steps: {} write points, {} runs, {} divergent",
        report.points,
        report.runs,
        report.divergent.len()
    );
    assert!(report.divergent.is_empty(), "{:#?}", report.divergent);
    assert_eq!(report.runs, report.points * Mode::ALL.len());
}

#[tokio::test]
async fn a_crash_or_a_lost_reply_at_any_write_of_a_creation_changes_nothing() {
    walk_through(1, Twist::None).await;
}

#[tokio::test]
async fn a_crash_or_a_lost_reply_at_any_write_of_growing_changes_nothing() {
    walk_through(2, Twist::None).await;
}

#[tokio::test]
async fn a_crash_or_a_lost_reply_at_any_write_of_shrinking_changes_nothing() {
    walk_through(3, Twist::None).await;
}

#[tokio::test]
async fn a_crash_or_a_lost_reply_at_any_write_of_a_deletion_changes_nothing() {
    walk_through(4, Twist::None).await;
}

#[tokio::test]
async fn the_walk_also_holds_with_an_outside_that_is_idempotent_by_key() {
    walk_through(STEPS, Twist::Idempotent).await;
}

#[tokio::test]
async fn the_walk_also_holds_with_caches_that_stand_still() {
    walk_through(STEPS, Twist::StaleCaches).await;
}

#[tokio::test]
async fn the_walk_also_holds_with_a_kind_that_is_served_late() {
    walk_through(STEPS, Twist::LateKind).await;
}

/// Both properties of every controller: at rest its plan is constant until its wake-up, and carrying it out writes nothing.
#[tokio::test]
async fn at_rest_plans_are_constant_and_write_nothing() {
    let stage = Stage::new(false);
    for step in 0..STEPS {
        act(&stage, step);
        stage.settle().await;
        let keys = [Key::namespaced("ns", "a"), Key::namespaced("ns", "b")];
        for key in &keys {
            let before = stage.wells.plan(key).await;
            assert_eq!(before.as_ref().and_then(|plan| plan.wake_after), None, "wells wait for events only");
            stage.wells.advance(3600);
            assert_eq!(before, stage.wells.plan(key).await, "{key} at step {step}");
        }
        let again = stage.settle().await;
        assert_eq!((again.writes, again.failures), (0, Vec::new()), "after step {step}");
    }
}

#[tokio::test]
async fn fifty_wells_share_a_spring_and_never_get_more_than_it_has() {
    let stage = Stage::new(false);
    stage.spring(100);
    for n in 0..50 {
        stage.well(&format!("w{n:02}"), &WellSpec { metered: false, basin: false, ..WellSpec::new(3, &[]) });
    }
    stage.settle().await;
    let allotted = || {
        stage.model().objects(&stage.kinds.well).iter().map(|w| well_status(w).allotted.unwrap()).sum::<u64>()
    };
    let pumping = || stage.house.pumps().iter().map(|p| p.size).sum::<u64>();
    assert_eq!((allotted(), pumping()), (100, 100));
    // The first ones want more: the last ones let go, then the water moves.
    for n in 0..10 {
        stage.well(&format!("w{n:02}"), &WellSpec { metered: false, basin: false, ..WellSpec::new(7, &[]) });
    }
    stage.settle().await;
    assert_eq!((allotted(), pumping()), (100, 100));
    for n in 0..20 {
        stage.delete(&format!("w{n:02}"));
    }
    stage.settle().await;
    assert_eq!((allotted(), pumping()), (90, 90));
    assert_eq!(stage.house.most(), 100);
    never_too_much(stage.model(), &stage.kinds);
    let spring = stage.model().object(&stage.kinds.spring.at("ns", "spring")).unwrap();
    assert_eq!(spring.at("/status/claimants"), Some(&json!(30)));
}

#[tokio::test]
async fn fifty_wells_and_a_crash_while_their_shares_are_written() {
    let capacity = 100;
    for (n, mode) in (1..60).step_by(7).flat_map(|n| Mode::ALL.map(|mode| (n, mode))) {
        let stage = Stage::new(false);
        stage.spring(capacity);
        for n in 0..50 {
            stage.well(
                &format!("w{n:02}"),
                &WellSpec { metered: false, basin: false, ..WellSpec::new(3, &[]) },
            );
        }
        stage.model().fault.set(n, mode);
        stage.springs.settle().await;
        let allotted: u64 =
            stage.model().objects(&stage.kinds.well).iter().filter_map(|w| well_status(w).allotted).sum();
        assert_eq!(allotted, capacity, "{mode:?} at write {n}");
        never_too_much(stage.model(), &stage.kinds);
    }
}

#[tokio::test]
async fn children_that_are_no_longer_named_are_pruned_and_what_holds_data_is_not() {
    let stage = Stage::new(false);
    act(&stage, 0);
    stage.settle().await;
    assert_eq!(stage.names(&CONFIG_MAP), ["a-x", "a-y", "b-x"]);
    act(&stage, 2);
    stage.settle().await;
    assert_eq!(stage.names(&CONFIG_MAP), ["a-z", "b-x"]);
    assert_eq!(stage.names(&stage.kinds.meter), ["b-meter"]);
    assert_eq!(stage.names(&CLAIM), ["a-basin", "b-basin"], "a basin holds data");
    assert_eq!(stage.names(&SECRET), ["a-key", "b-key"]);
}

#[tokio::test]
async fn nothing_is_pruned_while_a_step_fails() {
    let stage = Stage::new(false);
    act(&stage, 0);
    stage.settle().await;
    // An admission rule of somebody forbids the new tap.
    stage.model().refuse(&CONFIG_MAP.at("ns", "a-z"), ApiError::Invalid("no taps named z".into()));
    stage.well("a", &WellSpec::new(4, &["z"]));
    stage.settle().await;
    assert_eq!(
        stage.names(&CONFIG_MAP),
        ["a-x", "a-y", "b-x"],
        "the old taps stay until the new one is there"
    );
    let well = stage.the_well("a");
    assert_eq!(condition(&well, "Ready"), ("False".into(), "Invalid".into()));
    stage.model().admit(&CONFIG_MAP.at("ns", "a-z"));
    stage.settle().await;
    assert_eq!(stage.names(&CONFIG_MAP), ["a-z", "b-x"]);
}

#[tokio::test]
async fn a_child_kind_that_appears_later_holds_up_nothing_but_itself() {
    let stage = Stage::new(false);
    stage.model().serve(&stage.kinds.meter, false);
    act(&stage, 0);
    let settled = stage.settle().await;
    assert_eq!(settled.failures, []);
    let well = stage.the_well("a");
    assert_eq!(condition(&well, "Ready"), ("True".into(), "Flowing".into()));
    assert_eq!(condition(&well, "Metered"), ("False".into(), "NotInstalled".into()));
    // Not served is not empty: it is unknown which meters there are, so none is pruned; taps are.
    act(&stage, 1);
    stage.well("a", &WellSpec::new(6, &["z"]));
    stage.settle().await;
    assert_eq!(stage.names(&CONFIG_MAP), ["a-z", "b-x"]);
    stage.model().serve(&stage.kinds.meter, true);
    stage.settle().await;
    assert_eq!(condition(&stage.the_well("a"), "Metered").0, "True");
    assert_eq!(stage.names(&stage.kinds.meter), ["a-meter", "b-meter"]);
    assert_eq!(stage.names(&CONFIG_MAP), ["a-z", "b-x"]);
}

#[tokio::test]
async fn children_whose_owner_is_gone_by_force_are_tidied_up_and_data_is_kept() {
    let stage = Stage::new(false);
    act(&stage, 0);
    stage.settle().await;
    let well = stage.kinds.well.at("ns", "a");
    stage.model().unfinalize(&well, FINALIZER);
    stage.model().delete(&well);
    assert_eq!(stage.model().object(&well), None);
    stage.settle().await;
    assert_eq!(stage.names(&CONFIG_MAP), ["b-x"]);
    assert_eq!(stage.names(&stage.kinds.meter), ["b-meter"]);
    assert_eq!(stage.names(&SECRET), ["b-key"]);
    assert_eq!(stage.names(&CLAIM), ["a-basin", "b-basin"]);
}

#[tokio::test]
async fn a_stale_cache_makes_no_second_object_and_no_wrong_deletion() {
    let stage = Stage::new(false);
    stage.spring(10);
    stage.well("a", &WellSpec::new(4, &["x", "y"]));
    stage.springs.settle().await;
    for kind in [CONFIG_MAP, CLAIM, stage.kinds.meter.clone()] {
        stage.wells.freeze(&kind);
    }
    assert_eq!(stage.settle().await.failures, []);
    assert!(stage.model().created().values().all(|n| *n == 1), "{:?}", stage.model().created());
    assert_eq!(condition(&stage.the_well("a"), "Ready").0, "True");
    // The cache of the subjects stands still: it still shows the taps that the user has just dropped, and no deletion.
    stage.wells.thaw();
    stage.settle().await;
    stage.wells.freeze(&stage.kinds.well);
    stage.well("a", &WellSpec::new(4, &["x"]));
    stage.settle().await;
    stage.wells.thaw();
    stage.settle().await;
    assert_eq!(stage.names(&CONFIG_MAP), ["a-x"]);
    stage.wells.freeze(&stage.kinds.well);
    stage.delete("a");
    stage.settle().await;
    stage.wells.thaw();
    stage.settle().await;
    assert_eq!(stage.model().objects(&stage.kinds.well), []);
    assert_eq!(stage.names(&CONFIG_MAP), Vec::<String>::new());
    assert!(stage.model().created().values().all(|n| *n == 1), "{:?}", stage.model().created());
}

#[tokio::test]
async fn a_key_that_a_stranger_has_planted_is_neither_used_nor_deleted() {
    let stage = Stage::new(false);
    stage.spring(10);
    let planted = json!({"metadata": {"namespace": "ns", "name": "a-key"}, "data": {"key": "cGxhbnRlZA=="}});
    stage.model().put(&SECRET, planted);
    stage.well("a", &WellSpec::new(4, &["x"]));
    stage.settle().await;
    assert_eq!(stage.house.pumps(), []);
    let well = stage.model().object(&stage.kinds.well.at("ns", "a")).unwrap();
    assert_eq!(condition(&well, "Ready").1, "NameTaken", "{well:?}");
    stage.model().delete(&stage.kinds.well.at("ns", "a"));
    stage.settle().await;
    assert_eq!(stage.names(&stage.kinds.well), Vec::<String>::new());
    assert_eq!(stage.names(&SECRET), ["a-key"], "it is not ours to delete");
}

#[tokio::test]
async fn a_key_is_minted_once_and_its_bytes_are_in_no_plan_and_no_world() {
    let stage = Stage::new(false);
    stage.spring(10);
    stage.well("a", &WellSpec::new(4, &["x"]));
    stage.settle().await;
    let secret = stage.model().object(&SECRET.at("ns", "a-key")).unwrap();
    assert_eq!(
        stage.house.pumps()[0].key,
        fingerprint(&StoredSecret::of(&secret)),
        "the pump was ordered with the key"
    );
    let bytes = secret.text("/data/key").to_owned();
    let seen =
        format!("{:?} {:?}", stage.wells.plan(&Key::namespaced("ns", "a")).await, stage.model().picture());
    assert!(!seen.contains(&bytes));
    // Somebody deletes it: a new one is made, and the pump stays.
    stage.model().delete(&SECRET.at("ns", "a-key"));
    stage.settle().await;
    assert_ne!(stage.model().object(&SECRET.at("ns", "a-key")).unwrap().text("/data/key"), bytes);
    assert_eq!(stage.house.made().values().sum::<usize>(), 1);
}

#[tokio::test]
async fn labels_that_somebody_damages_are_repaired_and_not_taken_for_a_deletion() {
    let stage = Stage::new(false);
    act(&stage, 0);
    stage.settle().await;
    // Out of the filtered cache: it looks as if it were gone.
    for (kind, name) in [(&CLAIM, "a-basin"), (&CONFIG_MAP, "a-x")] {
        stage.model().edit(&kind.at("ns", name), |doc| doc["metadata"]["labels"] = json!({}));
    }
    let settled = stage.settle().await;
    assert_eq!(settled.writes, 2, "two repairs: {:?}", stage.model().log());
    assert!(stage.model().created().values().all(|n| *n == 1));
    assert_eq!(
        stage.model().object(&CLAIM.at("ns", "a-basin")).unwrap().label(crate::family::RUN),
        Some(RUN)
    );
}

fn foreign(stage: &Stage, name: &str) {
    stage.model().put(
        &CONFIG_MAP,
        json!({"metadata": {"namespace": "ns", "name": name}, "data": {"theirs": "precious"}}),
    );
}

fn is_untouched(stage: &Stage, name: &str) -> bool {
    stage.model().object(&CONFIG_MAP.at("ns", name)).unwrap().at("/data")
        == Some(&json!({"theirs": "precious"}))
}

#[tokio::test]
async fn a_name_that_somebody_else_has_taken_is_left_alone_and_reported() {
    let stage = Stage::new(false);
    foreign(&stage, "a-x");
    act(&stage, 0);
    stage.settle().await;
    assert!(is_untouched(&stage, "a-x"));
    assert_eq!(condition(&stage.the_well("a"), "Ready"), ("False".into(), "NameTaken".into()));
    assert_eq!(stage.names(&CONFIG_MAP), ["a-x", "a-y", "b-x"], "the other taps are there");
    stage.model().delete(&CONFIG_MAP.at("ns", "a-x"));
    stage.settle().await;
    assert_eq!(condition(&stage.the_well("a"), "Ready").0, "True");
}

#[tokio::test]
async fn an_object_that_somebody_put_in_the_place_of_ours_is_left_alone() {
    let stage = Stage::new(false);
    act(&stage, 0);
    stage.settle().await;
    // Our cache still shows our own tap at that name.
    stage.wells.freeze(&CONFIG_MAP);
    stage.model().delete(&CONFIG_MAP.at("ns", "a-x"));
    foreign(&stage, "a-x");
    act(&stage, 1); // another size: the tap would have to be written
    stage.settle().await;
    assert!(is_untouched(&stage, "a-x"));
    act(&stage, 2); // the tap is no longer wanted: it would have to be pruned
    stage.settle().await;
    assert!(is_untouched(&stage, "a-x"));
}
