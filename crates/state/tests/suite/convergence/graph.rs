//! What a graph must say, distinguished from the sightings that live by the rules of tables.

use std::collections::{BTreeMap, BTreeSet};

use asterism_state::{BadBytes, Graph, Late, Reader, Row, Value, Wire, Writer};

/// An edge as one instance sees it: source, destination, the instance's member, incarnation and lane.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Sighting(u8, u8, u16, u64, u16);

impl Wire for Sighting {
    fn encode(&self, _: &mut Writer<'_>) {
        unreachable!("the oracle only reads");
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        let edge = (input.u8()?, input.u8()?);
        let (member, incarnation, lane) = (input.u16()?, input.u64()?, input.u16()?);
        Ok(Self(edge.0, edge.1, member, incarnation, lane))
    }
}

impl Row for Sighting {
    const UNIQUE: usize = 1;
    const LANES: usize = 1;
    fn lane_hash(&self, _: usize, _: u64) -> u64 {
        0
    }
    fn lane_key(&self, _: usize, out: &mut Writer<'_>) {
        self.encode(out);
    }
    fn lane_equal(&self, _: usize, other: &Self) -> bool {
        self == other
    }
    fn order(&self, _: &Self) -> core::cmp::Ordering {
        core::cmp::Ordering::Equal
    }
}

/// What one instance added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Volume(u64);

impl Wire for Volume {
    fn encode(&self, _: &mut Writer<'_>) {
        unreachable!("the oracle only reads");
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        input.varint().map(Self)
    }
}

impl Value for Volume {
    const JOINS: bool = true;
    fn join(&mut self, other: &Self) {
        self.0 = self.0.max(other.0);
    }
}

/// The edges that there are, with their weights.
pub struct Talk(BTreeMap<(u8, u8), u64>);

impl Talk {
    pub fn of(living: &BTreeMap<Sighting, Volume>) -> Self {
        let mut edges = BTreeMap::new();
        for (sighting, volume) in living {
            *edges.entry((sighting.0, sighting.1)).or_default() += volume.0;
        }
        Self(edges)
    }

    pub fn check(&self, graph: &Graph<u8>) -> Result<(), Late> {
        let mut held = BTreeMap::new();
        graph.for_each(|&source, &destination, weight| {
            assert!(held.insert((source, destination), weight).is_none());
        });
        assert_eq!(held, self.0, "edges and weights");
        assert_eq!(graph.edges(), self.0.len());
        let nodes: BTreeSet<u8> = self.0.keys().flat_map(|edge| [edge.0, edge.1]).collect();
        assert_eq!(graph.nodes(), nodes.len());
        for node in 0..5 {
            let to = self.0.keys().filter(|edge| edge.0 == node).count();
            let from = self.0.keys().filter(|edge| edge.1 == node).count();
            let degrees = (graph.out_degree(&node)?, graph.in_degree(&node)?);
            assert_eq!(degrees, (to as u32, from as u32), "degrees of {node}");
            for other in 0..5 {
                let weight = self.0.get(&(node, other)).copied();
                assert_eq!(graph.weight(&node, &other)?, weight);
            }
        }
        Ok(())
    }
}
