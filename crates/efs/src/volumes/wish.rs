//! What a SharedVolume asks for: the data, how it is mounted, and the name of the claim. Pure.

use aquifer_api::efs::SharedVolumeSpec;
use aquifer_engine::Key;

use super::Subject;
use super::data::Data;
use super::names::claim_name;

/// The mount option of a read-only volume. Access modes would not do: the driver refuses volumes that are `ReadOnlyMany`, and nobody
/// enforces those modes.
const READ_ONLY: &str = "ro";

/// What a SharedVolume asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    /// The data.
    pub data: Data,
    /// The options of the mount, in the order in which they are written.
    pub options: Vec<String>,
    /// The name of the claim.
    pub claim: String,
}

impl Wish {
    /// What a SharedVolume asks for; none when it is gone, when it goes, and when nobody can know.
    pub fn of(subject: &Subject) -> Option<Self> {
        let shared = subject.object.as_ref().filter(|shared| shared.deleting.is_none())?;
        let spec = shared.spec.as_ref().ok()?;
        Some(Self {
            data: Data::wanted(spec)?,
            options: options(spec),
            claim: wanted_claim(&subject.key, spec),
        })
    }
}

/// The name of the claim that a SharedVolume asks for, also while it goes. The usual one when nobody can know.
pub(super) fn claim_of(subject: &Subject) -> String {
    let spec = subject.object.as_ref().and_then(|shared| shared.spec.as_ref().ok());
    spec.map_or_else(|| claim_name(&subject.key), |spec| wanted_claim(&subject.key, spec))
}

fn wanted_claim(key: &Key, spec: &SharedVolumeSpec) -> String {
    let named = spec.claim_name.clone().filter(|name| !name.is_empty());
    named.unwrap_or_else(|| claim_name(key))
}

/// In one order, so that an edit that means the same replaces nothing.
fn options(spec: &SharedVolumeSpec) -> Vec<String> {
    let mut options = spec.mount_options.clone();
    if spec.read_only == Some(true) {
        options.push(READ_ONLY.to_owned());
    }
    options.sort_unstable();
    options.dedup();
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_one_order_and_a_read_only_volume_has_one_more() {
        let of = |mount_options: &[&str], read_only: Option<bool>| {
            let mount_options = mount_options.iter().map(|&option| option.to_owned()).collect();
            options(&SharedVolumeSpec { mount_options, read_only, ..SharedVolumeSpec::default() })
        };
        assert_eq!(of(&[], None), [""; 0]);
        assert_eq!(of(&[], Some(false)), [""; 0]);
        assert_eq!(of(&["timeo=600", "noatime"], None), of(&["noatime", "timeo=600"], Some(false)));
        assert_eq!(of(&["timeo=600", "noatime"], Some(true)), ["noatime", "ro", "timeo=600"]);
    }
}
