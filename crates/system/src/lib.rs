//! Tests of the whole product, as users install it: see `tests/`. Holds no code of its own.
//!
//! `tests/system.rs` has one module for what belongs to no family (`chart`), and one named after each family that has system tests:
//! `cargo xtask test full --family NAME` runs those.
