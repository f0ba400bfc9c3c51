//! The network function whose state the workloads use: a packet tells it what to write.
//!
//! Nothing is written outside a packet, so a client's request becomes a packet too: a UDP datagram whose payload is a
//! [`Command`].

use asterism_function::{
    Ask, Builder, Counter, Flow4, Late, NetworkFunction, Reason, Set, Vector, Verdict, build, state,
};

/// Elements of the set at most, over all nodes; each node may add its share of them. What goes beyond is refused.
pub const ELEMENTS_MAX: u32 = 1 << 18;

/// What the nodes share.
#[state]
pub(crate) struct Backlog {
    /// Elements of the set, or messages that were broadcast: the bits of signed numbers.
    pub(crate) elements: Set<u64>,
    /// The sum of what only grows.
    pub(crate) total: Counter,
    /// The sum of what may fall, in its one place.
    pub(crate) level: Vector,
}

impl Backlog {
    /// The elements, in their order.
    pub(crate) fn elements(&self) -> Vec<i64> {
        let mut elements = Vec::with_capacity(self.elements.len_now());
        self.elements
            .for_each(|row, ()| elements.push(row.0.cast_signed()));
        elements.sort_unstable();
        elements
    }

    /// Both sums, of which a workload uses one; they wrap at 64 bits.
    pub(crate) fn sum(&self) -> Result<i64, Late> {
        let total = self.total.get()?.cast_signed();
        Ok(total.wrapping_add(self.level.get(0)?))
    }
}

/// What a packet tells the function to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// The set has this element.
    Insert(i64),
    /// The sum that only grows does so by this.
    Add(u64),
    /// The sum that may fall changes by this.
    Change(i64),
}

/// Bytes of a command: which it is, and its number.
const COMMAND_BYTES: usize = 9;
/// Bytes of the shortest Ethernet frame, to which a command is padded: a shorter one is no plain packet.
const FRAME_BYTES_MIN: usize = 60;

impl Command {
    /// The packet that says it.
    pub(crate) fn packet(self) -> Vec<u8> {
        let (which, number) = match self {
            Self::Insert(element) => (0, element),
            Self::Add(amount) => (1, amount.cast_signed()),
            Self::Change(amount) => (2, amount),
        };
        let mut payload = [which; COMMAND_BYTES];
        payload[1..].copy_from_slice(&number.to_be_bytes());
        let flow = Flow4 {
            source: [10, 0, 0, 1].into(),
            destination: [192, 0, 2, 1].into(),
            source_port: 1,
            destination_port: 1,
            protocol: 17,
        };
        let mut frame = vec![0; 2 * FRAME_BYTES_MIN];
        // The headers of a UDP datagram and nine bytes fit; if they did not, the function would find no command.
        let length = build::flow4(&flow, &payload, &mut frame).unwrap_or(0);
        frame.truncate(length.max(FRAME_BYTES_MIN));
        frame
    }

    fn read(payload: &[u8]) -> Option<Self> {
        let (&which, number) = payload.get(..COMMAND_BYTES)?.split_first()?;
        let number = i64::from_be_bytes(number.try_into().ok()?);
        match which {
            0 => Some(Self::Insert(number)),
            1 => Some(Self::Add(number.cast_unsigned())),
            2 => Some(Self::Change(number)),
            _ => None,
        }
    }
}

/// The function. A packet that it has done is consumed; what it refuses is dropped.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keeper;

impl NetworkFunction for Keeper {
    type State = Backlog;

    fn state(&self, builder: &Builder) -> Backlog {
        Backlog {
            elements: builder.table("elements", ELEMENTS_MAX, &[]),
            total: builder.counter("total"),
            level: builder.vector("level", 1),
        }
    }

    fn packet(&self, ask: Ask<'_, Backlog>) -> Result<Verdict, Late> {
        match Command::read(ask.packet().payload()) {
            Some(Command::Insert(element)) => {
                let element = element.cast_unsigned();
                if !ask.elements.contains(&element)? {
                    let Some(room) = ask.elements.vacancy()? else {
                        return Ok(Verdict::Drop(Reason::TableFull));
                    };
                    ask.act()?.elements.insert(room, element, ());
                }
            }
            Some(Command::Add(amount)) => ask.act()?.total.add(amount),
            Some(Command::Change(amount)) => ask.act()?.level.add(0, amount),
            None => return Ok(Verdict::Drop(Reason::UnsupportedProtocol)),
        }
        Ok(Verdict::Consumed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::PortNumber;
    use asterism_function::testkit::Testkit;

    #[test]
    fn commands_are_done_and_anything_else_is_dropped() {
        let mut kit = Testkit::new(Keeper);
        let mut say = |packet: &[u8]| kit.packet(PortNumber(0), packet).verdict;
        for element in [7, -1, i64::MIN, 7, i64::MAX] {
            assert_eq!(say(&Command::Insert(element).packet()), Verdict::Consumed);
        }
        for amount in [5, -9, 0, 2] {
            assert_eq!(say(&Command::Change(amount).packet()), Verdict::Consumed);
        }
        assert_eq!(say(&Command::Add(4).packet()), Verdict::Consumed);
        let mut other = Command::Add(1).packet();
        other[42] = 9;
        assert_eq!(say(&other), Verdict::Drop(Reason::UnsupportedProtocol));
        assert_eq!(kit.state().elements(), [i64::MIN, -1, 7, i64::MAX]);
        assert_eq!(kit.state().sum(), Ok(2));
    }

    #[test]
    fn sums_wrap() {
        let mut kit = Testkit::new(Keeper);
        for delta in [i64::MIN, -1, i64::MAX, 2] {
            kit.packet(PortNumber(0), &Command::Change(delta).packet());
        }
        assert_eq!(kit.state().sum(), Ok(0));
    }
}
