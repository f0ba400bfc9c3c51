//! Who has a packet's writes when it leaves, where they are in a store.

use asterism_toml_schema::section::choices;

choices! {
    /// Who has the writes of a packet when it leaves.
    pub enum StoreAck {
        Primary = "primary", "the store's primary: what no replica has yet is forgotten when the primary dies";
        Replica = "replica", "the primary and one of its replicas: nothing that left is forgotten when the primary dies and the replica that has most is promoted";
    }
}
