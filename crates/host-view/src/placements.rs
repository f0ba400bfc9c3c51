//! Objects whose placement changes while hosts are reloaded one after another, as `status` shows them.

use asterism_engine::transport::ChannelSnapshot;
use serde::{Deserialize, Serialize};

use crate::names::Names;

/// A state object that hosts have in different placements, or whose change is not complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementDocument {
    /// The object.
    pub object: String,
    /// Its placement in this host's configuration.
    pub placement: String,
    /// Whether all instances of this host report their writes to it.
    pub shared: bool,
    /// Whether an instance holds more than its share of the entries, so that the host does not share it yet.
    pub waits: bool,
    /// Whether all hosts have written again what they held when others began to share it.
    pub settled: bool,
    /// Members whose configuration has another placement.
    pub differing: Vec<String>,
    /// Members of the epoch that have not reported their placements.
    pub silent: Vec<String>,
}

/// Those that there are now; none while all hosts have all objects in the same placement.
#[must_use]
pub fn documents(channel: &ChannelSnapshot, names: &Names) -> Vec<PlacementDocument> {
    let Some(shared) = &channel.shared_objects else {
        return Vec::new();
    };
    let has = |set: u64, object: usize| set >> object & 1 != 0;
    let objects = names.objects.iter().enumerate();
    let movable = objects.filter(|(object, _)| has(shared.movable, *object));
    let documents = movable.map(|(object, name)| {
        let wanted = has(shared.replicated, object);
        let others = shared.others.iter();
        let differs = |theirs: Option<u64>| theirs.is_some_and(|set| has(set, object) != wanted);
        let differing = others.clone().filter(|(_, theirs)| differs(*theirs));
        let silent = others.filter(|(_, theirs)| theirs.is_none());
        PlacementDocument {
            object: (*name).to_owned(),
            placement: if wanted { "replicated" } else { "local" }.to_owned(),
            shared: has(shared.shared, object),
            waits: has(shared.waiting, object),
            settled: !has(shared.unsettled, object),
            differing: differing.map(|(member, _)| names.member(*member)).collect(),
            silent: silent.map(|(member, _)| names.member(*member)).collect(),
        }
    });
    let changes = |document: &PlacementDocument| {
        let wanted = document.placement == "replicated";
        !document.differing.is_empty()
            || document.shared != wanted
            || document.waits
            || !document.settled
    };
    documents.filter(changes).collect()
}
