//! What an installation makes for this family: the place and the rights of the node plugin, and policies that limit the operator itself.
//! Content only.

mod access;
mod policies;
#[cfg(test)]
pub(crate) mod tests;

use aquifer_family::{InstalledObject, Settings, When};

/// The chart value that names the driver's namespace.
pub(crate) const NAMESPACE: &str = "efs.namespace";
/// Whether we look after the driver: only then is anything of it made.
pub(crate) const MANAGED: When = When { value: "efs.driver", is: "managed" };

/// All of it, in the order in which it is made.
pub(crate) fn objects(settings: &Settings) -> Vec<InstalledObject> {
    let namespace = settings.get(NAMESPACE);
    let of_driver = [
        InstalledObject::new(&access::namespace(namespace)),
        InstalledObject::new(&access::service_account(namespace)),
        InstalledObject::new(&access::cluster_role()),
        InstalledObject::new(&access::cluster_role_binding(namespace)),
        InstalledObject::new(&access::security_context_constraints(namespace))
            .needs("security.openshift.io/v1"),
    ];
    let mut all: Vec<InstalledObject> = of_driver.into_iter().map(|one| one.when(MANAGED)).collect();
    all.extend(policies::policies(settings.own_namespace()));
    all
}
