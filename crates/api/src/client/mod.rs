//! A blocking client of the API, for the command line. It needs no runtime.
//!
//! Each call opens or reuses a connection, waits at most [`ClientConfig::wait`], and follows no redirect. Read `error.rs` for what can
//! go wrong and what it means for an order.

mod error;

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::tls::{PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};
use ureq::{Agent, Body};

pub use error::{ClientConfigError, ClientError};

use crate::data::{
    ClusterSummary, Drain, Events, Fence, FlowQuery, Flows, Forget, Health, Host, Hosts, Move,
    OrderAccepted, Plan, Problem, Protocol, Restore, Scale, StateEntries, StateObjects, StateQuery,
    UsageTotals,
};

/// Bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Connections that are kept for the next call.
const CONNECTIONS_KEPT: usize = 2;
/// How long a connection is kept: less than a server keeps one, so that no order is sent on one that is being closed.
const IDLE_MAX: Duration = Duration::from_secs(5);
/// Bytes of a file of authorities.
const AUTHORITIES_BYTES_MAX: u64 = 1024 * 1024;

/// Where the API is, and who calls.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// `https://host:port`, or `http://host:port` on loopback.
    pub address: String,
    /// The token; `None` for a server without tokens.
    pub token: Option<String>,
    /// The authorities that may have signed the server's certificate, in PEM. Needed for `https`; those of the system are not asked.
    pub authorities: Option<PathBuf>,
    /// Whether the token may cross the network in the clear.
    pub plain: bool,
    /// How long a call may take. An order may be carried out later all the same.
    pub wait: Duration,
}

impl std::fmt::Debug for ClientConfig {
    /// Without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientConfig")
            .field("address", &self.address)
            .field("authorities", &self.authorities)
            .field("plain", &self.plain)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

impl ClientConfig {
    /// A client of an address, without a token and authorities, that waits 15 s.
    #[must_use]
    pub fn new(address: &str) -> ClientConfig {
        ClientConfig {
            address: address.to_owned(),
            token: None,
            authorities: None,
            plain: false,
            wait: Duration::from_secs(15),
        }
    }
}

/// A position in the event log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// [`Events::log`] of the answer before.
    pub log: u64,
    /// [`Events::next`] of the answer before.
    pub after: u64,
}

/// See the module.
pub struct Client {
    agent: Agent,
    base: String,
    token: Option<String>,
}

impl Client {
    /// A client. Nothing is sent yet.
    ///
    /// # Errors
    /// See [`ClientConfigError`].
    pub fn new(config: &ClientConfig) -> Result<Client, ClientConfigError> {
        let base = config.address.trim_end_matches('/');
        let not_an_address = || ClientConfigError::Address(config.address.clone());
        let (is_sealed, rest) = match base.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            _ => return Err(not_an_address()),
        };
        let host = match rest.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() => host,
            Some((_, port)) if !port.ends_with(']') => return Err(not_an_address()),
            _ => rest,
        };
        if host.is_empty() || host.contains(['/', '@', '?', '#']) {
            return Err(not_an_address());
        }
        if !is_sealed && config.token.is_some() && !config.plain && !is_loopback(host) {
            return Err(ClientConfigError::Plain(config.address.clone()));
        }
        let mut agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .https_only(is_sealed)
            .timeout_global(Some(config.wait))
            .max_idle_connections(CONNECTIONS_KEPT)
            .max_idle_connections_per_host(CONNECTIONS_KEPT)
            .max_idle_age(IDLE_MAX)
            .user_agent("asterism");
        if is_sealed {
            let Some(path) = &config.authorities else {
                return Err(ClientConfigError::NoAuthorities);
            };
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let tls = TlsConfig::builder()
                .provider(TlsProvider::Rustls)
                .unversioned_rustls_crypto_provider(provider)
                .root_certs(authorities(path)?)
                .build();
            agent = agent.tls_config(tls);
        }
        Ok(Client {
            agent: agent.build().new_agent(),
            base: base.to_owned(),
            token: config.token.clone(),
        })
    }

    /// The cluster without its hosts.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn cluster(&self) -> Result<ClusterSummary, ClientError> {
        self.get("/v1/cluster", &[])
    }

    /// All hosts that the caller may see.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn hosts(&self) -> Result<Hosts, ClientError> {
        self.get("/v1/hosts", &[])
    }

    /// One host.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn host(&self, name: &str) -> Result<Host, ClientError> {
        self.get(&format!("/v1/hosts/{}", encoded(name)), &[])
    }

    /// The status of a host as the host reports it: the form is the schema `asterism.status`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn host_status<T: DeserializeOwned>(&self, name: &str) -> Result<T, ClientError> {
        self.get(&format!("/v1/hosts/{}/status", encoded(name)), &[])
    }

    /// The state objects of all hosts.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn state(&self) -> Result<StateObjects, ClientError> {
        self.get("/v1/state", &[])
    }

    /// Entries of an object, and which hosts have each.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn entries(&self, object: &str, query: &StateQuery) -> Result<StateEntries, ClientError> {
        self.get(
            &format!("/v1/state/{}", encoded(object)),
            &[
                ("key", query.key.as_deref()),
                ("value", query.value.as_deref()),
                ("host", query.host.as_deref()),
            ],
        )
    }

    /// Orders that a host keeps its flows and gets no new ones.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn drain(&self, host: &str, order: &Drain) -> Result<OrderAccepted, ClientError> {
        self.post(&format!("/v1/hosts/{}/drain", encoded(host)), order)
    }

    /// Orders that a host gets packets again.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn restore(&self, host: &str, order: &Restore) -> Result<OrderAccepted, ClientError> {
        self.post(&format!("/v1/hosts/{}/restore", encoded(host)), order)
    }

    /// Declares that a host's process has ended.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn fence(&self, host: &str, order: &Fence) -> Result<OrderAccepted, ClientError> {
        self.post(&format!("/v1/hosts/{}/fence", encoded(host)), order)
    }

    /// Orders that a host which is gone for good is forgotten.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn forget(&self, host: &str, order: &Forget) -> Result<OrderAccepted, ClientError> {
        self.post(&format!("/v1/hosts/{}/forget", encoded(host)), order)
    }

    /// Orders so many hosts.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn scale(&self, order: &Scale) -> Result<OrderAccepted, ClientError> {
        self.post("/v1/scale", order)
    }

    /// Moves a bucket or a flow to a host.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn move_to(&self, order: &Move) -> Result<OrderAccepted, ClientError> {
        self.post("/v1/moves", order)
    }

    /// Finds flows.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn flows(&self, query: &FlowQuery) -> Result<Flows, ClientError> {
        let port = query.port.map(|port| port.to_string());
        self.get(
            "/v1/flows",
            &[
                ("address", query.address.as_deref()),
                ("port", port.as_deref()),
                ("protocol", query.protocol.map(Protocol::name)),
                ("host", query.host.as_deref()),
            ],
        )
    }

    /// What the elasticity policies would do now.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn plan(&self) -> Result<Plan, ClientError> {
        self.get("/v1/plan", &[])
    }

    /// What is wrong.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn health(&self) -> Result<Health, ClientError> {
        self.get("/v1/health", &[])
    }

    /// Events after a position, `max` at most (1 to 500); `None`: the newest. To follow the log, ask again after a pause with the
    /// answer's `log` and `next`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn events(&self, after: Option<Position>, max: usize) -> Result<Events, ClientError> {
        let texts = after.map(|at| (at.log.to_string(), at.after.to_string()));
        let max = max.to_string();
        self.get(
            "/v1/events",
            &[
                ("log", texts.as_ref().map(|(log, _)| log.as_str())),
                ("after", texts.as_ref().map(|(_, after)| after.as_str())),
                ("max", Some(max.as_str())),
            ],
        )
    }

    /// What tenants used.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn usage(&self) -> Result<UsageTotals, ClientError> {
        self.get("/v1/usage", &[])
    }

    /// Metrics, in Prometheus' text format.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn metrics(&self) -> Result<String, ClientError> {
        self.ask("/metrics", &[])
    }

    fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, Option<&str>)],
    ) -> Result<T, ClientError> {
        let text = self.ask(path, query)?;
        self.read(&text)
    }

    fn ask(&self, path: &str, query: &[(&str, Option<&str>)]) -> Result<String, ClientError> {
        let mut request = self.agent.get(format!("{}{path}", self.base));
        for (name, value) in query {
            if let Some(value) = value {
                request = request.query(*name, *value);
            }
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        self.answer(request.call())
    }

    fn post<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_string(body).map_err(|error| self.bad(&error.to_string()))?;
        let mut request = self
            .agent
            .post(format!("{}{path}", self.base))
            .header("content-type", "application/json");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let text = self.answer(request.send(body))?;
        self.read(&text)
    }

    fn answer(
        &self,
        answered: Result<ureq::http::Response<Body>, ureq::Error>,
    ) -> Result<String, ClientError> {
        let mut answer = answered.map_err(|error| ClientError::of(&self.base, &error))?;
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        let text = body
            .read_to_string()
            .map_err(|error| ClientError::of(&self.base, &error))?;
        let status = answer.status().as_u16();
        if (200..300).contains(&status) {
            return Ok(text);
        }
        match serde_json::from_str::<Problem>(&text) {
            Ok(problem) => Err(ClientError::Refused(Box::new(problem))),
            Err(_) => Err(self.bad(&format!("status {status} without a problem document"))),
        }
    }

    fn read<T: DeserializeOwned>(&self, text: &str) -> Result<T, ClientError> {
        serde_json::from_str(text).map_err(|error| self.bad(&error.to_string()))
    }

    fn bad(&self, why: &str) -> ClientError {
        ClientError::Unreadable {
            address: self.base.clone(),
            why: why.to_owned(),
        }
    }
}

fn authorities(path: &PathBuf) -> Result<RootCerts, ClientConfigError> {
    let refused = |why: String| ClientConfigError::Authorities {
        path: path.clone(),
        why,
    };
    let size = fs::metadata(path).map_err(|error| refused(error.to_string()))?;
    if size.len() > AUTHORITIES_BYTES_MAX {
        return Err(refused(format!(
            "it has more than {AUTHORITIES_BYTES_MAX} bytes"
        )));
    }
    let bytes = fs::read(path).map_err(|error| refused(error.to_string()))?;
    let mut all = Vec::new();
    for item in parse_pem(&bytes) {
        match item.map_err(|error| refused(error.to_string()))? {
            PemItem::Certificate(certificate) => all.push(certificate),
            _ => {
                return Err(refused(
                    "it has something that is no certificate".to_owned(),
                ));
            }
        }
    }
    match all.is_empty() {
        true => Err(refused("it has no certificate in PEM".to_owned())),
        false => Ok(RootCerts::new_with_certs(&all)),
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// A name as a part of a path (RFC 3986, unreserved characters stay).
fn encoded(name: &str) -> String {
    let mut path = String::new();
    for byte in name.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => path.push(char::from(byte)),
            false => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut ClientConfig)) -> ClientConfigError {
        let mut config = ClientConfig::new("http://127.0.0.1:80");
        change(&mut config);
        Client::new(&config).err().expect("it must be refused")
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for address in [
            "127.0.0.1:80",
            "ftp://127.0.0.1",
            "http://",
            "http://host:port",
            "http://host:80/v1",
            "https://user@host",
        ] {
            let error = refused(|config| config.address = address.to_owned());
            assert_eq!(error, ClientConfigError::Address(address.to_owned()));
        }
        for address in [
            "http://[::1]:80",
            "http://[::1]",
            "http://localhost",
            "http://host/",
        ] {
            Client::new(&ClientConfig::new(address)).unwrap();
        }
    }

    #[test]
    fn a_token_is_sent_in_the_clear_on_loopback_alone() {
        let token = Some("secret".to_owned());
        let error = refused(|config| {
            config.address = "http://192.0.2.1:80".to_owned();
            config.token = token.clone();
        });
        assert!(matches!(error, ClientConfigError::Plain(_)), "{error}");
        let mut config = ClientConfig::new("http://127.0.0.1:80");
        config.token = token;
        Client::new(&config).unwrap();
        assert!(!format!("{config:?}").contains("secret"));
        config.address = "http://192.0.2.1:80".to_owned();
        config.plain = true;
        Client::new(&config).unwrap();
        let error = refused(|config| config.address = "https://192.0.2.1:80".to_owned());
        assert_eq!(error, ClientConfigError::NoAuthorities);
    }

    #[test]
    fn names_are_parts_of_a_path() {
        assert_eq!(encoded("alpha-1.x"), "alpha-1.x");
        assert_eq!(encoded("a/b c?é"), "a%2Fb%20c%3F%C3%A9");
    }
}
