//! A whole process of the operator in a simulated world: the real client, watches, caches, queue, passes, leases and process
//! run unchanged; only the clock, the API server, the network and what else lives in the cluster are simulated.
//! One seed gives one history.

mod address;
mod network;
mod requests;
mod server;
mod watches;
mod world;

pub use network::Delays;
pub use server::ApiServer;
pub use world::{Process, World, run};
