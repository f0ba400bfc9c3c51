//! The configuration of the server, its limits, and which combinations are refused.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Where a server listens, and for whose requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// The address and port. Port 0 lets the system choose.
    pub listen: SocketAddr,
    /// The file of tokens. `None`: loopback only, and every caller is an operator.
    pub tokens: Option<PathBuf>,
    /// Certificate and key. `None`: loopback only, unless `plain`.
    pub tls: Option<TlsFiles>,
    /// Whether tokens may cross the network in the clear: for a server behind a proxy that speaks TLS.
    pub plain: bool,
    /// Further names under which the server is reached, for the check of `Host` on loopback: a proxy's, mostly.
    pub names: Vec<String>,
    /// Bounds.
    pub limits: Limits,
}

/// Files in PEM. They are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain, the server's own certificate first.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Bounds of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once; further ones are closed at once.
    pub connections: usize,
    /// Connections of one address (IPv6: of one /64) at once, loopback excepted.
    pub connections_of_address: usize,
    /// Streams of events at once.
    pub streams: usize,
    /// Streams of events of one token at once.
    pub streams_of_caller: usize,
    /// Questions to the orchestrator at once; further ones wait for [`Limits::call_wait`].
    pub reads_at_once: usize,
    /// Orders at once; further ones wait for [`Limits::call_wait`].
    pub orders_at_once: usize,
    /// How long a request waits for others' calls to return.
    pub call_wait: Duration,
    /// How long a call may take until its caller gets an error.
    pub call: Duration,
    /// How long a TLS handshake may take.
    pub handshake: Duration,
    /// How long a connection may be idle, and how long the headers of a request may take.
    pub headers: Duration,
    /// How long the body of a request may take.
    pub body: Duration,
    /// How long a caller may take to read the next part of an answer.
    pub write: Duration,
    /// Bytes of the body of a request.
    pub body_bytes: usize,
    /// Requests per second of one address (IPv6: of one /64), and ten times that at once. A wrong token counts as ten.
    pub requests_per_second_of_address: u32,
    /// Requests per second of one token, and ten times that at once.
    pub requests_per_second_of_caller: u32,
    /// Time between two heartbeats of a stream, and so until a removed token ends it.
    pub heartbeat: Duration,
    /// Time between two looks for new events, while there are streams.
    pub events: Duration,
    /// Time between two looks at the files of tokens and certificates. A change is taken up at the second look that finds it.
    pub reread: Duration,
    /// How long a stop waits for requests that are being answered.
    pub stop: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 256,
            connections_of_address: 64,
            streams: 32,
            streams_of_caller: 8,
            reads_at_once: 8,
            orders_at_once: 4,
            call_wait: Duration::from_secs(2),
            call: Duration::from_secs(10),
            handshake: Duration::from_secs(5),
            headers: Duration::from_secs(15),
            body: Duration::from_secs(10),
            write: Duration::from_secs(30),
            body_bytes: 16 * 1024,
            requests_per_second_of_address: 100,
            requests_per_second_of_caller: 50,
            heartbeat: Duration::from_secs(10),
            events: Duration::from_millis(200),
            reread: Duration::from_secs(1),
            stop: Duration::from_secs(5),
        }
    }
}

/// Bytes of headers, and of one buffer of a connection.
pub(super) const HEADER_BYTES_MAX: usize = 16 * 1024;
/// Headers of a request.
pub(super) const HEADERS_MAX: usize = 64;
/// Bytes of the target of a request.
pub(super) const TARGET_BYTES_MAX: usize = 2_048;
/// Events in one answer.
pub(super) const EVENTS_MAX: usize = 500;
/// Parts of the log that are searched for one answer to a tenant.
pub(super) const PAGES_SEARCHED_MAX: usize = 8;

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Without tokens everybody who reaches the address is an operator.
    #[error(
        "the API listens on {0} and has no tokens: everybody there would be an operator; name a file of tokens, or listen on 127.0.0.1"
    )]
    NoTokens(SocketAddr),
    /// Without TLS tokens cross the network in the clear.
    #[error(
        "the API listens on {0} without TLS: tokens would cross the network in the clear; name a certificate and its key, listen on 127.0.0.1, or set plain = true"
    )]
    NoTls(SocketAddr),
    /// A limit of zero serves nobody.
    #[error("the limit {0} is zero: nobody would be served")]
    Zero(&'static str),
}

impl ServerConfig {
    /// A server on loopback, for operators alone.
    #[must_use]
    pub fn loopback(port: u16) -> ServerConfig {
        ServerConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], port)),
            tokens: None,
            tls: None,
            plain: false,
            names: Vec::new(),
            limits: Limits::default(),
        }
    }

    /// Whether the combination is safe and makes sense. Files are not read.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn check(&self) -> Result<(), ConfigError> {
        if !is_loopback(self.listen.ip()) {
            if self.tokens.is_none() {
                return Err(ConfigError::NoTokens(self.listen));
            }
            if self.tls.is_none() && !self.plain {
                return Err(ConfigError::NoTls(self.listen));
            }
        }
        let limits = &self.limits;
        let counts = [
            ("connections", limits.connections),
            ("connections_of_address", limits.connections_of_address),
            ("streams", limits.streams),
            ("streams_of_caller", limits.streams_of_caller),
            ("reads_at_once", limits.reads_at_once),
            ("orders_at_once", limits.orders_at_once),
            ("body_bytes", limits.body_bytes),
            (
                "requests_per_second_of_address",
                limits.requests_per_second_of_address as usize,
            ),
            (
                "requests_per_second_of_caller",
                limits.requests_per_second_of_caller as usize,
            ),
        ];
        let times = [
            ("call_wait", limits.call_wait),
            ("call", limits.call),
            ("handshake", limits.handshake),
            ("headers", limits.headers),
            ("body", limits.body),
            ("write", limits.write),
            ("heartbeat", limits.heartbeat),
            ("events", limits.events),
            ("reread", limits.reread),
            ("stop", limits.stop),
        ];
        let zero = counts.iter().find(|(_, count)| *count == 0);
        let zero_time = times.iter().find(|(_, time)| time.is_zero());
        match (zero, zero_time) {
            (Some((name, _)), _) | (None, Some((name, _))) => Err(ConfigError::Zero(name)),
            (None, None) => Ok(()),
        }
    }
}

/// Whether an address is of this machine alone, IPv4 within IPv6 included.
pub(crate) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening(address: &str) -> ServerConfig {
        ServerConfig {
            listen: address.parse().unwrap(),
            ..ServerConfig::loopback(0)
        }
    }

    #[test]
    fn what_is_not_safe_is_refused() {
        for loopback in [
            "127.0.0.1:0",
            "127.8.9.1:0",
            "[::1]:0",
            "[::ffff:127.0.0.1]:0",
        ] {
            assert_eq!(listening(loopback).check(), Ok(()), "{loopback}");
        }
        for open in [
            "0.0.0.0:0",
            "192.0.2.1:8443",
            "[::]:0",
            "[::ffff:192.0.2.1]:1",
        ] {
            let mut config = listening(open);
            assert_eq!(config.check(), Err(ConfigError::NoTokens(config.listen)));
            config.plain = true;
            assert_eq!(config.check(), Err(ConfigError::NoTokens(config.listen)));
            config.plain = false;
            config.tokens = Some(PathBuf::from("tokens.toml"));
            assert_eq!(config.check(), Err(ConfigError::NoTls(config.listen)));
            config.plain = true;
            assert_eq!(config.check(), Ok(()));
        }
    }

    #[test]
    fn limits_are_not_zero() {
        let mut config = listening("127.0.0.1:0");
        config.limits.streams = 0;
        assert_eq!(config.check(), Err(ConfigError::Zero("streams")));
        config.limits.streams = 1;
        config.limits.write = Duration::ZERO;
        assert_eq!(config.check(), Err(ConfigError::Zero("write")));
    }
}
