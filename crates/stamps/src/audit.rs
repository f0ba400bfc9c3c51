//! Digests of parts, kept up to date with every change: what replicas compare while they go on changing.
//!
//! The entries of an object are divided into [`LEAVES`] by the hash of their key, the same on all members. The digest of a
//! leaf is the sum of a hash of each entry in it that can be found, so an entry that changes costs two hashes, and no table
//! is ever read for it. An accumulator's digest is of what its writers announced: what an instance adds is in it from the flush
//! on that tells the others.

/// Leaves of an object.
pub const LEAVES: usize = 256;

/// A digest that says nothing: what is there cannot be compared now.
pub const UNSURE: u64 = u64::MAX;

/// A leaf as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leaf {
    /// Equal on two members exactly if (but for chance) the leaf is; [`UNSURE`] says nothing.
    pub digest: u64,
    /// How often anything in it changed here, modulo 2³², what cannot be found included: an entry may come and go, or be
    /// removed before it comes, and leave the digest as it was.
    pub changes: u32,
}

/// Some of an object's leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafSet([u64; LEAVES / 64]);

impl LeafSet {
    /// All of them.
    pub const ALL: LeafSet = LeafSet([u64::MAX; LEAVES / 64]);

    /// As 256 bits.
    pub fn words(&self) -> [u64; LEAVES / 64] {
        self.0
    }

    /// The leaves of 256 bits.
    pub fn of_words(words: [u64; LEAVES / 64]) -> LeafSet {
        LeafSet(words)
    }

    /// Whether a leaf is one of them.
    #[must_use]
    pub fn contains(&self, leaf: usize) -> bool {
        self.0[leaf / 64] >> (leaf % 64) & 1 != 0
    }
}

impl FromIterator<u8> for LeafSet {
    fn from_iter<I: IntoIterator<Item = u8>>(leaves: I) -> LeafSet {
        let mut set = LeafSet([0; LEAVES / 64]);
        for leaf in leaves {
            set.0[usize::from(leaf) / 64] |= 1 << (leaf % 64);
        }
        set
    }
}

/// An object's leaves.
#[derive(Debug, Clone)]
pub struct Leaves(Box<[Leaf; LEAVES]>);

impl Leaves {
    /// Of an object that is shared; others have none.
    pub fn new(audited: bool) -> Option<Leaves> {
        audited.then(|| Leaves(Box::new([Leaf::default(); LEAVES])))
    }

    /// The leaf of what has this hash.
    #[inline]
    pub fn of(hash: u64) -> usize {
        // The low bits choose places in tables.
        (hash >> 56) as usize
    }

    /// Something with this digest is there from now on.
    #[inline]
    pub fn add(&mut self, leaf: usize, digest: u64) {
        let kept = &mut self.0[leaf].digest;
        *kept = kept.wrapping_add(digest);
    }

    /// Something with this digest is not there any more.
    #[inline]
    pub fn subtract(&mut self, leaf: usize, digest: u64) {
        self.add(leaf, digest.wrapping_neg());
    }

    /// Something in it is not as it was.
    #[inline]
    pub fn note_change(&mut self, leaf: usize) {
        let changes = &mut self.0[leaf].changes;
        *changes = changes.wrapping_add(1);
    }

    /// Something with one digest takes the place of something with another. Zero is nothing.
    #[inline]
    pub fn replace(&mut self, leaf: usize, before: u64, after: u64) {
        self.add(leaf, after.wrapping_sub(before));
        self.note_change(leaf);
    }

    /// Copies leaves from `first` on.
    pub fn read(leaves: Option<&Leaves>, first: usize, out: &mut [Leaf]) -> bool {
        let all = leaves.and_then(|leaves| leaves.0.get(first..first + out.len()));
        all.is_some_and(|read| {
            out.copy_from_slice(read);
            true
        })
    }
}
