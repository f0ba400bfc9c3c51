//! In which members something moved: what stands still was judged before.

use asterism_engine::{Cluster, Member};

use crate::exercise::Exercise;

/// Members by place, a bit for each in which something moved. A cluster has at most 64.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved(u64);

impl Moved {
    /// Those members, with their places.
    pub(crate) fn members(
        self,
        cluster: &Cluster<Exercise>,
    ) -> impl Iterator<Item = (usize, &Member<Exercise>)> {
        let members = cluster.members().iter().enumerate();
        members.filter(move |(place, _)| self.has(*place))
    }

    pub(crate) fn has(self, place: usize) -> bool {
        self.0 >> place & 1 != 0
    }
}

/// How far each member had moved when it was last looked at.
#[derive(Debug, Default)]
pub(crate) struct Looked(Vec<u64>);

impl Looked {
    /// Where something moved since the last look.
    pub(crate) fn query(&mut self, cluster: &Cluster<Exercise>) -> Moved {
        let members = cluster.members();
        // No member's count: nothing was looked at yet.
        self.0.resize(members.len(), u64::MAX);
        let mut moved = 0;
        for (place, (member, before)) in members.iter().zip(&mut self.0).enumerate() {
            moved |= u64::from(*before != member.moves()) << place;
            *before = member.moves();
        }
        Moved(moved)
    }
}
