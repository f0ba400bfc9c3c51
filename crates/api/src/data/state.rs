//! The state of hosts: its objects, and which hosts have an entry.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Entries of one answer at most, over all hosts.
pub const STATE_ENTRIES_MAX: usize = 256;
/// Bytes of a key, and of a value, that is searched.
pub const STATE_WORD_BYTES_MAX: usize = 200;

/// The state objects of the hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StateObjects {
    /// The objects, in the order in which the function has them.
    pub objects: Vec<StateObject>,
    /// Hosts that were asked and did not answer.
    pub unanswered: Vec<Unanswered>,
}

/// A state object, as each host has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StateObject {
    /// Its name.
    pub name: String,
    /// What each packet loop of each host has of it.
    pub held: Vec<ObjectHeld>,
    /// Entries in the store of remote objects, as counted some seconds ago; absent of an object that is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_store: Option<u64>,
}

/// What a packet loop has of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ObjectHeld {
    /// The host.
    pub host: String,
    /// The number of the packet loop.
    pub instance: u32,
    /// Entries that can be found.
    pub live: u64,
    /// Entries including tombstones.
    pub held: u64,
    /// Entries at most; 0 if there is no such bound.
    pub capacity: u64,
}

/// A host that did not answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unanswered {
    /// The host.
    pub host: String,
    /// Why, in one sentence.
    pub why: String,
}

/// Which entries of an object are looked for. Without a key and a value: the first that there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StateQuery {
    /// A word of the key, or the whole key, as `asterism state get` shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(example = "192.0.2.1:40000")]
    pub key: Option<String>,
    /// A word of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The host that is asked; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// Entries of an object, and which hosts have each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StateEntries {
    /// The object.
    pub object: String,
    /// At most 256.
    pub entries: Vec<StateEntry>,
    /// Whether there are more than are here.
    pub is_cut: bool,
    /// Hosts that were asked and did not answer, or did not reach all of the store of remote objects.
    pub unanswered: Vec<Unanswered>,
}

/// An entry, as hosts have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StateEntry {
    /// Its key.
    pub key: String,
    /// Whether all hosts that answered have it alike. Of an object that is not shared, or while an update is on its way, they do not.
    pub agree: bool,
    /// The hosts that have it.
    pub holders: Vec<StateHolder>,
    /// Hosts that answered and do not have it.
    pub lacking: Vec<String>,
}

/// A host that has an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StateHolder {
    /// The host.
    pub host: String,
    /// Its packet loops that have the entry so; none of an entry in the store of remote objects.
    pub instances: Vec<u32>,
    /// The value, at most 512 characters of it.
    pub value: String,
    /// Who wrote it and how long it lives; absent of a sum.
    pub written: Option<StateWritten>,
}

/// Who wrote an entry, and how long it lives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StateWritten {
    /// The host that wrote it last.
    pub by: String,
    /// The number of that host.
    pub member: u16,
    /// That incarnation of it.
    pub incarnation: String,
    /// Under which number.
    pub sequence: u64,
    /// How often it was rewritten.
    pub generation: u64,
    /// Which of the object's idle times holds for it.
    pub idle_class: u8,
    /// That time in seconds; 0 is for ever.
    pub idle_s: u32,
    /// Seconds since its last announced use.
    pub unused_s: u32,
    /// Whether another entry with the same key is preferred.
    pub is_alias: bool,
    /// Whether this host says when it idles out.
    pub ends_here: bool,
}
