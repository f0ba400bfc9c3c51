//! What a store in etcd needs to know: addresses, names, credentials, deadlines.

use std::fmt;
use std::time::Duration;

use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, parse_pem};

use crate::key::Key;

/// Endpoints at most.
pub const ENDPOINTS_MAX: usize = 8;
/// The longest wait for one answer.
pub const ANSWER_WAIT_MAX: Duration = Duration::from_secs(30);
/// The shortest wait for one answer.
pub const ANSWER_WAIT_MIN: Duration = Duration::from_millis(50);

/// How to reach etcd.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdConfig {
    /// Addresses of its members, such as `https://192.0.2.1:2379`: one to [`ENDPOINTS_MAX`].
    pub endpoints: Vec<String>,
    /// What all keys begin with, such as `asterism/nat-cluster`. Clusters that share an etcd have different ones.
    pub root: Key,
    /// The orchestrator's name, of its own among those that share the root, and the same after a restart.
    pub name: Key,
    /// A random number of this process's own: tells it from another that has the same name.
    pub incarnation: u64,
    /// The identity of the etcd cluster. `None`: that of the first answer.
    pub cluster_id: Option<u64>,
    /// How long one answer may take. [`ANSWER_WAIT_MIN`] to [`ANSWER_WAIT_MAX`]; two seconds are sensible.
    pub answer_wait: Duration,
    /// Certificates, for addresses of `https`. `None` permits addresses of `http` alone.
    pub tls: Option<EtcdTls>,
    /// Name and password, where etcd asks for them.
    pub user: Option<EtcdUser>,
}

impl fmt::Debug for EtcdConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdConfig")
            .field("endpoints", &self.endpoints)
            .field("root", &self.root)
            .field("name", &self.name)
            .field("answer_wait", &self.answer_wait)
            .finish_non_exhaustive()
    }
}

/// Certificates, as texts of PEM files.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdTls {
    /// The authorities that may have signed etcd's certificate. Those of the system are not asked.
    pub authorities: String,
    /// Our certificate chain and its private key, where etcd asks for them.
    pub client: Option<(String, String)>,
}

/// Name and password.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdUser {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
}

/// Why a configuration cannot be used. Nothing was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EtcdConfigError {
    /// No address, or more than [`ENDPOINTS_MAX`].
    #[error("etcd has {0} addresses here; give one to {ENDPOINTS_MAX}")]
    Endpoints(usize),
    /// An address that is not of the form `http://host:port` or `https://host:port`.
    #[error("{0:?} is no address of etcd; write http://host:port or https://host:port")]
    Endpoint(String),
    /// An address of `https` without certificates, or one of `http` with certificates.
    #[error(
        "{0} does not go with the certificates: https needs authorities, http sends everything unsealed"
    )]
    Mixed(String),
    /// A text in which no certificate or key was found.
    #[error("{what}: {why}")]
    Certificate {
        /// Which text.
        what: &'static str,
        /// The fault.
        why: String,
    },
    /// A wait out of bounds.
    #[error(
        "a wait of {0:?} for an answer is not between {ANSWER_WAIT_MIN:?} and {ANSWER_WAIT_MAX:?}"
    )]
    Wait(Duration),
}

/// Certificates that were read.
pub(super) struct Certificates {
    pub(super) authorities: Vec<Certificate<'static>>,
    pub(super) client: Option<ClientCert>,
}

impl EtcdConfig {
    /// The addresses without a slash at the end, and the certificates.
    pub(super) fn check(&self) -> Result<(Vec<String>, Option<Certificates>), EtcdConfigError> {
        if !(1..=ENDPOINTS_MAX).contains(&self.endpoints.len()) {
            return Err(EtcdConfigError::Endpoints(self.endpoints.len()));
        }
        if !(ANSWER_WAIT_MIN..=ANSWER_WAIT_MAX).contains(&self.answer_wait) {
            return Err(EtcdConfigError::Wait(self.answer_wait));
        }
        let mut endpoints = Vec::new();
        for endpoint in &self.endpoints {
            let address = endpoint.strip_suffix('/').unwrap_or(endpoint);
            let (is_sealed, host) = match address.split_once("://") {
                Some(("http", host)) => (false, host),
                Some(("https", host)) => (true, host),
                _ => return Err(EtcdConfigError::Endpoint(endpoint.clone())),
            };
            let has_port = host
                .rsplit_once(':')
                .is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok());
            if !has_port || host.contains(['/', '@', '?', ' ']) {
                return Err(EtcdConfigError::Endpoint(endpoint.clone()));
            }
            if is_sealed != self.tls.is_some() {
                return Err(EtcdConfigError::Mixed(endpoint.clone()));
            }
            endpoints.push(address.to_owned());
        }
        let certificates = self.tls.as_ref().map(certificates).transpose()?;
        Ok((endpoints, certificates))
    }
}

fn certificates(tls: &EtcdTls) -> Result<Certificates, EtcdConfigError> {
    let authorities = chain("the authorities' certificates", &tls.authorities)?;
    let client = match &tls.client {
        None => None,
        Some((certificate, key)) => {
            let chain = chain("our certificate", certificate)?;
            let key = PrivateKey::from_pem(key.as_bytes());
            let key = key.map_err(|error| EtcdConfigError::Certificate {
                what: "our private key",
                why: error.to_string(),
            })?;
            Some(ClientCert::new_with_certs(&chain, key))
        }
    };
    Ok(Certificates {
        authorities,
        client,
    })
}

fn chain(what: &'static str, pem: &str) -> Result<Vec<Certificate<'static>>, EtcdConfigError> {
    let fault = |why: String| EtcdConfigError::Certificate { what, why };
    let mut found = Vec::new();
    for item in parse_pem(pem.as_bytes()) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| fault(error.to_string()))? {
            found.push(certificate);
        }
    }
    match found.is_empty() {
        true => Err(fault("there is no certificate in it".to_owned())),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(endpoint: &str) -> EtcdConfig {
        EtcdConfig {
            endpoints: vec![endpoint.to_owned()],
            root: Key::new("root").unwrap(),
            name: Key::new("me").unwrap(),
            incarnation: 1,
            cluster_id: None,
            answer_wait: Duration::from_secs(2),
            tls: None,
            user: None,
        }
    }

    #[test]
    fn addresses_and_waits_are_checked() {
        for good in [
            "http://127.0.0.1:2379",
            "http://etcd.example:2379/",
            "http://[::1]:2379",
        ] {
            assert!(config(good).check().is_ok(), "{good}");
        }
        for bad in [
            "",
            "127.0.0.1:2379",
            "ftp://a:1",
            "http://a",
            "http://:1",
            "http://a:1/v3",
            "http://u@a:1",
        ] {
            let fault = config(bad).check().err();
            assert_eq!(fault, Some(EtcdConfigError::Endpoint(bad.into())));
        }
        let sealed = config("https://a:1").check().err();
        assert!(matches!(sealed, Some(EtcdConfigError::Mixed(_))));
        let mut hasty = config("http://a:1");
        hasty.answer_wait = Duration::from_millis(1);
        assert!(matches!(
            hasty.check().err(),
            Some(EtcdConfigError::Wait(_))
        ));
        let mut unsigned = config("https://a:1");
        unsigned.tls = Some(EtcdTls {
            authorities: "nothing".into(),
            client: None,
        });
        assert!(matches!(
            unsigned.check().err(),
            Some(EtcdConfigError::Certificate { .. })
        ));
    }

    #[test]
    fn what_is_shown_has_no_secret() {
        let mut config = config("http://a:1");
        config.user = Some(EtcdUser {
            name: "u".into(),
            password: "secret".into(),
        });
        assert!(!format!("{config:?}").contains("secret"));
    }
}
