//! Packets that would open a flow, and the reservations needed to allow them.

use asterism_function::{Act, Ask, Host, Late, PortNumber, Reason, Stop, Vacancy, Verdict};

use crate::flow::{Direction, Flow, Link};
use crate::fragments::FirstFragment;
use crate::half_open::Tallies;
use crate::state::Tracks;
use crate::track::Track;
use crate::tracker::{Known, Tracker, across};

/// A packet that would open a flow: whether it may is for the function to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// The flow.
    pub flow: Flow,
    /// The packet's direction.
    pub direction: Direction,
    /// Where the packet came in.
    pub link: Link,
    /// What is known of the flow with it.
    pub track: Track,
    /// The flow is known, and goes on if the packet passes.
    within: Option<Known>,
}

impl Opening {
    /// Of which its flow alone was looked at.
    #[inline(always)]
    pub(crate) fn new(flow: Flow, direction: Direction, link: Link) -> Self {
        Self {
            flow,
            direction,
            link,
            track: Track::default(),
            within: None,
        }
    }

    /// Of a SYN with other numbers that would pass to a connection which is known.
    pub(crate) fn within(self, known: Known, track: Track) -> Self {
        Self {
            track,
            within: Some(known),
            ..self
        }
    }

    /// Who opens it, as [`Flow::endpoint`] has it.
    #[inline]
    #[must_use]
    pub const fn source(&self) -> (Host, u16) {
        self.flow.endpoint(self.direction)
    }

    /// The recipient.
    #[inline]
    #[must_use]
    pub const fn destination(&self) -> (Host, u16) {
        self.flow.endpoint(self.direction.reversed())
    }
}

/// Why a flow that may open does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoRoom {
    /// There is no place for it in the table.
    Flows,
    /// Its source has too many half-open connections ([`Limits::per_source`](crate::Limits)).
    Source,
    /// Its destination has ([`Limits::per_destination`](crate::Limits)).
    Destination,
    /// The link that it begins on has ([`Limits::per_link`](crate::Limits)).
    Link,
}

impl NoRoom {
    /// Why its packet is dropped.
    #[inline]
    #[must_use]
    pub const fn reason(self) -> Reason {
        match self {
            Self::Flows => Reason::TableFull,
            Self::Source | Self::Destination | Self::Link => Reason::HalfOpenLimit,
        }
    }
}

/// Room for a flow that opens.
#[derive(Debug)]
#[must_use = "a flow opens when it is written"]
pub struct Admission {
    place: Place,
    track: Track,
    first: FirstFragment,
    tallies: Option<Tallies>,
    out: PortNumber,
}

/// Where a flow is written.
#[derive(Debug)]
enum Place {
    /// It begins.
    New(Vacancy, Flow),
    /// It is known, and goes on.
    Known(Known),
}

impl Admission {
    /// Opens the flow: its packet goes on by the other link.
    #[inline]
    pub fn pass<S: Tracks>(self, act: &mut Act<'_, S>) -> Verdict {
        let act = S::tracked_act(act);
        match self.place {
            Place::New(vacancy, flow) => {
                act.flows.insert(vacancy, flow, self.track);
            }
            Place::Known(known) => act.flows.update(&known, self.track),
        }
        if let (Some(tallies), Some(half_open)) = (&self.tallies, act.half_open) {
            tallies.write(half_open);
        }
        self.first.write(act.fragments);
        Verdict::Forward(self.out)
    }
}

impl Tracker {
    /// Room for a flow that begins, or in which one that is known goes on; `None`: the table is full.
    #[inline]
    pub(crate) fn admission<S: Tracks>(
        &self,
        ask: &Ask<'_, S>,
        (flow, within): (Flow, Option<Known>),
        track: Track,
        tallies: Option<Tallies>,
    ) -> Result<Option<Admission>, Late> {
        let (packet, tracked) = (ask.packet(), ask.tracked());
        let first = FirstFragment::of(packet, self.vlan(packet), tracked.fragments)?;
        let place = match within {
            Some(known) => Some(Place::Known(known)),
            None => {
                let vacancy = tracked.flows.vacancy()?;
                vacancy.map(|vacancy| Place::New(vacancy, flow))
            }
        };
        Ok(place.map(|place| Admission {
            place,
            track,
            first,
            tallies,
            out: across(ask),
        }))
    }

    /// Room for a flow that the function lets open; `Err`: there is none. Late where one of the objects is.
    #[inline]
    pub fn admits<S: Tracks>(
        &self,
        ask: &Ask<'_, S>,
        opening: &Opening,
    ) -> Result<Admission, Stop<NoRoom>> {
        let tallies = match ask.tracked().half_open {
            Some(half_open) if opening.track.is_half_open() => {
                let ends = (opening.source().0, opening.destination().0);
                Some(half_open.begins(&self.limits, opening.link, ends)?)
            }
            _ => None,
        };
        let of = (opening.flow, opening.within);
        let admission = self.admission(ask, of, opening.track, tallies)?;
        admission.ok_or(Stop::Refused(NoRoom::Flows))
    }

    /// Lets a flow open, for a function that writes nothing else then: [`Tracker::admits`] and [`Admission::pass`].
    pub fn open<S: Tracks>(&self, ask: Ask<'_, S>, opening: &Opening) -> Result<Verdict, Late> {
        match self.admits(&ask, opening) {
            Ok(admission) => Ok(admission.pass(&mut ask.act()?)),
            Err(stop) => stop.map(NoRoom::reason).dropped(),
        }
    }

    /// Drops a packet whose flow must not open, once no other instance can have seen what it answers.
    pub fn refuse<S: Tracks>(
        &self,
        ask: &Ask<'_, S>,
        opening: &Opening,
        reason: Reason,
    ) -> Result<Verdict, Late> {
        // A SYN answers nothing.
        if !opening.track.is_half_open() && opening.within.is_none() {
            self.settle(ask)?;
        }
        Ok(Verdict::Drop(reason))
    }
}
