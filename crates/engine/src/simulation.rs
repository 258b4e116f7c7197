//! A whole process of the operator in a simulated world: the real client, watches, caches, queue, passes, leases and process
//! run unchanged; only the clock, the API server, the network and what else lives in the cluster are simulated.
//! One seed gives one history.

mod address;
mod faults;
mod network;
mod requests;
mod search;
mod server;
mod tape;
mod watches;
mod world;

pub use faults::Fault;
pub use network::Delays;
pub use search::{Bad, BadHistory, Search, Until, search, search_as_told};
pub use server::ApiServer;
pub use tape::Tape;
pub use world::{PATIENCE, Played, Process, QUIET, World, play, play_with_all_faults, run};

/// The first request in which two histories differ.
pub fn first_difference<'a>(
    one: &'a [String],
    two: &'a [String],
) -> Option<(Option<&'a str>, Option<&'a str>)> {
    let at = (0..one.len().max(two.len())).find(|at| one.get(*at) != two.get(*at))?;
    Some((one.get(at).map(String::as_str), two.get(at).map(String::as_str)))
}
