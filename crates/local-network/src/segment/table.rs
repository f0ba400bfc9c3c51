//! Which port a station is at: Ethernet addresses, configured or learnt from the sources of frames.
//!
//! A bounded table with open addressing. An address is looked for in [`PROBES`] places; a learnt one that was not seen for
//! [`AGE_MAX`] is free for another. Nothing allocates after the table is made.

use core::time::Duration;

use asterism_memory::hash;
use asterism_packet::MacAddress;
use asterism_placement::Time;

/// Places of the table. A segment has some 64 stations.
pub const STATIONS_MAX: usize = 1_024;
/// How long a learnt address is known after its last frame (IEEE 802.1D-2004 §7.9.2: 300 s).
pub const AGE_MAX: Duration = Duration::from_secs(300);
/// Places in which an address may be.
const PROBES: usize = 16;

/// An address at a port.
#[derive(Clone, Copy, Debug)]
struct Station {
    mac: MacAddress,
    port: u8,
    is_static: bool,
    seen: Time,
}

/// The table.
#[derive(Debug)]
pub(super) struct Stations {
    places: Box<[Option<Station>]>,
    seed: u64,
    /// Frames whose source found no place: their sender stays unknown, and frames to it are flooded.
    pub(super) not_learnt: u64,
}

impl Stations {
    pub(super) fn new(seed: u64) -> Stations {
        Stations {
            places: vec![None; STATIONS_MAX].into(),
            seed,
            not_learnt: 0,
        }
    }

    /// The port of an address.
    #[inline]
    pub(super) fn find(&self, mac: MacAddress, now: Time) -> Option<u8> {
        let first = self.first(mac);
        (0..PROBES).find_map(|probe| {
            let station = self.places[(first + probe) % STATIONS_MAX].as_ref()?;
            (station.mac == mac && is_known(station, now)).then_some(station.port)
        })
    }

    /// Learns from the source of a frame that arrived at a port. A configured address stays where it is.
    #[inline]
    pub(super) fn learn(&mut self, mac: MacAddress, port: u8, now: Time) {
        let first = self.first(mac);
        let mut free = None;
        for probe in 0..PROBES {
            let place = (first + probe) % STATIONS_MAX;
            match &mut self.places[place] {
                Some(station) if station.mac == mac => {
                    if !station.is_static {
                        (station.port, station.seen) = (port, now);
                    }
                    return;
                }
                Some(station) if is_known(station, now) => {}
                Some(_) | None => free = free.or(Some(place)),
            }
        }
        match free {
            Some(place) => {
                self.places[place] = Some(Station {
                    mac,
                    port,
                    is_static: false,
                    seen: now,
                });
            }
            None => self.not_learnt += 1,
        }
    }

    /// Configures an address; false if there is no place for it.
    pub(super) fn set(&mut self, mac: MacAddress, port: u8) -> bool {
        let first = self.first(mac);
        let places = (0..PROBES).map(|probe| (first + probe) % STATIONS_MAX);
        let of =
            |place: &usize| self.places[*place].map(|station| (station.mac, station.is_static));
        let same = places
            .clone()
            .find(|place| of(place).is_some_and(|(one, _)| one == mac));
        let free = || places.clone().find(|place| of(place).is_none());
        let learnt = || {
            places
                .clone()
                .find(|place| of(place).is_some_and(|(_, is_static)| !is_static))
        };
        let Some(place) = same.or_else(free).or_else(learnt) else {
            return false;
        };
        self.places[place] = Some(Station {
            mac,
            port,
            is_static: true,
            seen: Time::ZERO,
        });
        true
    }

    /// Forgets what was learnt at a port, whose link went down.
    pub(super) fn forget_learnt(&mut self, port: u8) {
        for place in &mut self.places {
            if place.is_some_and(|station| station.port == port && !station.is_static) {
                *place = None;
            }
        }
    }

    /// Forgets all addresses at a port, which is gone.
    pub(super) fn forget(&mut self, port: u8) {
        for place in &mut self.places {
            if place.is_some_and(|station| station.port == port) {
                *place = None;
            }
        }
    }

    fn first(&self, mac: MacAddress) -> usize {
        let [a, b, c, d, e, f] = mac.0;
        let word = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        hash::word(word, self.seed) as usize % STATIONS_MAX
    }
}

fn is_known(station: &Station, now: Time) -> bool {
    station.is_static || now.since(station.seen) < AGE_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(number: u32) -> MacAddress {
        let [a, b, c, d] = number.to_be_bytes();
        MacAddress([2, 0, a, b, c, d])
    }

    #[test]
    fn a_learnt_address_moves_ages_and_is_forgotten() {
        let mut stations = Stations::new(7);
        stations.learn(mac(1), 3, Time::ZERO);
        assert_eq!(stations.find(mac(1), Time::ZERO), Some(3));
        stations.learn(mac(1), 4, Time::from_micros(10));
        assert_eq!(stations.find(mac(1), Time::from_micros(10)), Some(4));
        let late = Time::from_micros(10).saturating_add(AGE_MAX);
        assert_eq!(stations.find(mac(1), late), None);
        stations.learn(mac(1), 4, late);
        stations.forget_learnt(4);
        assert_eq!(stations.find(mac(1), late), None);
    }

    #[test]
    fn a_configured_address_is_not_moved_by_a_frame() {
        let mut stations = Stations::new(7);
        stations.learn(mac(1), 2, Time::ZERO);
        assert!(stations.set(mac(1), 5));
        stations.learn(mac(1), 3, Time::ZERO);
        stations.forget_learnt(5);
        let late = Time::ZERO.saturating_add(2 * AGE_MAX);
        assert_eq!(stations.find(mac(1), late), Some(5));
        stations.forget(5);
        assert_eq!(stations.find(mac(1), late), None);
    }

    #[test]
    fn a_full_table_learns_no_more_until_addresses_age() {
        let mut stations = Stations::new(7);
        for number in 0..4 * STATIONS_MAX as u32 {
            stations.learn(mac(number), 1, Time::ZERO);
        }
        assert!(stations.not_learnt > 3 * STATIONS_MAX as u64 - 1);
        let refused = stations.not_learnt;
        let unknown = (0..)
            .map(mac)
            .find(|mac| stations.find(*mac, Time::ZERO).is_none());
        let late = Time::ZERO.saturating_add(AGE_MAX);
        stations.learn(unknown.unwrap(), 2, late);
        assert_eq!(stations.find(unknown.unwrap(), late), Some(2));
        assert_eq!(stations.not_learnt, refused);
        assert!(
            stations.set(mac(u32::MAX), 9),
            "in the place of a learnt one"
        );
        assert_eq!(stations.find(mac(u32::MAX), Time::ZERO), Some(9));
    }
}
