//! What packets ask and tell: queries are answered in a cache's name, and reports are taken note of.

use asterism_function::{Act, Ask, Late, MacAddress, Packet, Verdict, build};

use super::icp::{self, Message, URL_BYTES_MAX};
use super::kept::BLOCK_BYTES;
use super::squid::{HASHES, StoreKey, has_bit};
use super::store_log::Line;
use super::{CacheDigests, CacheDigestsState, Counted, across};
use crate::mutant::{self, Mutant};

/// Bytes of an answer at most: its header, the URL and its end.
const ANSWER_BYTES_MAX: usize = 20 + URL_BYTES_MAX + 1;
/// Lines of one datagram that are looked at. Squid sends one in each, or as many as fit 1,400 bytes where it buffers them: a line
/// has 84 bytes at least.
const LINES_MAX: usize = 16;
/// Bytes before an IPv4 header without VLAN tags.
const ETHERNET: usize = 14;

impl CacheDigests {
    /// Whether a cache holds an object, as its digest says; `None` if that is not known. Four reads, or nine where the
    /// cache's digest is fetched.
    fn holds(
        &self,
        ask: &Ask<'_, CacheDigestsState>,
        cache: u16,
        key: StoreKey,
    ) -> Result<Option<bool>, Late> {
        match self.filters.get(usize::from(cache)) {
            Some(Some(filter)) => stores(ask, *filter, key, &[]).map(Some),
            _ => self.holds_by_digest(ask, cache, key),
        }
    }

    fn holds_by_digest(
        &self,
        ask: &Ask<'_, CacheDigestsState>,
        cache: u16,
        key: StoreKey,
    ) -> Result<Option<bool>, Late> {
        let Some(head) = ask.heads.get(&cache)? else {
            return Ok(None);
        };
        let header = head.value.header;
        const BLOCK_BITS: u32 = BLOCK_BYTES as u32 * 8;
        let of = |place: u32| {
            let found = ask
                .masks
                .get(&((cache, header.mask_bytes), place / BLOCK_BITS));
            found.map(|found| found.map(|found| has_bit(&found.value.0, place % BLOCK_BITS)))
        };
        let [a, b, c, d] = key.places(header.bits());
        let (a, b) = (ask.all((of(a), of(b))), ask.all((of(c), of(d))));
        let ((a, b), (c, d)) = ask.all((a, b))?;
        // A bit that is not there yet says nothing; one that is not set says enough.
        let bits: [Option<bool>; HASHES] = [a, b, c, d];
        if bits.contains(&Some(false)) {
            return Ok(Some(false));
        }
        Ok(bits.iter().all(Option::is_some).then_some(true))
    }

    /// A datagram to a cache's port for queries.
    #[inline(never)]
    pub(super) fn asked(
        &self,
        ask: Ask<'_, CacheDigestsState>,
        cache: u16,
    ) -> Result<Verdict, Late> {
        let out = across(&ask);
        let intact = ask.packet().verify_transport_checksum() != Some(false);
        let (number, key) = match Message::read(ask.packet().payload()) {
            Message::Query { number, url } if intact => (number, StoreKey::of_get(url)),
            Message::Other => return Ok(Verdict::Forward(out)),
            Message::Query { .. } | Message::Malformed => {
                let tally = ask.counts.find(&Counted::BadQueries.of(cache))?;
                let mut act = ask.act()?;
                if let Some(tally) = tally {
                    act.counts.add(&tally, 1);
                }
                return Ok(Verdict::Forward(out));
            }
        };
        let holds = self.holds(&ask, cache, key)?;
        let counted = match holds {
            Some(true) => Counted::Hits,
            Some(false) => Counted::Misses,
            None => Counted::Unknown,
        };
        let tally = ask.counts.find(&counted.of(cache))?;
        let (back, identification) = (ask.port(), ask.random(0) as u16);
        let mut act = ask.act()?;
        if let Some(tally) = tally {
            act.counts.add(&tally, 1);
        }
        let Some(hit) = holds else {
            return Ok(Verdict::Forward(out));
        };
        act.emit(back, |packet, out| {
            write_answer(packet, (hit, number), identification, out)
        });
        Ok(Verdict::Consumed)
    }

    /// A datagram of a cache that tells what it stored and let go. It goes on to its recipient.
    #[inline(never)]
    pub(super) fn reported(
        &self,
        ask: Ask<'_, CacheDigestsState>,
        cache: u16,
    ) -> Result<Verdict, Late> {
        let out = across(&ask);
        let Some(Some((begin, bits))) = self.filters.get(usize::from(cache)).copied() else {
            return Ok(Verdict::Forward(out));
        };
        let mut changes = [Change::NONE; LINES_MAX];
        let mut lines_taken = 0;
        let (mut stored, mut released, mut not_stored, mut bad) = (0u64, 0u64, 0u64, 0u64);
        if ask.packet().verify_transport_checksum() == Some(false) {
            bad += 1;
        } else {
            let lines = ask.packet().payload().split(|byte| *byte == b'\n');
            // All lines are asked about at once, each with what those before it will have changed.
            let mut late = None;
            for line in lines.filter(|line| !line.is_empty()) {
                let (key, is_stored) = match Line::read(line) {
                    Line::Stored(key) => (key, true),
                    Line::Released(key) => (key, false),
                    Line::Other => continue,
                    Line::Malformed => {
                        bad += 1;
                        continue;
                    }
                };
                // What was never added would take other objects with it.
                if !is_stored {
                    match stores(&ask, (begin, bits), key, &changes[..lines_taken]) {
                        Ok(true) => {}
                        Ok(false) if mutant::active(Mutant::ReleasedUnasked) => {}
                        Ok(false) => {
                            not_stored += 1;
                            continue;
                        }
                        Err(why) => late = Some(why),
                    }
                }
                let Some(change) = changes.get_mut(lines_taken) else {
                    bad += 1;
                    continue;
                };
                lines_taken += 1;
                *change = Change {
                    places: key.places(bits),
                    amount: if is_stored { 1 } else { -1 },
                };
                if is_stored {
                    stored += 1;
                } else {
                    released += 1;
                }
            }
            if let Some(late) = late {
                return Err(late);
            }
        }
        let find = |counted: Counted| ask.counts.find(&counted.of(cache));
        let (tally_stored, tally_released) = (find(Counted::Stored), find(Counted::Released));
        let (tally_not_stored, tally_bad) = (find(Counted::NotStored), find(Counted::BadReports));
        let tallies = ask.all((
            ask.all((tally_stored, tally_released)),
            ask.all((tally_not_stored, tally_bad)),
        ));
        let ((tally_stored, tally_released), (tally_not_stored, tally_bad)) = tallies?;
        let mut act: Act<'_, CacheDigestsState> = ask.act()?;
        for change in &changes[..lines_taken] {
            for place in change.each() {
                act.stored.add(begin + place, change.amount);
            }
        }
        for (tally, amount) in [
            (tally_stored, stored),
            (tally_released, released),
            (tally_not_stored, not_stored),
            (tally_bad, bad),
        ] {
            if let (Some(tally), 1..) = (tally, amount) {
                act.counts.add(&tally, amount);
            }
        }
        Ok(Verdict::Forward(out))
    }
}

/// What a line of a report changes in a cache's filter.
#[derive(Clone, Copy, Debug)]
struct Change {
    places: [u32; HASHES],
    amount: i64,
}

impl Change {
    const NONE: Self = Self {
        places: [0; HASHES],
        amount: 0,
    };

    /// Its places. One that two hash functions name counts once, so that it is one bit in Squid's filter too.
    fn each(&self) -> impl Iterator<Item = u32> {
        let places = &self.places;
        (0..HASHES)
            .filter(|number| !places[..*number].contains(&places[*number]))
            .map(|number| places[number])
    }
}

/// Whether a cache that reports holds an object, as its counting filter says once `earlier` changes are made. Four reads.
fn stores(
    ask: &Ask<'_, CacheDigestsState>,
    (begin, bits): (u32, u32),
    key: StoreKey,
    earlier: &[Change],
) -> Result<bool, Late> {
    let of = |place: u32| {
        let changes = |change: &Change| change.each().any(|one| one == place);
        let changed = earlier.iter().filter(|change| changes(change));
        let more: i64 = changed.map(|change| change.amount).sum();
        let sum = ask.stored.get(begin + place);
        sum.map(|sum| sum.saturating_add(more))
    };
    let [a, b, c, d] = key.places(bits);
    let (a, b) = (ask.all((of(a), of(b))), ask.all((of(c), of(d))));
    let ((a, b), (c, d)) = ask.all((a, b))?;
    Ok([a, b, c, d].iter().all(|sum| *sum > 0))
}

/// Writes the answer to a query, as from the cache that it was for: with the same VLAN tags, to who sent it.
fn write_answer(
    packet: &Packet<'_>,
    (hit, number): (bool, u32),
    identification: u16,
    out: &mut [u8],
) -> Option<usize> {
    let flow = packet.flow4()?;
    let Message::Query { url, .. } = Message::read(packet.payload()) else {
        return None;
    };
    let mut answer = [0; ANSWER_BYTES_MAX];
    let length = icp::write_answer(hit, number, url, &mut answer)?;
    let header = build::Header4 {
        ethernet_source: MacAddress::default(),
        ethernet_destination: MacAddress::default(),
        source: flow.destination,
        destination: flow.source,
        ttl: 64,
        identification,
        dont_fragment: true,
    };
    // The tags take their room before what is written, then the Ethernet header is put before them.
    let network_at = packet.layout().network_offset();
    let tags = network_at.checked_sub(ETHERNET)?;
    let ports = (flow.destination_port, flow.source_port);
    let written = build::udp4(
        &header,
        ports.0,
        ports.1,
        &answer[..length],
        out.get_mut(tags..)?,
    )?;
    let frame = packet.bytes();
    out.get_mut(..6)?.copy_from_slice(frame.get(6..12)?);
    out.get_mut(6..12)?.copy_from_slice(frame.get(..6)?);
    let types = 12..network_at;
    out.get_mut(types.clone())?
        .copy_from_slice(frame.get(types)?);
    Some(tags + written)
}
