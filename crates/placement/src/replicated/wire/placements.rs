//! Where a member has its objects, and which of them it began to share while it ran.

use crate::envelope::FRAME_BYTES_MAX;

const BODY_BYTES: usize = 40;
/// The most bytes of a frame of placements.
pub(crate) const PLACEMENTS_BYTES_MAX: usize = FRAME_BYTES_MAX + BODY_BYTES;

/// Where a member has its objects: sets of them have a bit for each, by its number.
///
/// A member *begins* to share objects when all its instances log their operations from then on. Each other member that shares an
/// object then writes all that it holds of it again, since the one that began may lack it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placements {
    /// Objects that are replicated by its configuration, and that may be changed to local while it runs, or were.
    pub wanted: u64,
    /// Objects whose operations all its instances log.
    pub shared: u64,
    /// Those that it began to share last.
    pub last: u64,
    /// All that it ever began to share.
    pub ever: u64,
    /// How often it began to share some.
    pub begun: u32,
    /// One number for how often each member of the epoch did, itself included, as far as it has answered that by writing what it holds
    /// again.
    pub covered: u32,
}

impl Placements {
    pub(crate) fn read(body: &[u8]) -> Option<Placements> {
        let (words, rest) = body.as_chunks::<8>();
        let [wanted, shared, last, ever, counts] = words else {
            return None;
        };
        let [wanted, shared, last, ever, counts] =
            [wanted, shared, last, ever, counts].map(|word| u64::from_le_bytes(*word));
        rest.is_empty().then_some(Placements {
            wanted,
            shared,
            last,
            ever,
            begun: counts as u32,
            covered: (counts >> 32) as u32,
        })
    }

    pub(crate) fn write(&self, body: &mut Vec<u8>) {
        for word in [self.wanted, self.shared, self.last, self.ever] {
            body.extend(word.to_le_bytes());
        }
        body.extend(self.begun.to_le_bytes());
        body.extend(self.covered.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_come_back_and_every_cut_of_them_is_refused() {
        let placements = Placements {
            wanted: 1,
            shared: 2 << 40,
            last: 3,
            ever: u64::MAX,
            begun: 5,
            covered: u32::MAX,
        };
        let mut body = Vec::new();
        placements.write(&mut body);
        assert_eq!(body.len(), BODY_BYTES);
        assert_eq!(Placements::read(&body), Some(placements));
        for cut in 0..BODY_BYTES {
            assert_eq!(Placements::read(&body[..cut]), None);
        }
        body.push(0);
        assert_eq!(Placements::read(&body), None);
    }
}
