//! How the control side writes a fetched digest: by frames on a port of its own ([`CONTROL`](super::CONTROL)), so that bits take the
//! packets' path into the state. Blocks first, then the head, which says that they are there.

use asterism_function::{Ask, Late, Reader, Reason, Verdict, Wire, Writer};

use super::kept::{BLOCK_BYTES, Bits, Head};
use super::squid::Header;
use super::{CacheDigests, CacheDigestsState};
use crate::mutant::{self, Mutant};

/// Blocks of one frame at most: what their entries take fits one group of operations.
pub const FRAME_BLOCKS_MAX: usize = 4;
/// The Ethernet type of local experiments (IEEE 802).
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
const PAYLOAD_AT: usize = 14;
const BLOCKS: u8 = 1;
const HEAD: u8 = 2;

/// The frames that write a cache's digest, in the order in which they are to be reported: all blocks of `mask`, then the head.
pub fn frames(cache: u16, head: &Head, mask: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let mask_bytes = head.header.mask_bytes;
    let parts = mask.chunks(FRAME_BLOCKS_MAX * BLOCK_BYTES);
    let blocks = (0u32..).step_by(FRAME_BLOCKS_MAX).zip(parts);
    blocks
        .map(move |(first, part)| block_frame(cache, mask_bytes, first, part))
        .chain([head_frame(cache, head)])
}

/// The frame with some blocks of a cache's digest, from block `first` on: at most [`FRAME_BLOCKS_MAX`] times [`BLOCK_BYTES`] bytes of
/// `mask`, the rest of the last block being zero.
fn block_frame(cache: u16, mask_bytes: u32, first: u32, mask: &[u8]) -> Vec<u8> {
    let mut frame = begun();
    let mut out = Writer::new(&mut frame, &[]);
    out.u8(BLOCKS);
    out.u16(cache);
    out.u32(mask_bytes);
    out.u32(first);
    let blocks = mask.chunks(BLOCK_BYTES).take(FRAME_BLOCKS_MAX);
    out.u8(blocks.len() as u8);
    for block in blocks {
        out.raw(block);
        out.raw(&[0; BLOCK_BYTES][block.len()..]);
    }
    frame
}

/// The frame that says which digest of a cache is there.
fn head_frame(cache: u16, head: &Head) -> Vec<u8> {
    let mut frame = begun();
    let mut out = Writer::new(&mut frame, &[]);
    out.u8(HEAD);
    out.u16(cache);
    head.encode(&mut out);
    frame
}

fn begun() -> Vec<u8> {
    let mut frame = vec![0; PAYLOAD_AT];
    frame[PAYLOAD_AT - 2..].copy_from_slice(&ETHERTYPE);
    frame
}

/// What a frame tells.
#[expect(
    clippy::large_enum_variant,
    reason = "one lives at a time, on the stack: a packet takes nothing from the heap"
)]
enum Reported {
    Blocks {
        cache: u16,
        mask_bytes: u32,
        first: u32,
        count: usize,
        bits: [Bits; FRAME_BLOCKS_MAX],
    },
    Head(u16, Head),
}

impl Reported {
    fn read(frame: &[u8]) -> Option<Self> {
        let payload = frame.get(PAYLOAD_AT..)?;
        if frame.get(PAYLOAD_AT - 2..PAYLOAD_AT)? != ETHERTYPE {
            return None;
        }
        let mut input = Reader::new(payload, &[]);
        let kind = input.u8().ok()?;
        let cache = input.u16().ok()?;
        match kind {
            BLOCKS => {
                let (mask_bytes, first) = (input.u32().ok()?, input.u32().ok()?);
                let count = usize::from(input.u8().ok()?);
                let mut bits = [Bits([0; BLOCK_BYTES]); FRAME_BLOCKS_MAX];
                for block in bits.get_mut(..count)? {
                    *block = Bits::decode(&mut input).ok()?;
                }
                first.checked_add(FRAME_BLOCKS_MAX as u32)?;
                Some(Self::Blocks {
                    cache,
                    mask_bytes,
                    first,
                    count,
                    bits,
                })
            }
            HEAD => Some(Self::Head(cache, Head::decode(&mut input).ok()?)),
            _ => None,
        }
    }
}

impl CacheDigests {
    /// What the control side tells. What is no such frame, or of no cache that makes a digest, is dropped.
    #[cold]
    #[inline(never)]
    pub(super) fn control(&self, ask: Ask<'_, CacheDigestsState>) -> Result<Verdict, Late> {
        let is_fetched = |cache: u16| matches!(self.filters.get(usize::from(cache)), Some(None));
        match Reported::read(ask.packet().bytes()) {
            Some(Reported::Head(cache, head)) if is_fetched(cache) => Self::head(ask, cache, head),
            Some(Reported::Blocks {
                cache,
                mask_bytes,
                first,
                count,
                bits,
            }) if is_fetched(cache) => Self::blocks(
                ask,
                ((cache, mask_bytes), first),
                bits.get(..count).unwrap_or(&[]),
            ),
            _ => Ok(Verdict::Drop(Reason::UnsupportedProtocol)),
        }
    }

    fn head(ask: Ask<'_, CacheDigestsState>, cache: u16, head: Head) -> Result<Verdict, Late> {
        let known = ask.heads.get(&cache)?;
        let room = match known {
            None => ask.heads.vacancy()?,
            Some(_) => None,
        };
        let mut act = ask.act()?;
        match (known, room) {
            (Some(known), _) => act.heads.update(&known, head),
            (None, Some(room)) => act.heads.insert(room, cache, head),
            (None, None) => return Ok(Verdict::Drop(Reason::TableFull)),
        }
        Ok(Verdict::Consumed)
    }

    /// All blocks of a frame are written, or none.
    fn blocks(
        ask: Ask<'_, CacheDigestsState>,
        (of, first): ((u16, u32), u32),
        bits: &[Bits],
    ) -> Result<Verdict, Late> {
        let mut known = [None; FRAME_BLOCKS_MAX];
        let mut rooms = [const { None }; FRAME_BLOCKS_MAX];
        let keys = (first..).map(|block| (of, block));
        let mut late = None;
        for (key, known) in keys.clone().zip(&mut known).take(bits.len()) {
            match ask.masks.get(&key) {
                Ok(found) => *known = found,
                Err(why) => late = Some(why),
            }
        }
        if let Some(late) = late {
            return Err(late);
        }
        for (known, room) in known.iter().zip(&mut rooms).take(bits.len()) {
            if known.is_none() {
                *room = ask.masks.vacancy()?;
                if room.is_none() {
                    return Ok(Verdict::Drop(Reason::TableFull));
                }
            }
        }
        let bits = match mutant::active(Mutant::FirstBlockOnly) {
            true => bits.get(..1).unwrap_or(&[]),
            false => bits,
        };
        let mut act = ask.act()?;
        for (((key, bits), known), room) in keys.zip(bits).zip(known).zip(rooms) {
            match (known, room) {
                (Some(known), _) => act.masks.update(&known, *bits),
                (None, Some(room)) => act.masks.insert(room, key, *bits),
                (None, None) => {}
            }
        }
        Ok(Verdict::Consumed)
    }
}

/// Whether a header is of a digest that frames can tell: its blocks have numbers.
const _: () = assert!(u32::MAX as usize / BLOCK_BYTES > core::mem::size_of::<Header>());
