//! How a store is divided: by its shards, if it has several, each of which has whole conversations.

use std::sync::Arc;

use asterism_remote_store::{Shard, Shards};
use asterism_state::{Fetch, Query, hash};

use super::ledger::{client_of, ends};

/// The name of the function in the store.
const FUNCTION: &str = "ledger";
/// Into how many parts conversations are divided.
const BUCKETS: u32 = 1 << 8;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Division(Option<Arc<Shards>>);

impl Division {
    pub(super) fn new(seed: u64, shards: usize) -> Self {
        if shards == 1 {
            return Self(None);
        }
        let names: Vec<String> = (0..shards).map(|place| format!("s{place}")).collect();
        let shards = Shards::new(&names, (BUCKETS, seed));
        Self(Some(Arc::new(shards.expect("names of shards"))))
    }

    /// The shards, if the store has several.
    pub(super) fn shards(&self) -> Option<&Arc<Shards>> {
        self.0.as_ref()
    }

    pub(super) fn count(&self) -> usize {
        self.0.as_ref().map_or(1, |shards| shards.count())
    }

    /// The name of the function in a shard.
    pub(super) fn function(&self, place: usize) -> String {
        match &self.0 {
            None => FUNCTION.to_owned(),
            Some(shards) => format!("{FUNCTION}/{}", shards.names()[place]),
        }
    }

    /// What a client of a shard has to know.
    pub(super) fn shard(&self, place: usize) -> Option<Shard> {
        let all = self.0.clone()?;
        Some(Shard { all, place })
    }

    /// Which shard has what a client says.
    pub(super) fn of_client(&self, client: u8) -> usize {
        let (one, other) = ends(client);
        self.0.as_ref().map_or(0, |shards| {
            shards.of(hash::conversation(one, other, shards.conversation_seed()))
        })
    }

    /// Which shard has a packet's conversation.
    pub(super) fn of_packet(&self, bytes: &[u8]) -> usize {
        self.of_client(client_of(bytes))
    }

    /// Whether a shard has the key that is read in an object.
    pub(super) fn has(&self, place: usize, object: Option<&dyn Fetch>, query: &Query<'_>) -> bool {
        let Some(shards) = self.0.as_ref().filter(|_| !query.is_without_key()) else {
            return true;
        };
        let of = |object: &dyn Fetch| object.conversation_of(query, shards.conversation_seed());
        object.and_then(of).map(|of| shards.of(of)) == Some(place)
    }

    /// So many clients of each shard.
    pub(super) fn clients(&self, of_each: usize) -> Vec<u8> {
        let mut counts = vec![0; self.count()];
        let all = 0..u8::MAX;
        let some = all.filter(|client| {
            let count = &mut counts[self.of_client(*client)];
            *count += 1;
            *count <= of_each
        });
        some.collect()
    }

    /// A client of another shard than this one is of.
    pub(super) fn another(&self, client: u8, clients: &[u8]) -> Option<u8> {
        let own = self.of_client(client);
        let mut others = clients.iter().copied();
        others.find(|other| self.of_client(*other) != own)
    }
}
