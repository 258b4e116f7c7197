//! The proving ground: a small made-up family that uses everything that the real ones need, run in the in-memory model and
//! on a real control plane, with a fault at every write point. ARCHITECTURE.md explains the engine by it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "clippy allows these in test functions, and helpers are none"
)]
mod asked;
mod busy;
mod cluster_run;
mod control_plane;
mod crowd;
mod decider;
mod desk;
mod disturbed;
mod ends;
mod family;
mod gauges;
mod guests;
mod guide;
mod guide_works;
mod house;
mod in_model;
mod leaks;
mod on_cluster;
mod people;
mod polled;
mod quiet;
mod refusals;
mod replaced;
mod replicas;
mod rules;
mod scale;
mod scene;
mod served;
mod served_later;
mod simulated;
mod springs;
mod story;
mod versions;
mod wells;
mod with_faults;
