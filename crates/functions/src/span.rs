//! Sends a copy of each packet to a port of its own, for an intrusion detection system or a recorder beside the instance: port
//! mirroring, also called SPAN. The packet itself goes on as if nobody looked. Made for a place in a chain; alone it is a wire that
//! is watched.

use asterism_function::{Ask, Builder, Counter, Late, NetworkFunction, PortNumber, Verdict, state};

/// The port that copies leave by, in every instance: the first behind the two sides.
pub const SPAN_PORT: PortNumber = PortNumber(2);

/// What instances share.
#[state]
pub struct SpanState {
    /// Copies sent by all instances.
    pub copies: Counter,
}

/// Which packets are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copied {
    /// All.
    #[default]
    Both,
    /// Those from inside.
    Outward,
    /// Those from outside.
    Inward,
}

/// The function. A copy that finds no room is counted and not made (see `Act::copy`); nothing waits for one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// Which packets are copied.
    pub copied: Copied,
}

impl NetworkFunction for Span {
    type State = SpanState;

    fn state(&self, builder: &Builder) -> SpanState {
        SpanState {
            copies: builder.counter("copies"),
        }
    }

    #[inline(always)]
    fn packet(&self, ask: Ask<'_, SpanState>) -> Result<Verdict, Late> {
        let from = ask.port().0;
        let is_copied = match self.copied {
            Copied::Both => true,
            Copied::Outward => from == 0,
            Copied::Inward => from == 1,
        };
        if is_copied {
            let mut act = ask.act()?;
            if act.copy(SPAN_PORT) {
                act.copies.add(1);
            }
        }
        Ok(Verdict::Forward(PortNumber(from ^ 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_function::testkit::Testkit;
    use asterism_function::{Flow4, build};

    fn packet() -> Vec<u8> {
        let mut bytes = vec![0; 128];
        let flow = Flow4 {
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            source_port: 1,
            destination_port: 2,
            protocol: 17,
        };
        let length = build::flow4(&flow, b"seen", &mut bytes).unwrap();
        bytes.truncate(length);
        bytes
    }

    #[test]
    fn a_copy_leaves_beside_the_packet() {
        for (copied, [outward, inward]) in [
            (Copied::Both, [1, 1]),
            (Copied::Outward, [1, 0]),
            (Copied::Inward, [0, 1]),
        ] {
            let mut kit = Testkit::new(Span { copied });
            for (port, copies) in [(0, outward), (1, inward)] {
                let outcome = kit.packet(PortNumber(port), &packet());
                assert_eq!(outcome.verdict, Verdict::Forward(PortNumber(port ^ 1)));
                assert_eq!(outcome.packet, packet());
                assert_eq!(outcome.emitted, vec![(SPAN_PORT, packet()); copies]);
            }
            assert_eq!(kit.state().copies.get(), Ok((outward + inward) as u64));
        }
    }
}
