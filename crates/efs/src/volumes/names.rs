//! Names of the volume and the claim of a SharedVolume. Must not depend on anything but its key.

use aquifer_base::names;
use aquifer_engine::Key;

/// Name of the volume that we make. Volumes belong to the cluster, so namespace and name both go into it; a dash in either
/// could make two of them equal (`a-b/c` and `a/b-c`), then a hash distinguishes them.
pub fn volume_name(key: &Key) -> String {
    let parts = ["pv", &key.namespace, &key.name];
    if key.namespace.contains('-') || key.name.contains('-') {
        names::hashed(&parts, names::SUBDOMAIN_MAX)
    } else {
        names::child(&parts, names::SUBDOMAIN_MAX)
    }
}

/// Name of the claim, where the spec gives it no other.
pub fn claim_name(key: &Key) -> String {
    names::child(&["pvc", &key.name], names::SUBDOMAIN_MAX)
}
