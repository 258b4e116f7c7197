//! The flags of `aquifer run` for this family.

use std::collections::BTreeMap;

use aquifer_base::NamespaceName;
use aquifer_family::flags::renamed;
use clap::{ArgMatches, Args, FromArgMatches as _, ValueEnum};
use k8s_openapi::api::core::v1::Toleration;

use crate::driver::{Driver, Management};
use crate::manifests::{
    ConfigError, ContainerResources, DriverConfig, Images, parse_kubelet_dir, parse_node_selector,
    parse_pull_secrets, parse_resources, parse_tolerations,
};
use crate::names::driver;
use crate::volumes::Tenancy;

// The ids of all families' flags share one command, so each carries the family's name.
#[derive(Args)]
#[command(next_help_heading = "EFS")]
pub(crate) struct Flags {
    /// Who installs and repairs the EFS CSI driver
    #[arg(
        id = "efs-driver",
        long = "efs-driver",
        env = "AQUIFER_EFS_DRIVER",
        value_enum,
        default_value = "managed",
        value_name = "WHO"
    )]
    _driver: Manager,
    /// The old name of --efs-driver
    #[arg(
        id = "efs-statics",
        long = "efs-statics",
        env = "AQUIFER_EFS_STATICS",
        value_enum,
        value_name = "WHO",
        hide = true
    )]
    _statics: Option<Manager>,
    /// Who may use a file system that no SharedFileSystem names
    #[arg(
        id = "efs-tenancy",
        long = "efs-tenancy",
        env = "AQUIFER_EFS_TENANCY",
        value_enum,
        ignore_case = true,
        default_value = "Open",
        value_name = "WHO"
    )]
    tenancy: Tenancy,
    /// Namespace of the driver's node plugin
    #[arg(id = "efs-namespace", long = "efs-namespace", env = "AQUIFER_EFS_NAMESPACE", default_value = driver::DEFAULT_NAMESPACE, value_name = "NAMESPACE")]
    namespace: NamespaceName,
    /// Labels of the nodes that run the node plugin, as key=value,...; by default workers and all that is not control plane
    #[arg(
        id = "efs-node-selector",
        long = "efs-node-selector",
        env = "AQUIFER_EFS_NODE_SELECTOR",
        value_name = "LABELS",
        value_parser = parse_node_selector
    )]
    node_selector: Option<BTreeMap<String, String>>,
    /// Taints that the node plugin tolerates, as key[=value][:effect],...; * tolerates all
    #[arg(
        id = "efs-tolerations",
        long = "efs-tolerations",
        env = "AQUIFER_EFS_TOLERATIONS",
        default_value = "*",
        value_name = "TAINTS",
        value_parser = tolerations
    )]
    tolerations: Tolerations,
    /// Image of the driver
    #[arg(id = "efs-plugin-image", long = "efs-plugin-image", env = "AQUIFER_EFS_PLUGIN_IMAGE", default_value_t = Images::default().plugin, value_name = "IMAGE")]
    plugin_image: String,
    /// Image of the node driver registrar
    #[arg(id = "efs-registrar-image", long = "efs-registrar-image", env = "AQUIFER_EFS_REGISTRAR_IMAGE", default_value_t = Images::default().registrar, value_name = "IMAGE")]
    registrar_image: String,
    /// Image of the liveness probe
    #[arg(id = "efs-liveness-image", long = "efs-liveness-image", env = "AQUIFER_EFS_LIVENESS_IMAGE", default_value_t = Images::default().liveness, value_name = "IMAGE")]
    liveness_image: String,
    /// Directory of the kubelet on the nodes
    #[arg(
        id = "efs-kubelet-dir",
        long = "efs-kubelet-dir",
        env = "AQUIFER_EFS_KUBELET_DIR",
        default_value_t = DriverConfig::default().kubelet_dir,
        value_name = "DIRECTORY",
        value_parser = parse_kubelet_dir
    )]
    kubelet_dir: String,
    /// Resources of the node plugin's containers, as JSON by plugin, registrar and liveness; by default small requests
    #[arg(
        id = "efs-resources",
        long = "efs-resources",
        env = "AQUIFER_EFS_RESOURCES",
        default_value = "",
        hide_default_value = true,
        value_name = "JSON",
        value_parser = parse_resources
    )]
    resources: ContainerResources,
    /// Secrets in the driver's namespace by which its images are pulled, as name,...
    #[arg(
        id = "efs-pull-secrets",
        long = "efs-pull-secrets",
        env = "AQUIFER_EFS_PULL_SECRETS",
        default_value = "",
        hide_default_value = true,
        value_name = "NAMES",
        value_parser = pull_secrets
    )]
    pull_secrets: PullSecrets,
}

/// Who installs and repairs the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Manager {
    /// Aquifer does
    Managed,
    /// Another tool does; Aquifer only uses the driver
    External,
}

/// All of them in one value; a list would be one flag for each.
#[derive(Clone)]
struct Tolerations(Vec<Toleration>);

/// As above.
#[derive(Clone)]
struct PullSecrets(Vec<String>);

fn pull_secrets(text: &str) -> Result<PullSecrets, ConfigError> {
    parse_pull_secrets(text).map(PullSecrets)
}

fn tolerations(text: &str) -> Result<Tolerations, ConfigError> {
    parse_tolerations(text).map(Tolerations)
}

impl Flags {
    pub(crate) fn tenancy(matches: &ArgMatches) -> Result<Tenancy, clap::Error> {
        Ok(Self::from_arg_matches(matches)?.tenancy)
    }

    /// The driver as the flags describe it.
    pub(crate) fn driver(matches: &ArgMatches) -> Result<Driver, clap::Error> {
        let flags = Self::from_arg_matches(matches)?;
        let manager = renamed::<Manager>(matches, "efs-driver", "efs-statics");
        let config = DriverConfig {
            namespace: flags.namespace,
            images: Images {
                plugin: flags.plugin_image,
                registrar: flags.registrar_image,
                liveness: flags.liveness_image,
            },
            node_selector: flags.node_selector,
            tolerations: flags.tolerations.0,
            kubelet_dir: flags.kubelet_dir,
            resources: flags.resources,
            pull_secrets: flags.pull_secrets.0,
        };
        let management =
            if manager == [Manager::External] { Management::External } else { Management::Managed };
        Ok(Driver { config, management })
    }
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;

    fn driver(arguments: &[&str]) -> Driver {
        let command = Flags::augment_args(Command::new("run").no_binary_name(true));
        Flags::driver(&command.get_matches_from(arguments)).unwrap()
    }

    #[test]
    fn without_flags_the_driver_is_managed_with_the_defaults() {
        let (driver, default) = (driver(&[]), Driver::default());
        assert_eq!((driver.config, driver.management), (default.config, default.management));
    }

    #[test]
    fn tenancy_is_open_unless_it_is_restricted() {
        let tenancy = |arguments: &[&str]| {
            let command = Flags::augment_args(Command::new("run").no_binary_name(true));
            Flags::tenancy(&command.get_matches_from(arguments)).unwrap()
        };
        assert_eq!(tenancy(&[]), Tenancy::Open);
        assert_eq!(tenancy(&["--efs-tenancy=Restricted"]), Tenancy::Restricted);
        assert_eq!(tenancy(&["--efs-tenancy=restricted"]), Tenancy::Restricted);
    }

    #[test]
    fn flags_become_the_configuration_and_the_old_name_still_works() {
        let chosen =
            driver(&["--efs-node-selector", "pool=a", "--efs-tolerations", "gpu", "--efs-namespace=x"]);
        assert_eq!(chosen.config.namespace.as_str(), "x");
        assert_eq!(chosen.config.node_selector.unwrap()["pool"], "a");
        assert_eq!(chosen.config.tolerations[0].key.as_deref(), Some("gpu"));
        assert_eq!(driver(&["--efs-driver", "external"]).management, Management::External);
        assert_eq!(driver(&["--efs-statics", "external"]).management, Management::External);
        assert_eq!(
            driver(&["--efs-statics=external", "--efs-driver=managed"]).management,
            Management::Managed
        );
    }
}
