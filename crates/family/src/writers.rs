//! Who writes which field of our kinds: exactly one writer each. A family has one table; its controllers compute from it which
//! part of a status is theirs, and a test of `aquifer-families` checks it for all families together.

pub use aquifer_base::fields::{Field, Writer};
