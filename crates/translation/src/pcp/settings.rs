//! How inside hosts may ask for mappings, as an operator sets it.

use asterism_function::Tick;

/// How inside hosts may ask for mappings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortControl {
    /// Seconds that a mapping lives unless it is prolonged, whatever was asked for: at least 120 (RFC 6887 §15).
    pub lifetime: Tick,
    /// Mappings at most, over the whole cluster.
    pub mappings_max: u32,
}

impl PortControl {
    /// Two hours, for four thousand mappings.
    pub const DEFAULT: Self = Self {
        lifetime: 7_200,
        mappings_max: 1 << 12,
    };
    /// The least that a lifetime may be, and the most (RFC 6887 §15).
    pub const LIFETIMES: (Tick, Tick) = (120, 86_400);

    /// After how many seconds a mapping ends that nobody prolonged: a quarter later than its asker was promised, since one instance may
    /// hear late that another one prolonged it.
    pub(crate) const fn idle(self) -> Tick {
        self.lifetime + self.lifetime / 4
    }
}
