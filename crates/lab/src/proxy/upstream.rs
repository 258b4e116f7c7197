//! The way to the API server. Sends what it is given; knows nothing of faults.

use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// The API server behind the proxy.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// `https://host:port`, or `http://host:port` for a server without TLS.
    pub url: String,
    /// The certificates that the server's own must chain to; empty for `http`.
    pub ca_pem: Vec<u8>,
}

pub(super) struct Server {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    scheme: Scheme,
    authority: Authority,
}

impl Server {
    pub(super) fn new(upstream: &Upstream) -> anyhow::Result<Self> {
        let uri: Uri = upstream
            .url
            .parse()
            .with_context(|| format!("the API server's address `{}` is no URL", upstream.url))?;
        let parts = uri.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            bail!("the API server's address `{}` needs the form https://host:port", upstream.url);
        };
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&upstream.ca_pem) {
            roots.add(certificate.context("the API server's CA is not valid PEM")?)?;
        }
        if scheme == Scheme::HTTPS && roots.is_empty() {
            bail!("the API server at {authority} uses TLS, but no CA certificate was given");
        }
        // The provider is named, so that nothing depends on a process-wide default.
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        Ok(Self { client: Client::builder(TokioExecutor::new()).build(connector), scheme, authority })
    }

    /// Sends a request whose address holds only path and query.
    pub(super) async fn send(&self, mut request: Request<Full<Bytes>>) -> anyhow::Result<Response<Incoming>> {
        let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
        *request.uri_mut() = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path)
            .build()?;
        Ok(self.client.request(request).await?)
    }
}
