//! The page of our kinds: every field, from the schemas of the CRDs.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};

use super::{cell, code};

/// All kinds on one page.
pub fn page(all: &[CustomResourceDefinition]) -> Result<String> {
    let mut text = String::from(
        "# Kinds\n\n`kubectl explain` shows the same. What is in `status` is written by the operator alone.\n",
    );
    for crd in all {
        let version = crd.spec.versions.first().context("a CRD without a version")?;
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        let schema = schema.with_context(|| format!("{} has no schema", crd.spec.names.kind))?;
        let scope = if crd.spec.scope == "Namespaced" { "in a namespace" } else { "of the whole cluster" };
        let _ = write!(
            text,
            "\n## {}\n\n{}\n\n`apiVersion: {}/{}`, {scope}.\n\n| field | type | meaning |\n|---|---|---|\n",
            crd.spec.names.kind,
            schema.description.clone().unwrap_or_default(),
            crd.spec.group,
            version.name,
        );
        for part in ["spec", "status"] {
            if let Some(property) = schema.properties.as_ref().and_then(|all| all.get(part)) {
                fields(part, property, &mut text);
            }
        }
    }
    Ok(text)
}

fn fields(path: &str, schema: &JSONSchemaProps, text: &mut String) {
    for (name, property) in schema.properties.iter().flatten() {
        let required = schema.required.iter().flatten().any(|required| required == name);
        // A condition looks the same everywhere; its fields are those of Kubernetes.
        let nested = if name == "conditions" { None } else { Some(items(property).unwrap_or(property)) };
        let list = if items(property).is_some() { "[]" } else { "" };
        let path = format!("{path}.{name}{list}");
        let mut meaning = property.description.clone().unwrap_or_default();
        if required && path.starts_with("spec.") {
            meaning = format!("Required. {meaning}");
        }
        for rule in property.x_kubernetes_validations.iter().flatten() {
            let _ = write!(meaning, " It {}.", rule.message.as_deref().unwrap_or(&rule.rule));
        }
        let _ = writeln!(text, "| {} | {} | {} |", code(&path), kind(property), cell(meaning.trim()));
        if let Some(nested) = nested {
            fields(&path, nested, text);
        }
    }
}

fn items(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match schema.items.as_ref()? {
        JSONSchemaPropsOrArray::Schema(schema) => Some(schema),
        JSONSchemaPropsOrArray::Schemas(_) => None,
    }
}

fn kind(schema: &JSONSchemaProps) -> String {
    let choices = schema.enum_.iter().flatten().filter_map(|choice| choice.0.as_str());
    let choices: Vec<String> = choices.map(code).collect();
    if choices.is_empty() { schema.type_.clone().unwrap_or_default() } else { choices.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_a_shared_volume_is_on_the_page_with_its_rule() {
        let text = page(&crate::crds::all()).unwrap();
        assert!(text.contains("| `spec.fileSystemID` | string | Required. The EFS file system"), "{text}");
        assert!(text.contains("It must be an EFS file system ID"), "{text}");
        assert!(text.contains("| `status.volumeRef.uid` | string |"), "{text}");
        assert!(!text.contains("| |\n"), "a field says nothing: {text}");
    }
}
