//! The data that a SharedVolume asks for and that a volume holds: a file system, and an access point of it. Pure.

use aquifer_api::efs::SharedVolumeSpec;
use serde::{Deserialize, Serialize};

/// A file system, or one access point of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Data {
    /// The file system.
    pub file_system: String,
    /// The access point; none means the root of the file system.
    pub access_point: Option<String>,
}

impl Data {
    /// What a spec asks for; none when it names no file system.
    pub(super) fn wanted(spec: &SharedVolumeSpec) -> Option<Self> {
        Self::asked_for(&spec.file_system_id, spec.access_point_id.as_deref().unwrap_or_default())
    }

    /// The same from the two fields of a spec, which are empty when they are not set.
    pub(super) fn asked_for(file_system_id: &str, access_point_id: &str) -> Option<Self> {
        let set = |id: &str| (!id.is_empty()).then(|| id.to_owned());
        Some(Self { file_system: set(file_system_id)?, access_point: set(access_point_id) })
    }

    /// What a volume with this handle and these mount options holds. aws-efs-operator once wrote the access point as a mount
    /// option.
    pub(super) fn held<'a>(handle: &str, mount_options: impl IntoIterator<Item = &'a str>) -> Self {
        let mut parts = handle.splitn(3, ':');
        let file_system = parts.next().unwrap_or_default().to_owned();
        let in_handle = parts.nth(1).map(str::to_owned).filter(|access_point| !access_point.is_empty());
        let option = || {
            mount_options
                .into_iter()
                .find_map(|option| option.strip_prefix("accesspoint=").map(str::to_owned))
        };
        Self { file_system, access_point: in_handle.or_else(option) }
    }

    /// The handle of a volume that holds this.
    pub(super) fn handle(&self) -> String {
        match &self.access_point {
            Some(access_point) => format!("{}::{access_point}", self.file_system),
            None => self.file_system.clone(),
        }
    }
}
