//! Health items of `status`: the faults of a host's peers with effect and cure, in sentences that the log shares.

use asterism_engine::transport::{ChannelSnapshot, PeerFault};
use asterism_placement::MemberId;
use serde::{Deserialize, Serialize};

use asterism_event_log::date;

/// A fault that needs the operator's attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthDocument {
    /// The label of the fault.
    pub item: String,
    /// The member at fault, or the store.
    pub member: String,
    /// How long the fault has lasted.
    pub for_us: u64,
    /// The observed effect.
    pub effect: String,
    /// The cure.
    pub cure: String,
}

/// All present faults; `name` gives members' names.
pub(crate) fn items(
    channel: &ChannelSnapshot,
    name: &dyn Fn(MemberId) -> String,
) -> Vec<HealthDocument> {
    let members = channel.members.iter();
    let faults = members.filter_map(|member| {
        let (fault, since) = member.fault?;
        let (effect, cure) = words(&fault, &name(member.progress.member), name);
        Some(HealthDocument {
            item: fault.label().to_owned(),
            member: name(member.progress.member),
            for_us: channel.at.since(since).as_micros() as u64,
            effect,
            cure,
        })
    });
    faults.collect()
}

/// Seconds by which a clock is ahead of another clock, as text.
pub fn ahead_text(ahead_s: i64) -> String {
    let seconds = ahead_s.unsigned_abs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    let by = match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{minutes} min {} s", seconds % 60),
        3_600..86_400 => format!("{hours} h {minutes} min"),
        _ => format!("{days} days {hours} h"),
    };
    format!("{by} {}", if ahead_s < 0 { "behind" } else { "ahead of" })
}

/// Effect and cure of a fault with a member, as sentences without a full stop; `name` gives members' names.
#[must_use]
pub fn words(
    fault: &PeerFault,
    member: &str,
    name: &dyn Fn(MemberId) -> String,
) -> (String, String) {
    (effect(fault, member, name), cure(fault, member))
}

fn effect(fault: &PeerFault, member: &str, name: &dyn Fn(MemberId) -> String) -> String {
    match fault {
        PeerFault::Silent {
            was_heard,
            is_unreachable,
        } => {
            let ever = if *was_heard { "is received from" } else { "was ever received from" };
            let more = match is_unreachable {
                true => ": datagrams to it are returned as undeliverable, so no process listens there or no route leads there",
                false => ": it does not run, or its datagrams are lost on the path to this host",
            };
            format!("nothing {ever} {member}{more}")
        }
        PeerFault::SilentHere { heard_by } => format!(
            "nothing is received from {member} here, while {} receives it: the path from {member} to this host is cut",
            name(*heard_by)
        ),
        PeerFault::Isolated => "nothing is received from any other member: this host is cut off, or all others are down".to_owned(),
        PeerFault::Left => format!("{member} announced that it leaves, and has been silent since"),
        PeerFault::Refused => format!("datagrams from {member} arrive, and none is accepted"),
        PeerFault::HandshakeLost => format!(
            "datagrams from {member} arrive, but it completes no handshake: it does not receive this host"
        ),
        PeerFault::Deaf => format!(
            "{member} is received, and reports that it receives nothing from this host: short datagrams are lost too, so the path from this host to {member} is cut"
        ),
        PeerFault::LongLost { datagram_bytes } => format!(
            "{member} receives short datagrams from this host, but none of {datagram_bytes} bytes: a link on the path has a smaller MTU and silently drops longer datagrams"
        ),
        PeerFault::GroupsLost => format!(
            "{member} receives this host, but not a short message that was sent repeatedly"
        ),
        PeerFault::NotApplied => format!(
            "{member} receives this host's updates and applies none: its packet loops stand still"
        ),
        PeerFault::TimeApart { here_s, ahead_s } => format!(
            "the cluster's time is {} here and {} at {member}: both began to serve before they received each other, and now refuse each other",
            date(*here_s),
            date(here_s.saturating_add_signed(*ahead_s))
        ),
        PeerFault::DatesApart { ahead_s } => format!(
            "the date of {member} is {} the date here: sessions idle by the cluster's time, which no date changes, but logs and exports of the two hosts do not match",
            ahead_text(*ahead_s)
        ),
    }
}

fn cure(fault: &PeerFault, member: &str) -> String {
    let check_path = |from: &str, to: &str| {
        format!(
            "check filters, routes and links on the path from {from} to {to}; they must carry UDP"
        )
    };
    let to_here = || check_path(member, "this host");
    match fault {
        PeerFault::Silent { .. } => {
            format!("check that {member} runs; if it does, {}", to_here())
        }
        PeerFault::SilentHere { .. } => to_here(),
        PeerFault::Isolated => "check this host's own link, filters and routes first".to_owned(),
        PeerFault::Left => format!(
            "restart {member}, or leave it out by an epoch (`asterism epoch CONFIG --without {member}`)"
        ),
        PeerFault::Refused => "see `refused` in `asterism status`, and member-differs, key-missing and member-incarnation-mismatch in the log".to_owned(),
        PeerFault::HandshakeLost | PeerFault::Deaf => check_path("this host", member),
        PeerFault::LongLost { .. } => "compare the MTUs of all interfaces on the path, or set `mtu` of [cluster.channel] to the smallest".to_owned(),
        PeerFault::GroupsLost => "check the datagrams dropped there (`receive_buffer_drops`) and the loss on the path".to_owned(),
        PeerFault::NotApplied => {
            format!("check the load of {member}, and that its packet loops run")
        }
        PeerFault::TimeApart { .. } => format!(
            "set the dates of both machines, and restart the host whose time is wrong: it takes over the other's time (`asterism status` of {member} shows the same)"
        ),
        PeerFault::DatesApart { .. } => "let both machines take their date from the same NTP servers (`chronyc tracking`, `timedatectl`)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(fault: PeerFault) -> String {
        words(&fault, "b", &|_| String::new()).0
    }

    #[test]
    fn times_that_are_apart_are_both_named() {
        let fault = PeerFault::TimeApart {
            here_s: 1_700_000_000,
            ahead_s: -753_315_200,
        };
        let text = said(fault);
        assert!(
            text.contains("2023-11-14") && text.contains("2000-01-01"),
            "{text}"
        );
    }

    #[test]
    fn dates_that_differ_are_said_in_words() {
        let text = |ahead_s| said(PeerFault::DatesApart { ahead_s });
        assert!(text(21_600).starts_with("the date of b is 6 h 0 min ahead of the date here: "));
        assert!(text(-5).starts_with("the date of b is 5 s behind the date here: "));
        assert_eq!(ahead_text(90), "1 min 30 s ahead of");
        assert_eq!(ahead_text(-753_315_200), "8718 days 22 h behind");
    }
}
