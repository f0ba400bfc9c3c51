//! Hosts whose degree in the dispersion graph is too high.

use asterism_function::notice::{End, Notice};
use asterism_function::{Ask, Entry, Host, Key, Late, OwnEvent, Tick, Value, Wire};

use super::MonitorState;
use crate::events::{DENIAL, UNUSUAL, event};

const OUT_DEGREE: OwnEvent = event(30, "Host sends to too many others", UNUSUAL, 2);
const IN_DEGREE: OwnEvent = event(31, "Too many others send to host", DENIAL, 2);
/// What the monitor finds.
pub const EVENTS: [OwnEvent; 2] = [OUT_DEGREE, IN_DEGREE];

/// Which degree it is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Wire)]
pub enum Degree {
    /// Edges to others: it scans or spreads, or is a busy client.
    Out = 0,
    /// Edges from others: it is popular, or under attack.
    In = 1,
}

/// What an alarm is about: there is one for each host and degree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Wire)]
pub struct Suspect {
    /// The host.
    pub host: Host,
    /// Its degree.
    pub degree: Degree,
}

impl Key for Suspect {
    fn hash(&self, seed: u64) -> u64 {
        self.host.hash(seed ^ (self.degree as u64))
    }
}

/// That a degree was too high. Joins: the earliest time, the highest degree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
pub struct Alarm {
    /// When it was first seen.
    #[join(min)]
    pub first: Tick,
    /// The degree, brought up to date each time that it has doubled.
    #[join(max)]
    pub degree: u32,
}

impl Alarm {
    /// The alarm as a notice.
    pub(super) fn notice(&self, suspect: &Suspect, member: u16) -> Notice {
        let host = End::host(suspect.host);
        let (event, source, destination) = match suspect.degree {
            Degree::Out => (OUT_DEGREE, host, End::default()),
            Degree::In => (IN_DEGREE, End::default(), host),
        };
        Notice {
            first: Some(self.first),
            source,
            destination,
            detail: format!("{} others", self.degree),
            ..Notice::of(&event, member)
        }
    }
}

/// What becomes of a host's alarm with a packet: it is the first, or the degree has doubled; mostly nothing.
pub(super) struct AlarmUpdate(Option<(Entry<Suspect, Alarm>, Alarm)>);

impl AlarmUpdate {
    /// Of a host with a degree, of which `most` is too high; 0: none is.
    #[inline(always)]
    pub(super) fn of(
        ask: &Ask<'_, MonitorState>,
        suspect: Suspect,
        degree: u32,
        most: u32,
    ) -> Result<Self, Late> {
        if most == 0 || degree < most {
            return Ok(Self(None));
        }
        Self::of_high(ask, suspect, degree)
    }

    #[inline(never)]
    fn of_high(ask: &Ask<'_, MonitorState>, suspect: Suspect, degree: u32) -> Result<Self, Late> {
        let room = ask.alarms.entry(suspect)?;
        let first = match room.value() {
            None => ask.now(),
            Some(known) if degree / 2 >= known.degree => known.first,
            Some(_) => return Ok(Self(None)),
        };
        Ok(Self(Some((room, Alarm { first, degree }))))
    }

    /// Writes it; how many alarms found no room.
    #[inline(always)]
    pub(super) fn write(self, act: &mut asterism_function::Act<'_, MonitorState>) -> u64 {
        self.0
            .map_or(0, |(room, alarm)| u64::from(!act.alarms.put(room, alarm)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::objects::hash;
    use asterism_function::{BadBytes, Reader, Writer, laws};

    #[test]
    fn alarms_join_as_the_law_says_and_come_back_from_the_wire() {
        let alarm = |draw: u64| Alarm {
            first: hash::words(draw, 0, 5) as u32 % 5,
            degree: hash::words(draw, 1, 5) as u32 % 5,
        };
        for draw in 0..1_000 {
            laws::value(alarm(draw), alarm(draw + 10_000), alarm(draw + 20_000));
        }
        let suspect = Suspect {
            host: core::net::Ipv4Addr::LOCALHOST.into(),
            degree: Degree::In,
        };
        let mut bytes = Vec::new();
        suspect.encode(&mut Writer::new(&mut bytes, &[]));
        assert_eq!(Suspect::decode(&mut Reader::new(&bytes, &[])), Ok(suspect));
        *bytes.last_mut().unwrap() = 2;
        assert_eq!(
            Suspect::decode(&mut Reader::new(&bytes, &[])),
            Err(BadBytes)
        );
    }
}
