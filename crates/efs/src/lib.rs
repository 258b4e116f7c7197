//! SharedVolumes on AWS EFS: a namespace gets a shared, writable volume from one small object ([`volumes`]), and the driver
//! that mounts it is kept on every worker ([`driver`], with its content in [`statics`]).

#[cfg(test)]
mod binder;
pub mod driver;
pub mod kinds;
#[cfg(test)]
mod simulated;
pub mod statics;
pub mod uninstall;
pub mod volumes;
