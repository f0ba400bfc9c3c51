//! What the state channel tells, as events of the log: each with its effect and a cure.

use asterism_engine::ChannelEvent;
use asterism_engine::transport::{Notice, PeerFault, TransportEvent};
use asterism_placement::MemberId;
use asterism_placement::replicated::audit::{AuditResult, StreamFault};
use asterism_secure_channel::Event as SealEvent;

use asterism_epochs::MemberNames;
use asterism_event_log::Event;
use asterism_host_view::audit::parts_of;
use asterism_host_view::health::words;

/// A notice as an event of the log.
#[must_use]
pub(super) fn event(notice: &Notice, members: &MemberNames) -> Event {
    let name = |member: MemberId| {
        let name = members.get(member);
        name.unwrap_or_else(|| member.0.to_string())
    };
    match notice {
        Notice::Channel(event) => channel(event, &name),
        Notice::NotInstalled { epoch, why } => Event::error("epoch-refused")
            .with("epoch", epoch.0)
            .with("why", why),
        Notice::Transport(event) => transport(event, notice, &name),
        Notice::Fault { member, fault } => peer_fault(*member, fault, &name),
        Notice::FaultOver { member, fault } => Event::info("member-recovered")
            .with("member", name(*member))
            .with("fault", fault.label())
            .effect("the fault with it is over"),
        Notice::NotPinned { processor, errno } => Event::warning("core-not-pinned")
            .with("core", processor)
            .effect(format!(
                "the state channel runs on any core: {}",
                std::io::Error::from_raw_os_error(*errno)
            )),
    }
}

/// A member's name.
type Name<'a> = &'a dyn Fn(MemberId) -> String;

fn channel(event: &ChannelEvent, name: Name<'_>) -> Event {
    match event {
        ChannelEvent::Secure(event) => secure(event, name),
        ChannelEvent::Audit(finding) => audit(finding, name),
        ChannelEvent::Stream(fault) => stream(fault, name),
        ChannelEvent::LaggingReplica(member) => Event::warning("member-lagging")
            .with("member", name(*member))
            .effect("it is sent the whole state instead of the log")
            .cure("see its load and the network's; a longer log (log_max) bridges longer silence"),
        ChannelEvent::Served(member) => Event::info("snapshot-served")
            .with("member", name(*member))
            .effect(
                "it is sent the whole state: it joins, or lacks something of an incarnation that ended",
            ),
        ChannelEvent::CaughtUp(member) => {
            Event::info("member-caught-up").with("member", name(*member))
        }
        ChannelEvent::Epoch(epoch) => Event::info("epoch").with("epoch", epoch.0),
        ChannelEvent::LaterEpoch(member, epoch) => Event::warning("epoch-outdated")
            .with("member", name(*member))
            .with("epoch", epoch.0)
            .effect("that member has a later epoch in force: this host grants no ports, and reads no packets from five seconds later on, until it has that epoch too")
            .cure("copy the file of epochs to this host, or hand it over (`asterism epoch CONFIG --hand`)"),
        ChannelEvent::Ended(member, incarnation) => Event::info("incarnation-ended")
            .with("member", name(*member))
            .with("incarnation", format!("{:016x}", incarnation.0))
            .effect("nothing more of it is taken; what any member has of it reaches all"),
        ChannelEvent::Closed(member, incarnation) => Event::info("incarnation-closed")
            .with("member", name(*member))
            .with("incarnation", format!("{:016x}", incarnation.0))
            .effect("all members have the same of it"),
        ChannelEvent::Leaving(member) => Event::info("member-leaves")
            .with("member", name(*member))
            .effect("it writes nothing more; it stays a member until an epoch leaves it out"),
        ChannelEvent::Ready => Event::info("joined"),
    }
}

fn secure(event: &SealEvent, name: Name<'_>) -> Event {
    match event {
        SealEvent::Admitted {
            member,
            incarnation,
            replaced,
        } => {
            let event = Event::info("member-admitted")
                .with("member", name(*member))
                .with("incarnation", format!("{:016x}", incarnation.0));
            match replaced {
                Some(_) => event.effect("it was restarted"),
                None => event,
            }
        }
        SealEvent::Welcomed { member, .. } => {
            Event::info("member-accepted").with("member", name(*member))
        }
        SealEvent::Speaks { version } => {
            Event::info("wire-version").with("version", version).effect(
                "what this host sends is of that version: all members of the epoch understand it",
            )
        }
        SealEvent::DuplicateIdentity { member, .. } => Event::error("duplicate-identity")
            .with("member", name(*member))
            .effect("two hosts run as this member; what the later one says is refused")
            .cure("stop one of the two, or give it another member's name"),
        SealEvent::NoKey {
            member,
            key_id,
            dropped,
        } => {
            let event = Event::warning("key-missing")
                .with("member", name(*member))
                .with("key", key_id)
                .effect("what comes in its name under that key is refused; it is sent again once this host has the key");
            event.cure(if *dropped {
                "this host dropped that key: have the member send with a key that all have (`asterism key --use`, and the file copied to it). If it is heard none the less, these are replays"
            } else {
                "copy the cluster's key file to this host, with mode 0600: it takes it up by itself"
            })
        }
    }
}

fn audit(finding: &AuditResult, name: Name<'_>) -> Event {
    let event = match finding.equal {
                true => Event::info("replica-repaired"),
                false => Event::error("replica-differs")
                    .effect("packets may be handled by this host otherwise than by others")
                    .cure("asterism audit shows what differs here and on the other hosts; repair it from one that is right"),
            };
    let parts = parts_of(finding.place, finding.leaves);
    let parts: Vec<String> = parts.iter().map(u8::to_string).collect();
    event
        .with("object", finding.place.object)
        .with("parts", parts.join(","))
        .with("instance", finding.lane)
        .with("reference", name(finding.reference))
}

fn stream(fault: &StreamFault, name: Name<'_>) -> Event {
    Event::error("stream-differs")
            .with("member", name(fault.origin))
            .with("incarnation", format!("{:016x}", fault.incarnation.0))
            .with("first", fault.first)
            .with("last", fault.last)
            .effect("of these groups one was delivered here twice, not at all or altered: the state may differ from others'")
            .cure("see what asterism audit says of the state, repair that from another host, and tell us: this is a defect")
}

fn transport(event: &TransportEvent, notice: &Notice, name: Name<'_>) -> Event {
    match event {
        TransportEvent::Heard { member } => {
            Event::info("member-reachable").with("member", name(*member))
        }
        TransportEvent::Unreachable {
            member, address, ..
        } => Event::warning("member-unreachable")
            .with("member", name(*member))
            .with("address", address)
            .effect(notice),
        event @ (TransportEvent::DatagramBytes { .. }
        | TransportEvent::SegmentationRefused { .. }
        | TransportEvent::ReceiveOffloadRefused { .. }) => {
            Event::info("channel-adapts").effect(event)
        }
        event => Event::warning("channel").effect(event),
    }
}

fn peer_fault(member: MemberId, fault: &PeerFault, name: Name<'_>) -> Event {
    let (effect, cure) = words(fault, &name(member), name);
    let event = match fault {
        PeerFault::Left => Event::info("member-silent"),
        PeerFault::TimeApart { .. } => Event::error("member-time-differs"),
        PeerFault::DatesApart { .. } => Event::warning("member-date-differs"),
        fault if fault.is_silence() => Event::warning("member-silent"),
        PeerFault::Deaf => Event::warning("member-not-receiving"),
        _ => Event::warning("member-not-acknowledging"),
    };
    event
        .with("member", name(member))
        .with("fault", fault.label())
        .effect(effect)
        .cure(cure)
}
