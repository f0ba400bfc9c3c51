//! New flows, and all that is dropped. Imports `mod.rs`'s state and function, and what lies beside it.

use asterism_function::{Act, Ask, At, Late, Reason, Single, Tally, Vacancy, Verdict};

use super::flow::{Direction, Flow};
use super::note::{Block, Event, HALF_OPEN, Subject};
use super::rules::{Action, Link, Query, Rule};
use super::track::{Track, has_ports};
use super::{BEGUN, Firewall, FirewallState, SETTLED, first_fragment, metrics, other, remember};
use crate::host::Host;

/// What is written whatever a rule decides.
struct Notes {
    /// Of the rule, and of what it decided.
    hits: [Option<Tally<u32>>; 2],
    event: Note,
}

/// An event that is to be noted.
enum Note {
    /// There is none, or it is noted already.
    None,
    New(Vacancy, Subject, Event),
    NoRoom,
}

/// The change of a source's block.
enum Change {
    None,
    Update(At<Single<Host>, Block>, Block),
    Insert(Vacancy, Host, Block),
    NoRoom,
}

/// A source and all sources together: connections that they began, to be counted up.
type Handshakes = [Option<Tally<(Host, u8)>>; 2];

impl Firewall {
    /// A packet that may open a flow, by the rules.
    #[inline(never)]
    pub(super) fn open(
        &self,
        ask: Ask<'_, FirewallState>,
        link: Link,
        flow: Flow,
        direction: Direction,
    ) -> Result<Verdict, Late> {
        let track = match Track::opened(ask.packet(), direction, self.config.picks_up) {
            Ok(track) => track,
            Err(reason) => return self.refuse(&ask, reason),
        };
        let (source, source_port) = flow.end(direction);
        let (destination, destination_port) = flow.end(direction.reversed());
        let protocol = flow.protocol().0;
        let port = |port| if has_ports(protocol) { port } else { 0 };
        let (action, rule) = self.config.rules.decide(&Query {
            link,
            protocol,
            source,
            destination,
            source_port: port(source_port),
            destination_port: port(destination_port),
        });
        if action == Action::Allow {
            return self.admit(ask, (flow, direction), track, rule);
        }
        if !track.is_half_open() {
            // It may be an answer whose question another instance saw.
            self.settle(&ask)?;
        }
        let notes = Self::notes(&ask, (action, rule), flow, source)?;
        let change = match action {
            Action::Block(seconds) => {
                let number = rule.map_or(0, |rule| rule.number);
                let block = Block::new(ask.now(), seconds, number);
                Self::block(&ask, source, block)?
            }
            _ => Change::None,
        };
        let mut act = ask.act()?;
        notes.write(&mut act);
        change.write(&mut act);
        Ok(Verdict::Drop(Reason::Denied))
    }

    /// A packet that opens a flow which a rule allows.
    fn admit(
        &self,
        ask: Ask<'_, FirewallState>,
        (flow, direction): (Flow, Direction),
        track: Track,
        rule: Option<&Rule>,
    ) -> Result<Verdict, Late> {
        let (source, _) = flow.end(direction);
        let handshakes = if track.is_half_open() {
            match self.handshakes(&ask, source)? {
                Ok(handshakes) => handshakes,
                Err(who) => return Self::over_half_open(ask, (flow, direction), who),
            }
        } else {
            [None, None]
        };
        let notes = Self::notes(&ask, (Action::Allow, rule), flow, source)?;
        let fragment = first_fragment(&ask)?;
        let Some(vacancy) = ask.flows.vacancy()? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        let out = other(&ask);
        let mut act = ask.act()?;
        act.flows.insert(vacancy, flow, track);
        for tally in handshakes.iter().flatten() {
            act.handshakes.add(tally, 1);
        }
        notes.write(&mut act);
        remember(&mut act, fragment);
        Ok(Verdict::Forward(out))
    }

    /// The counters of connections that a source begins. `Err`: who has too many half-open ones, the source or [`Host::default`] for
    /// all. A source for which there is no counter left is bound by the limit of all.
    fn handshakes(
        &self,
        ask: &Ask<'_, FirewallState>,
        source: Host,
    ) -> Result<Result<Handshakes, Host>, Late> {
        let all = Host::default();
        let begun = (
            ask.handshakes.find(&(source, BEGUN)),
            ask.handshakes.find(&(all, BEGUN)),
        );
        let settled = (
            ask.handshakes.get(&(source, SETTLED)),
            ask.handshakes.get(&(all, SETTLED)),
        );
        let ((own_begun, all_begun), (own_settled, all_settled)) =
            ask.all((ask.all(begun), ask.all(settled)))?;
        let half_open = |begun: &Option<Tally<(Host, u8)>>, settled: u64| {
            let begun = begun.as_ref().map_or(0, |tally| tally.total);
            begun.saturating_sub(settled)
        };
        let is_own = half_open(&own_begun, own_settled) >= self.config.half_open_per_source.into();
        let is_all = half_open(&all_begun, all_settled) >= self.config.half_open_total.into();
        Ok(match (is_own, is_all) {
            (true, _) => Err(source),
            (_, true) => Err(all),
            _ => Ok([own_begun, all_begun]),
        })
    }

    /// A packet that would open one half-open connection too many: noted once a minute.
    #[inline(never)]
    fn over_half_open(
        ask: Ask<'_, FirewallState>,
        (flow, direction): (Flow, Direction),
        who: Host,
    ) -> Result<Verdict, Late> {
        let subject = Subject {
            rule: HALF_OPEN,
            source: who,
        };
        let event = Event {
            first: ask.now(),
            line: direction as u32,
            flow,
        };
        match Self::note(&ask, subject, event)? {
            Note::None => {}
            note => note.write(&mut ask.act()?),
        }
        Ok(Verdict::Drop(Reason::HalfOpenLimit))
    }

    fn notes(
        ask: &Ask<'_, FirewallState>,
        (action, rule): (Action, Option<&Rule>),
        flow: Flow,
        source: Host,
    ) -> Result<Notes, Late> {
        let number = rule.map_or(0, |rule| rule.number);
        let hits = (
            ask.hits.find(&number),
            ask.hits.find(&metrics::number_of(action)),
        );
        let hits = ask.all(hits).map(|(of_rule, of_all)| [of_rule, of_all]);
        let Some(rule) = rule.filter(|rule| rule.logs) else {
            return Ok(Notes {
                hits: hits?,
                event: Note::None,
            });
        };
        let subject = Subject {
            rule: number,
            source,
        };
        let event = Event {
            first: ask.now(),
            line: rule.line,
            flow,
        };
        let (hits, event) = ask.all((hits, Self::note(ask, subject, event)))?;
        Ok(Notes { hits, event })
    }

    /// An event, unless it is noted already.
    fn note(ask: &Ask<'_, FirewallState>, subject: Subject, event: Event) -> Result<Note, Late> {
        if ask.events.get(&subject)?.is_some() {
            return Ok(Note::None);
        }
        Ok(match ask.events.vacancy()? {
            Some(vacancy) => Note::New(vacancy, subject, event),
            None => Note::NoRoom,
        })
    }

    fn block(ask: &Ask<'_, FirewallState>, source: Host, block: Block) -> Result<Change, Late> {
        Ok(match ask.blocked.get(&source)? {
            Some(at) => Change::Update(at, block),
            None => match ask.blocked.vacancy()? {
                Some(vacancy) => Change::Insert(vacancy, source, block),
                None => Change::NoRoom,
            },
        })
    }

    /// Drops a packet that fits no flow, once no other instance can have seen what would make it fit.
    #[inline(never)]
    pub(super) fn refuse(
        &self,
        ask: &Ask<'_, FirewallState>,
        reason: Reason,
    ) -> Result<Verdict, Late> {
        if reason != Reason::BadTcpFlags {
            self.settle(ask)?;
        }
        Ok(Verdict::Drop(reason))
    }

    fn settle(&self, ask: &Ask<'_, FirewallState>) -> Result<(), Late> {
        match self.config.settle_us {
            0 => Ok(()),
            us => ask.expect(us.into()),
        }
    }
}

impl Notes {
    fn write(self, act: &mut Act<'_, FirewallState>) {
        for hits in self.hits.iter().flatten() {
            act.hits.add(hits, 1);
        }
        self.event.write(act);
    }
}

impl Note {
    fn write(self, act: &mut Act<'_, FirewallState>) {
        match self {
            Self::None => {}
            Self::New(vacancy, subject, event) => act.events.insert(vacancy, subject, event),
            Self::NoRoom => act.events_without_room.add(1),
        }
    }
}

impl Change {
    fn write(self, act: &mut Act<'_, FirewallState>) {
        match self {
            Self::None => {}
            Self::Update(at, block) => act.blocked.update(&at, block),
            Self::Insert(vacancy, source, block) => act.blocked.insert(vacancy, source, block),
            Self::NoRoom => act.blocks_without_room.add(1),
        }
    }
}
