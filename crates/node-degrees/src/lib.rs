//! How many edges begin and end at each node: counted as edges come and go, so that nobody scans for it.
//!
//! Layer 0, below the state objects, of which a graph shares its edges among instances.

use asterism_memory::index::Index;
use asterism_memory::region::{Region, Slot};
use asterism_memory::zeroed;
use asterism_wire::Key;

zeroed! {
    /// Edges of one node, by direction.
    struct Node<N: Key> {
        degrees: [u32; 2],
        /// The next free record, plus one; 0 is none.
        next_free: u32,
        node: Slot<N>,
    }
}

/// Where edges of a node are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Edges that begin at it.
    Out = 0,
    /// Edges that end at it.
    In = 1,
}

/// The nodes that an edge begins or ends at.
#[derive(Debug)]
pub struct Nodes<N: Key> {
    seed: u64,
    index: Index,
    nodes: Region<Node<N>>,
    used: u32,
    free: u32,
    held: u32,
}

impl<N: Key> Nodes<N> {
    /// Of so many nodes at most, which are hashed with this seed.
    #[must_use]
    pub fn new(seed: u64, room: u32) -> Self {
        Self {
            seed,
            index: Index::new(room as usize),
            nodes: Region::new(room as usize),
            used: 0,
            free: 0,
            held: 0,
        }
    }

    /// Nodes that edges begin or end at.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.held
    }

    /// Has the memory of a node read ahead.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Bytes that look-ups touch.
    #[must_use]
    pub fn bytes_in_use(&self) -> usize {
        self.index.bytes_in_use() + self.held as usize * size_of::<Node<N>>()
    }

    /// A node's edges on one side. One cache line for the index and one for the count.
    #[inline]
    pub fn degree(&self, node: &N, hash: u64, side: Side) -> u32 {
        self.find(node, hash).map_or(0, |number| {
            self.nodes[number as usize].degrees[side as usize]
        })
    }

    /// Up to `count` records from the `cursor`th on: each node with its degrees. Where to go on, `None` at the end.
    pub fn for_each_from(
        &self,
        (cursor, count): (u32, u32),
        mut each: impl FnMut(&N, u32, u32),
    ) -> Option<u32> {
        let end = cursor.saturating_add(count).min(self.used);
        for held in &self.nodes[cursor.min(end) as usize..end as usize] {
            let [out, into] = held.degrees;
            // A record without edges is free.
            if let Some(node) = held.node.get()
                && (out, into) != (0, 0)
            {
                each(node, out, into);
            }
        }
        (end < self.used).then_some(end)
    }

    /// An edge begins or ends at the node from now on. There is room for the nodes of all edges.
    pub fn add(&mut self, node: N, side: Side) {
        let hash = node.hash(self.seed);
        let Some(number) = self.find(&node, hash).or_else(|| self.take(node, hash)) else {
            debug_assert!(false, "there is room for two nodes of each edge");
            return;
        };
        self.nodes[number as usize].degrees[side as usize] += 1;
    }

    /// It does no longer.
    pub fn remove(&mut self, node: &N, side: Side) {
        let hash = node.hash(self.seed);
        let Some(number) = self.find(node, hash) else {
            debug_assert!(false, "an edge that ends was counted");
            return;
        };
        let held = &mut self.nodes[number as usize];
        held.degrees[side as usize] -= 1;
        if held.degrees == [0, 0] {
            held.next_free = self.free;
            self.free = number + 1;
            self.held -= 1;
            self.index.remove(hash, number);
        }
    }

    #[inline]
    fn find(&self, node: &N, hash: u64) -> Option<u32> {
        self.index.find(hash, |number| {
            (self.nodes[number as usize].node.is(node)).then_some(number)
        })
    }

    fn take(&mut self, node: N, hash: u64) -> Option<u32> {
        let number = if self.free != 0 {
            let number = self.free - 1;
            self.free = self.nodes[number as usize].next_free;
            number
        } else if (self.used as usize) < self.nodes.len() {
            self.used += 1;
            self.used - 1
        } else {
            return None;
        };
        self.nodes[number as usize] = Node {
            degrees: [0, 0],
            next_free: 0,
            node: Slot::of(node),
        };
        self.held += 1;
        let (nodes, seed) = (&self.nodes, self.seed);
        self.index.insert(hash, number, |number| {
            let held = nodes[number as usize].node.get();
            held.map_or(0, |node| node.hash(seed))
        });
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_come_and_go_with_their_edges() {
        let mut nodes = Nodes::<u32>::new(5, 4);
        let degree = |nodes: &Nodes<u32>, node: u32, side| nodes.degree(&node, node.hash(5), side);
        for round in 0..100u32 {
            for node in round..round + 4 {
                nodes.add(node, Side::Out);
            }
            nodes.add(round, Side::Out);
            nodes.add(round + 3, Side::In);
            assert_eq!(degree(&nodes, round, Side::Out), 2);
            assert_eq!(degree(&nodes, round, Side::In), 0);
            assert_eq!(degree(&nodes, round + 3, Side::In), 1);
            assert_eq!(nodes.count(), 4, "no more room, and none is needed");
            let mut reported = Vec::new();
            let mut each = |node: &u32, out, into| reported.push((*node, out, into));
            assert_eq!(nodes.for_each_from((0, 3), &mut each), Some(3));
            assert_eq!(nodes.for_each_from((3, 3), &mut each), None);
            reported.sort_unstable();
            let expected = [
                (round, 2, 0),
                (round + 1, 1, 0),
                (round + 2, 1, 0),
                (round + 3, 1, 1),
            ];
            assert_eq!(reported, expected);
            nodes.remove(&round, Side::Out);
            nodes.remove(&(round + 3), Side::In);
            for node in round..round + 4 {
                nodes.remove(&node, Side::Out);
            }
            assert_eq!((nodes.count(), degree(&nodes, round, Side::Out)), (0, 0));
            nodes.for_each_from((0, u32::MAX), |_, _, _| panic!("there is none"));
        }
    }
}
