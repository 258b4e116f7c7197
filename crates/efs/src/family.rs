//! What the family `efs` says of itself. Each part is in a file of its own; here they are put together.

use aquifer_api::component::{ComponentReason, ObjectState};
use aquifer_api::efs::{SharedVolume, SharedVolumeReason};
use aquifer_api::openshift;
use aquifer_api::shared_file_system::{SharedFileSystem, SharedFileSystemReason};
use aquifer_base::Reason as _;
use aquifer_engine::process::Runnable;
use aquifer_engine::{FailureReason, PauseReason};
use aquifer_family::{
    Error, Family, Field, ForeignKind, Grant, InstalledObject, Operator, Setting, Settings, Uninstall, Word,
    WordField, Work,
};
use async_trait::async_trait;
use clap::{ArgMatches, Args as _, Command};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Client, CustomResourceExt as _};

use crate::file_systems::FileSystems;
use crate::flags::Flags;
use crate::manifests::DriverConfig;
use crate::names::driver;
use crate::volumes::Volumes;
use crate::{fields, installed, needed, rights, uninstall};

/// The family.
pub(crate) struct Efs;

#[async_trait]
impl Family for Efs {
    fn name(&self) -> &'static str {
        "efs"
    }

    fn summary(&self) -> &'static str {
        "SharedVolumes on AWS EFS, and the driver that mounts them"
    }

    fn kinds(&self) -> Vec<CustomResourceDefinition> {
        vec![SharedVolume::crd(), SharedFileSystem::crd()]
    }

    fn needs(&self) -> Vec<ForeignKind> {
        vec![ForeignKind {
            group: openshift::GROUP,
            kind: "SecurityContextConstraints",
            without: "The cluster is not OpenShift, and the driver needs no constraints.",
        }]
    }

    fn settings(&self) -> Vec<Setting> {
        let namespace = Setting { value: installed::NAMESPACE, default: driver::DEFAULT_NAMESPACE };
        vec![namespace, Setting { value: installed::MANAGED.value, default: installed::MANAGED.is }]
    }

    fn grants(&self, _: &Settings) -> Vec<Grant> {
        rights::grants()
    }

    fn installed(&self, settings: &Settings) -> Vec<InstalledObject> {
        installed::objects(settings)
    }

    fn user_roles(&self) -> Vec<ClusterRole> {
        rights::user_roles()
    }

    fn fields(&self) -> Vec<Field> {
        fields::FIELDS.to_vec()
    }

    fn words(&self) -> Vec<Word> {
        let states = ObjectState::ALL.iter().map(|state| Word {
            kind: "Component",
            field: WordField::State,
            word: format!("{state:?}"),
            meaning: String::new(),
        });
        let mut words: Vec<Word> = states.collect();
        words.extend(Word::reasons::<SharedVolumeReason>("SharedVolume"));
        words.extend(Word::reasons::<SharedFileSystemReason>("SharedFileSystem"));
        words.extend(Word::reasons::<ComponentReason>("Component"));
        for kind in ["SharedVolume", "Component"] {
            words.extend(Word::reasons::<FailureReason>(kind));
        }
        // Nothing is written for it but its status: what is refused cannot be said there.
        let own = [FailureReason::Invalid, FailureReason::InternalError, FailureReason::Retrying];
        let own = own.map(FailureReason::as_str);
        let all = Word::reasons::<FailureReason>("SharedFileSystem");
        words.extend(all.filter(|word| own.contains(&word.word.as_str())));
        for kind in ["SharedVolume", "SharedFileSystem", "Component"] {
            words.extend(Word::reasons::<PauseReason>(kind));
        }
        words
    }

    fn page(&self) -> &'static str {
        "docs/efs.md"
    }

    fn flags(&self, command: Command) -> Command {
        Flags::augment_args(command)
    }

    fn work(&self, flags: &ArgMatches, _operator: &Operator) -> Result<Work, clap::Error> {
        let (driver, volumes) =
            (Flags::driver(flags)?, Volumes { tenancy: Flags::tenancy(flags)?, ..Volumes::default() });
        let controllers: Vec<Box<dyn Runnable>> =
            vec![Box::new(volumes), Box::new(FileSystems), Box::new(driver)];
        Ok(Work { controllers, ..Work::default() })
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AQUIFER_EFS_DRIVER", "managed".to_owned()),
            ("AQUIFER_EFS_TENANCY", "Open".to_owned()),
            ("AQUIFER_EFS_NAMESPACE", driver::DEFAULT_NAMESPACE.to_owned()),
            ("AQUIFER_EFS_TOLERATIONS", "*".to_owned()),
            ("AQUIFER_EFS_KUBELET_DIR", DriverConfig::default().kubelet_dir),
        ]
    }

    fn choices(&self) -> &'static [&'static str] {
        &["efs-driver", "efs-tenancy"]
    }

    async fn needed(&self, client: &Client) -> Result<Vec<String>, Error> {
        needed::needed(client).await
    }

    fn uninstall(&self, client: Client) -> Option<Box<dyn Uninstall>> {
        Some(Box::new(uninstall::Uninstall::new(client)))
    }

    fn examples(&self) -> &'static [&'static str] {
        &["examples/01-shared-volume.yaml", "examples/02-second-namespace.yaml", "examples/03-pods.yaml"]
    }
}
