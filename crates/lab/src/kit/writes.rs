//! What the operator wrote, from the audit log of its cluster or as its proxy saw it. Judges nothing.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::install::USER;
use crate::proxy::Proxy;
use crate::{Call, Cluster, Mark};

/// Writes of the operator since a mark, Leases and Events apart.
pub fn writes_since(cluster: &Cluster, mark: Mark) -> Result<Vec<Call>> {
    let calls = cluster.audit().since(mark)?;
    Ok(calls
        .into_iter()
        .filter(|call| call.user == USER && call.is_write() && !call.is_lease_or_event())
        .collect())
}

/// How often each object was created since the proxy counts, with `NS` for the namespace: the same names in every run.
pub fn created(proxy: &Proxy, namespace: &str) -> BTreeMap<String, usize> {
    let mut created = BTreeMap::new();
    for made in proxy.writes().into_iter().filter(|write| write.status == Some(201)) {
        let name = made.object.unwrap_or_default();
        let path = made.path.strip_suffix(&format!("/{name}")).unwrap_or(&made.path);
        *created.entry(format!("{path}/{name}").replace(namespace, "NS")).or_default() += 1;
    }
    created
}
