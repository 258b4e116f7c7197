//! SharedVolumes and their driver on a real control plane: one test for each promise to users and for each defect of the
//! operator that we replace.

#[path = "efs/harness.rs"]
mod harness;

mod smoke {
    use super::harness::{ACCESS_POINT, Corner, FILE_SYSTEM};

    #[tokio::test]
    async fn a_namespace_gets_a_bound_claim_from_one_small_object() -> anyhow::Result<()> {
        let corner = Corner::new().await?;
        corner.create("data", Some(ACCESS_POINT)).await?;
        let (volume, claim) = corner.pair("data").await?;
        let spec = volume.spec.unwrap();
        assert_eq!(spec.csi.unwrap().volume_handle, format!("{FILE_SYSTEM}::{ACCESS_POINT}"));
        assert_eq!(claim.metadata.name.as_deref(), Some("pvc-data"));
        assert_eq!(claim.status.unwrap().phase.as_deref(), Some("Bound"));
        corner.delete("data").await?;
        corner.gone("data").await
    }
}
