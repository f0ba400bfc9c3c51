//! Lines of JSON, with the names of fields that Suricata's EVE has.

use std::collections::BTreeMap;
use std::net::IpAddr;

use asterism_function::notice::{End, Notice, Outcome};
use asterism_functions::firewall::DENIED;
use asterism_placement::MemberId;
use serde::Serialize;

use asterism_epochs::MemberNames;
use asterism_event_log::date;

/// Bytes of a line at most, its end included: what a pipe takes whole (`PIPE_BUF` of Linux).
pub const LINE_BYTES_MAX: usize = 4_096;
/// The revision of all signatures.
const REVISION: u32 = 1;

#[derive(Serialize)]
struct Line<'a> {
    timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    flow_id: Option<u64>,
    event_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    src_ip: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    src_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dest_ip: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dest_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proto: Option<String>,
    host: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    alert: Option<Alert<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    drop: Option<Drop>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stats: Option<Stats>,
    asterism: Own<'a>,
}

#[derive(Serialize)]
struct Alert<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<&'static str>,
    gid: u32,
    signature_id: u32,
    rev: u32,
    signature: &'a str,
    category: &'a str,
    severity: u8,
}

#[derive(Serialize)]
struct Drop {
    reason: &'static str,
}

/// What no other system has a field for.
#[derive(Serialize)]
struct Own<'a> {
    cluster: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
}

/// What a host counted, in a line of the kind `stats`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Seconds since the host was started.
    pub uptime: u64,
    /// Packets since then.
    pub packets: PacketStats,
    /// Lines of this kind of log.
    pub eve: LineStats,
}

/// Packets of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PacketStats {
    /// Received.
    pub received: u64,
    /// Of those, and of those that it made, sent.
    pub forwarded: u64,
    /// Dropped.
    pub dropped: u64,
    /// Of those, by the reason's label; those that there were.
    pub reasons: BTreeMap<&'static str, u64>,
}

/// Lines of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LineStats {
    /// Written.
    pub written: u64,
    /// Lost.
    pub lost: u64,
}

/// Who writes lines.
#[derive(Clone, Debug)]
pub struct Author {
    /// The host's name.
    pub host: String,
    /// The cluster's.
    pub cluster: String,
    /// The members' names, by their numbers from 1.
    pub members: MemberNames,
    /// The stages' names, if the function is a chain.
    pub stages: Vec<String>,
}

impl Author {
    /// A notice as a line with its end; `None` if that would be too long. `at_us`: microseconds since 1970.
    #[must_use]
    pub fn alert(&self, notice: &Notice, stage: usize, at_us: u64) -> Option<String> {
        let is_denied = notice.is(&DENIED);
        let member = self.members.get(MemberId(notice.member));
        let address = |end: End| end.host.map(|host| host.address());
        finish(&Line {
            timestamp: timestamp(at_us),
            // Numbers in JSON are exact up to 53 bits in most programs.
            flow_id: notice.flow.map(|flow| flow >> 11),
            event_type: if is_denied { "drop" } else { "alert" },
            src_ip: address(notice.source),
            src_port: notice.source.port,
            dest_ip: address(notice.destination),
            dest_port: notice.destination.port,
            proto: notice.protocol.map(protocol),
            host: &self.host,
            alert: Some(Alert {
                action: match notice.outcome {
                    Outcome::Passed => Some("allowed"),
                    Outcome::Dropped => Some("blocked"),
                    Outcome::Unknown => None,
                },
                gid: notice.generator,
                signature_id: notice.id,
                rev: REVISION,
                signature: &notice.text,
                category: &notice.category,
                severity: notice.severity,
            }),
            drop: is_denied.then_some(Drop { reason: "rules" }),
            stats: None,
            asterism: Own {
                cluster: &self.cluster,
                member: member.as_deref(),
                stage: self.stages.get(stage).map(|name| &**name),
                detail: (!notice.detail.is_empty()).then_some(&notice.detail),
            },
        })
    }

    /// What a host counted as a line with its end.
    #[must_use]
    pub fn stats(&self, stats: Stats, at_us: u64) -> Option<String> {
        finish(&Line {
            timestamp: timestamp(at_us),
            flow_id: None,
            event_type: "stats",
            src_ip: None,
            src_port: None,
            dest_ip: None,
            dest_port: None,
            proto: None,
            host: &self.host,
            alert: None,
            drop: None,
            stats: Some(stats),
            asterism: Own {
                cluster: &self.cluster,
                member: None,
                stage: None,
                detail: None,
            },
        })
    }
}

fn finish(line: &Line<'_>) -> Option<String> {
    let mut text = serde_json::to_string(line).ok()?;
    text.push('\n');
    (text.len() <= LINE_BYTES_MAX).then_some(text)
}

/// A time in microseconds since 1970 as RFC 3339 writes it, in UTC with its offset.
#[must_use]
pub fn timestamp(at_us: u64) -> String {
    let date = date(at_us / 1_000_000);
    format!(
        "{}.{:06}+00:00",
        date.trim_end_matches('Z'),
        at_us % 1_000_000
    )
}

/// A protocol by the name that EVE has for it; others by three digits.
fn protocol(number: u8) -> String {
    match number {
        1 => "ICMP".to_owned(),
        6 => "TCP".to_owned(),
        17 => "UDP".to_owned(),
        47 => "GRE".to_owned(),
        50 => "ESP".to_owned(),
        58 => "IPv6-ICMP".to_owned(),
        132 => "SCTP".to_owned(),
        number => format!("{number:03}"),
    }
}
