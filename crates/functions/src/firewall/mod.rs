//! A stateful firewall between two links: new flows pass by rules, what belongs to them passes because it does
//! (RFC 9293 for TCP; pseudo-connections of UDP, ICMP queries and other protocols; IPv4 and IPv6). Imports
//! `asterism_function` only.
//!
//! Packets leave by the other port as they came in. The state of a flow is a value that joins (`track.rs`, read it first),
//! so a SYN that one instance saw and the SYN-ACK that another saw are one handshake. A packet that fits no flow *yet* may have
//! overtaken what makes it fit: before it is dropped it waits as long as other instances take to tell
//! ([`FirewallConfig::settle_us`]). This file holds the state and the path of known flows; `open.rs` has new ones and all
//! that is dropped, `half_open.rs` the limits against floods; `flow.rs` says which flow a packet is of, `segment.rs` what of TCP is read; `rules.rs` and `text.rs` are the rules, `hits.rs`
//! tells how often each decided, `metrics.rs` what programs see.

mod config;
mod flow;
mod half_open;
mod hits;
mod metrics;
mod note;
mod open;
mod rules;
mod segment;
mod text;
mod track;

use asterism_function::notice;
use asterism_function::objects::hash;
use asterism_function::{
    Act, Ask, At, Builder, CONTROL, Counter, Counters, Fragment, Late, Map, NetworkFunction,
    OwnEvent, OwnMetric, PortNumber, Reason, Single, Tick, Vacancy, Verdict, Window,
    WindowedCounters, state,
};

use crate::mutant::{self, Mutant};
use asterism_blocking::blocked::{BLOCKED_QUESTION, HELD_S};
pub use asterism_function::Host;
pub use config::{FirewallConfig, IdleTimes};
pub use flow::{Direction, Flow};
pub use hits::{HITS_QUESTION, RuleHits};
pub use note::{
    BY_HAND, Block, DENIED, Datagram, EVENTS, Event, HALF_OPEN, HALF_OPEN_BY_LINK, HALF_OPEN_TO,
    Subject,
};
pub use rules::{Action, Link, Query, RANGES_MAX, RULES_MAX, Rule, Rules, TooMany};
pub use text::{MISTAKES_MAX, RULE_FILE_BYTES_MAX, RuleMistake, read as read_rules};
pub use track::Track;

use flow::Kind;
use track::Judged;

/// What the instances of a firewall share.
#[state]
#[derive(Debug)]
pub struct FirewallState {
    /// What was seen of each flow.
    pub flows: Map<Flow, Track>,
    /// TCP connections begun (0) and completed or refused (1) within the last minute, by source.
    pub handshakes: WindowedCounters<(Host, u8)>,
    /// The same by destination; empty without a limit for each.
    pub destinations: WindowedCounters<(Host, u8)>,
    /// The same of all that began inside (0, 1) and outside (2, 3).
    pub links: WindowedCounters<u32>,
    /// Fragmented datagrams whose first fragment passed.
    pub fragments: Map<Datagram, ()>,
    /// Sources that are blocked, by rules or by hand.
    pub blocked: Map<Host, Block>,
    /// New flows by the number of the rule that decided on them; 0 is the default. And by what was decided, under numbers of their
    /// own (`metrics.rs`).
    pub hits: Counters<u32>,
    /// What rules with `log` decided on, and who met a limit: one entry for each rule and source within a minute.
    pub events: Map<Subject, Event>,
    /// Packets whose source was not blocked for want of room.
    pub blocks_without_room: Counter,
    /// Packets that were not noted for want of room.
    pub events_without_room: Counter,
}

impl FirewallState {
    /// Sources that are blocked at time `now`, with the end of their block; sorted. For the control plane: walks the table
    /// and allocates.
    #[must_use]
    pub fn blocked(&self, now: Tick) -> Vec<(Host, Block)> {
        let mut blocked = Vec::new();
        self.blocked.for_each(|row, block| {
            if now < block.until {
                blocked.push((row.0, *block));
            }
        });
        blocked.sort_by_key(|(source, _)| *source);
        blocked
    }

    /// What was noted within the last minute, the oldest first. For the control plane.
    #[must_use]
    pub fn events(&self) -> Vec<(Subject, Event)> {
        let mut events = Vec::with_capacity(self.events.len());
        self.events
            .for_each(|row, event| events.push((row.0, *event)));
        events.sort_by_key(|(subject, event)| (event.first, *subject));
        events
    }
}

/// The firewall.
#[derive(Clone, Debug)]
pub struct Firewall {
    config: FirewallConfig,
}

/// A flow that was found.
type Known = At<Single<Flow>, Track>;

/// The datagram of a first fragment, to be remembered if the fragment passes.
type FirstFragment = Option<(Datagram, Vacancy)>;

/// The window of half-open connections: a minute, which is when they are forgotten.
const HANDSHAKES: Window = Window {
    buckets: 4,
    bucket_seconds: 15,
};
/// Counters of links: four, which each of up to 256 instances may come to need first and has to have room for.
const LINK_COUNTERS_MAX: u32 = 1 << 10;
/// Seconds after its last part after which a fragmented datagram is forgotten: senders send the parts one after the other, and one that
/// comes first waits for 100 ms alone. Longer would serve who wants the table full.
const FRAGMENTS_IDLE: [Tick; 1] = [1];
/// Microseconds for which a later fragment waits for the first one, parked.
const FIRST_WAIT_US: u64 = 100_000;
/// The least offset of a TCP fragment behind the header (RFC 3128 §3).
const TCP_HEADER_BYTES: u16 = 20;

impl Firewall {
    /// A firewall.
    #[must_use]
    pub fn new(config: FirewallConfig) -> Self {
        Self { config }
    }

    /// What the operator chose.
    #[must_use]
    pub fn config(&self) -> &FirewallConfig {
        &self.config
    }

    /// A packet of a known flow.
    #[inline(always)]
    fn known(
        &self,
        ask: Ask<'_, FirewallState>,
        link: Link,
        known: &Known,
        direction: Direction,
    ) -> Result<Verdict, Late> {
        let track = match known.value.judge(ask.packet(), direction, link) {
            Judged::Passes(track) => track,
            Judged::Anew(track) => return Self::anew(ask, known.row.0, track),
            Judged::Opens => return self.open(ask, link, known.row.0, direction),
            Judged::Refused(reason) => return self.refuse_known(&ask, known, direction, reason),
        };
        if known.value.is_half_open() || ask.packet().layout().fragment() != Fragment::Whole {
            return self.known_thorough(ask, known, track, direction);
        }
        let out = other(&ask);
        let mut act = ask.act()?;
        act.flows.update(known, track);
        Ok(Verdict::Forward(out))
    }

    /// The same of a packet of a half-open connection, and of a first fragment.
    #[inline(never)]
    fn known_thorough(
        &self,
        ask: Ask<'_, FirewallState>,
        known: &Known,
        track: Track,
        direction: Direction,
    ) -> Result<Verdict, Late> {
        let fragment = first_fragment(&ask)?;
        let was_half_open = known.value.is_half_open();
        let tallies = match known.value.is_settled_by(ask.packet(), direction, &track) {
            true => Some(self.settles(&ask, known)?),
            false => None,
        };
        let is_answer = was_half_open && direction != known.value.opener();
        let is_forgotten = mutant::active(Mutant::AnswerNotWritten) && is_answer;
        // What says nothing new does not hold a half-open connection: SYNs sent again would, beyond the minute for which it counts.
        let says_nothing = was_half_open && track == known.value;
        let out = other(&ask);
        let mut act = ask.act()?;
        if track.is_refused() && !is_forgotten {
            // Nobody holds a connection, and a flood of what a server refuses must not fill the table.
            act.flows.remove(known);
        } else if !is_forgotten && !says_nothing {
            act.flows.update(known, track);
        }
        if let Some(tallies) = tallies {
            tallies.write(&mut act);
        }
        remember(&mut act, fragment);
        Ok(Verdict::Forward(out))
    }

    /// Packets that are of no flow by themselves.
    #[inline(never)]
    fn uncommon(&self, ask: Ask<'_, FirewallState>, kind: Kind) -> Result<Verdict, Late> {
        let out = other(&ask);
        match kind {
            Kind::Link => Ok(Verdict::Forward(out)),
            Kind::Error(None) => Ok(Verdict::Drop(Reason::IcmpUnmatched)),
            Kind::Error(Some(flow)) => {
                // It neither refreshes nor ends the flow: anybody can forge it (RFC 5508 REQ-6, RFC 5927).
                if ask.flows.get(&flow)?.is_none() {
                    return self.refuse(&ask, Reason::IcmpUnmatched);
                }
                let fragment = first_fragment(&ask)?;
                remember(&mut ask.act()?, fragment);
                Ok(Verdict::Forward(out))
            }
            Kind::LaterFragment => self.later_fragment(ask),
            Kind::TinyFragment => Ok(Verdict::Drop(Reason::FragmentTiny)),
            Kind::UnknownIcmp | Kind::Foreign | Kind::Opens(..) | Kind::Answers(..) => {
                Ok(Verdict::Drop(Reason::UnsupportedProtocol))
            }
        }
    }

    /// A fragment without a transport header passes where the first one of its datagram did.
    fn later_fragment(&self, ask: Ask<'_, FirewallState>) -> Result<Verdict, Late> {
        let packet = ask.packet();
        let is_tcp = packet.layout().protocol() == asterism_function::Protocol::TCP.0;
        if is_tcp && packet.fragment_offset() < Some(TCP_HEADER_BYTES) {
            return Ok(Verdict::Drop(Reason::FragmentTiny));
        }
        let Some(datagram) = Datagram::of(packet) else {
            return Ok(Verdict::Drop(Reason::FragmentUnmatched));
        };
        let Some(known) = ask.fragments.get(&datagram)? else {
            // Perhaps it overtook the first one.
            ask.expect(FIRST_WAIT_US)?;
            return Ok(Verdict::Drop(Reason::FragmentUnmatched));
        };
        let out = other(&ask);
        let mut act = ask.act()?;
        act.fragments.touch(&known);
        Ok(Verdict::Forward(out))
    }

    /// Whether everything from the packet's source is dropped. Costs a comparison while nobody is blocked.
    #[inline(always)]
    fn is_blocked(ask: &Ask<'_, FirewallState>) -> Result<bool, Late> {
        if ask.blocked.is_empty() {
            return Ok(false);
        }
        Self::is_source_blocked(ask)
    }

    #[inline(never)]
    fn is_source_blocked(ask: &Ask<'_, FirewallState>) -> Result<bool, Late> {
        let Some((source, _)) = Host::ends(ask.packet()) else {
            return Ok(false);
        };
        let block = ask.blocked.get(&source)?;
        Ok(block.is_some_and(|block| ask.now() < block.value.until))
    }
}

/// The datagram of a first fragment, with room to remember it; without room its later fragments are dropped.
fn first_fragment(ask: &Ask<'_, FirewallState>) -> Result<FirstFragment, Late> {
    if ask.packet().layout().fragment() != Fragment::First {
        return Ok(None);
    }
    let vacancy = ask.fragments.vacancy()?;
    Ok(Datagram::of(ask.packet()).zip(vacancy))
}

fn remember(act: &mut Act<'_, FirewallState>, fragment: FirstFragment) {
    if let Some((datagram, vacancy)) = fragment {
        act.fragments.insert(vacancy, datagram, ());
    }
}

/// The port that a packet leaves by.
#[inline(always)]
fn other(ask: &Ask<'_, FirewallState>) -> PortNumber {
    PortNumber(ask.port().0 ^ 1)
}

impl NetworkFunction for Firewall {
    type State = FirewallState;

    fn state(&self, builder: &Builder) -> FirewallState {
        let config = &self.config;
        let rules_max = RULES_MAX as u32;
        FirewallState {
            flows: builder.table("flows", config.flows_max, &config.idle.classes()),
            // Two counters a host.
            handshakes: builder.windowed_counters(
                "handshakes",
                config.sources_max.saturating_mul(2),
                HANDSHAKES,
            ),
            destinations: builder.windowed_counters(
                "destinations",
                config.destinations_max.saturating_mul(2),
                HANDSHAKES,
            ),
            links: builder.windowed_counters("links", LINK_COUNTERS_MAX, HANDSHAKES),
            fragments: builder.table("fragments", config.fragments_max, &FRAGMENTS_IDLE),
            blocked: builder.table("blocked", config.blocked_max, &HELD_S),
            hits: builder.counters("hits", 2 * rules_max),
            events: builder.table("events", config.events_max, &config::EVENT_IDLE),
            blocks_without_room: builder.counter("blocks_without_room"),
            events_without_room: builder.counter("events_without_room"),
        }
    }

    #[inline(always)]
    fn packet(&self, ask: Ask<'_, FirewallState>) -> Result<Verdict, Late> {
        let link = match ask.port() {
            PortNumber(0) => Link::Inside,
            _ if mutant::active(Mutant::SidesMistaken) => Link::Inside,
            PortNumber(1) => Link::Outside,
            CONTROL => return Self::told(ask),
            _ => return Ok(Verdict::Drop(Reason::NotForUs)),
        };
        if Self::is_blocked(&ask)? {
            return Ok(Verdict::Drop(Reason::Blocked));
        }
        let kind = Kind::of(ask.packet());
        let (Kind::Opens(flow, direction) | Kind::Answers(flow, direction)) = kind else {
            return self.uncommon(ask, kind);
        };
        match ask.flows.get(&flow)? {
            Some(known) => self.known(ask, link, &known, direction),
            None if matches!(kind, Kind::Opens(..)) => self.open(ask, link, flow, direction),
            None => self.refuse(&ask, Reason::NoConnection),
        }
    }

    /// What rules with `log` decided on and limits refused, as [`Notice::read_all`](notice::Notice::read_all) reads it; how often
    /// each rule decided, as [`RuleHits`]; who is blocked, as [`BlockedRecord`](asterism_blocking::blocked::BlockedRecord).
    fn report(
        &self,
        state: &FirewallState,
        question: u32,
        range: (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        if question == HITS_QUESTION {
            return self.report_hits(state, range, out);
        }
        if question == BLOCKED_QUESTION {
            return self.report_blocked(state, range, out);
        }
        if question != notice::QUESTION {
            return None;
        }
        let rules = &self.config.rules;
        state.events.for_each_from(range, |row, event, member| {
            let action = rules.action_of(row.0.rule);
            event.notice(&row.0, action, member).write(out);
        })
    }

    fn events(&self) -> &[OwnEvent] {
        &EVENTS
    }

    fn metrics(&self) -> &[OwnMetric] {
        &metrics::METRICS
    }

    fn measure(&self, state: &FirewallState, values: &mut Vec<u64>) {
        state.measure(values);
    }

    /// Rules are left out: hosts may have different ones for as long as a change takes.
    fn schema(&self) -> u64 {
        let config = &self.config;
        let mut bytes = Vec::new();
        let counts = [
            config.flows_max,
            config.fragments_max,
            config.blocked_max,
            config.events_max,
            config.sources_max,
            config.destinations_max,
        ];
        for number in config.idle.classes().iter().chain(&counts) {
            bytes.extend(number.to_be_bytes());
        }
        hash::bytes(&bytes, 0x4649_5245_5741_4C02)
    }
}
