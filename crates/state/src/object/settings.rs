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

/// Where an object lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Home {
    /// In this instance alone.
    #[default]
    Local,
    /// In every instance: a replica each. Its operations are logged for the others.
    Replicated,
    /// In a store that instances ask. A read is a request to it, and the writes of a packet are committed there or refused; see
    /// `requests.rs` of `asterism-call-context`.
    Remote,
}

/// What the operator chose for one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectSettings {
    /// Where it lives.
    pub home: Home,
    /// Reads are late by this much (microseconds); 0: never. The test placement.
    pub late_us: u32,
    /// The operator may change it between local and replicated while packets flow, if it is an object that can: see
    /// [`Replicate::share`](super::Replicate::share). It has memory for the whole cluster either way.
    pub movable: bool,
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
        home: Home::Local,
        late_us: 0,
        movable: false,
        absence: Absence::Answer,
        capacity: 0,
        audited: false,
        holds_output: false,
    };
    /// A replica in every instance.
    pub const REPLICATED: Self = Self {
        home: Home::Replicated,
        late_us: 0,
        movable: false,
        absence: Absence::Answer,
        capacity: 0,
        audited: true,
        holds_output: false,
    };

    /// In a store.
    pub const REMOTE: Self = Self {
        home: Home::Remote,
        ..Self::LOCAL
    };

    /// Whether operations are logged for other instances.
    #[inline]
    pub fn is_replicated(&self) -> bool {
        self.home == Home::Replicated
    }
    /// Whether operations are logged for other instances, or may be later.
    pub(crate) fn may_be_replicated(&self) -> bool {
        self.is_replicated() || self.movable
    }
    /// Whether reads are requests to a store.
    #[inline]
    pub(crate) fn is_remote(&self) -> bool {
        self.home == Home::Remote
    }

    /// The same with room for a single key, if the keys are in a store.
    pub(crate) fn without_room_in_store(mut self) -> Self {
        if self.is_remote() {
            self.capacity = 1;
        }
        self
    }

    /// From now on it is shared, or no longer, if that may change; whether it is.
    pub(crate) fn share(&mut self, shares: bool) -> bool {
        if self.movable {
            self.home = if shares {
                Home::Replicated
            } else {
                Home::Local
            };
        }
        self.is_replicated()
    }

    /// What the operator says of the capacity, or else what the function asks for.
    pub(crate) fn capacity_or(&self, asked: u32) -> u32 {
        if self.capacity > 0 {
            self.capacity
        } else {
            asked
        }
    }
}
