//! What a family and the engine say to each other: subjects, worlds and watches on the way in, plans and statuses on the way out.

pub(crate) mod bounds;
pub mod controller;
pub mod failure;
pub mod intent;
pub mod object;
pub mod plan;
pub mod question;
#[cfg(test)]
mod round_trip;
pub mod secret;
pub mod seen;
pub mod status;
pub mod subject;
pub mod supply;
pub mod view;
pub mod watch;
