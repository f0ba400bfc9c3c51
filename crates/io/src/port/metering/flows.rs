//! Which flows are new: those not seen lately.
//!
//! A table of fixed size holds, for each flow that was seen lately, a tag and the second in which it was seen. Eight of them fill a
//! cache line, in which a flow has its place; a flow without a free place takes that of the one seen longest ago.
//!
//! ```text
//!  63                          24 23            0
//!  ┌─────────────────────────────┬───────────────┐
//!  │ tag: upper bits of the hash │ second        │  0: free
//!  └─────────────────────────────┴───────────────┘
//! ```

/// Seconds after which a flow that was not seen counts as new when it is seen again. Longer than any pause between two attempts
/// to open a TCP connection (RFC 6298: the sixth comes 32 s after the one before).
pub const FLOW_IDLE_SECONDS: u64 = 60;
/// Flows that are known at a time.
pub const FLOWS_KNOWN: usize = LINES * WAYS;

const LINES: usize = 4_096;
const WAYS: usize = 8;
const SECOND_BITS: u32 = 24;
const SECONDS: u64 = (1 << SECOND_BITS) - 1;

#[derive(Clone, Debug)]
#[repr(align(64))]
struct Line([u64; WAYS]);

/// See the file.
#[derive(Clone, Debug)]
pub(super) struct RecentFlows {
    lines: Box<[Line]>,
}

impl RecentFlows {
    pub(super) fn new() -> RecentFlows {
        RecentFlows {
            lines: vec![Line([0; WAYS]); LINES].into(),
        }
    }

    /// Whether the flow of this hash was not seen within [`FLOW_IDLE_SECONDS`]. It is seen now. Costs one cache line.
    ///
    /// Two flows of a line with equal tags count as one: 1 in 2³⁶ new flows.
    #[inline]
    pub(super) fn is_new(&mut self, hash: u64, now_seconds: u64) -> bool {
        let second = now_seconds & SECONDS;
        // A tag is never zero, so that a free place is no flow's.
        let entry = (hash | 1 << SECOND_BITS) & !SECONDS | second;
        let Some(Line(line)) = self.lines.get_mut(hash as usize % LINES) else {
            return true;
        };
        let mut oldest = (0, 0);
        for (way, known) in line.iter_mut().enumerate() {
            let age = match *known {
                0 => u64::MAX,
                known => second.wrapping_sub(known) & SECONDS,
            };
            if (*known ^ entry) & !SECONDS == 0 {
                *known = entry;
                return age > FLOW_IDLE_SECONDS;
            }
            if age > oldest.1 {
                oldest = (way, age);
            }
        }
        line[oldest.0 % WAYS] = entry;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes of flows that share a line, and have tags of their own.
    fn hash(flow: u64) -> u64 {
        flow << 40 | 77
    }

    #[test]
    fn a_flow_is_new_once_while_it_is_seen() {
        let mut flows = RecentFlows::new();
        assert!(flows.is_new(hash(1), 5));
        for second in [5, 6, 6 + FLOW_IDLE_SECONDS] {
            assert!(!flows.is_new(hash(1), second), "{second}");
        }
        assert!(flows.is_new(hash(1), 7 + 2 * FLOW_IDLE_SECONDS));
        assert!(!flows.is_new(hash(1), 7 + 2 * FLOW_IDLE_SECONDS));
        // The first second, and the last before the count of seconds begins again.
        assert!(flows.is_new(hash(2), 0));
        assert!(!flows.is_new(hash(2), 0));
        assert!(flows.is_new(hash(3), SECONDS));
        assert!(!flows.is_new(hash(3), SECONDS + 2));
        assert!(flows.is_new(hash(3), 2 * SECONDS));
    }

    #[test]
    fn the_flow_seen_longest_ago_loses_its_place() {
        let mut flows = RecentFlows::new();
        for flow in 0..WAYS as u64 {
            assert!(flows.is_new(hash(flow), flow));
        }
        assert!(flows.is_new(hash(100), 8));
        assert!(!flows.is_new(hash(1), 9), "it stays");
        assert!(flows.is_new(hash(0), 9), "it was the oldest");
        assert!(flows.is_new(hash(2), 9), "it was the oldest then");
        assert!(!flows.is_new(hash(100), 9));
    }

    #[test]
    fn many_flows_are_distinguished() {
        let mut flows = RecentFlows::new();
        let mut state = 1_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state ^ state >> 29
        };
        let all: Vec<u64> = (0..FLOWS_KNOWN / 4).map(|_| random()).collect();
        let new = all.iter().filter(|hash| flows.is_new(**hash, 1)).count();
        assert_eq!(new, all.len());
        let again = all.iter().filter(|hash| flows.is_new(**hash, 2)).count();
        // Lines that got more than their eight lose a few.
        assert!(again < all.len() / 1_000, "{again}");
    }
}
