//! Policies of the API server that limit the operator's own account: rights cannot say which volumes and claims they are for. Whoever steals
//! its token can make no volume that is a path of a node, and touches no volume or claim of another driver.

use aquifer_api::labels::{MANAGED_BY, MANAGER, PART_OF};
use aquifer_family::{Account, InstalledObject};
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec,
    Validation,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::ObjectMeta;

use crate::names::driver;

/// One for volumes and one for claims, each with its binding.
pub(super) fn policies(own_namespace: &str) -> Vec<InstalledObject> {
    let volumes = Limit {
        name: "aquifer-efs-volumes",
        resource: "persistentvolumes",
        is_ours: |object| {
            format!("has({object}.spec.csi) && {object}.spec.csi.driver == '{}'", driver::DRIVER_NAME)
        },
        message: format!(
            "Aquifer makes, changes and deletes only volumes of the driver {}",
            driver::DRIVER_NAME
        ),
    };
    let claims = Limit {
        name: "aquifer-efs-claims",
        resource: "persistentvolumeclaims",
        is_ours: |object| {
            format!(
                "has({object}.spec.storageClassName) && {object}.spec.storageClassName == '{}'",
                driver::STORAGE_CLASS
            )
        },
        message: format!(
            "Aquifer makes, changes and deletes only claims of the storage class {}",
            driver::STORAGE_CLASS
        ),
    };
    [volumes, claims].iter().flat_map(|limit| limit.objects(own_namespace)).collect()
}

/// What the operator may touch of a kind.
struct Limit {
    name: &'static str,
    resource: &'static str,
    /// The expression for an object by its name in the policy.
    is_ours: fn(&str) -> String,
    message: String,
}

impl Limit {
    fn objects(&self, own_namespace: &str) -> [InstalledObject; 2] {
        let policy = ValidatingAdmissionPolicy {
            metadata: self.metadata(),
            spec: Some(self.policy(own_namespace)),
            status: None,
        };
        let binding = ValidatingAdmissionPolicyBinding {
            metadata: self.metadata(),
            spec: Some(ValidatingAdmissionPolicyBindingSpec {
                policy_name: Some(self.name.to_owned()),
                validation_actions: Some(vec!["Deny".to_owned()]),
                ..ValidatingAdmissionPolicyBindingSpec::default()
            }),
        };
        [InstalledObject::new(&policy), InstalledObject::new(&binding)]
    }

    fn policy(&self, own_namespace: &str) -> ValidatingAdmissionPolicySpec {
        let operator =
            format!("system:serviceaccount:{own_namespace}:{}", Account::Operator.service_account());
        let words = |all: &[&str]| Some(all.iter().map(|&one| one.to_owned()).collect::<Vec<_>>());
        // What is deleted has no new state, and what is created no old one.
        let validation = |without: &str, object: &str| Validation {
            expression: format!("request.operation == '{without}' || ({})", (self.is_ours)(object)),
            message: Some(self.message.clone()),
            ..Validation::default()
        };
        ValidatingAdmissionPolicySpec {
            failure_policy: Some("Fail".to_owned()),
            // The constraints are one value to the server: what it would fill in is said, so that applying them again changes nothing.
            match_constraints: Some(MatchResources {
                match_policy: Some("Equivalent".to_owned()),
                namespace_selector: Some(LabelSelector::default()),
                object_selector: Some(LabelSelector::default()),
                resource_rules: Some(vec![NamedRuleWithOperations {
                    scope: Some("*".to_owned()),
                    api_groups: words(&[""]),
                    api_versions: words(&["v1"]),
                    operations: words(&["CREATE", "UPDATE", "DELETE"]),
                    resources: words(&[self.resource]),
                    ..NamedRuleWithOperations::default()
                }]),
                ..MatchResources::default()
            }),
            match_conditions: Some(vec![MatchCondition {
                name: "the-operator".to_owned(),
                expression: format!("request.userInfo.username == '{operator}'"),
            }]),
            validations: Some(vec![validation("DELETE", "object"), validation("CREATE", "oldObject")]),
            ..ValidatingAdmissionPolicySpec::default()
        }
    }

    fn metadata(&self) -> ObjectMeta {
        let labels = [("app.kubernetes.io/name", MANAGER), (PART_OF, MANAGER), (MANAGED_BY, MANAGER)];
        ObjectMeta {
            name: Some(self.name.to_owned()),
            labels: Some(labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()),
            ..ObjectMeta::default()
        }
    }
}
