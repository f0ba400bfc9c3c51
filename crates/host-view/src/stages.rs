//! The stages of a chain as `status` shows them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::counts::nonzero;
use crate::names::Names;
use crate::statistics::InstanceSnapshot;

/// A stage of a chain in a packet loop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageDocument {
    /// Its name.
    pub name: String,
    /// Calls of its function.
    pub asked: u64,
    /// Calls that ended with a verdict; the others were late.
    pub acted: u64,
    /// Calls that were late.
    pub late: u64,
    /// Packets that went on although the stage had failed for them.
    pub bypassed: u64,
    /// Copies that it received.
    pub mirrored: u64,
    /// Copies lost for lack of buffers.
    pub mirror_lost: u64,
    /// Packets that it dropped, by reason, without zero counts.
    pub dropped: BTreeMap<String, u64>,
}

pub(crate) fn documents(snapshot: &InstanceSnapshot, names: &Names) -> Vec<StageDocument> {
    let stages = snapshot.stages.iter().zip(&names.stages);
    stages
        .map(|(stage, name)| StageDocument {
            name: (*name).to_owned(),
            asked: stage.asked(),
            acted: stage.acted,
            late: stage.late,
            bypassed: stage.bypassed,
            mirrored: stage.mirrored,
            mirror_lost: stage.mirror_lost,
            dropped: nonzero(names.own.labelled(&stage.dropped)),
        })
        .collect()
}
