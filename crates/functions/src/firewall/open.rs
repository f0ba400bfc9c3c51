//! New flows, all that is dropped, and who is blocked by hand. Imports `mod.rs`'s state and function, and what lies beside it.

use asterism_function::{Act, Ask, At, Host, Late, Reason, Single, Tally, Vacancy, Verdict};

use super::flow::{Direction, Flow};
use super::note::{BY_HAND, Block, Event, Subject};
use super::rules::{Action, Link, Query, Rule};
use super::track::{Track, has_ports};
use super::{Firewall, FirewallState, Known, first_fragment, metrics, other, remember};
use asterism_blocking::by_hand;

/// What is written whatever a rule decides.
struct Notes {
    /// Of the rule, and of what it decided.
    hits: [Option<Tally<u32>>; 2],
    event: Note,
}

/// An event that is to be noted.
pub(super) enum Note {
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
        let track = match Track::opened(ask.packet(), (direction, link), self.config.picks_up) {
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
            return self.admit(ask, (link, flow, direction), track, rule);
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
        (link, flow, direction): (Link, Flow, Direction),
        track: Track,
        rule: Option<&Rule>,
    ) -> Result<Verdict, Late> {
        let (source, _) = flow.end(direction);
        let tallies = if track.is_half_open() {
            let (destination, _) = flow.end(direction.reversed());
            match self.begins(&ask, link, (source, destination))? {
                Ok(tallies) => Some(tallies),
                Err(subject) => return Self::over_half_open(ask, (flow, direction), subject),
            }
        } else {
            None
        };
        let notes = Self::notes(&ask, (Action::Allow, rule), flow, source)?;
        let fragment = first_fragment(&ask)?;
        let Some(vacancy) = ask.flows.vacancy()? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        let out = other(&ask);
        let mut act = ask.act()?;
        act.flows.insert(vacancy, flow, track);
        if let Some(tallies) = tallies {
            tallies.write(&mut act);
        }
        notes.write(&mut act);
        remember(&mut act, fragment);
        Ok(Verdict::Forward(out))
    }

    /// A connection that both ends have begun anew in the place of one that is known.
    #[cold]
    #[inline(never)]
    pub(super) fn anew(
        ask: Ask<'_, FirewallState>,
        flow: Flow,
        track: Track,
    ) -> Result<Verdict, Late> {
        let fragment = first_fragment(&ask)?;
        let Some(vacancy) = ask.flows.vacancy()? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        let out = other(&ask);
        let mut act = ask.act()?;
        act.flows.insert(vacancy, flow, track);
        remember(&mut act, fragment);
        Ok(Verdict::Forward(out))
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
    pub(super) fn note(
        ask: &Ask<'_, FirewallState>,
        subject: Subject,
        event: Event,
    ) -> Result<Note, Late> {
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

    /// Blocks a source by hand, or lifts its block, whichever rule began it.
    #[cold]
    #[inline(never)]
    pub(super) fn told(ask: Ask<'_, FirewallState>) -> Result<Verdict, Late> {
        let Some((source, seconds)) = by_hand::of_source(ask.packet().bytes()) else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let block = seconds.map(|seconds| Block::new(ask.now(), seconds, BY_HAND));
        let change = by_hand::Change::new(&ask.blocked, source, block)?;
        Ok(change.write(&mut ask.act()?.blocked))
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

    /// The same of a packet that does not fit a flow which is known. What fits none, whatever others tell, does not wait: a
    /// packet that waits holds up its flow, and one of these is forged with an address and two ports.
    #[cold]
    #[inline(never)]
    pub(super) fn refuse_known(
        &self,
        ask: &Ask<'_, FirewallState>,
        known: &Known,
        direction: Direction,
        reason: Reason,
    ) -> Result<Verdict, Late> {
        if !known.value.may_yet_pass(ask.packet(), direction) {
            return Ok(Verdict::Drop(reason));
        }
        self.refuse(ask, reason)
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
    pub(super) fn write(self, act: &mut Act<'_, FirewallState>) {
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
