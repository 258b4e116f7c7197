//! SharedVolumes and their driver on a real control plane: one test for each promise to users and for each defect of the
//! operator that we replace.
#![allow(clippy::disallowed_methods, reason = "never simulated: real clocks, tasks and threads")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "efs/allowed.rs"]
mod allowed;
#[path = "efs/attacks.rs"]
mod attacks;
#[path = "efs/change.rs"]
mod change;
#[path = "efs/claims_of_users.rs"]
mod claims_of_users;
#[path = "efs/create.rs"]
mod create;
#[path = "efs/defects.rs"]
mod defects;
#[path = "efs/delete.rs"]
mod delete;
#[path = "efs/drift.rs"]
mod drift;
#[path = "efs/driver.rs"]
mod driver;
#[path = "efs/harness.rs"]
mod harness;
#[path = "efs/names.rs"]
mod names;
#[path = "efs/objects.rs"]
mod objects;
#[path = "efs/options.rs"]
mod options;
#[path = "efs/quiet.rs"]
mod quiet;
#[path = "efs/removal.rs"]
mod removal;
#[path = "efs/repair.rs"]
mod repair;
#[path = "efs/restore.rs"]
mod restore;
#[path = "efs/rights.rs"]
mod rights;
#[path = "efs/squatted.rs"]
mod squatted;
#[path = "efs/stale.rs"]
mod stale;
#[path = "efs/takeover.rs"]
mod takeover;
#[path = "efs/tenant.rs"]
mod tenant;
#[path = "efs/tenants.rs"]
mod tenants;
#[path = "efs/thief.rs"]
mod thief;
#[path = "efs/uninstall.rs"]
mod uninstall;
#[path = "efs/upgrade.rs"]
mod upgrade;
#[path = "efs/user_roles.rs"]
mod user_roles;
#[path = "efs/walk.rs"]
mod walk;

mod smoke {
    use super::tenant::{ACCESS_POINT, FILE_SYSTEM, Tenant};

    #[tokio::test]
    async fn a_namespace_gets_a_bound_claim_from_one_small_object() -> anyhow::Result<()> {
        let tenant = Tenant::new().await?;
        tenant.create("data", Some(ACCESS_POINT)).await?;
        let (volume, claim) = tenant.pair("data").await?;
        let spec = volume.spec.unwrap();
        assert_eq!(spec.csi.unwrap().volume_handle, format!("{FILE_SYSTEM}::{ACCESS_POINT}"));
        assert_eq!(claim.metadata.name.as_deref(), Some("pvc-data"));
        assert_eq!(claim.status.unwrap().phase.as_deref(), Some("Bound"));
        tenant.delete("data").await?;
        tenant.gone("data").await
    }
}
