//! Acknowledgements: for each origin what is applied, what was received beyond it, and the runs present above the gaps.

use crate::MemberId;
use crate::envelope::{Reader, SEQUENCE_MAX, write_varint};

use super::RUNS_MAX;

/// The body of an acknowledge frame; its entries are checked as they are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledgements<'a> {
    reader: Reader<'a>,
    left: u64,
}

/// What the sender says of one origin's stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcknowledgeEntry<'a> {
    pub(crate) origin: MemberId,
    /// Applied by the sender up to here, without a gap.
    pub(crate) applied: u64,
    /// Received by the sender up to here, without a gap; a hint for retransmission only.
    pub(crate) received: u64,
    /// The end of the last run present above a gap; `received` when there is none.
    pub(crate) highest: u64,
    runs: Reader<'a>,
}

impl<'a> Acknowledgements<'a> {
    /// Reads a frame's body. `None` when an entry is malformed.
    pub(crate) fn read(body: &'a [u8]) -> Option<Acknowledgements<'a>> {
        let mut reader = Reader::new(body);
        let left = reader.varint()?;
        let checked = Acknowledgements { reader, left };
        let mut check = checked;
        while check.left > 0 {
            check.read_entry()?;
        }
        check.reader.is_empty().then_some(checked)
    }

    fn read_entry(&mut self) -> Option<AcknowledgeEntry<'a>> {
        let reader = &mut self.reader;
        let origin = reader.member()?;
        let applied = reader.sequence()?;
        let received = applied.checked_add(reader.sequence()?)?;
        let pairs = reader.varint()?;
        if pairs > RUNS_MAX as u64 {
            return None;
        }
        let from = *reader;
        let mut highest = received;
        for _ in 0..pairs {
            let (missing, present) = (reader.sequence()?, reader.sequence()?);
            if missing == 0 || present == 0 {
                return None;
            }
            highest = highest.checked_add(missing)?.checked_add(present)?;
        }
        if highest > SEQUENCE_MAX {
            return None;
        }
        self.left -= 1;
        let bytes = from.rest();
        let runs = Reader::new(&bytes[..bytes.len() - reader.rest().len()]);
        Some(AcknowledgeEntry {
            origin,
            applied,
            received,
            highest,
            runs,
        })
    }
}

impl<'a> Iterator for Acknowledgements<'a> {
    type Item = AcknowledgeEntry<'a>;

    fn next(&mut self) -> Option<AcknowledgeEntry<'a>> {
        if self.left == 0 {
            None
        } else {
            self.read_entry()
        }
    }
}

impl AcknowledgeEntry<'_> {
    /// The runs present above the gaps, as first and last sequence, ascending.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut reader = self.runs;
        let mut end = self.received;
        core::iter::from_fn(move || {
            let (missing, present) = (reader.varint()?, reader.varint()?);
            let first = end + missing + 1;
            end = first + present - 1;
            Some((first, end))
        })
    }
}

/// Appends an entry. `runs` are the runs present above `received`, ascending and apart, at most [`RUNS_MAX`].
pub(crate) fn write_entry(
    out: &mut Vec<u8>,
    origin: MemberId,
    applied: u64,
    received: u64,
    runs: &[(u64, u64)],
) {
    write_varint(out, u64::from(origin.0));
    write_varint(out, applied);
    write_varint(out, received - applied);
    write_varint(out, runs.len() as u64);
    let mut end = received;
    for &(first, last) in runs {
        write_varint(out, first - end - 1);
        write_varint(out, last - first + 1);
        end = last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_entry() {
        let mut body = vec![2];
        write_entry(&mut body, MemberId(3), 100, 105, &[(107, 107), (110, 119)]);
        write_entry(&mut body, MemberId(4), 0, 0, &[]);
        assert_eq!(body, [2, 3, 100, 5, 2, 1, 1, 2, 10, 4, 0, 0, 0]);
        let entries: Vec<_> = Acknowledgements::read(&body).unwrap().collect();
        assert_eq!(entries.len(), 2);
        assert_eq!(
            (entries[0].applied, entries[0].received, entries[0].highest),
            (100, 105, 119)
        );
        assert_eq!(
            entries[0].runs().collect::<Vec<_>>(),
            [(107, 107), (110, 119)]
        );
        for cut in 0..body.len() {
            assert!(
                Acknowledgements::read(&body[..cut]).is_none(),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn empty_gaps_and_too_many_runs_are_malformed() {
        assert!(Acknowledgements::read(&[1, 3, 1, 0, 1, 0, 1]).is_none());
        assert!(Acknowledgements::read(&[1, 3, 1, 0, 1, 1, 0]).is_none());
        for (runs, is_read) in [(RUNS_MAX, true), (RUNS_MAX + 1, false)] {
            let mut body = vec![1, 3, 1, 0, runs as u8];
            body.extend(vec![1; 2 * runs]);
            assert_eq!(Acknowledgements::read(&body).is_some(), is_read);
        }
    }
}
