//! The server's own figures: requests, and refusals by reason.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Why a connection or request was refused. The label of a metric, and a row of `docs/src/api.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Refusal {
    Connections,
    ConnectionsOfAddress,
    Handshake,
    Host,
    Origin,
    AddressRate,
    CallerRate,
    TokenMissing,
    TokenUnknown,
    TokenExpired,
    Scope,
    Request,
    Body,
    Busy,
    Late,
    Streams,
}

pub(super) const REFUSALS: [(Refusal, &str); 16] = [
    (Refusal::Connections, "connections"),
    (Refusal::ConnectionsOfAddress, "connections-of-address"),
    (Refusal::Handshake, "handshake"),
    (Refusal::Host, "host"),
    (Refusal::Origin, "origin"),
    (Refusal::AddressRate, "address-rate"),
    (Refusal::CallerRate, "caller-rate"),
    (Refusal::TokenMissing, "token-missing"),
    (Refusal::TokenUnknown, "token-unknown"),
    (Refusal::TokenExpired, "token-expired"),
    (Refusal::Scope, "scope"),
    (Refusal::Request, "request"),
    (Refusal::Body, "body"),
    (Refusal::Busy, "busy"),
    (Refusal::Late, "late"),
    (Refusal::Streams, "streams"),
];

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Counts {
    requests: AtomicU64,
    refusals: [AtomicU64; REFUSALS.len()],
}

impl Counts {
    pub(super) fn request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    pub(super) fn refuse(&self, refusal: Refusal) {
        self.refusals[refusal as usize].fetch_add(1, Relaxed);
    }

    /// Prometheus' text format, for the end of the orchestrator's metrics.
    pub(super) fn text(&self, connections: usize, streams: usize) -> String {
        let mut text = String::new();
        let requests = self.requests.load(Relaxed);
        let mut family = |name: &str, kind: &str, help: &str, rows: &str| {
            // A `String` takes all that is written to it.
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{rows}");
        };
        let name = "asterism_api_requests_total";
        family(
            name,
            "counter",
            "Requests.",
            &format!("{name} {requests}\n"),
        );
        let name = "asterism_api_refused_total";
        let rows: String = REFUSALS
            .iter()
            .map(|(refusal, reason)| {
                let count = self.refusals[*refusal as usize].load(Relaxed);
                format!("{name}{{reason=\"{reason}\"}} {count}\n")
            })
            .collect();
        family(name, "counter", "Connections and requests refused.", &rows);
        let name = "asterism_api_connections";
        family(
            name,
            "gauge",
            "Open connections.",
            &format!("{name} {connections}\n"),
        );
        let name = "asterism_api_streams";
        family(
            name,
            "gauge",
            "Open streams of events.",
            &format!("{name} {streams}\n"),
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_place() {
        for (place, (refusal, reason)) in REFUSALS.iter().enumerate() {
            assert_eq!(place, *refusal as usize);
            let counts = Counts::default();
            counts.refuse(*refusal);
            let row = format!("asterism_api_refused_total{{reason=\"{reason}\"}} 1\n");
            assert!(counts.text(0, 0).contains(&row));
        }
    }
}
