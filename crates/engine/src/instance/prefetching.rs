//! The pass over a burst that only prefetches, before the one that handles it.

use core::ops::Range;

use asterism_function::{Call, Layout, NetworkFunction, Packet, PortNumber, call, prefetch};
use asterism_state::{BURST_MAX, State};

use super::{Instance, PREFETCHED_TOGETHER};
use asterism_io::frame::{BURST, Burst, Frame};

impl<F: NetworkFunction> Instance<F> {
    /// The pass that only prefetches: index lines, then records. What it parsed and found is kept, so that neither is
    /// done twice. Packets that are not plain do without.
    ///
    /// Some packets at a time: the records of some are asked for when the index lines of the next are on their way. All
    /// at once would be more misses than the processor has places for; eight at a time instead of sixteen took 7 % more with a million
    /// sessions.
    #[inline(never)]
    pub(super) fn prefetch(
        &mut self,
        port: PortNumber,
        burst: &mut Burst,
        parsed: &mut [Layout; BURST],
    ) {
        const { assert!(BURST == BURST_MAX) };
        let function = self.function.clone();
        let function: &F = &function;
        self.context.prefetch_hints().begin();
        self.context.prefetch();
        let is_sample = self.recency.takes_burst();
        let frames = burst.as_mut_slice();
        self.prefetch_frames(frames);
        let mut ahead = 0..0;
        for begin in (0..frames.len()).step_by(PREFETCHED_TOGETHER) {
            let some = begin..frames.len().min(begin + PREFETCHED_TOGETHER);
            for number in some.clone() {
                let at = number % BURST;
                let bytes = self.pool.bytes_mut(&mut frames[number]);
                let Some(packet) = Packet::parse_plain(bytes) else {
                    continue;
                };
                parsed[at] = *packet.layout();
                self.context.prefetch_hints().turn_to(at);
                let given = Call {
                    state: &mut self.state,
                    context: &self.context,
                    emissions: &mut self.emissions,
                    port,
                };
                // The verdict of a call that reads nothing is not taken: the packet is handled later.
                let _ = call(function, packet, given);
                if is_sample {
                    self.recency.look_at(self.context.prefetch_hints().reads());
                }
            }
            self.prefetch_records(ahead);
            self.prefetch_likely_misses(port, frames, parsed);
            ahead = some;
        }
        self.prefetch_records(ahead);
        self.prefetch_likely_misses(port, frames, parsed);
        self.context.answer();
    }

    /// Has the function ask for what the packets will touch whose read will likely find nothing.
    #[inline(always)]
    fn prefetch_likely_misses(
        &mut self,
        port: PortNumber,
        frames: &mut [Frame],
        parsed: &[Layout],
    ) {
        let mut likely_misses = self.context.prefetch_hints().take_likely_misses();
        while likely_misses != 0 {
            let number = likely_misses.trailing_zeros() as usize % BURST;
            likely_misses &= likely_misses - 1;
            let bytes = self.pool.bytes_mut(&mut frames[number]);
            let Some(packet) = Packet::plain_with_layout(bytes, parsed[number]) else {
                continue;
            };
            // What it notes is noted of a packet that was looked at.
            self.context.prefetch_hints().turn_to(number);
            let given = Call {
                state: &mut self.state,
                context: &self.context,
                emissions: &mut self.emissions,
                port,
            };
            prefetch(&**self.function, packet, given);
        }
    }

    #[inline(always)]
    fn prefetch_records(&self, packets: Range<usize>) {
        let prefetch_hints = self.context.prefetch_hints();
        let mut from = packets.start;
        while let Some((number, object)) = prefetch_hints.first_probe(from..packets.end) {
            // At least the one, whatever the object says: this ends.
            from = self
                .state
                .prefetch_records(object, prefetch_hints, number..packets.end)
                .unwrap_or(0)
                .max(number + 1);
        }
    }
}
