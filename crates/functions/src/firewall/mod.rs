//! A stateful firewall between two links: rules decide on new flows, and packets of allowed flows pass (RFC 9293 for TCP;
//! pseudo-connections of UDP, ICMP queries and other protocols; IPv4 and IPv6).
//!
//! Packets leave by the other port unchanged. The [`Tracker`] (`asterism_tracking`, read it first) decides which packets
//! belong to a flow, and has the limits against floods. This file holds the state and the order of checks; `open.rs` new
//! flows, `reject.rs` answers to rejected flows, `note.rs` the records written about them; `rules.rs` and `text/` the rules,
//! `hits.rs` the decisions of each rule, `ends.rs` early ends of flows, `metrics.rs` the metrics.

mod config;
mod ends;
mod hits;
mod metrics;
mod note;
mod open;
mod reject;
mod rules;
mod text;

use asterism_forwarding::{ERRORS_IDLE, ERRORS_MAX, Errors};
use asterism_function::notice;
use asterism_function::objects::hash;
use asterism_function::{
    Ask, Builder, CONTROL, Counter, Counters, Late, Map, NetworkFunction, Observable, OwnEvent,
    OwnMetric, Reason, Tick, Verdict, state,
};
use asterism_tracking::{
    ByHost, ByLink, Flows, Fragments, Limits, Tracker, flows, fragments, half_open, tracks,
};

use crate::mutant::{self, Mutant};
use asterism_blocking::blocked::{BLOCKED_QUESTION, HELD_S};
pub use asterism_function::Host;
pub use asterism_tracking::{Datagram, Direction, Flow, IdleTimes, Link, Track};
pub use config::FirewallConfig;
pub use ends::{ENDED_AT_ONCE_MAX, FLOWS_QUESTION, KnownFlow, end_frame};
pub use hits::{HITS_QUESTION, RuleHits};
pub use note::{
    BY_HAND, Block, DENIED, EVENTS, Event, HALF_OPEN, HALF_OPEN_BY_LINK, HALF_OPEN_TO, Subject,
};
pub use rules::{Action, Query, RANGES_MAX, RULES_MAX, Rule, Rules, TooMany};
pub use text::{MISTAKES_MAX, RULE_FILE_BYTES_MAX, RuleMistake, read as read_rules};

/// What the instances of a firewall share.
#[state]
#[derive(Debug)]
pub struct FirewallState {
    /// What was seen of each flow.
    pub flows: Flows,
    /// TCP connections begun (0) and completed or refused (1) within the last minute, by source.
    pub handshakes: ByHost,
    /// The same by destination; empty without a limit for each.
    pub destinations: ByHost,
    /// The same of all that began inside (0, 1) and outside (2, 3).
    pub links: ByLink,
    /// Fragmented datagrams whose first fragment passed.
    pub fragments: Fragments,
    /// Sources that are blocked, by rules or manually.
    pub blocked: Map<Host, Block>,
    /// New flows by the number of the rule that decided on them; 0 is the default. And by what was decided, under numbers of their
    /// own (`metrics.rs`).
    pub hits: Counters<u32>,
    /// What rules with `log` decided on, and who met a limit: one entry for each rule and source within a minute.
    pub events: Map<Subject, Event>,
    /// Flows answered for a rule that rejects, by link, in the current second. Best `local`: nobody else needs it.
    pub answers: Errors,
    /// Packets whose source was not blocked for want of room.
    pub blocks_without_room: Counter,
    /// Packets that were not noted for want of room.
    pub events_without_room: Counter,
}
tracks!(FirewallState, half_open);

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
        let mut events = Vec::with_capacity(self.events.len_now());
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
    tracker: Tracker,
}

impl Firewall {
    /// A firewall.
    #[must_use]
    pub fn new(config: FirewallConfig) -> Self {
        let tracker = Tracker {
            picks_up: config.picks_up,
            asymmetric: config.asymmetric,
            per_vlan: config.per_vlan,
            settle_us: config.settle_us,
            limits: Limits {
                per_source: config.half_open_per_source,
                per_destination: config.half_open_per_destination,
                per_link: config.half_open_total,
            },
        };
        Self { config, tracker }
    }

    /// What the operator chose.
    #[must_use]
    pub fn config(&self) -> &FirewallConfig {
        &self.config
    }

    /// Whether everything from the packet's source is dropped. Costs a comparison while nobody is blocked.
    #[inline(always)]
    fn is_blocked(ask: &Ask<'_, FirewallState>) -> Result<bool, Late> {
        match ask.blocked.is_empty() {
            Ok(true) => Ok(false),
            is_empty => Self::is_source_blocked(ask, is_empty),
        }
    }

    #[inline(never)]
    fn is_source_blocked(
        ask: &Ask<'_, FirewallState>,
        is_empty: Result<bool, Late>,
    ) -> Result<bool, Late> {
        let Some((source, _)) = Host::ends(ask.packet()) else {
            return is_empty.map(|_| false);
        };
        // Both at once: where answers are late, one wait serves both.
        let (_, block) = ask.all((is_empty, ask.blocked.get(&source)))?;
        Ok(block.is_some_and(|block| ask.now() < block.value.until))
    }
}

impl NetworkFunction for Firewall {
    type State = FirewallState;

    fn state(&self, builder: &Builder) -> FirewallState {
        let config = &self.config;
        let rules_max = RULES_MAX as u32;
        let others = ["fragments", "events", "blocked", "answers"];
        builder.writing(ENDED_AT_ONCE_MAX as u32, &others.map(|object| (object, 1)));
        let flows = flows(builder, config.flows_max, &config.idle);
        let (handshakes, destinations, links) =
            half_open(builder, config.sources_max, config.destinations_max);
        FirewallState {
            flows,
            handshakes,
            destinations,
            links,
            fragments: fragments(builder, config.fragments_max),
            blocked: builder.table("blocked", config.blocked_max, &HELD_S),
            hits: builder.counters("hits", 2 * rules_max),
            events: builder.table("events", config.events_max, &config::EVENT_IDLE),
            answers: builder.table("answers", ERRORS_MAX, &ERRORS_IDLE),
            blocks_without_room: builder.counter("blocks_without_room"),
            events_without_room: builder.counter("events_without_room"),
        }
    }

    #[inline(always)]
    fn packet(&self, ask: Ask<'_, FirewallState>) -> Result<Verdict, Late> {
        let link = match Link::of(ask.port()) {
            Some(Link::Outside) if mutant::active(Mutant::SidesMistaken) => Link::Inside,
            Some(link) => link,
            None if ask.port() == CONTROL => return Self::reported(ask),
            None => return Ok(Verdict::Drop(Reason::NotForUs)),
        };
        if Self::is_blocked(&ask)? {
            return Ok(Verdict::Drop(Reason::Blocked));
        }
        self.tracker
            .follow(ask, link, |ask, opening| self.open(ask, opening))
    }

    fn observable(&self) -> Option<&dyn Observable<FirewallState>> {
        Some(self)
    }

    /// Rules are left out, and what of a connection must be seen: hosts may have different ones for as long as a change takes.
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
        bytes.push(config.per_vlan.into());
        hash::bytes(&bytes, 0x4649_5245_5741_4C02)
    }
}

impl Observable<FirewallState> for Firewall {
    /// What rules with `log` decided on and limits refused, as [`Notice::read_all`](notice::Notice::read_all) reads it; how often
    /// each rule decided, as [`RuleHits`]; which flows are known, as [`KnownFlow`]; who is blocked, as [`BlockedRecord`](asterism_blocking::blocked::BlockedRecord).
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
        if question == FLOWS_QUESTION {
            return self.report_flows(state, range, out);
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

    fn metrics(&self) -> &[OwnMetric] {
        &metrics::METRICS
    }

    fn measure(&self, state: &FirewallState, values: &mut Vec<u64>) {
        state.measure(values);
    }

    fn events(&self) -> &[OwnEvent] {
        &EVENTS
    }
}
