//! SharedVolumes on AWS EFS: a namespace gets a shared, writable volume from one small object ([`volumes`]), and the driver
//! that mounts it is kept on every worker ([`driver`], with its content in [`statics`]).

pub mod driver;
pub mod kinds;
#[cfg(test)]
mod round_trip;
pub mod statics;
pub mod uninstall;
pub mod volumes;
