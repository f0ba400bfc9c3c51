//! Client affinity: the backend that a client keeps, so that all its flows find the state that this backend holds.

use core::net::Ipv4Addr;

use asterism_function::objects::TableAct;
use asterism_function::{Endpoint, Entry, Map, Single, Tick, Value, Wire};

/// A client of a service, which goes by its name.
pub type ClientKey = (Endpoint, Ipv4Addr);

/// Which backend each client has, of services that keep to it.
pub type Clients = Map<ClientKey, Affinity>;

/// Which backend a client has, where a service keeps to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Wire, Value)]
#[value(order(since, backend))]
pub struct Affinity {
    /// The backend; its port is zero where the client's is kept.
    pub backend: Endpoint,
    /// When it was chosen.
    pub since: Tick,
}

/// What is to be written of a client whose flow is opened.
#[derive(Debug)]
pub struct AffinityUpdate {
    /// Without room the client goes by its hash.
    pub(crate) room: Entry<ClientKey, Affinity>,
    pub(crate) affinity: Affinity,
}

impl AffinityUpdate {
    /// Writes it. A client that stays where it was is only marked as there.
    #[inline]
    pub fn write(self, clients: &mut TableAct<'_, Single<ClientKey>, Affinity>) {
        match self.room {
            Entry::Occupied(at) if at.value.backend == self.affinity.backend => clients.touch(&at),
            room => {
                clients.put(room, self.affinity);
            }
        }
    }
}
