//! A flow: which backend a client's packets to a service go to. Imports `asterism_forwarding` and
//! `asterism_function`.

use core::cmp::Ordering;

use asterism_forwarding::Ends;
use asterism_function::{
    BadBytes, Endpoint, Key, Paired, Protocol, Reader, Row, Tick, Value, Wire, Writer, layout,
};

use super::config::Mode;

/// One flow, 28 bytes: found by packets of its client, and by those of its backend where they come back this way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Who asks.
    pub client: Endpoint,
    /// What it asks for, as its packets say.
    pub service: Endpoint,
    /// Who answers.
    pub backend: Endpoint,
    /// How packets reach the backend.
    pub mode: Mode,
    /// The backend's place in the vector of usage.
    pub place: u16,
}

impl core::fmt::Debug for Flow {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            formatter,
            "client {} service {} backend {} {}",
            self.client, self.service, self.backend, self.mode
        )
    }
}

impl Paired for Flow {
    type Left = Ends;
    type Right = Ends;

    /// Of a packet from the client.
    #[inline(always)]
    fn left(&self) -> Ends {
        Ends::between(self.client, self.service)
    }

    /// Of a packet from the backend. Where the balancer sees none, a key that no packet has: two flows of one client to one
    /// backend by different services must not displace one another.
    #[inline(always)]
    fn right(&self) -> Ends {
        match self.mode {
            Mode::Nat => Ends::between(self.backend, self.client),
            Mode::Direct | Mode::Tunnel => Ends::between(self.service, self.client).unseen(),
        }
    }
}

impl Row for Flow {
    const UNIQUE: usize = 2;
    const LANES: usize = 2;

    #[inline(always)]
    fn lane_hash(&self, lane: usize, seed: u64) -> u64 {
        if lane == 0 {
            self.left().hash(seed)
        } else {
            self.right().hash(seed)
        }
    }

    #[inline(always)]
    fn lane_equal(&self, lane: usize, other: &Self) -> bool {
        if lane == 0 {
            self.left() == other.left()
        } else {
            self.right() == other.right()
        }
    }

    fn order(&self, other: &Self) -> Ordering {
        let key = |flow: &Self| {
            let ends = (flow.client, flow.service, flow.backend);
            (ends, flow.mode.code(), flow.place)
        };
        key(self).cmp(&key(other))
    }
}

/// 24 bytes at most.
impl Wire for Flow {
    const LAYOUT: u64 = layout::by_hand("balancer flow", 1);
    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(self.client.protocol.0);
        for endpoint in [self.client, self.service, self.backend] {
            out.address(endpoint.address.to_bits());
            out.u16(endpoint.port);
        }
        out.u8(self.mode.code());
        out.u16(self.place);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let protocol = Protocol(input.u8()?);
        let mut endpoint = || {
            let address = input.address()?;
            let port = input.u16()?;
            Ok(Endpoint::new(address.into(), port, protocol))
        };
        let (client, service, backend) = (endpoint()?, endpoint()?, endpoint()?);
        Ok(Self {
            client,
            service,
            backend,
            mode: Mode::from_code(input.u8()?).ok_or(BadBytes)?,
            place: input.u16()?,
        })
    }
}

/// Which backend a client has, where a service keeps to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
#[value(order(since, backend))]
pub struct Kept {
    /// The backend; its port is zero where the client's is kept.
    pub backend: Endpoint,
    /// When it was chosen.
    pub since: Tick,
}
