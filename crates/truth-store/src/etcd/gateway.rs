//! Calls of etcd's JSON gateway: several endpoints, one deadline a call, and whether a failed request may have been received.
//!
//! A connection is used again only after its answer was read to the end; after any failure or time-out it is closed, so that
//! a late answer is never taken for another request's.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};
use ureq::{Agent, Error, Timeout};

use super::answers::{ANSWER_BYTES_MAX, failure, parse};
use super::config::{Certificates, EtcdUser};
use crate::clock::Clock;

/// Bytes read from a stream at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// The shortest wait that is worth a request.
const REQUEST_WAIT_MIN: Duration = Duration::from_millis(1);

/// Why a request has no answer that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It was not received: nothing was done.
    NotSent(String),
    /// It may have been received and done.
    Lost(String),
    /// Its answer is no answer. It may have been done.
    Unreadable(String),
    /// More bytes than [`ANSWER_BYTES_MAX`].
    TooMuch,
    /// etcd refused it: nothing was done.
    Denied(String),
    /// etcd's space is used up: nothing was done.
    Full(String),
}

/// A part of a stream.
pub(super) enum Part {
    /// One line of it.
    Line(Vec<u8>),
    /// The wait has passed.
    Waited,
    /// It ended, or was cut: what was on its way is lost.
    Ended(String),
}

/// See the module.
pub(super) struct Gateway {
    agent: Agent,
    endpoints: Vec<String>,
    /// The endpoint that answered last.
    current: usize,
    user: Option<EtcdUser>,
    token: Option<String>,
    answer_wait: Duration,
    clock: Clock,
    /// When the call that is being made must end.
    ends: Duration,
}

impl Gateway {
    pub(super) fn new(
        endpoints: Vec<String>,
        certificates: Option<Certificates>,
        user: Option<EtcdUser>,
        answer_wait: Duration,
        clock: Clock,
    ) -> Gateway {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .max_idle_connections(endpoints.len())
            .max_idle_connections_per_host(1)
            .max_response_header_size(64 * 1024)
            .user_agent("asterism");
        if let Some(certificates) = certificates {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let tls = TlsConfig::builder()
                .provider(TlsProvider::Rustls)
                .unversioned_rustls_crypto_provider(provider)
                .root_certs(RootCerts::new_with_certs(&certificates.authorities))
                .client_cert(certificates.client)
                .build();
            config = config.tls_config(tls).https_only(true);
        }
        Gateway {
            agent: config.build().new_agent(),
            endpoints,
            current: 0,
            user,
            token: None,
            answer_wait,
            clock,
            ends: Duration::ZERO,
        }
    }

    /// How long a call may take.
    pub(super) fn call_wait(&self) -> Duration {
        self.answer_wait * (self.endpoints.len() as u32 + 2)
    }

    /// Begins a call: from here on its deadline runs.
    pub(super) fn begin(&mut self) {
        self.ends = (self.clock)() + self.call_wait();
    }

    /// The address in use, for messages.
    pub(super) fn name(&self) -> String {
        format!("etcd at {}", self.endpoints[self.current])
    }

    fn left(&mut self) -> Result<Duration, Failure> {
        let left = self.ends.saturating_sub((self.clock)());
        match left > REQUEST_WAIT_MIN {
            true => Ok(left.min(self.answer_wait)),
            false => Err(Failure::NotSent("the call's time is used up".to_owned())),
        }
    }

    /// Goes on to the next endpoint.
    fn turn(&mut self) {
        self.current = (self.current + 1) % self.endpoints.len();
    }

    /// Asks one endpoint after the other, as long as the question changes nothing or was not received.
    pub(super) fn ask(
        &mut self,
        path: &str,
        body: &Value,
        is_question: bool,
    ) -> Result<Value, Failure> {
        let mut last = Failure::NotSent("no endpoint was asked".to_owned());
        for _ in 0..self.endpoints.len() {
            match self.ask_once(path, body) {
                Ok(answer) => return Ok(answer),
                Err(failure) => {
                    let goes_on = match &failure {
                        Failure::NotSent(_) => true,
                        Failure::Lost(_) | Failure::Unreadable(_) => is_question,
                        _ => false,
                    };
                    if matches!(
                        failure,
                        Failure::NotSent(_) | Failure::Lost(_) | Failure::Unreadable(_)
                    ) {
                        self.turn();
                    }
                    last = failure;
                    if !goes_on {
                        break;
                    }
                }
            }
        }
        Err(last)
    }

    /// Asks the endpoint in use; logs in first where that is needed, and once more where the login has ended.
    fn ask_once(&mut self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.log_in()?;
        let had_token = self.token.is_some();
        match self.post(path, body) {
            Err(Failure::Denied(why)) if had_token && why.contains("auth") => {
                self.token = None;
                self.log_in()?;
                self.post(path, body)
            }
            other => other,
        }
    }

    fn log_in(&mut self) -> Result<(), Failure> {
        let (None, Some(user)) = (&self.token, &self.user) else {
            return Ok(());
        };
        let body = json!({ "name": user.name, "password": user.password });
        let answer = match self.post("/v3/auth/authenticate", &body) {
            // A login changes nothing.
            Err(Failure::Lost(why) | Failure::Unreadable(why)) => {
                return Err(Failure::NotSent(format!(
                    "the login was not answered: {why}"
                )));
            }
            other => other?,
        };
        let token = answer.get("token").and_then(Value::as_str);
        let token = token.ok_or_else(|| Failure::NotSent("the login gave no token".to_owned()))?;
        self.token = Some(token.to_owned());
        Ok(())
    }

    fn post(&mut self, path: &str, body: &Value) -> Result<Value, Failure> {
        let wait = self.left()?;
        let mut response = self.send(path, body, wait, None)?;
        let limited = response.body_mut().with_config();
        let read = limited.limit(ANSWER_BYTES_MAX as u64).read_to_vec();
        let bytes = read.map_err(|error| match error {
            Error::BodyExceedsLimit(_) => Failure::TooMuch,
            error => Failure::Lost(error.to_string()),
        })?;
        let status = response.status().as_u16();
        match status {
            200 => parse(&bytes).map_err(Failure::Unreadable),
            _ => Err(denied(status, &bytes)),
        }
    }

    /// Sends a request to the endpoint in use, and returns with the head of its answer. The body of a stream may take longer.
    fn send(
        &self,
        path: &str,
        body: &Value,
        wait: Duration,
        stream: Option<Duration>,
    ) -> Result<ureq::http::Response<ureq::Body>, Failure> {
        let url = format!("{}{path}", self.endpoints[self.current]);
        let mut request = self
            .agent
            .post(&url)
            .header("Content-Type", "application/json");
        if let Some(token) = &self.token {
            request = request.header("Authorization", token);
        }
        let config = request.config().timeout_connect(Some(wait));
        let config = match stream {
            None => config.timeout_global(Some(wait)),
            Some(body) => config
                .timeout_global(Some(wait + body))
                .timeout_send_request(Some(wait))
                .timeout_recv_response(Some(wait))
                .timeout_recv_body(Some(body)),
        };
        let sent = config.build().send(body.to_string().as_bytes());
        sent.map_err(|error| match was_not_sent(&error) {
            true => Failure::NotSent(error.to_string()),
            false => Failure::Lost(error.to_string()),
        })
    }

    /// Opens a stream at the endpoint in use, whose lines may come for so long.
    pub(super) fn stream(
        &mut self,
        path: &str,
        body: &Value,
        wait: Duration,
    ) -> Result<Stream, Failure> {
        self.log_in()?;
        let limit = self.left()?;
        let response = match self.send(path, body, limit, Some(wait)) {
            Ok(response) => response,
            Err(failure) => {
                self.turn();
                return Err(failure);
            }
        };
        let status = response.status().as_u16();
        let mut body = response.into_body();
        if status != 200 {
            let read = body.with_config().limit(CHUNK_BYTES as u64).read_to_vec();
            // The next call logs in again.
            self.token = None;
            self.turn();
            return Err(denied(status, &read.unwrap_or_default()));
        }
        Ok(Stream {
            reader: Box::new(body.into_reader()),
            held: Vec::new(),
        })
    }

    /// The next call tries another endpoint first.
    pub(super) fn leave_endpoint(&mut self) {
        self.turn();
    }
}

/// Whether a request surely never left: nobody was there to take it.
fn was_not_sent(error: &Error) -> bool {
    use std::io::ErrorKind;
    match error {
        Error::HostNotFound | Error::ConnectionFailed | Error::BadUri(_) => true,
        Error::Timeout(Timeout::Resolve | Timeout::Connect) => true,
        // etcd's certificate is checked before a request is sent.
        Error::Rustls(rustls::Error::InvalidCertificate(_)) => true,
        Error::Io(error) => {
            let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
            matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
                || matches!(
                    error.kind(),
                    ErrorKind::ConnectionRefused
                        | ErrorKind::HostUnreachable
                        | ErrorKind::NetworkUnreachable
                        | ErrorKind::AddrNotAvailable
                )
        }
        _ => false,
    }
}

/// What a status other than 200 means. Only codes that etcd gives before it does anything say that nothing was done.
fn denied(status: u16, body: &[u8]) -> Failure {
    /// Of gRPC: invalid argument, not found, permission denied, exhausted, failed precondition, out of range, unauthenticated.
    const NOT_DONE: [u64; 7] = [3, 5, 7, 8, 9, 11, 16];
    let (code, said) = failure(body);
    match (status, code) {
        (400..=499, Some(8)) if said.contains("space") => Failure::Full(said),
        (400..=499, Some(code)) if NOT_DONE.contains(&code) => Failure::Denied(said),
        _ => Failure::Lost(format!("status {status}: {said}")),
    }
}

/// An answer that comes line by line.
pub(super) struct Stream {
    reader: Box<dyn Read>,
    held: Vec<u8>,
}

impl Stream {
    /// The next line.
    pub(super) fn next(&mut self) -> Result<Part, Failure> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.held[searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.held.split_off(searched + at + 1);
                let line = std::mem::replace(&mut self.held, rest);
                return Ok(Part::Line(line));
            }
            searched = self.held.len();
            if self.held.len() > ANSWER_BYTES_MAX {
                return Err(Failure::TooMuch);
            }
            let mut chunk = [0; CHUNK_BYTES];
            match self.reader.read(&mut chunk) {
                Ok(0) => return Ok(Part::Ended("it ended".to_owned())),
                Ok(count) => self.held.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Ok(match Error::from(error) {
                        Error::Timeout(_) => Part::Waited,
                        error => Part::Ended(error.to_string()),
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(bytes: &'static [u8]) -> Stream {
        Stream {
            reader: Box::new(bytes),
            held: Vec::new(),
        }
    }

    #[test]
    fn streams_are_cut_into_lines_and_bounded() {
        let mut lines = stream(b"one\ntwo\nhalf");
        assert!(matches!(lines.next(), Ok(Part::Line(line)) if line == b"one\n"));
        assert!(matches!(lines.next(), Ok(Part::Line(line)) if line == b"two\n"));
        assert!(matches!(lines.next(), Ok(Part::Ended(_))));
        let mut endless = Stream {
            reader: Box::new(std::io::repeat(b'x')),
            held: Vec::new(),
        };
        assert!(matches!(endless.next(), Err(Failure::TooMuch)));
    }

    #[test]
    fn only_refusals_of_etcd_itself_say_that_nothing_was_done() {
        let lost = |status, body: &str| matches!(denied(status, body.as_bytes()), Failure::Lost(_));
        assert!(lost(500, ""));
        assert!(lost(
            503,
            r#"{"error":"etcdserver: request timed out","code":14}"#
        ));
        assert!(lost(502, "<html>bad gateway</html>"));
        assert!(lost(404, "Not Found"));
        assert!(lost(500, r#"{"error":"x","code":3}"#));
        let denied = |status, body: &str| denied(status, body.as_bytes());
        let not_found = denied(
            404,
            r#"{"error":"etcdserver: requested lease not found","code":5}"#,
        );
        assert!(matches!(not_found, Failure::Denied(_)));
        let space = denied(
            429,
            r#"{"error":"etcdserver: mvcc: database space exceeded","code":8}"#,
        );
        assert!(matches!(space, Failure::Full(_)));
    }
}
