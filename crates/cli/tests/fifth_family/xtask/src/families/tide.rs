//! The family `tide` in the lab.

use anyhow::Result;
use async_trait::async_trait;
use kube::Client;
use serde_json::Value;

use super::InLab;

/// The family.
pub struct Tide;

#[async_trait(?Send)]
impl InLab for Tide {
    fn name(&self) -> &'static str {
        "tide"
    }
    fn warning(&self) -> &'static str {
        "It moves the sea."
    }
    fn try_next(&self, _: &[Value]) -> Vec<String> {
        vec!["get tides -A".to_owned()]
    }
    async fn remarks(&self, _: &Client) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}
