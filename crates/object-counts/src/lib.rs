//! Counters of objects: lost writes, restored entries and other updates without the intended effect. One list for `status`, metrics
//! and the pages.

use asterism_windows::{SKEW_SECONDS_MAX, WindowTally};

macro_rules! counts {
    ($($name:ident $label:literal $meaning:literal;)*) => {
        /// Something that an object counts.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ObjectCount {
            $(#[doc = $meaning] $name,)*
        }

        impl ObjectCount {
            /// All of them, in order.
            pub const ALL: &'static [ObjectCount] = &[$(ObjectCount::$name,)*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The name in `status`, and in metrics as `asterism_object_NAME_total`.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(ObjectCount::$name => $label,)* }
            }

            /// What is counted, in a sentence.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(ObjectCount::$name => $meaning,)* }
            }
        }
    };
}

counts! {
    Shadowed "shadowed" "Entries that another entry with the same unique key shadows.";
    LostWrites "lost_writes" "Writes of this host or others that lost to a concurrent write of the same generation.";
    Resurrected "resurrected" "Ended entries that a later use restored.";
    RemovedByRepair "removed_by_repair" "Entries that a repair removed because its source host did not have them.";
    Forgotten "forgotten" "Entries that ended by idleness or removal, and whose tombstones were discarded.";
    RefusedFull "refused_full" "Remote entries that found no room, which leases should make impossible.";
    Refused "refused" "Grants or tokens that were requested and refused.";
    Expired "expired" "Totals of a window that were received, or added here, after their bucket was dropped.";
    Ahead "ahead" "Totals of a window from members whose clocks are more than 4 seconds ahead of this host's.";
    SetBack "set_back" "Times that this host's clock was set back by more than 4 seconds, so that the window began again empty.";
    WrittenOff "written_off" "Tokens of other instances that are written off because they were spent too long ago.";
}

const _: () = assert!(SKEW_SECONDS_MAX == 4, "as `Ahead` and `SetBack` say");

/// What one object counted since its instance began; what it cannot count is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectCounts([Option<u64>; ObjectCount::COUNT]);

impl From<WindowTally> for ObjectCounts {
    fn from(tally: WindowTally) -> Self {
        Self::default()
            .with(ObjectCount::Expired, tally.expired)
            .with(ObjectCount::Ahead, tally.ahead)
            .with(ObjectCount::SetBack, tally.set_back)
    }
}

impl ObjectCounts {
    /// These counts and one more.
    #[must_use]
    pub fn with(mut self, count: ObjectCount, value: u64) -> Self {
        self.0[count as usize] = Some(value);
        self
    }

    /// One of them; `None` if the object has no such count.
    #[must_use]
    pub fn get(&self, count: ObjectCount) -> Option<u64> {
        self.0[count as usize]
    }
}
