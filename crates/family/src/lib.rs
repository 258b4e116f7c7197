//! What a family says of itself, once: its kinds, its rights, who writes which field, its flags and the work that follows from
//! them, what still needs it, and how it is taken away. Only descriptions: nothing here runs, installs or prints.
//!
//! A family implements [`Family`] and gets one line in the list of `aquifer-families`. The command line, the chart, `install`, the
//! proof of rights, `cargo xtask up` and `bench` go through that list and know no family by name.

pub mod component;
mod error;
pub mod flags;
mod installed;
mod kinds;
mod list;
pub mod rights;
mod settings;
mod uninstall;
mod words;
mod work;

use async_trait::async_trait;
use clap::{ArgMatches, Command};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;

pub use aquifer_base::fields::{Field, Writer};
pub use error::{Error, cannot};
pub use installed::InstalledObject;
pub use kinds::ForeignKind;
pub use list::list;
pub use rights::{Account, Grant, Held, NamespaceRights, Rights, Scope};
pub use settings::{Setting, Settings, When};
pub use uninstall::{Outcome, Uninstall};
pub use words::{Word, WordField};
pub use work::{Operator, Work};

/// A family: a group of controllers that are switched on together and have one Lease.
///
/// What the Helm chart needs of a family stands in files of its crate, `crates/NAME/chart`; `cargo xtask chart` reads them.
#[async_trait]
pub trait Family: Send + Sync {
    /// Its name in flags, variables and values: lower-case letters and digits.
    fn name(&self) -> &'static str;

    /// What it gives to users, in one sentence without a full stop.
    fn summary(&self) -> &'static str;

    /// The definitions of the kinds that it owns. Kinds that families share belong to none: see [`aquifer_api::shared_crds`].
    fn kinds(&self) -> Vec<CustomResourceDefinition>;

    /// Kinds of others that it works with and that a cluster may lack.
    fn needs(&self) -> Vec<ForeignKind> {
        Vec::new()
    }

    /// The chart values that its rights and its installed objects depend on, such as the namespaces that it works in.
    fn settings(&self) -> Vec<Setting> {
        Vec::new()
    }

    /// What its accounts may do. The operator's Lease is not among it: see [`rights::grants`].
    fn grants(&self, settings: &Settings) -> Vec<Grant>;

    /// What an installation makes for it before the operator runs, in the order in which it is made. Among it is whatever the operator
    /// could only make if it held more rights than it needs: namespaces, roles, bindings, policies.
    fn installed(&self, _settings: &Settings) -> Vec<InstalledObject> {
        Vec::new()
    }

    /// Every reason and object state that its controllers can write into a status.
    fn words(&self) -> Vec<Word>;

    /// The page for its users, as a path from the root of the repository. Its tables explain every word of [`Family::words`].
    fn page(&self) -> &'static str;

    /// Rights among [`Family::grants`] that no call can show, each with its reason.
    fn held(&self) -> Vec<Held> {
        Vec::new()
    }

    /// Roles for the people who use its kinds.
    fn user_roles(&self) -> Vec<ClusterRole> {
        Vec::new()
    }

    /// Who writes which field of its kinds, and of its objects of shared kinds.
    fn fields(&self) -> Vec<Field>;

    /// Adds its flags of `aquifer run`. Each begins with the family's name and has a variable that begins with `AQUIFER_NAME_`.
    fn flags(&self, command: Command) -> Command {
        command
    }

    /// What follows from its flags: the controllers and servers that run.
    fn work(&self, flags: &ArgMatches, operator: &Operator) -> Result<Work, clap::Error>;

    /// The variables of its flags that an installation with default values sets, as the chart does.
    fn environment(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The ids of those of its flags that can be chosen when it is installed without the chart. Each has its variable in
    /// [`Self::environment`], and stays as it was chosen until it is chosen anew.
    fn choices(&self) -> &'static [&'static str] {
        &[]
    }

    /// What is in the cluster that only the running family can take away in order; one line each. Objects of shared kinds are
    /// not its business: whoever asks looks at those.
    async fn needed(&self, client: &Client) -> Result<Vec<String>, Error>;

    /// Takes away all that the family made, while it runs. None when it makes nothing that needs this.
    fn uninstall(&self, client: Client) -> Option<Box<dyn Uninstall>>;

    /// Files with objects to try it with, as paths from the root of the repository, in the order in which they are applied.
    fn examples(&self) -> &'static [&'static str] {
        &[]
    }
}
