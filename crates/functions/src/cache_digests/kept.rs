//! How fetched digests are kept: a head for each cache, and blocks of bits.

use asterism_function::{Tick, Value, Wire};

use super::squid::Header;

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 128;

/// What a block is found by: the cache, how many bytes its digest has, and the block's place. The size is in it so that a digest of
/// another size is another digest: its bits mean other objects.
pub type BlockKey = ((u16, u32), u32);

/// A block's bits, in Squid's order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
pub struct Bits(pub [u8; BLOCK_BYTES]);

/// What is known of a cache's last digest besides its bits. Of two that were written at once the one that was fetched later counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Wire, Value)]
#[value(order(fetched))]
pub struct Head {
    /// When it was fetched, in the cluster's common seconds.
    pub fetched: Tick,
    /// What it said of itself.
    pub header: Header,
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::{Reader, Writer};

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
