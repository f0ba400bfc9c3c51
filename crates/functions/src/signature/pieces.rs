//! What is known of the bytes around the edges of a stream's segments.
//!
//! A piece says that some bytes of the stream are some bytes of a signature. A set of pieces joins by union; with more
//! than [`PIECES_MAX`] it is "too many", which absorbs all else. Pieces are never merged with each other: how many
//! merged ones there are may go down as others come, and a bound on what can go down would make the join depend on its
//! order.

use asterism_function::{BadBytes, Reader, Value, Wire, Writer, layout};

/// Pieces of one place at most.
pub const PIECES_MAX: usize = 12;

/// Bytes of a stream that are bytes of a signature.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Wire)]
pub struct Piece {
    /// Where they begin, in bytes from 64 bytes before the place's first.
    pub offset: u16,
    /// Which bytes they are, by the list of their place: the first in the sorted list of all ends of all signatures that begins with them.
    pub rank: u16,
    /// How many bytes, and which ends are a segment's.
    shape: u8,
}

const OPEN_LEFT: u8 = 0x40;
const OPEN_RIGHT: u8 = 0x80;

impl Piece {
    /// A piece of 1 to 63 bytes; what is before it is unknown if it begins its segment, and what follows if it ends it.
    pub(super) const fn new(offset: u16, rank: u16, length: u8, open: (bool, bool)) -> Self {
        let mut shape = length & 0x3f;
        if open.0 {
            shape |= OPEN_LEFT;
        }
        if open.1 {
            shape |= OPEN_RIGHT;
        }
        Self {
            offset,
            rank,
            shape,
        }
    }

    /// Bytes, 1 to 63.
    #[must_use]
    pub const fn length(self) -> usize {
        (self.shape & 0x3f) as usize
    }
    /// Whether it begins its segment.
    #[must_use]
    pub const fn is_open_left(self) -> bool {
        self.shape & OPEN_LEFT != 0
    }
    /// Whether it ends its segment.
    #[must_use]
    pub const fn is_open_right(self) -> bool {
        self.shape & OPEN_RIGHT != 0
    }
    /// The offset behind its last byte.
    pub(super) const fn end(self) -> usize {
        self.offset as usize + self.length()
    }
}

/// The pieces of one place. Joins: the union, up to a bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pieces {
    /// Pieces held, `TOO_MANY` for more than fit.
    count: u8,
    /// In ascending order; the rest is zero, so that equal sets are equal.
    held: [Piece; PIECES_MAX],
}

const TOO_MANY: u8 = u8::MAX;

impl Default for Pieces {
    fn default() -> Self {
        Self {
            count: 0,
            held: [Piece::default(); PIECES_MAX],
        }
    }
}

impl Pieces {
    /// More than fit: the rest is not known any more.
    pub const OVERFULL: Self = Self {
        count: TOO_MANY,
        held: [Piece {
            offset: 0,
            rank: 0,
            shape: 0,
        }; PIECES_MAX],
    };

    /// Whether there were more than fit.
    #[must_use]
    pub const fn is_overfull(&self) -> bool {
        self.count == TOO_MANY
    }

    /// The pieces, by offset; none if there were too many.
    #[must_use]
    pub fn all(&self) -> &[Piece] {
        let count = if self.is_overfull() { 0 } else { self.count };
        &self.held[..usize::from(count)]
    }

    /// With one more.
    pub(super) fn add(&mut self, piece: Piece) {
        if self.is_overfull() {
            return;
        }
        let Err(place) = self.all().binary_search(&piece) else {
            return;
        };
        let count = usize::from(self.count);
        if count == PIECES_MAX {
            *self = Self::OVERFULL;
            return;
        }
        self.held.copy_within(place..count, place + 1);
        self.held[place] = piece;
        self.count += 1;
    }
}

impl Value for Pieces {
    const JOINS: bool = true;
    fn join(&mut self, other: &Self) {
        if other.is_overfull() {
            *self = Self::OVERFULL;
        }
        for piece in other.all() {
            self.add(*piece);
        }
    }
}

/// The count, then the pieces: 61 bytes at most.
impl Wire for Pieces {
    const LAYOUT: u64 = layout::manual("signature pieces", 1);
    const BYTES_MAX: usize = 1 + PIECES_MAX * Piece::BYTES_MAX;
    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(self.count);
        for piece in self.all() {
            piece.encode(out);
        }
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let count = input.u8()?;
        if count == TOO_MANY {
            return Ok(Self::OVERFULL);
        }
        let mut pieces = Self::default();
        for _ in 0..count {
            let piece = Piece::decode(input)?;
            let ascends = pieces.all().last().is_none_or(|last| *last < piece);
            if piece.length() == 0 || !ascends || pieces.all().len() == PIECES_MAX {
                return Err(BadBytes);
            }
            pieces.add(piece);
        }
        Ok(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::{laws, objects::hash};

    fn random_pieces(draw: u64) -> Pieces {
        let number = |place: u64, below: u64| hash::words(draw, place, 11) % below;
        let mut pieces = Pieces::default();
        // Of few different ones, so that sets overlap; up to sixteen, so that some are too many.
        for place in 0..number(0, 17) {
            pieces.add(Piece::new(
                number(3 * place + 1, 5) as u16,
                number(3 * place + 2, 3) as u16,
                1 + number(3 * place + 3, 2) as u8,
                (draw.is_multiple_of(2), false),
            ));
        }
        pieces
    }

    #[test]
    fn pieces_join_as_the_law_says() {
        let mut overfull = 0;
        for draw in 0..4_000 {
            let [a, b, c] = [draw, draw + 10_001, draw + 20_002].map(random_pieces);
            laws::value(a, b, c);
            laws::value(a, b, Pieces::OVERFULL);
            let mut joined = a;
            joined.join(&b);
            overfull += u32::from(joined.is_overfull() && !a.is_overfull() && !b.is_overfull());
            assert!(joined.is_overfull() || joined.all().is_sorted());
        }
        assert!(overfull > 100, "{overfull} joins passed the bound");
    }

    #[test]
    fn pieces_come_back_from_the_wire_and_bad_ones_do_not() {
        for draw in 0..500 {
            let pieces = random_pieces(draw);
            let mut bytes = Vec::new();
            pieces.encode(&mut Writer::new(&mut bytes, &[]));
            assert!(bytes.len() <= 61);
            let mut input = Reader::new(&bytes, &[]);
            assert_eq!(Pieces::decode(&mut input), Ok(pieces));
            assert!(input.is_empty());
            for length in 0..bytes.len() {
                let cut = Pieces::decode(&mut Reader::new(&bytes[..length], &[]));
                assert_eq!(cut, Err(BadBytes));
            }
        }
        let one = [0, 9, 0, 1, 5];
        let decode = |bytes: &[u8]| Pieces::decode(&mut Reader::new(bytes, &[]));
        let (twice, empty) = ([&[2][..], &one, &one].concat(), [1, 0, 9, 0, 1, OPEN_LEFT]);
        assert_eq!(decode(&twice), Err(BadBytes), "out of order");
        assert_eq!(decode(&empty), Err(BadBytes), "a piece without a byte");
        let many: Vec<u8> = (0..13u8).flat_map(|n| [0, n, 0, 1, 5]).collect();
        let many = [&[13][..], &many].concat();
        assert_eq!(decode(&many), Err(BadBytes), "more than fit");
    }
}
