//! What needs a look on a host: health items of `status`, and the same sentences for the log. Imports the engine's faults.

use asterism_engine::transport::{ChannelSnapshot, PeerFault};
use asterism_placement::MemberId;
use serde::{Deserialize, Serialize};

/// Something that needs a look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthDocument {
    /// Which: the label of a fault with a member.
    pub item: String,
    /// The member that it is about.
    pub member: String,
    /// For how long.
    pub for_us: u64,
    /// What is so.
    pub effect: String,
    /// What to do.
    pub cure: String,
}

/// All that needs a look; `name` gives members' names.
pub(super) fn items(
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

/// What a fault with a member means, and what to do.
pub(crate) fn words(
    fault: &PeerFault,
    member: &str,
    name: &dyn Fn(MemberId) -> String,
) -> (String, String) {
    let to_here = format!(
        "see filters, routes and links on the way from {member} to this host; they must carry UDP"
    );
    let from_here = format!(
        "see filters, routes and links on the way from this host to {member}; they must carry UDP"
    );
    match fault {
        PeerFault::Silent {
            was_heard,
            is_unreachable,
        } => {
            let ever = if *was_heard { "is received of" } else { "was ever received of" };
            let more = match is_unreachable {
                true => ": datagrams to it come back, so no process listens there or no route leads there",
                false => ": it does not run, or what it sends is lost on the way to this host",
            };
            (
                format!("nothing {ever} {member}{more}"),
                format!("see that {member} runs; if it does, {to_here}"),
            )
        }
        PeerFault::SilentHere { heard_by } => (
            format!(
                "nothing of {member} is received here, while {} receives it: the path from {member} to this host is cut",
                name(*heard_by)
            ),
            to_here,
        ),
        PeerFault::Isolated => (
            "nothing is received of any other member: this host is cut off, or all others are down".to_owned(),
            "see this host's own link, filters and routes first".to_owned(),
        ),
        PeerFault::Left => (
            format!("{member} announced that it leaves, and is silent since"),
            format!("start it again, or leave it out by an epoch (`asterism epoch CONFIG --without {member}`)"),
        ),
        PeerFault::Refused => (
            format!("datagrams of {member} arrive, and none is accepted"),
            "see `refused` in `asterism status`, and member-differs, key-missing and member-in-another-life in the log".to_owned(),
        ),
        PeerFault::HandshakeLost => (
            format!("datagrams of {member} arrive, but it completes no handshake: it does not receive this host"),
            from_here,
        ),
        PeerFault::Deaf => (
            format!(
                "{member} is received, and reports that it receives nothing of this host: short datagrams are lost too, so the path from here to {member} is cut"
            ),
            from_here,
        ),
        PeerFault::LongLost { datagram_bytes } => (
            format!(
                "{member} receives short datagrams of this host, but not one of {datagram_bytes} bytes: a link on the way takes less and drops longer ones in silence"
            ),
            "compare the MTUs of all interfaces on the way, or set `mtu` of [cluster.channel] to what the narrowest takes".to_owned(),
        ),
        PeerFault::GroupsLost => (
            format!("{member} receives this host, but not a short message that was sent again and again"),
            "see datagrams dropped there (`receive_buffer_drops`) and loss on the way".to_owned(),
        ),
        PeerFault::NotApplied => (
            format!("{member} receives what this host writes and applies nothing: its packet loops stand still"),
            format!("see the load of {member}, and that its packet loops run"),
        ),
    }
}
