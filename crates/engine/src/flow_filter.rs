//! Tells of most packets that none of their flow wait, parked or held, by a number of their headers alone: a Bloom filter with two bits for a
//! flow, both in one word, which counts so that what leaves is forgotten.

use asterism_function::FlowKey;

/// Words of 64 bits: with a thousand flows waiting, one packet in some five hundred of other flows is looked at again.
const WORDS: usize = 1 << 10;

#[derive(Debug)]
pub(crate) struct FlowFilter {
    seed: u64,
    words: Box<[u64; WORDS]>,
    counts: Box<[u16]>,
}

impl FlowFilter {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            words: Box::new([0; WORDS]),
            counts: vec![0; WORDS * 64].into(),
        }
    }

    /// The word of a flow, and its two bits there, which may be the same.
    #[inline(always)]
    fn place(&self, digest: u64) -> (usize, [u32; 2]) {
        let mixed = (digest ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bit = |shift: u32| (mixed >> shift) as u32 % 64;
        ((mixed >> 54) as usize % WORDS, [bit(48), bit(42)])
    }

    pub(crate) fn add(&mut self, digest: u64) {
        let (word, bits) = self.place(digest);
        for bit in bits {
            self.counts[word * 64 + bit as usize] += 1;
            self.words[word] |= 1 << bit;
        }
    }

    pub(crate) fn remove(&mut self, digest: u64) {
        let (word, bits) = self.place(digest);
        for bit in bits {
            let count = &mut self.counts[word * 64 + bit as usize];
            *count -= 1;
            if *count == 0 {
                self.words[word] &= !(1 << bit);
            }
        }
    }

    /// Whether packets of this one's flow may be there, if it is a plain one.
    #[inline(always)]
    pub(crate) fn may_have(&self, frame: &[u8]) -> bool {
        let Some(digest) = FlowKey::digest_of_plain(frame) else {
            return true;
        };
        self.has(digest)
    }

    /// Whether packets of this flow may be there.
    #[inline(always)]
    pub(crate) fn has(&self, digest: u64) -> bool {
        let (word, [one, other]) = self.place(digest);
        let word = self.words[word];
        word >> one & word >> other & 1 != 0
    }
}
