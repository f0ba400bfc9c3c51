//! An object of which only the running program knows the type: what a state holds that is put together from others'. Imports
//! `object.rs`.

use core::ops::Range;

use asterism_memory::prefetch_hints::PrefetchHints;

use crate::audit::{Leaf, LeafSet};
use crate::counts::ObjectCounts;
use crate::object::{Object, Part, Since};
use crate::shown::Shown;
use crate::stamp::{NamedOrigins, OriginName, Stamp};
use crate::wire::{BadBytes, Reader};

macro_rules! erased {
    (
        reads { $($read:ident($($given:ident: $kind:ty),*) -> $answer:ty;)* }
        writes { $($write:ident($($taken:ident: $sort:ty),*) -> $result:ty;)* }
    ) => {
        /// All that the engine does with an object, whatever its type; a call costs what a call of a function by its address does.
        pub trait AnyObject {
            $(
                #[doc = concat!("As [`Object::", stringify!($read), "`].")]
                fn $read(&self, $($given: $kind),*) -> $answer;
            )*
            $(
                #[doc = concat!("As [`Object::", stringify!($write), "`].")]
                fn $write(&mut self, $($taken: $sort),*) -> $result;
            )*
        }

        impl<O: Object> AnyObject for O {
            $(fn $read(&self, $($given: $kind),*) -> $answer {
                Object::$read(self, $($given),*)
            })*
            $(fn $write(&mut self, $($taken: $sort),*) -> $result {
                Object::$write(self, $($taken),*)
            })*
        }

        impl Object for dyn AnyObject {
            /// Functions write to objects of which they know the type.
            type Act<'a> = ();
            fn act(&mut self) {}
            $(fn $read(&self, $($given: $kind),*) -> $answer {
                AnyObject::$read(self, $($given),*)
            })*
            $(fn $write(&mut self, $($taken: $sort),*) -> $result {
                AnyObject::$write(self, $($taken),*)
            })*
        }
    };
}

erased! {
    reads {
        prefetch(input: &mut Reader<'_>) -> ();
        origins_named(cursor: u32, records: u32, named: &mut NamedOrigins) -> Option<u32>;
        sweep_length() -> u32;
        digest() -> u64;
        leaves(first: usize, out: &mut [Leaf]) -> bool;
        announced() -> u64;
        snapshot(cursor: u32, part: &mut Part<'_>) -> Option<u32>;
        tells_own() -> bool;
        show(cursor: u32, records: u32, each: &mut dyn FnMut(&Shown<'_>)) -> Option<u32>;
        capacity() -> u32;
        counts() -> ObjectCounts;
        inherited() -> (u32, u32);
        prefetch_records(prefetch_hints: &PrefetchHints, packets: Range<usize>) -> usize;
        outgrew_cache(cache_bytes: usize) -> bool;
        give_back(number: u32) -> ();
        settle() -> ();
        entries() -> usize;
        entries_held() -> usize;
        entries_ended() -> usize;
    }
    writes {
        apply(flags: u8, input: &mut Reader<'_>, stamp: Stamp) -> Result<(), BadBytes>;
        joined() -> ();
        flush(bytes: &mut usize) -> bool;
        sweep(records: u32) -> u32;
        write_again(leaves: &LeafSet, cursor: u32, records: u32) -> (Option<u32>, u32);
        remove_elsewhere(leaves: &LeafSet, through: &[(OriginName, u64)]) -> bool;
        apply_snapshot(flags: u8, input: &mut Reader<'_>) -> Result<(), BadBytes>;
        restore(flags: u8, input: &mut Reader<'_>, since: &Since) -> Result<bool, BadBytes>;
    }
}
