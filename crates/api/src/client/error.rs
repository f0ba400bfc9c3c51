//! Why a client has no answer, what that means for an order, and what to do.

use std::path::PathBuf;

use ureq::Timeout;

use crate::data::Problem;

/// Why a configuration cannot be used. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientConfigError {
    /// Not of the form `https://host:port`.
    #[error("{0:?} is no address of an API; write https://host:port, or http://127.0.0.1:port")]
    Address(String),
    /// The token would cross the network in the clear.
    #[error("{0} has no TLS: the token would cross the network in the clear; use https")]
    Plain(String),
    /// Nothing says who may have signed the server's certificate.
    #[error("https needs the file of the authority that signed the server's certificate")]
    NoAuthorities,
    /// The file of authorities cannot be used.
    #[error("the authorities {}: {why}", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The server was not reached. Nothing was done.
    #[error(
        "{address} is not reached: {why}; is the orchestrator running, and is this its address?"
    )]
    Unreachable {
        /// The address.
        address: String,
        /// Why.
        why: String,
    },
    /// The certificate was not accepted. Nothing was sent.
    #[error(
        "{address} is not trusted: {why}; is the file of authorities the one that signed its certificate?"
    )]
    NotTrusted {
        /// The address.
        address: String,
        /// Why.
        why: String,
    },
    /// The answer did not come. An order may have been carried out.
    #[error("{address} did not answer: {why}; an order may have been carried out, see the events")]
    Lost {
        /// The address.
        address: String,
        /// Why.
        why: String,
    },
    /// The server refused, for a reason that the problem states.
    #[error("{}", refusal(.0))]
    Refused(Box<Problem>),
    /// The answer is none of this API. An order may have been carried out.
    #[error("{address} answers, but not as this API does: {why}; do both have the same version?")]
    Unreadable {
        /// The address.
        address: String,
        /// Why.
        why: String,
    },
}

fn refusal(problem: &Problem) -> String {
    let mut text = format!("{}: {}", problem.title, problem.detail);
    if let Some(leader) = problem
        .leader
        .as_ref()
        .filter(|leader| !text.contains(*leader))
    {
        text.push_str(&format!(" (the leader is at {leader})"));
    }
    if let Some(wait) = problem.retry_after_ms {
        text.push_str(&format!(" (try again in {} s)", wait.div_ceil(1_000)));
    }
    text
}

impl ClientError {
    pub(super) fn of(address: &str, error: &ureq::Error) -> ClientError {
        let (address, why) = (address.to_owned(), error.to_string());
        let is_unsent = match error {
            ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => true,
            ureq::Error::Timeout(timeout) => {
                matches!(timeout, Timeout::Resolve | Timeout::Connect)
            }
            ureq::Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
            _ => false,
        };
        let is_untrusted = match error {
            ureq::Error::Tls(_) | ureq::Error::Rustls(_) => true,
            ureq::Error::Io(error) => error
                .get_ref()
                .is_some_and(|inner| inner.downcast_ref::<rustls::Error>().is_some()),
            _ => false,
        };
        match (is_unsent, is_untrusted) {
            (true, _) => ClientError::Unreachable { address, why },
            (_, true) => ClientError::NotTrusted { address, why },
            _ => ClientError::Lost { address, why },
        }
    }

    /// The address of the leader's API, if another orchestrator leads and its address is known: order there.
    #[must_use]
    pub fn leader(&self) -> Option<&str> {
        match self {
            ClientError::Refused(problem) => problem.leader.as_deref(),
            _ => None,
        }
    }
}
