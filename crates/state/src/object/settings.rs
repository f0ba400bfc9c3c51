//! The operator's choices for one object: is it shared, may its reads wait, how many entries.

/// Most objects of one state.
pub const OBJECTS_MAX: usize = 64;
/// Idle classes of one object.
pub const IDLE_CLASSES: usize = 8;

/// What an absent entry means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Absence {
    /// It is absent.
    #[default]
    Answer,
    /// It may be on its way: the packet waits at most this long (microseconds).
    Wait {
        /// The longest wait.
        us: u32,
    },
}

/// What the operator chose for one object. Where the object lives is said by the two flags: `logged`
/// objects' operations are handed to a placement that shares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectSettings {
    /// Operations are logged for other instances.
    pub logged: bool,
    /// Reads are late by this much (microseconds); 0: never. The test placement.
    pub late_us: u32,
    /// What an absent entry means.
    pub absence: Absence,
    /// Entries at most, over the whole cluster; 0: what the function asks for.
    pub capacity: u32,
    /// Digests of its parts are kept, if it is shared, for hosts to compare.
    pub audited: bool,
    /// Packets that depend on a change of it are held back until enough members have the change, if the object is shared and the
    /// host holds packets back.
    pub holds_output: bool,
}

impl ObjectSettings {
    /// This instance only.
    pub const LOCAL: Self = Self {
        logged: false,
        late_us: 0,
        absence: Absence::Answer,
        capacity: 0,
        audited: false,
        holds_output: false,
    };
    /// A replica in every instance.
    pub const REPLICATED: Self = Self {
        logged: true,
        late_us: 0,
        absence: Absence::Answer,
        capacity: 0,
        audited: true,
        holds_output: false,
    };

    /// What the operator says of the capacity, or else what the function asks for.
    pub(crate) fn capacity_or(&self, asked: u32) -> u32 {
        if self.capacity > 0 {
            self.capacity
        } else {
            asked
        }
    }
}
