//! What tests of controllers are made of, once for all families. Knows no family; holds no test.
//!
//! A family's own harness says which controllers run and how its objects look. Everything else is here:
//!
//! | module | holds |
//! |---|---|
//! | [`cluster`] | a cluster with our kinds and the operator's account; clusters that tests take turns with |
//! | [`operator`] | the operator inside the test, in a thread of its own; the only file of the lab that runs controllers |
//! | [`process`] | the operator as a program of its own |
//! | [`proxied`] | an operator behind the fault proxy |
//! | [`namespace`] | a namespace for one test, with pods |
//! | [`waits`] | waiting for objects; what conditions say |
//! | [`writes`] | what the operator wrote, from the audit log |
//! | [`metrics`] | numbers from the text that `/metrics` serves |
//! | [`mask`] | what is equal between two ends of a run |
//! | [`walk`] | the crash walk: a fault at every write of a story |
//! | [`disturbed`] | a story while requests are refused, lost, or done later |

pub mod cluster;
pub mod disturbed;
pub mod mask;
pub mod metrics;
pub mod namespace;
pub mod operator;
pub mod process;
pub mod proxied;
pub mod waits;
pub mod walk;
pub mod writes;

use std::time::Duration;

pub use cluster::{Exclusive, Pool, TestCluster};
pub use namespace::TestNamespace;
pub use operator::{Controllers, Operator};
pub use process::Process;
pub use proxied::Proxied;
pub use waits::{absent, condition, edit, gone, is_true, show, until};

/// How long a test waits for what should take seconds at most.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Whether there is time for the long form of a test (`cargo xtask test full`).
pub fn is_full() -> bool {
    std::env::var_os("AQUIFER_FULL").is_some()
}
