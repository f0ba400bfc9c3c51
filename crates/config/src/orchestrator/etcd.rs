//! How the orchestrators reach etcd: the fields of `[orchestrator]` that begin with `etcd`.

use core::net::SocketAddr;
use std::path::PathBuf;

use super::ORCHESTRATOR;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::section::Values;

/// How etcd is reached, files as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Etcd {
    /// The addresses of its members; empty for the embedded store.
    pub addresses: Vec<SocketAddr>,
    /// The certificates; `None`: without TLS.
    pub tls: Option<EtcdFiles>,
    /// The user, and the file of the password.
    pub user: Option<(String, PathBuf)>,
}

/// Certificates for etcd, files as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdFiles {
    /// The authorities that may have signed etcd's certificate.
    pub authorities: PathBuf,
    /// Our own certificate and its key, where etcd asks for them.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// Reads how etcd is reached. `None` if anything is wrong.
pub(super) fn read(values: &Values, report: &mut Report) -> Option<Etcd> {
    let mistakes = report.errors();
    let mut wrong = |title: &str, span, help: &str| {
        report.add(Diagnostic::error(title, span).help(help));
    };
    let addresses = values.get(ORCHESTRATOR.etcd)?;
    let addresses: Vec<SocketAddr> = addresses.into_iter().map(|(address, _)| address).collect();
    let path = |key| values.get(key).map(PathBuf::from);
    let authorities = path(ORCHESTRATOR.etcd_ca);
    let client = match (
        path(ORCHESTRATOR.etcd_certificate),
        path(ORCHESTRATOR.etcd_key),
    ) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (certificate, _) => {
            let span = match certificate {
                Some(_) => values.span_of(ORCHESTRATOR.etcd_certificate),
                None => values.span_of(ORCHESTRATOR.etcd_key),
            };
            wrong(
                "a certificate and its key belong together",
                span,
                "name both etcd_certificate and etcd_key, or neither",
            );
            None
        }
    };
    if let (Some(_), None) = (&client, &authorities) {
        wrong(
            "a certificate is shown by TLS alone",
            values.span_of(ORCHESTRATOR.etcd_certificate),
            "name etcd_ca too: the file with the certificates of the authorities that signed etcd's",
        );
    }
    let user = match (
        values.get(ORCHESTRATOR.etcd_user),
        path(ORCHESTRATOR.etcd_password),
    ) {
        (Some(user), Some(password)) => Some((user, password)),
        (None, None) => None,
        (user, _) => {
            let span = match user {
                Some(_) => values.span_of(ORCHESTRATOR.etcd_user),
                None => values.span_of(ORCHESTRATOR.etcd_password),
            };
            wrong(
                "a user and a password belong together",
                span,
                "name both etcd_user and etcd_password, the file with the password, or neither",
            );
            None
        }
    };
    let is_loopback = |address: &SocketAddr| address.ip().to_canonical().is_loopback();
    if user.is_some() && authorities.is_none() && !addresses.iter().all(is_loopback) {
        wrong(
            "the password would cross the network in the clear",
            values.span_of(ORCHESTRATOR.etcd_user),
            "name etcd_ca, so that etcd is reached by TLS",
        );
    }
    if addresses.is_empty() {
        let of_etcd = [
            ORCHESTRATOR.etcd_ca,
            ORCHESTRATOR.etcd_certificate,
            ORCHESTRATOR.etcd_key,
            ORCHESTRATOR.etcd_user,
            ORCHESTRATOR.etcd_password,
        ];
        if let Some(place) = of_etcd.iter().find_map(|key| values.place(*key)) {
            wrong(
                "no etcd is named",
                place.key.clone(),
                "name its members, such as etcd = [\"192.0.2.7:2379\"], or leave this out: the embedded store needs none of it",
            );
        }
    }
    let etcd = Etcd {
        addresses,
        tls: authorities.map(|authorities| EtcdFiles {
            authorities,
            client,
        }),
        user,
    };
    (report.errors() == mistakes).then_some(etcd)
}
