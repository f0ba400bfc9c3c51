//! What entries are found by: values that are hashed, compared and encoded.

use core::fmt::Debug;
use core::net::IpAddr;

use asterism_memory::hash::Packed;

use crate::wire::Wire;

/// What entries are found by. Plain data of a few words. `#[derive(Key)]` hashes all fields.
pub trait Key: Copy + Eq + Ord + Debug + Wire + 'static {
    /// Each such key is of one *conversation*, of all that two addresses say to each other: [`Key::between`] says which.
    const IS_OF_CONVERSATION: bool = false;
    /// A keyed hash; use [`asterism_memory::hash`].
    fn hash(&self, seed: u64) -> u64;
    /// The two addresses of all packets that read and write under it, in any order; `None`: they have others too. Fragments and ICMP errors
    /// have those of their flow. `#[key(between = path)]` on a type with a derived key names a function of the key that says so.
    fn between(&self) -> Option<(IpAddr, IpAddr)> {
        None
    }
    /// Of a key that lies in a derived one: its fields of known width, beside those before it. A key with a hash of its own has none.
    #[doc(hidden)]
    #[inline(always)]
    fn pack(&self, packed: Packed) -> Packed {
        packed
    }
    /// Of a key that lies in a derived one: the hash of what [`Key::pack`] left, with all else as its seed.
    #[doc(hidden)]
    #[inline(always)]
    fn chain(&self, state: u64) -> u64 {
        self.hash(state)
    }
}

macro_rules! integer_keys {
    ($($type:ident as $unsigned:ident: $bits:literal),*) => {$(
        impl Key for $type {
            #[inline(always)]
            fn hash(&self, seed: u64) -> u64 {
                asterism_memory::hash::word(u64::from(*self as $unsigned), seed)
            }
            #[inline(always)]
            fn pack(&self, packed: Packed) -> Packed {
                packed.with(u64::from(*self as $unsigned), $bits)
            }
            #[inline(always)]
            fn chain(&self, state: u64) -> u64 {
                state
            }
        }
    )*};
}
integer_keys!(bool as u8: 1, u8 as u8: 8, u16 as u16: 16, u32 as u32: 32, u64 as u64: 64);
integer_keys!(i8 as u8: 8, i16 as u16: 16, i32 as u32: 32, i64 as u64: 64);

impl<A: Key, B: Key> Key for (A, B) {
    #[inline(always)]
    fn hash(&self, seed: u64) -> u64 {
        self.1.hash(self.0.hash(seed))
    }
    #[inline(always)]
    fn pack(&self, packed: Packed) -> Packed {
        self.1.pack(self.0.pack(packed))
    }
    #[inline(always)]
    fn chain(&self, state: u64) -> u64 {
        self.1.chain(self.0.chain(state))
    }
}

/// Item by item.
impl<K: Key, const N: usize> Key for [K; N] {
    #[inline(always)]
    fn hash(&self, seed: u64) -> u64 {
        self.chain(self.pack(Packed::new(seed)).finish())
    }
    #[inline(always)]
    fn pack(&self, packed: Packed) -> Packed {
        self.iter().fold(packed, |packed, item| item.pack(packed))
    }
    #[inline(always)]
    fn chain(&self, state: u64) -> u64 {
        self.iter().fold(state, |state, item| item.chain(state))
    }
}

/// Whether there is one, then it.
impl<K: Key> Key for Option<K> {
    #[inline(always)]
    fn hash(&self, seed: u64) -> u64 {
        let seed = asterism_memory::hash::word(self.is_some().into(), seed);
        match self {
            Some(key) => key.hash(seed),
            None => seed,
        }
    }
}
