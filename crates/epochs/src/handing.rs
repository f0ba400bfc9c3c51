//! Handing an epoch to a running host: the request and the answer, one line of JSON each on the host's control socket.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Bytes of an epoch's text at most. 64 members with the longest names, all of whose ports have changed hands, take two thirds.
pub const EPOCH_BYTES_MAX: usize = 512 * 1024;

/// The request that hands an epoch: one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    #[serde(rename = "do")]
    what: What,
    /// The cluster that it is for; a host of another one refuses it. If none is said, the members' names must do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The epoch, as its file has it.
    pub text: String,
}

/// The request's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum What {
    Epoch,
}

impl Request {
    /// Hands this text.
    #[must_use]
    pub fn new(cluster: Option<&str>, text: &str) -> Request {
        Request {
            what: What::Epoch,
            cluster: cluster.map(str::to_owned),
            text: text.to_owned(),
        }
    }
}

/// What a host has in force after it was handed an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InForce {
    /// The host.
    pub host: String,
    /// The epoch: the one that was handed, on its disk and, unless [`Standing`] says otherwise, in force.
    pub epoch: u32,
    /// Whether it was news to the host. If not, all was so already.
    pub changed: bool,
    /// What the epoch means to it.
    pub standing: Standing,
    /// Who takes part, each in which incarnation.
    pub members: BTreeMap<String, u64>,
}

/// What an epoch means to a host that was handed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// It takes part: the epoch is in force.
    TakesPart,
    /// It waited to be named and is: it begins its incarnation now.
    Begins,
    /// It waits to be named, and this epoch does not do it.
    Waits,
    /// It stops: the epoch ends its incarnation, or somebody stopped it meanwhile.
    Ends,
}

/// Why a host did not take an epoch. Each leaves its file and what is in force as they were, but for [`Refusal::Busy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// Its configuration names no file of epochs.
    NoEpochs,
    /// The text is no epoch, or one that contradicts itself.
    Malformed,
    /// It is of another cluster, or names members that this one does not have.
    OtherCluster,
    /// A later one is in force.
    Older,
    /// Another one of the same number is in force.
    Contradicts,
    /// It forgets incarnations or who holds ports, which would begin or be granted twice.
    Forgets,
    /// It could not be written to the host's disk.
    NotWritten,
    /// The host has too much to do. If it says that the epoch is on its disk, it comes into force by itself; hand it again to know.
    Busy,
    /// What a later version has another word for.
    #[serde(other)]
    Other,
}

impl Refusal {
    /// The word that is in the answer.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Refusal::NoEpochs => "no-epochs",
            Refusal::Malformed => "malformed",
            Refusal::OtherCluster => "other-cluster",
            Refusal::Older => "older",
            Refusal::Contradicts => "contradicts",
            Refusal::Forgets => "forgets",
            Refusal::NotWritten => "not-written",
            Refusal::Busy => "busy",
            Refusal::Other => "other",
        }
    }

    /// Whether the same epoch may be taken later, without anybody changing it.
    #[must_use]
    pub fn is_passing(self) -> bool {
        matches!(self, Refusal::NotWritten | Refusal::Busy)
    }
}
