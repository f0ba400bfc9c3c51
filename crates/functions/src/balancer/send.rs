//! How a packet leaves, in each mode. Imports `asterism_forwarding`, `asterism_function` and what lies beside it.

use asterism_forwarding::{Carriage, Onward, Side};
use asterism_function::{Act, Ask, Endpoint, Late, Packet, Reason, Verdict};

use super::{Balancer, BalancerState, Mode};

/// What is done with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Path {
    /// It goes to this backend.
    ToBackend(Mode, Endpoint),
    /// It comes from a backend, and goes to its destination as if from this endpoint.
    ToClient(Endpoint),
}

impl Balancer {
    /// Sends a packet on; `write` writes the state once it is sure that it leaves.
    pub(super) fn send(
        &self,
        ask: Ask<'_, BalancerState>,
        path: Path,
        write: impl FnOnce(&mut Act<'_, BalancerState>),
    ) -> Result<Verdict, Late> {
        let Some(onward) = path.onward(ask.packet()) else {
            return Ok(Verdict::Drop(Reason::NoRoute));
        };
        self.router.forward(ask, onward, |act| {
            path.edit(&mut act.packet);
            write(act);
        })
    }
}

impl Path {
    pub(super) fn onward(self, packet: &Packet<'_>) -> Option<Onward> {
        Some(match self {
            Self::ToBackend(mode, backend) => {
                Onward::new(Side::Inside, backend.address, mode.carriage())
            }
            Self::ToClient(_) => Onward::routed(Side::Outside, packet.ipv4_destination()?),
        })
    }

    pub(super) fn edit(self, packet: &mut Packet<'_>) {
        match self {
            Self::ToBackend(Mode::Nat, backend) => packet.set_destination(backend),
            Self::ToBackend(..) => {}
            Self::ToClient(service) => packet.set_source(service),
        }
    }
}

impl Mode {
    const fn carriage(self) -> Carriage {
        match self {
            Self::Nat => Carriage::Routed,
            Self::Direct => Carriage::Switched,
            Self::Tunnel => Carriage::Tunnelled,
        }
    }

    pub(super) const fn of_carriage(carriage: Carriage) -> Self {
        match carriage {
            Carriage::Routed => Self::Nat,
            Carriage::Switched => Self::Direct,
            Carriage::Tunnelled => Self::Tunnel,
        }
    }
}
