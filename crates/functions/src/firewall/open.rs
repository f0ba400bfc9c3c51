//! New flows by the rules, what is noted of them, and who is blocked manually.

use asterism_blocking::manual;
use asterism_function::{Act, Ask, Entry, Host, Late, Reason, Tally, Verdict};
use asterism_tracking::{Flow, NoRoom, Opening};

use super::note::{BY_HAND, Block, Event, HALF_OPEN, HALF_OPEN_BY_LINK, HALF_OPEN_TO, Subject};
use super::rules::{Action, Query, Rule, destination_of};
use super::{Firewall, FirewallState, metrics};

/// What is written whatever a rule decides.
struct Notes {
    /// Of the rule, and of what it decided.
    hits: [Option<Tally<u32>>; 2],
    /// Of a rule with `log`.
    event: Option<Note>,
}

/// An event that is to be noted, unless it is already.
struct Note {
    room: Entry<Subject, Event>,
    event: Event,
}

impl Firewall {
    /// A packet that would open a flow, by the rules.
    pub(super) fn open(
        &self,
        ask: Ask<'_, FirewallState>,
        opening: &Opening,
    ) -> Result<Verdict, Late> {
        let (source, source_port) = opening.source();
        let (destination, destination_port) = destination_of(&opening.flow, opening.direction);
        let (action, rule) = self.config.rules.decide(&Query {
            link: opening.link,
            protocol: opening.flow.protocol().0,
            source,
            destination,
            source_port,
            destination_port,
        });
        let admission = match action {
            Action::Allow => match self.tracker.admits(&ask, opening) {
                Ok(admission) => Ok(admission),
                Err(stop) => return Self::without_room(ask, opening, stop.refused()?),
            },
            Action::Drop | Action::Reject | Action::Block(_) => {
                Err(self.tracker.refuse(&ask, opening, Reason::Denied)?)
            }
        };
        let notes = Notes::of(&ask, opening, action, rule)?;
        let block = match action {
            Action::Block(seconds) => {
                let block = Block::new(ask.now(), seconds, number_of(rule));
                Some((ask.blocked.entry(source)?, block))
            }
            Action::Allow | Action::Drop | Action::Reject => None,
        };
        let answer = match action {
            Action::Reject => self.answer(&ask, opening.link)?,
            _ => None,
        };
        let port = ask.port();
        let mut act = ask.act()?;
        notes.write(&mut act);
        if let Some((room, block)) = block
            && !act.blocked.put(room, block)
        {
            act.blocks_without_room.add(1);
        }
        if let Some(answer) = answer {
            answer.send(&mut act, port);
        }
        Ok(match admission {
            Ok(admission) => admission.pass(&mut act),
            Err(refused) => refused,
        })
    }

    /// A flow that a rule allows, and for which there is no room. Of half-open connections that is noted once a minute.
    #[inline(never)]
    fn without_room(
        ask: Ask<'_, FirewallState>,
        opening: &Opening,
        none: NoRoom,
    ) -> Result<Verdict, Late> {
        let (rule, source) = match none {
            NoRoom::Flows => return Ok(Verdict::Drop(none.reason())),
            NoRoom::Source => (HALF_OPEN, opening.source().0),
            NoRoom::Destination => (HALF_OPEN_TO, opening.destination().0),
            NoRoom::Link => (HALF_OPEN_BY_LINK[opening.link as usize], Host::default()),
        };
        let subject = Subject { rule, source };
        let note = Note::of(&ask, subject, opening.direction as u32, opening.flow)?;
        if !note.is_known() {
            note.write(&mut ask.act()?);
        }
        Ok(Verdict::Drop(none.reason()))
    }

    /// What the control side has it do: block a source, lift its block, whichever rule began it, or end flows.
    #[cold]
    #[inline(never)]
    pub(super) fn reported(ask: Ask<'_, FirewallState>) -> Result<Verdict, Late> {
        let Some((source, seconds)) = manual::of_source(ask.packet().bytes()) else {
            return Self::end(ask);
        };
        let block = seconds.map(|seconds| Block::new(ask.now(), seconds, BY_HAND));
        let change = manual::Change::new(&ask.blocked, source, block)?;
        Ok(change.write(&mut ask.act()?.blocked))
    }
}

/// What hits of a rule are counted under.
fn number_of(rule: Option<&Rule>) -> u32 {
    rule.map_or(0, |rule| rule.number)
}

impl Notes {
    fn of(
        ask: &Ask<'_, FirewallState>,
        opening: &Opening,
        action: Action,
        rule: Option<&Rule>,
    ) -> Result<Self, Late> {
        let hits = (
            ask.hits.find(&number_of(rule)),
            ask.hits.find(&metrics::number_of(action)),
        );
        let hits = ask.all(hits).map(<[_; 2]>::from);
        let note = |rule: &Rule| {
            let subject = Subject {
                rule: rule.number,
                source: opening.source().0,
            };
            Note::of(ask, subject, rule.line, opening.flow)
        };
        let event = rule.filter(|rule| rule.logs).map(note).transpose();
        let (hits, event) = ask.all((hits, event))?;
        Ok(Self { hits, event })
    }

    fn write(self, act: &mut Act<'_, FirewallState>) {
        for hits in self.hits.iter().flatten() {
            act.hits.add(hits, 1);
        }
        if let Some(event) = self.event {
            event.write(act);
        }
    }
}

impl Note {
    fn of(
        ask: &Ask<'_, FirewallState>,
        subject: Subject,
        line: u32,
        flow: Flow,
    ) -> Result<Self, Late> {
        let first = ask.now();
        let room = ask.events.entry(subject)?;
        let event = Event { first, line, flow };
        Ok(Self { room, event })
    }

    fn is_known(&self) -> bool {
        self.room.value().is_some()
    }

    fn write(self, act: &mut Act<'_, FirewallState>) {
        if !self.is_known() && !act.events.put(self.room, self.event) {
            act.events_without_room.add(1);
        }
    }
}
