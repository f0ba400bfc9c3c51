//! The dispersion graph: which hosts talk to which others, as directed edges with weights that all instances add to, and the
//! degree of every node.
//!
//! A graph is a table whose rows are *sightings*: an edge and the instance that sees it. Each instance writes only its own
//! rows, so that no two writes ever race. The weight of an edge is the sum over its live sightings, and the edge exists as
//! long as one of them lives. The table provides merging, idling out, leases of the capacity and snapshots. `sighting.rs` has
//! the row and its keys; `nodes.rs` counts degrees, which are not reported but follow from the edges.

mod sighting;

use core::ops::Range;
use std::rc::Rc;

use asterism_memory::prefetch_hints::PrefetchHints;
use asterism_node_degrees::{Nodes, Side};

use crate::audit::{Leaf, LeafSet};
use crate::context::{Context, Late, OPERATION_BYTES_MAX, late_answer};
use crate::map::Key;
use crate::object::{
    Audit, Fetch, Inspect, Operations, Part, PerPacket, Replicate, Since, Snapshot, Sweep, Writable,
};
use crate::recording::{ADDS, BEGINS, Recordable};
use crate::shown::Shown;
use crate::stamp::{NamedOrigins, Stamp};
use crate::table::{
    At, RECORDED_TOUCH, RECORDED_WRITE, Row, Table, TableSettings, TableTally, Vacancy,
};
use crate::wire::{BadBytes, Reader, Wire};
use asterism_object_counts::ObjectCounts;

use sighting::{DESTINATION, EDGE, OWN, SOURCE, Sighting, Volume, Witness, edge_hash, own_hash};

/// Directed edges between nodes, with weights: a traffic dispersion graph (Iliofotou et al. 2007), for finding who scans, who
/// spreads and who is swamped.
///
/// An edge that nobody uses idles out as an entry of a map does. Its weight is what all instances added, each since it last began
/// to see the edge: when one has not seen it for the idle time, its part goes. Where a packet passes, adding costs two cache lines.
#[derive(Debug)]
pub struct Graph<N: Key> {
    context: Rc<Context>,
    object: u8,
    witness: Witness,
    sightings: Table<Sighting<N>, Volume>,
    nodes: Nodes<N>,
    edges: u32,
    /// Own sightings whose weight grew since it was reported: a bit for each record, and their numbers.
    is_changed: Recordable<u64>,
    changed: Vec<u32>,
}

/// An edge as this instance sees it, found or about to be.
#[derive(Debug)]
#[must_use = "a link that nothing is added to changes nothing"]
pub struct Link<N: Key>(Found<N>);

#[derive(Debug)]
enum Found<N: Key> {
    Seen(At<Sighting<N>, Volume>),
    New(Sighting<N>, Vacancy),
}

impl<N: Key> Graph<N> {
    pub(crate) fn new(context: Rc<Context>, object: u8, settings: TableSettings) -> Self {
        let sightings = Table::<Sighting<N>, Volume>::new(context.clone(), object, settings);
        let room = sightings.room();
        let nodes = room.checked_mul(2).filter(|&nodes| nodes < 1 << 31);
        let nodes = nodes.expect("a graph has fewer than 2^29 edges");
        Self {
            witness: Witness::own(&context),
            nodes: Nodes::new(context.seed(), nodes),
            edges: 0,
            is_changed: Recordable::new(room.div_ceil(u64::BITS) as usize),
            changed: Vec::with_capacity(room as usize),
            sightings,
            object,
            context,
        }
    }

    // --- asking

    /// The edge from `source` to `destination`, to add to: as this instance sees it, or the permission to begin. `None` when this
    /// instance's share of the capacity is used up.
    #[inline(always)]
    pub fn link(&self, source: &N, destination: &N) -> Result<Option<Link<N>>, Late> {
        let sighting = Sighting {
            source: *source,
            destination: *destination,
            witness: self.witness,
        };
        let hash = own_hash(source, destination, self.witness, self.context.seed());
        let seen = self.sightings.find_own(OWN, hash, |row| *row == sighting)?;
        if let Some(at) = seen {
            return Ok(Some(Link(Found::Seen(at))));
        }
        let vacancy = self.sightings.vacancy()?;
        Ok(vacancy.map(|vacancy| Link(Found::New(sighting, vacancy))))
    }

    /// What all instances added to the edge, as far as it is known here; `None` if there is no such edge. Costs a cache line for
    /// the index and one for each instance that sees the edge.
    pub fn weight(&self, source: &N, destination: &N) -> Result<Option<u64>, Late> {
        let hash = edge_hash(source, destination, self.context.seed());
        let same = |row: &Sighting<N>| row.is_of(source, destination);
        self.sightings.fold_group(EDGE, hash, same, sum)
    }

    /// To how many nodes edges lead from `node`. Two cache lines, however many there are.
    #[inline]
    pub fn out_degree(&self, node: &N) -> Result<u32, Late> {
        self.degree(node, Side::Out)
    }

    /// From how many nodes edges lead to `node`. Two cache lines, however many there are.
    #[inline]
    pub fn in_degree(&self, node: &N) -> Result<u32, Late> {
        self.degree(node, Side::In)
    }

    #[inline]
    fn degree(&self, node: &N, side: Side) -> Result<u32, Late> {
        let hash = node.hash(self.context.seed());
        if !self.context.answers_plainly() {
            self.ahead(hash, side)?;
        }
        Ok(self.nodes.degree(node, hash, side))
    }

    #[cold]
    fn ahead(&self, hash: u64, side: Side) -> Result<(), Late> {
        if self.context.is_prefetching() {
            self.nodes.prefetch(hash);
            return Err(late_answer());
        }
        self.context.note_read_of(self.object);
        let late_us = self.sightings.late_us();
        let of_side = hash ^ side as u64;
        if late_us == 0 || self.context.fetched(self.object, of_side, late_us.into()) {
            Ok(())
        } else {
            Err(late_answer())
        }
    }

    // --- for people and the control plane

    /// How many edges there are, however many instances see them.
    pub fn edges(&self) -> usize {
        self.edges as usize
    }

    /// How many nodes an edge begins or ends at.
    pub fn nodes(&self) -> usize {
        self.nodes.count() as usize
    }

    /// What happened so far to the entries, of which each is an edge as one instance sees it.
    pub fn tally(&self) -> TableTally {
        self.sightings.tally()
    }

    /// Calls `each` for every edge: source, destination, weight. Looks at the whole graph.
    pub fn for_each(&self, each: impl FnMut(&N, &N, u64)) {
        self.for_each_from((0, u32::MAX), each);
    }

    /// Looks at up to `count` sightings from the `cursor`th on, and calls `each` for every edge of which one is the first: source,
    /// destination, weight. Gives where to go on, `None` at the end; an edge that begins or loses a sighting meanwhile may be missed
    /// or come twice.
    pub fn for_each_from(
        &self,
        range: (u32, u32),
        mut each: impl FnMut(&N, &N, u64),
    ) -> Option<u32> {
        self.sightings.for_each_from(range, |row, _, _| {
            self.once(row, |weight| each(&row.source, &row.destination, weight));
        })
    }

    /// Looks at up to `count` nodes from the `cursor`th on, and calls `each` with a node, its out-degree and its in-degree. Gives where
    /// to go on, `None` at the end; a node that comes or goes meanwhile may be missed.
    pub fn for_each_node_from(
        &self,
        range: (u32, u32),
        each: impl FnMut(&N, u32, u32),
    ) -> Option<u32> {
        self.nodes.for_each_from(range, each)
    }

    /// Calls `each` for every node that an edge leads to from `node`, with the edge's weight. Looks at these edges alone.
    pub fn for_each_destination(&self, node: &N, mut each: impl FnMut(&N, u64)) {
        let hash = node.hash(self.context.seed());
        let same = |row: &Sighting<N>| row.source == *node;
        self.sightings.each_living(SOURCE, hash, same, |row, _| {
            self.once(row, |weight| each(&row.destination, weight));
        });
    }

    /// Calls `each` for every node from which an edge leads to `node`, with the edge's weight. Looks at these edges alone.
    pub fn for_each_source(&self, node: &N, mut each: impl FnMut(&N, u64)) {
        let hash = node.hash(self.context.seed());
        let same = |row: &Sighting<N>| row.destination == *node;
        self.sightings
            .each_living(DESTINATION, hash, same, |row, _| {
                self.once(row, |weight| each(&row.source, weight));
            });
    }

    /// Calls `each` with an edge's weight, at one of its sightings alone.
    fn once(&self, row: &Sighting<N>, each: impl FnOnce(u64)) {
        let hash = edge_hash(&row.source, &row.destination, self.context.seed());
        let same = |other: &Sighting<N>| other.is_of(&row.source, &row.destination);
        let first = self.sightings.any_in_group(EDGE, hash, same, |_| true);
        if first.is_some_and(|number| self.sightings.row(number) == row) {
            let weight = self.sightings.fold_living(EDGE, hash, same, sum);
            each(weight.unwrap_or(0));
        }
    }

    // --- after a change

    /// Counts the edge that began or ended by the last change of a sighting: with the first one, or the last.
    fn follow(&mut self) {
        let Some((number, incarnations)) = self.sightings.take_turned() else {
            return;
        };
        let row = *self.sightings.row(number);
        let hash = edge_hash(&row.source, &row.destination, self.context.seed());
        let same = |other: &Sighting<N>| other.is_of(&row.source, &row.destination);
        let others = self
            .sightings
            .any_in_group(EDGE, hash, same, |other| *other != row);
        if others.is_some() {
            return;
        }
        if incarnations {
            self.edges += 1;
            self.nodes.add(row.source, Side::Out);
            self.nodes.add(row.destination, Side::In);
        } else {
            self.edges -= 1;
            self.nodes.remove(&row.source, Side::Out);
            self.nodes.remove(&row.destination, Side::In);
        }
    }

    /// Adds to the weight of an own sighting, which is to be reported. False while a call is recorded.
    #[inline(always)]
    fn raise(&mut self, number: u32, amount: u64) -> bool {
        let (word, bit) = ((number / u64::BITS) as usize, 1 << (number % u64::BITS));
        let Some(is_changed) = self.is_changed.get_mut(word) else {
            return false;
        };
        if amount > 0 {
            self.sightings.raise(number, |volume| volume.raise(amount));
            if *is_changed & bit == 0 && self.sightings.is_logged() {
                *is_changed |= bit;
                self.changed.push(number);
            }
        }
        true
    }

    #[cold]
    #[inline(never)]
    fn begin(&mut self, sighting: Sighting<N>, vacancy: Vacancy, amount: u64) {
        if self.is_changed.is_recording() {
            return self.record(BEGINS, &sighting, amount);
        }
        // The call may have asked for the edge twice before it added anything.
        if let Some(number) = self.sightings.live(&sighting) {
            self.raise(number, amount);
            return;
        }
        self.sightings
            .insert(vacancy, sighting, Volume::reported(amount));
        self.follow();
    }

    /// An addition to an own sighting.
    #[cold]
    #[inline(never)]
    fn record_more(&self, number: u32, amount: u64) {
        self.record(ADDS, self.sightings.row(number), amount);
    }

    /// An addition as the table records an entry.
    #[cold]
    #[inline(never)]
    fn record(&self, kind: u8, sighting: &Sighting<N>, amount: u64) {
        self.context.record_addition(self.object, kind, |out| {
            sighting.encode(out);
            Volume::reported(amount).encode(out);
        });
    }
}

/// Sums volumes; stops at 2⁶⁴ - 1, in whatever order.
fn sum(weight: Option<u64>, volume: &Volume) -> u64 {
    weight.unwrap_or(0).saturating_add(volume.total())
}

/// The writes of a [`Graph`].
#[derive(Debug)]
pub struct GraphAct<'a, N: Key>(&'a mut Graph<N>);

impl<N: Key> GraphAct<'_, N> {
    /// Adds to the edge's weight and marks it as used; begins it if it is new. Others hear of a new edge at once, of its weight
    /// after the flush interval. A weight stops at 2⁶⁴ - 1.
    #[inline(always)]
    pub fn add(&mut self, link: Link<N>, amount: u64) {
        match link.0 {
            Found::Seen(at) => {
                if !self.0.raise(at.number, amount) {
                    return self.0.record_more(at.number, amount);
                }
                self.0.sightings.touch(&at);
            }
            Found::New(sighting, vacancy) => self.0.begin(sighting, vacancy, amount),
        }
    }
}

impl<N: Key> Writable for Graph<N> {
    type Act<'a> = GraphAct<'a, N>;

    fn act(&mut self) -> GraphAct<'_, N> {
        GraphAct(self)
    }
}

impl<N: Key> Replicate for Graph<N> {
    fn apply(&mut self, flags: u8, input: &mut Reader<'_>, stamp: Stamp) -> Result<(), BadBytes> {
        self.sightings.apply(flags, input, stamp)?;
        self.follow();
        Ok(())
    }
    fn prefetch(&self, input: &mut Reader<'_>) {
        self.sightings.prefetch_operation(input);
    }
    fn flush(&mut self, bytes: &mut usize) -> bool {
        if self.context.accumulators_held() {
            return true;
        }
        let witness = self.witness;
        while let Some(&number) = self.changed.last() {
            if *bytes < OPERATION_BYTES_MAX {
                return false;
            }
            self.changed.pop();
            self.is_changed[(number / u64::BITS) as usize] &= !(1 << (number % u64::BITS));
            // The record may hold another's sighting by now.
            let length = self
                .sightings
                .announce(number, |row| row.witness == witness);
            *bytes = bytes.saturating_sub(length);
        }
        true
    }
}

impl<N: Key> Sweep for Graph<N> {
    fn sweep(&mut self, records: u32) -> u32 {
        let mut ended = 0;
        for _ in 0..records.min(self.sightings.sweep_length()) {
            ended += self.sightings.sweep(1);
            self.follow();
        }
        ended
    }
    fn sweep_length(&self) -> u32 {
        self.sightings.sweep_length()
    }
    fn origins_named(&self, cursor: u32, records: u32, named: &mut NamedOrigins) -> Option<u32> {
        self.sightings.origins_named(cursor, records, named)
    }
}

impl<N: Key> Audit for Graph<N> {
    fn digest(&self) -> u64 {
        self.sightings.digest()
    }
    fn leaves(&self, first: usize, out: &mut [Leaf]) -> bool {
        self.sightings.leaves(first, out)
    }
    /// Sightings of this instance, and those of whose incarnation nobody writes any more: another's own total is not to be taken back.
    fn write_again(&mut self, leaves: &LeafSet, cursor: u32, records: u32) -> (Option<u32>, u32) {
        let (witness, context) = (self.witness, &self.context);
        let seed = context.seed();
        let is_ours = |row: &Sighting<N>| {
            row.witness == witness
                || !context.goes_on(row.witness.incarnation())
                    && context.falls_to_lane(row.lane_hash(OWN, seed))
        };
        self.sightings
            .write_those_again(leaves, (cursor, records), is_ours)
    }
    fn tells_own(&self) -> bool {
        true
    }
}

impl<N: Key> Snapshot for Graph<N> {
    fn snapshot(&self, cursor: u32, part: &mut Part<'_>) -> Option<u32> {
        self.sightings.snapshot(cursor, part)
    }
    fn apply_snapshot(&mut self, flags: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        self.sightings.apply_snapshot(flags, input)?;
        self.follow();
        Ok(())
    }
    fn restore(
        &mut self,
        flags: u8,
        input: &mut Reader<'_>,
        since: &Since,
    ) -> Result<bool, BadBytes> {
        let restored = self.sightings.restore(flags, input, since)?;
        self.follow();
        Ok(restored)
    }
}

impl<N: Key> Inspect for Graph<N> {
    fn show(&self, cursor: u32, records: u32, each: &mut dyn FnMut(&Shown<'_>)) -> Option<u32> {
        self.sightings.show(cursor, records, each)
    }
    fn capacity(&self) -> u32 {
        self.sightings.capacity()
    }
    fn counts(&self) -> ObjectCounts {
        self.tally().counts()
    }
    fn entries(&self) -> usize {
        self.edges()
    }
    fn entries_held(&self) -> usize {
        self.sightings.held()
    }
    fn entries_ended(&self) -> usize {
        self.sightings.held() - self.sightings.len_now()
    }
}

impl<N: Key> Fetch for Graph<N> {
    fn stays_because(&self) -> Option<&'static str> {
        Some(
            "its degrees follow the arrival and the end of its edges, and a store counts entries by fixed places alone",
        )
    }
}

impl<N: Key> Operations for Graph<N> {
    fn begin_recording(&mut self) {
        self.is_changed.begin_recording();
    }
    fn end_recording(&mut self) {
        self.is_changed.end_recording();
    }
    fn note_undecided(
        &mut self,
        kind: u8,
        input: &mut Reader<'_>,
        begins: bool,
    ) -> Result<(), BadBytes> {
        match kind {
            BEGINS => self.sightings.note_undecided(RECORDED_WRITE, input, begins),
            _ => Ok(()),
        }
    }
    /// An edge that ended meanwhile begins again.
    fn commit(&mut self, _: u8, input: &mut Reader<'_>) -> Result<(), BadBytes> {
        let whole = &mut input.clone();
        let sighting = Sighting::<N>::decode(input)?;
        let amount = Volume::decode(input)?.total();
        let kind = match self.sightings.live(&sighting) {
            Some(number) => {
                self.raise(number, amount);
                RECORDED_TOUCH
            }
            None => RECORDED_WRITE,
        };
        self.sightings.commit(kind, whole)?;
        self.follow();
        Ok(())
    }
}

impl<N: Key> PerPacket for Graph<N> {
    fn prefetch_records(&self, prefetch_hints: &PrefetchHints, packets: Range<usize>) -> usize {
        self.sightings.prefetch_records(prefetch_hints, packets)
    }
    fn outgrew_cache(&self, cache_bytes: usize) -> bool {
        self.sightings
            .outgrew_cache(cache_bytes.saturating_sub(self.nodes.bytes_in_use()))
    }
    fn settle(&self) {
        self.sightings.settle();
    }
}
