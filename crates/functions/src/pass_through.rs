//! Forwards every packet from its first port to its second and back, and may read or write a counter on
//! the way: the middlebox that measures what sharing costs (Constellation §6.2, Table 3).

use asterism_function::{
    Ask, Builder, Counter, Late, NetworkFunction, PortNumber, Reason, Verdict, state,
};

use crate::mutant::{self, Mutant};

/// What pass-through instances share.
#[state]
pub struct PassThroughState {
    /// Packets of all instances.
    pub packets: Counter,
}

/// What is done with the counter for each packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    #[default]
    None,
    /// It is read.
    Read,
    /// It is added to.
    Write,
    /// It is read, then added to.
    ReadWrite,
}

impl Access {
    /// Its name in configurations and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Read => "read",
            Self::Write => "write",
            Self::ReadWrite => "read-write",
        }
    }
    /// All of them, in the order of the paper's table.
    pub const ALL: [Self; 4] = [Self::None, Self::Read, Self::Write, Self::ReadWrite];
}

/// The function. Costs a few instructions beyond the packet loop.
#[derive(Clone, Copy, Debug, Default)]
pub struct PassThrough {
    /// What is done with the counter.
    pub access: Access,
}

impl NetworkFunction for PassThrough {
    type State = PassThroughState;

    fn state(&self, builder: &Builder) -> PassThroughState {
        PassThroughState {
            packets: builder.counter("packets"),
        }
    }

    #[inline(always)]
    fn packet(&self, ask: Ask<'_, PassThroughState>) -> Result<Verdict, Late> {
        let out = PortNumber(ask.port().0 ^ 1);
        // What is read must matter, or the compiler drops the read.
        match self.access {
            Access::None => {}
            Access::Read => {
                if ask.packets.get()? > PACKETS_MAX {
                    return Ok(Verdict::Drop(Reason::Filtered));
                }
            }
            Access::Write => ask.act()?.packets.add(1),
            Access::ReadWrite => {
                if ask.packets.get()? > PACKETS_MAX {
                    return Ok(Verdict::Drop(Reason::Filtered));
                }
                if !mutant::active(Mutant::FirstNotCounted) || ask.packets.get()? > 0 {
                    ask.act()?.packets.add(1);
                }
            }
        }
        Ok(Verdict::Forward(out))
    }
}

/// Packets after which the function lets nothing more through: 2⁶³, some thousand years.
const PACKETS_MAX: u64 = u64::MAX >> 1;

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
        let length = build::flow4(&flow, b"", &mut bytes).unwrap();
        bytes.truncate(length);
        bytes
    }

    #[test]
    fn forwards_unchanged_and_counts() {
        let mut kit = Testkit::new(PassThrough {
            access: Access::ReadWrite,
        });
        for port in [0, 1, 0] {
            let outcome = kit.packet(PortNumber(port), &packet());
            assert_eq!(outcome.verdict, Verdict::Forward(PortNumber(port ^ 1)));
            assert_eq!(outcome.packet, packet());
        }
        assert_eq!(kit.state().packets.get(), Ok(3));
    }
}
