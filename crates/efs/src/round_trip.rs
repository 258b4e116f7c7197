//! The worlds of the family can be sent to another process and back: nothing of them is lost in JSON.

use aquifer_api::component::{ComponentReason, NodeCounts};
use aquifer_base::{Reason, ResourceVersion, Uid};
use aquifer_engine::{Group, Identity, Key, Seen, State, Why};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::driver::{self, DefinitionFacts, PartFacts, Place, PlaceFacts};
use crate::volumes::{
    self, AccessPoints, ClaimFacts, ClaimPhase, ClaimReference, Data, DriverFacts, FileSystemFacts, Nodes,
    OwnerMarks, VolumeFacts,
};

fn round_trips<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) {
    let text = serde_json::to_string(value).expect("it is data");
    let back: T = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(back, *value, "{text}");
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{0,6}", ".{0,4}"]
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(text(), 0..3)
}

fn timestamp() -> impl Strategy<Value = Timestamp> {
    (0..200_000_000_000_i64, 0..1_000_000_000)
        .prop_map(|(second, nanosecond)| Timestamp::new(second, nanosecond).unwrap_or_default())
}

fn seen<T: Clone + std::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Seen<T>> {
    prop_oneof![
        (value, timestamp()).prop_map(|(value, read_at)| Seen::Known { value, read_at }),
        Just(Seen::Unknown(Why::NotServed)),
        text().prop_map(|said| Seen::Unknown(Why::Unreachable(said))),
    ]
}

fn identity() -> impl Strategy<Value = Identity> {
    (text(), text())
        .prop_map(|(uid, version)| Identity { uid: Uid::new(uid), version: ResourceVersion::new(version) })
}

fn key() -> impl Strategy<Value = Key> {
    (text(), text()).prop_map(|(namespace, name)| Key::namespaced(namespace, name))
}

fn uid() -> impl Strategy<Value = Uid> {
    text().prop_map(Uid::new)
}

fn marks() -> impl Strategy<Value = OwnerMarks> {
    (prop::option::of(uid()), prop::option::of(text()), prop::option::of(key()))
        .prop_map(|(owner_uid, owner, upstream)| OwnerMarks { owner_uid, owner, upstream })
}

fn volume() -> impl Strategy<Value = VolumeFacts> {
    let data = (text(), prop::option::of(text()))
        .prop_map(|(file_system, access_point)| Data { file_system, access_point });
    let claim = (key(), prop::option::of(uid()), any::<bool>())
        .prop_map(|(key, uid, since_creation)| ClaimReference { key, uid, since_creation });
    let head = (text(), identity(), text(), data, texts(), texts());
    let times = (prop::option::of(timestamp()), prop::option::of(timestamp()));
    let claim = (prop::option::of(claim), any::<bool>());
    (head, claim, marks(), times, texts()).prop_map(
        |(
            (name, identity, handle, data, options, made_with),
            (claim, called_bound),
            marks,
            (since, deleting),
            finalizers,
        )| VolumeFacts {
            name,
            identity,
            handle,
            data,
            options,
            made_with,
            claim,
            called_bound,
            marks,
            since,
            deleting,
            finalizers,
        },
    )
}

fn claim() -> impl Strategy<Value = ClaimFacts> {
    let phase = prop_oneof![Just(ClaimPhase::Pending), Just(ClaimPhase::Bound), Just(ClaimPhase::Lost)];
    let head = (key(), identity(), text(), phase, any::<bool>(), any::<bool>(), text());
    let times = (prop::option::of(timestamp()), prop::option::of(timestamp()));
    (head, (marks(), prop::option::of(uid())), times, texts()).prop_map(
        |(
            (key, identity, volume, phase, bind_completed, volume_chosen, class),
            (marks, noted_volume),
            (made, deleting),
            finalizers,
        )| ClaimFacts {
            key,
            identity,
            volume,
            volume_chosen,
            class,
            made,
            phase,
            bind_completed,
            noted_volume,
            marks,
            deleting,
            finalizers,
        },
    )
}

fn driver_facts() -> impl Strategy<Value = DriverFacts> {
    let state = prop_oneof![Just(State::True), Just(State::False), Just(State::Unknown)];
    let reason = || prop::option::of(prop::sample::select(ComponentReason::ALL));
    let nodes = (any::<i64>(), any::<i64>()).prop_map(|(wanted, ready)| Nodes { wanted, ready });
    (any::<bool>(), prop::option::of(state), reason(), reason(), prop::option::of(nodes)).prop_map(
        |(unwanted, installed, reason, nodes_ready, nodes)| DriverFacts {
            unwanted,
            installed,
            reason,
            nodes_ready,
            nodes,
        },
    )
}

fn volumes_world() -> impl Strategy<Value = volumes::World> {
    (
        seen(prop::collection::vec(volume(), 0..3)),
        seen(prop::collection::vec(claim(), 0..3)),
        prop::option::of(seen(texts())),
        any::<bool>(),
        seen(prop::option::of(prop::collection::btree_map(text(), text(), 0..3))),
        seen(prop::collection::vec(file_system(), 0..3)),
        group(),
        seen(prop::option::of(driver_facts())),
    )
        .prop_map(|seen| {
            let (volumes, claims, pods, namespace_ends, namespace_labels, file_systems, duplicates, driver) =
                seen;
            volumes::World {
                volumes,
                claims,
                pods,
                namespace_ends,
                namespace_labels,
                file_systems,
                duplicates,
                driver,
            }
        })
}

fn group() -> impl Strategy<Value = Group> {
    let few = prop::collection::vec(key(), 0..3).prop_map(Group::Few);
    prop_oneof![few, Just(Group::Many)]
}

fn file_system() -> impl Strategy<Value = FileSystemFacts> {
    let selector = prop::collection::btree_map(text(), text(), 0..3)
        .prop_map(|labels| LabelSelector { match_labels: Some(labels), ..LabelSelector::default() });
    (text(), any::<bool>(), prop::option::of(selector), prop::option::of(texts()), any::<bool>()).prop_map(
        |(name, names_namespace, selector, access_points, root)| FileSystemFacts {
            name,
            names_namespace,
            selector,
            access_points: access_points.map_or(AccessPoints::All, AccessPoints::Listed),
            root,
        },
    )
}

fn part() -> impl Strategy<Value = PartFacts> {
    let nodes = (any::<i64>(), any::<i64>()).prop_map(|(wanted, ready)| NodeCounts { wanted, ready });
    (identity(), prop::option::of(text()), prop::option::of(text()), any::<bool>(), nodes).prop_map(
        |(identity, owner, owner_uid, deleting, nodes)| PartFacts {
            identity,
            owner,
            owner_uid,
            deleting,
            nodes,
        },
    )
}

fn place() -> impl Strategy<Value = Place> {
    let facts = || {
        let flags = (any::<bool>(), any::<bool>(), any::<bool>());
        (text(), flags).prop_map(|(uid, (marked, privileged, deleting))| PlaceFacts {
            uid,
            marked,
            privileged,
            deleting,
        })
    };
    (seen(prop::option::of(facts())), seen(prop::option::of(facts())))
        .prop_map(|(namespace, account)| Place { namespace, account })
}

fn driver_world() -> impl Strategy<Value = driver::World> {
    let definition = any::<bool>().prop_map(|deleting| DefinitionFacts { deleting });
    (
        prop::option::of(place()),
        prop::collection::vec(seen(prop::option::of(part())), 0..3),
        seen(prop::option::of(definition)),
        prop::option::of(seen(texts())),
    )
        .prop_map(|(place, objects, definition, needed_by)| driver::World {
            place,
            objects,
            definition,
            needed_by,
        })
}

proptest! {
    #[test]
    fn the_world_of_a_shared_volume_round_trips(world in volumes_world()) {
        round_trips(&world);
    }

    #[test]
    fn the_world_of_the_driver_round_trips(world in driver_world()) {
        round_trips(&world);
    }
}
