//! SharedVolumes on AWS EFS: a namespace gets a shared, writable volume from one small object ([`volumes`]), and the driver
//! that mounts it is kept on every worker ([`driver`], with its content in [`manifests`]). Administrators say who may use which file system
//! ([`file_systems`]). [`family`](family()) says all that others
//! need to know about it.

#[cfg(test)]
mod binder;
pub mod driver;
mod family;
mod fields;
pub mod file_systems;
mod flags;
pub mod installed;
pub mod kinds;
pub mod manifests;
mod message;
pub mod names;
mod needed;
mod rights;
#[cfg(test)]
mod round_trip;
#[cfg(test)]
mod simulated;
pub mod uninstall;
pub mod volumes;
#[cfg(test)]
mod with_faults;

/// The family `efs`.
pub fn family() -> &'static dyn aquifer_family::Family {
    &family::Efs
}
