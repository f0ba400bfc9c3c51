//! How fetched digests are kept: a head for each cache, and blocks of bits.

use core::cmp::Ordering;

use asterism_function::{BadBytes, Reader, Tick, Value, Wire, Writer};

use super::squid::Header;

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 128;

/// What a block is found by: the cache, how many bytes its digest has, and the block's place. The size is in it so that a digest of
/// another size is another digest: its bits mean other objects.
pub type BlockKey = ((u16, u32), u32);

/// A block's bits, in Squid's order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bits(pub [u8; BLOCK_BYTES]);

impl Value for Bits {}

impl Wire for Bits {
    fn encode(&self, out: &mut Writer<'_>) {
        out.raw(&self.0);
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let bytes = input.raw(BLOCK_BYTES)?;
        Ok(Self(bytes.try_into().map_err(|_| BadBytes)?))
    }
}

/// What is known of a cache's last digest besides its bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Head {
    /// What it said of itself.
    pub header: Header,
    /// When it was fetched, in the cluster's common seconds.
    pub fetched: Tick,
}

/// Of two that were written at once the one that was fetched later counts.
impl Value for Head {
    fn order(&self, other: &Self) -> Ordering {
        self.fetched.cmp(&other.fetched)
    }
}

impl Wire for Head {
    fn encode(&self, out: &mut Writer<'_>) {
        let header = &self.header;
        out.u32(self.fetched);
        out.u32(header.capacity);
        out.u32(header.count);
        out.u32(header.deleted);
        out.u32(header.mask_bytes);
        out.u8(header.bits_per_entry);
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Ok(Self {
            fetched: input.u32()?,
            header: Header {
                capacity: input.u32()?,
                count: input.u32()?,
                deleted: input.u32()?,
                mask_bytes: input.u32()?,
                bits_per_entry: input.u8()?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_blocks_come_back_from_the_wire() {
        let head = Head {
            header: Header {
                count: 7,
                deleted: 2,
                ..Header::sized(1_000, 5)
            },
            fetched: 12_345,
        };
        let bits = Bits(core::array::from_fn(|place| place as u8));
        let mut bytes = Vec::new();
        let mut out = Writer::new(&mut bytes, &[]);
        head.encode(&mut out);
        bits.encode(&mut out);
        let mut input = Reader::new(&bytes, &[]);
        assert_eq!(Head::decode(&mut input), Ok(head));
        assert_eq!(Bits::decode(&mut input), Ok(bits));
        assert!(input.is_empty());
        let later = Head {
            fetched: 12_346,
            ..head
        };
        assert!(later.order(&head).is_gt());
    }
}
