//! What is read of an object in a store, and by which number its answer comes.

/// In place of a lane: how many entries may be added.
pub const LANE_ROOM: u8 = u8::MAX;
/// In place of a lane: whether there is any entry.
pub const LANE_ANY: u8 = u8::MAX - 1;
/// In place of a lane: all sums of an object.
pub const LANE_SUMS: u8 = u8::MAX - 2;
/// In place of a lane: the sum under the field that is in place of the key.
pub const LANE_SUM: u8 = u8::MAX - 3;
/// In place of a lane: the sums that what is in place of the key names.
pub const LANE_CELLS: u8 = u8::MAX - 4;

/// The number of a request, which its answer comes with. Those of requests that nobody waits for any more name nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

impl Ticket {
    pub(crate) fn new(generation: u32, slot: u16, place: usize) -> Self {
        Self(u64::from(generation) << 32 | u64::from(slot) << 8 | place as u64)
    }
    /// The ticket as a number, to be carried with a request and back.
    pub fn to_bits(self) -> u64 {
        self.0
    }
    /// The ticket of a number. That of no request names nothing.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
    pub(crate) fn parts(self) -> (u32, u16, usize) {
        let place = (self.0 & 0xff) as usize;
        ((self.0 >> 32) as u32, (self.0 >> 8) as u16, place)
    }
}

/// What is read of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// Number of the object.
    pub object: u8,
    /// The lane of the key, or [`LANE_ROOM`], [`LANE_ANY`], [`LANE_SUMS`], [`LANE_SUM`] or [`LANE_CELLS`].
    pub lane: u8,
    /// The key's hash with the cluster's seed.
    pub hash: u64,
    /// The key's bytes; none where the lane has no keys.
    pub key: &'a [u8],
    /// The conversation of the packet that reads, for a store of several shards ([`Slots::set_conversation`](crate::Slots::set_conversation));
    /// else 0.
    pub conversation: u64,
}

impl Query<'_> {
    /// Whether it names no key of an entry: it asks for room, for any entry, or for sums.
    pub fn is_without_key(&self) -> bool {
        matches!(self.lane, LANE_ROOM | LANE_ANY) || self.is_of_sums()
    }
    /// Whether it reads sums: what is answered may be otherwise when the call is committed.
    pub fn is_of_sums(&self) -> bool {
        matches!(self.lane, LANE_SUMS | LANE_SUM | LANE_CELLS)
    }
}
