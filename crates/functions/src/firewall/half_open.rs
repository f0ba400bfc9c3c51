//! Limits on half-open TCP connections: begun by a source, to a destination, and by a link. Imports `mod.rs`'s state and function,
//! and what lies beside it.
//!
//! Each link counts by itself: sources outside can be forged as many as one likes, and what they begin must not take from those
//! inside. Sources, destinations and links are counted in tables of their own: forged sources fill theirs, and the other limits hold on.

use asterism_function::{Act, Ask, Host, Late, Reason, Tally, Verdict};

use super::flow::{Direction, Flow};
use super::note::{Event, HALF_OPEN, HALF_OPEN_BY_LINK, HALF_OPEN_TO, Subject};
use super::open::Note;
use super::rules::Link;
use super::{Firewall, FirewallState, Known};

/// What counts a host's connections under: those that began, and those that were completed or refused.
const BEGUN: u8 = 0;
const SETTLED: u8 = 1;

/// What a link's connections are counted under.
const fn of_link(link: Link, what: u8) -> u32 {
    (link as u32) << 1 | what as u32
}

type Counted = Option<Tally<(Host, u8)>>;

/// Counters of a connection that begins, or is half open no more: to be counted up.
pub(super) struct Tallies {
    source: Counted,
    link: Option<Tally<u32>>,
    destination: Counted,
}

impl Tallies {
    pub(super) fn write(&self, act: &mut Act<'_, FirewallState>) {
        if let Some(tally) = &self.source {
            act.handshakes.add(tally, 1);
        }
        if let Some(tally) = &self.link {
            act.links.add(tally, 1);
        }
        if let Some(tally) = &self.destination {
            act.destinations.add(tally, 1);
        }
    }
}

impl FirewallState {
    /// Half-open connections of both links now, as the limits count them.
    pub(super) fn half_open(&self) -> u64 {
        let each = [Link::Inside, Link::Outside].map(|link| {
            let [begun, settled] =
                [BEGUN, SETTLED].map(|what| self.links.total(&of_link(link, what)));
            begun.saturating_sub(settled)
        });
        each.iter().sum()
    }
}

impl Firewall {
    /// Whether destinations have a limit that another one does not imply.
    fn limits_destinations(&self) -> bool {
        self.config.half_open_per_destination < self.config.half_open_total
    }

    /// The counters of a connection that begins. `Err`: whose limit it would pass, as events name it. A host for which there is no
    /// counter left is bound by the limit of its link alone.
    pub(super) fn begins(
        &self,
        ask: &Ask<'_, FirewallState>,
        link: Link,
        (source, destination): (Host, Host),
    ) -> Result<Result<Tallies, Subject>, Late> {
        let begun = (
            ask.handshakes.find(&(source, BEGUN)),
            ask.links.find(&of_link(link, BEGUN)),
        );
        let settled = (
            ask.handshakes.get(&(source, SETTLED)),
            ask.links.get(&of_link(link, SETTLED)),
        );
        let of_destination = match self.limits_destinations() {
            true => ask.all((
                ask.destinations.find(&(destination, BEGUN)),
                ask.destinations.get(&(destination, SETTLED)),
            )),
            false => Ok((None, 0)),
        };
        let ((own_begun, all_begun), (own_settled, all_settled), (to_begun, to_settled)) =
            ask.all((ask.all(begun), ask.all(settled), of_destination))?;
        let reaches = |begun: Option<u64>, settled: u64, limit: u32| {
            begun.unwrap_or(0).saturating_sub(settled) >= limit.into()
        };
        let total = |counted: &Counted| counted.as_ref().map(|tally| tally.total);
        let config = &self.config;
        let met = |rule, source| Ok(Err(Subject { rule, source }));
        if reaches(total(&own_begun), own_settled, config.half_open_per_source) {
            return met(HALF_OPEN, source);
        }
        if self.limits_destinations()
            && reaches(
                total(&to_begun),
                to_settled,
                config.half_open_per_destination,
            )
        {
            return met(HALF_OPEN_TO, destination);
        }
        let all = all_begun.as_ref().map(|tally| tally.total);
        if reaches(all, all_settled, config.half_open_total) {
            return met(HALF_OPEN_BY_LINK[link as usize], Host::default());
        }
        Ok(Ok(Tallies {
            source: own_begun,
            link: all_begun,
            destination: to_begun,
        }))
    }

    /// The counters of a connection that is half open no more.
    pub(super) fn settles(
        &self,
        ask: &Ask<'_, FirewallState>,
        known: &Known,
    ) -> Result<Tallies, Late> {
        let opener = known.value.opener();
        let (source, _) = known.row.0.end(opener);
        let (destination, _) = known.row.0.end(opener.reversed());
        // By where it was begun, not by where this packet comes in: whoever forges the other end's must not settle for its link.
        let link = known.value.opened_on();
        let of_destination = match self.limits_destinations() {
            true => ask.destinations.find(&(destination, SETTLED)),
            false => Ok(None),
        };
        let (source, link, destination) = ask.all((
            ask.handshakes.find(&(source, SETTLED)),
            ask.links.find(&of_link(link, SETTLED)),
            of_destination,
        ))?;
        Ok(Tallies {
            source,
            link,
            destination,
        })
    }

    /// A packet that would open one half-open connection too many: noted once a minute.
    #[inline(never)]
    pub(super) fn over_half_open(
        ask: Ask<'_, FirewallState>,
        (flow, direction): (Flow, Direction),
        subject: Subject,
    ) -> Result<Verdict, Late> {
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
}
