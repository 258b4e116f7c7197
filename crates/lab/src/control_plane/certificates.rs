//! The keys and certificates of one cluster, made anew for each. For loopback and tests only: nothing rotates.

use std::path::Path;

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

pub(crate) const CA: &str = "ca.crt";
pub(crate) const SERVING_CERTIFICATE: &str = "apiserver.crt";
pub(crate) const SERVING_KEY: &str = "apiserver.key";
/// Shows kubelets that it is the API server who calls.
pub(crate) const KUBELET_CLIENT_CERTIFICATE: &str = "kubelet-client.crt";
pub(crate) const KUBELET_CLIENT_KEY: &str = "kubelet-client.key";
/// Signs the tokens of service accounts.
pub(crate) const SERVICE_ACCOUNT_KEY: &str = "service-accounts.key";
/// Verifies them.
pub(crate) const SERVICE_ACCOUNT_PUBLIC_KEY: &str = "service-accounts.pub";

/// The names under which clients may know the API server. The last address is that of the service `kubernetes`.
const NAMES: [&str; 6] =
    ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "10.96.0.1"];

/// The certificate that vouches for the API server.
#[derive(Debug, Clone)]
pub(crate) struct Authority {
    pub(crate) pem: String,
    pub(crate) der: Vec<u8>,
}

/// Reads the authority of a cluster that is there.
pub(crate) fn read(dir: &Path) -> Result<Authority> {
    let file = dir.join(CA);
    let pem = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let der = CertificateDer::from_pem_slice(pem.as_bytes())
        .with_context(|| format!("cannot read {}: it holds no certificate", file.display()))?;
    Ok(Authority { der: der.to_vec(), pem })
}

/// Writes all of them into `dir`.
pub(crate) fn write(dir: &Path, further_name: Option<&str>) -> Result<Authority> {
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "aquifer-lab");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

    let names: Vec<String> = NAMES.into_iter().chain(further_name).map(str::to_owned).collect();
    let mut serving = CertificateParams::new(names)?;
    serving.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    serving.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let serving_key = KeyPair::generate()?;
    let serving = serving.signed_by(&serving_key, &authority)?;

    let mut client = CertificateParams::default();
    client.distinguished_name.push(DnType::CommonName, "kube-apiserver-kubelet-client");
    client.distinguished_name.push(DnType::OrganizationName, "system:masters");
    client.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let client_key = KeyPair::generate()?;
    let client = client.signed_by(&client_key, &authority)?;

    let save = |name: &str, text: &str| crate::access::write_private(&dir.join(name), text);
    save(CA, &authority.pem())?;
    save(SERVING_CERTIFICATE, &serving.pem())?;
    save(SERVING_KEY, &serving_key.serialize_pem())?;
    save(KUBELET_CLIENT_CERTIFICATE, &client.pem())?;
    save(KUBELET_CLIENT_KEY, &client_key.serialize_pem())?;
    let service_accounts = KeyPair::generate()?;
    save(SERVICE_ACCOUNT_KEY, &service_accounts.serialize_pem())?;
    save(SERVICE_ACCOUNT_PUBLIC_KEY, &service_accounts.public_key_pem())?;
    Ok(Authority { pem: authority.pem(), der: authority.der().to_vec() })
}
