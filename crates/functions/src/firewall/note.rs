//! What a firewall writes beside flows: blocked sources and noted events.

use asterism_function::notice::{End, Notice, Outcome};
use asterism_function::{Host, Key, OwnEvent, Tick, Value, Vlan, Wire};
use asterism_tracking::{Direction, Flow, Link, has_ports};

use super::rules::Action;
use crate::events::{DENIAL, MISC, UNUSUAL, event};
use asterism_blocking::blocked::held_class;

/// A source that is blocked. Joins: the one that ends last, whole; of two that end together the longer one.
///
/// Entries are never touched, so one is held from when its block was written, or later: for at least as long as the block
/// lasts, if its idle class is that of the block that ends last. A maximum of classes would hold a source for a week more that was
/// blocked for ten minutes at the end of a long block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Value)]
#[join(max)]
#[value(idle_class = Self::class)]
pub struct Block {
    /// From this time on it is not, in seconds of the cluster's time.
    pub until: Tick,
    /// For how long it was blocked, in seconds.
    #[wire(varint)]
    pub seconds: Tick,
    /// By which rule, as [`Rule::number`](super::Rule::number), or [`BY_HAND`].
    pub rule: u32,
}

impl Block {
    /// A block that begins now.
    pub(super) const fn new(now: Tick, seconds: Tick, rule: u32) -> Self {
        Self {
            until: now.saturating_add(seconds),
            seconds,
            rule,
        }
    }

    fn class(&self) -> u8 {
        held_class(self.seconds)
    }
}

/// The number of no rule, but of manual blocks: the default has it, which blocks nobody.
pub const BY_HAND: u32 = 0;
/// The number of no rule, but of the limit on half-open connections of a source: the default has it, which is never noted.
pub const HALF_OPEN: u32 = 0;
/// The same of the limit of a destination.
pub const HALF_OPEN_TO: u32 = 1;
/// The same of the limits of both links, by [`Link`](super::Link).
pub const HALF_OPEN_BY_LINK: [u32; 2] = [2, 3];
/// The numbers of rules are not below this one.
pub(super) const RULES_FROM: u32 = 4;

/// What an event is about: one for each source and rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire)]
pub struct Subject {
    /// The rule, by [`Rule::number`](super::Rule::number), or the limit: [`HALF_OPEN`], [`HALF_OPEN_TO`] or one of [`HALF_OPEN_BY_LINK`].
    pub rule: u32,
    /// The source of the packet; of [`HALF_OPEN_TO`] its destination, of a link [`Host::default`].
    pub source: Host,
}

impl Key for Subject {
    fn hash(&self, seed: u64) -> u64 {
        self.source.hash(seed ^ u64::from(self.rule) << 32)
    }
}

const ALLOWED: OwnEvent = event(40, "Flow allowed by a firewall rule", MISC, 3);
/// A flow that a rule with `log` denied.
pub const DENIED: OwnEvent = event(41, "Flow denied by a firewall rule", UNUSUAL, 2);
const SOURCE_LIMIT: OwnEvent = event(42, "Source has too many half-open connections", DENIAL, 2);
const LINK_LIMIT: OwnEvent = event(43, "Too many half-open connections: SYN flood", DENIAL, 1);
const DESTINATION_LIMIT: OwnEvent = event(
    44,
    "Too many half-open connections to a host: SYN flood",
    DENIAL,
    1,
);
/// What the firewall tells of.
pub const EVENTS: [OwnEvent; 5] = [ALLOWED, DENIED, SOURCE_LIMIT, LINK_LIMIT, DESTINATION_LIMIT];

/// A flow that a rule with `log` decided on, or that a limit refused. Joins: the earlier one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Wire, Value)]
#[join(min)]
pub struct Event {
    /// When, in seconds of the cluster's time.
    pub first: Tick,
    /// The rule's line in the file at that time; of a limit which end opens the flow, by [`Direction`].
    #[wire(varint)]
    pub line: u32,
    /// The flow.
    pub flow: Flow,
}

impl Event {
    /// The event as a notice; `action` is that of the rule now, `None` if there is none of this number any more.
    pub(super) fn notice(&self, subject: &Subject, action: Option<Action>, member: u16) -> Notice {
        let is_half_open = subject.rule < RULES_FROM;
        let ends = [Direction::Forth, Direction::Back].map(|way| self.flow.end(way));
        let is_forth = match is_half_open {
            true => self.line == Direction::Forth as u32,
            false => ends[0].0 == subject.source,
        };
        let (source, destination) = match is_forth {
            true => (ends[0], ends[1]),
            false => (ends[1], ends[0]),
        };
        let protocol = self.flow.protocol().0;
        let end = |end: (Host, u16)| match has_ports(protocol) {
            true => End::endpoint(end),
            false => End::host(end.0),
        };
        let known = |event| Notice {
            first: Some(self.first),
            source: end(source),
            destination: end(destination),
            protocol: Some(protocol),
            outcome: Outcome::Dropped,
            ..Notice::of(event, member)
        };
        if is_half_open {
            // Of many together the sources are forged, and say nothing.
            return match subject.rule {
                HALF_OPEN => Notice {
                    source: End::host(source.0),
                    ..known(&SOURCE_LIMIT)
                },
                HALF_OPEN_TO => Notice {
                    source: End::default(),
                    destination: End::host(destination.0),
                    ..known(&DESTINATION_LIMIT)
                },
                link => Notice {
                    source: End::default(),
                    detail: match link == HALF_OPEN_BY_LINK[Link::Inside as usize] {
                        true => "begun inside".to_owned(),
                        false => "begun outside".to_owned(),
                    },
                    ..known(&LINK_LIMIT)
                },
            };
        }
        let (event, outcome) = match action {
            Some(Action::Allow) => (&ALLOWED, Outcome::Passed),
            Some(Action::Drop | Action::Reject | Action::Block(_)) => (&DENIED, Outcome::Dropped),
            None => (&DENIED, Outcome::Unknown),
        };
        Notice {
            outcome,
            flow: Some(self.flow.hash(0)),
            detail: match self.flow.vlan() {
                Vlan::NONE => format!("rule of line {}", self.line),
                vlan => format!("rule of line {}, VLAN {vlan}", self.line),
            },
            ..known(event)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_blocking::blocked::{HELD_S, SECONDS_MAX};
    use asterism_function::{Reader, Writer, laws};
    use core::net::Ipv4Addr;

    #[test]
    fn values_join_as_the_law_says() {
        let flow = Flow::decode(&mut Reader::new(
            &[4, 255, 1, 2, 3, 4, 4, 255, 5, 6, 7, 8, 1, 0, 2, 0, 6],
            &[],
        ));
        let flow = flow.expect("a flow");
        let event = |draw: u64| Event {
            first: (draw % 3) as u32,
            line: (draw / 3 % 3) as u32,
            flow,
        };
        let block = |draw: u64| Block::new((draw % 5) as u32, (draw / 5 % 4) as u32, 7);
        for draw in 0..200 {
            laws::value(event(draw), event(draw * 7 + 1), event(draw * 5 + 2));
            laws::value(block(draw), block(draw * 7 + 1), block(draw * 5 + 2));
        }
        let mut bytes = Vec::new();
        let subject = Subject {
            rule: 7,
            source: Ipv4Addr::LOCALHOST.into(),
        };
        subject.encode(&mut Writer::new(&mut bytes, &[]));
        event(5).encode(&mut Writer::new(&mut bytes, &[]));
        let mut input = Reader::new(&bytes, &[]);
        assert_eq!(Subject::decode(&mut input), Ok(subject));
        assert_eq!(Event::decode(&mut input), Ok(event(5)));
        assert!(input.is_empty());
    }

    #[test]
    fn a_block_is_held_as_long_as_it_lasts_and_by_no_longer_class_than_needed() {
        for seconds in [1, 59, 60, 61, 600, 601, 3_600, 86_401, SECONDS_MAX] {
            let class = usize::from(Block::new(5, seconds, 1).class());
            assert!(HELD_S[class] >= seconds, "{seconds} s");
            assert!(class == 0 || HELD_S[class - 1] < seconds, "{seconds} s");
        }
        // What a member of another build may write has a class, too.
        assert_eq!(Block::new(5, Tick::MAX, 1).class(), 7);
    }
}
