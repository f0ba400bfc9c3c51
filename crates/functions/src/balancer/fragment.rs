//! Fragments: the first one has the ports and is handled like any packet; it leaves here where the later ones of its
//! datagram go. Imports `asterism_function` and what lies beside it.
//!
//! Later fragments that overtake the first one wait for it, parked within the engine's bounds, as the NAT's do.

use core::cmp::Ordering;
use core::net::Ipv4Addr;
use core::ops::ControlFlow;

use asterism_function::{
    Ask, BadBytes, Endpoint, Late, Reader, Reason, Value, Verdict, Wire, Writer,
};

use super::send::Path;
use super::{Balancer, BalancerState, Mode};
use crate::nat::FragmentKey;
use crate::nat::fragment::{FIRST_WAIT_US, portless};

/// Where the fragments of a datagram go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Led {
    /// The mode of those that go to a backend, one more than its code; 0 of those that go to a client.
    kind: u8,
    /// The backend, or the service that the client knows.
    address: Ipv4Addr,
}

impl Led {
    pub(super) fn of(path: Path) -> Self {
        match path {
            Path::ToBackend(mode, backend) => Self {
                kind: mode.code() + 1,
                address: backend.address,
            },
            Path::ToClient(service) => Self {
                kind: 0,
                address: service.address,
            },
        }
    }

    fn path(self) -> Path {
        let end: Endpoint = portless(self.address);
        match self.kind.checked_sub(1).and_then(Mode::from_code) {
            Some(mode) => Path::ToBackend(mode, end),
            None => Path::ToClient(end),
        }
    }
}

impl Wire for Led {
    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(self.kind);
        self.address.encode(out);
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let kind = input.u8()?;
        if kind != 0 && Mode::from_code(kind - 1).is_none() {
            return Err(BadBytes);
        }
        Ok(Self {
            kind,
            address: Ipv4Addr::decode(input)?,
        })
    }
}

impl Value for Led {
    fn order(&self, other: &Self) -> Ordering {
        (self.kind, self.address).cmp(&(other.kind, other.address))
    }
}

impl Balancer {
    /// A fragment without a transport header.
    #[cold]
    pub(super) fn later_fragment(&self, ask: Ask<'_, BalancerState>) -> Result<Verdict, Late> {
        let Some(key) = FragmentKey::of(ask.packet()) else {
            return Ok(Verdict::Drop(Reason::UnsupportedProtocol));
        };
        let Some(datagram) = ask.fragments.get(&key)? else {
            ask.expect(FIRST_WAIT_US)?;
            return Ok(Verdict::Drop(Reason::FragmentUnmatched));
        };
        let (ask, departure) = match self.departure(ask, datagram.value.path())? {
            ControlFlow::Continue(leaves) => leaves,
            ControlFlow::Break(verdict) => return Ok(verdict),
        };
        let mut act = ask.act()?;
        act.fragments.touch(&datagram);
        Ok(departure.leave(act))
    }
}
