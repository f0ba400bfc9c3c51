//! Hosts whose degree in the dispersion graph is too high. Imports `host`.

use asterism_function::{
    Ask, At, BadBytes, Key, Late, Reader, Single, Tick, Vacancy, Value, Wire, Writer,
};

use super::MonitorState;
use crate::host::Host;
use crate::notice::{End, Notice};

/// Which degree it is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Degree {
    /// Edges to others: it scans or spreads, or is a busy client.
    Out,
    /// Edges from others: it is popular, or under attack.
    In,
}

/// What an alarm is about: there is one for each host and degree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Suspect {
    /// The host.
    pub host: Host,
    /// Its degree.
    pub degree: Degree,
}

impl Wire for Suspect {
    fn encode(&self, out: &mut Writer<'_>) {
        self.host.encode(out);
        out.u8(self.degree as u8);
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Ok(Self {
            host: Host::decode(input)?,
            degree: match input.u8()? {
                0 => Degree::Out,
                1 => Degree::In,
                _ => return Err(BadBytes),
            },
        })
    }
}

impl Key for Suspect {
    fn hash(&self, seed: u64) -> u64 {
        self.host.hash(seed ^ (self.degree as u64))
    }
}

/// That a degree was too high. Joins: the earliest time, the highest degree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alarm {
    /// When it was first seen.
    pub first: Tick,
    /// The degree, brought up to date each time that it has doubled.
    pub degree: u32,
}

impl Alarm {
    /// The alarm as a notice.
    pub(super) fn notice(&self, suspect: &Suspect, member: u16) -> Notice {
        let host = End::host(suspect.host);
        let (id, source, destination) = match suspect.degree {
            Degree::Out => (30, host, End::default()),
            Degree::In => (31, End::default(), host),
        };
        Notice {
            first: Some(self.first),
            source,
            destination,
            detail: format!("{} others", self.degree),
            ..Notice::built_in(id, member)
        }
    }
}

impl Value for Alarm {
    const JOINS: bool = true;
    fn join(&mut self, other: &Self) {
        self.first = self.first.min(other.first);
        self.degree = self.degree.max(other.degree);
    }
}

impl Wire for Alarm {
    fn encode(&self, out: &mut Writer<'_>) {
        out.u32(self.first);
        out.u32(self.degree);
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Ok(Self {
            first: input.u32()?,
            degree: input.u32()?,
        })
    }
}

/// What becomes of a host's alarm with a packet.
pub(super) enum News {
    /// Nothing.
    None,
    /// The degree has doubled.
    Grown(At<Single<Suspect>, Alarm>, Alarm),
    /// It is the first.
    First(Option<Vacancy>, Suspect, Alarm),
}

impl News {
    /// Of a host with a degree, of which `most` is too high; 0: none is.
    #[inline(always)]
    pub(super) fn of(
        ask: &Ask<'_, MonitorState>,
        suspect: Suspect,
        degree: u32,
        most: u32,
    ) -> Result<Self, Late> {
        if most == 0 || degree < most {
            return Ok(Self::None);
        }
        Self::of_high(ask, suspect, degree)
    }

    #[inline(never)]
    fn of_high(ask: &Ask<'_, MonitorState>, suspect: Suspect, degree: u32) -> Result<Self, Late> {
        let known = ask.alarms.get(&suspect)?;
        let alarm = Alarm {
            first: ask.now(),
            degree,
        };
        Ok(match known {
            None => Self::First(ask.alarms.vacancy()?, suspect, alarm),
            Some(known) if degree / 2 >= known.value.degree => {
                let first = known.value.first;
                Self::Grown(known, Alarm { first, degree })
            }
            Some(_) => Self::None,
        })
    }

    /// Writes it; how many alarms found no room.
    #[inline(always)]
    pub(super) fn write(self, act: &mut asterism_function::Act<'_, MonitorState>) -> u64 {
        match self {
            Self::None => 0,
            Self::Grown(at, alarm) => {
                act.alarms.update(&at, alarm);
                0
            }
            Self::First(Some(room), suspect, alarm) => {
                act.alarms.insert(room, suspect, alarm);
                0
            }
            Self::First(None, ..) => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::laws;
    use asterism_function::objects::hash;

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
