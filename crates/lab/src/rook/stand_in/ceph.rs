//! The Ceph behind the stand-in, as far as users see it: keys, images, health, capacity. All in memory; no IO.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::ByteString;
use sha2::{Digest, Sha256};

use crate::control_plane::hex;

/// What Ceph says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Health {
    /// All is well.
    #[default]
    Ok,
    /// It works, but a person should look.
    Warn,
    /// Rook touches no pool, user or group until this is over.
    Err,
}

impl Health {
    /// As Ceph spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "HEALTH_OK",
            Self::Warn => "HEALTH_WARN",
            Self::Err => "HEALTH_ERR",
        }
    }
}

/// One cluster of daemons that do not exist.
#[derive(Debug)]
pub(super) struct Ceph {
    pub(super) fsid: String,
    pub(super) health: Health,
    /// The reasons for the health: code and message.
    pub(super) checks: BTreeMap<String, String>,
    pub(super) bytes_total: u64,
    pub(super) bytes_used: u64,
    /// How many images a pool has.
    pub(super) images: HashMap<String, u64>,
    /// How many sub-volumes a group has.
    pub(super) subvolumes: HashMap<String, u64>,
    keys: HashMap<String, String>,
    minted: u64,
}

impl Ceph {
    pub(super) fn new() -> Self {
        let seed = RandomState::new().hash_one(SystemTime::now());
        Self {
            fsid: uuid(&Sha256::digest(seed.to_le_bytes())),
            health: Health::Ok,
            checks: BTreeMap::new(),
            bytes_total: 24 << 30,
            bytes_used: 80 << 20,
            images: HashMap::new(),
            subvolumes: HashMap::new(),
            keys: HashMap::new(),
            minted: 0,
        }
    }

    /// The key of a user, made when it is asked for the first time.
    pub(super) fn key(&mut self, user: &str) -> String {
        if let Some(key) = self.keys.get(user) {
            return key.clone();
        }
        self.minted += 1;
        let secret = Sha256::digest(format!("{}/{user}/{}", self.fsid, self.minted));
        let key = cephx(&secret[..16], SystemTime::now());
        self.keys.insert(user.to_owned(), key.clone());
        key
    }

    /// Takes a user away; its key is never given again.
    pub(super) fn forget(&mut self, user: &str) {
        self.keys.remove(user);
    }
}

/// A key as Ceph prints it: the type, the time when it was made, a length and the secret, in base64.
fn cephx(secret: &[u8], now: SystemTime) -> String {
    let age = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut bytes = Vec::with_capacity(12 + secret.len());
    bytes.extend(1_u16.to_le_bytes());
    bytes.extend(u32::try_from(age.as_secs()).unwrap_or_default().to_le_bytes());
    bytes.extend(age.subsec_nanos().to_le_bytes());
    bytes.extend(u16::try_from(secret.len()).unwrap_or_default().to_le_bytes());
    bytes.extend(secret);
    base64(bytes)
}

/// The Kubernetes types print bytes as base64, which saves a dependency.
fn base64(bytes: Vec<u8>) -> String {
    let value = serde_json::to_value(ByteString(bytes)).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

fn uuid(random: &[u8]) -> String {
    let mut bytes = random.to_vec();
    bytes.truncate(16);
    // Version 4, variant 1.
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let part = |range: std::ops::Range<usize>| hex(&bytes[range]);
    [part(0..4), part(4..6), part(6..8), part(8..10), part(10..16)].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_keeps_its_key_until_it_is_taken_away() {
        let mut ceph = Ceph::new();
        let first = ceph.key("client.a");
        assert_eq!(first, ceph.key("client.a"));
        assert_ne!(first, ceph.key("client.b"));
        ceph.forget("client.a");
        assert_ne!(first, ceph.key("client.a"));
    }

    #[test]
    fn a_key_looks_like_one_of_ceph() {
        let key = Ceph::new().key("client.a");
        assert_eq!(key.len(), 40, "{key}");
        assert!(key.starts_with("AQ") && key.ends_with("=="), "{key}");
    }

    #[test]
    fn a_cluster_has_a_uuid_of_its_own() {
        let (one, other) = (Ceph::new().fsid, Ceph::new().fsid);
        assert_ne!(one, other);
        assert_eq!(one.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{one}");
    }
}
