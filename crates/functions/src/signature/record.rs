//! What a segment adds to the pieces of its stream, and what comes of it: alerts and blocks.
//!
//! Off the path of ordinary segments: only those come here that may be a part of a signature, or lie near one.

use asterism_function::{Ask, At, Late, Reason, Single, Verdict};

use super::finder::{Edge, FOUND_MAX, Finder, Found};
use super::flow::{BLOCK_BITS, Place, Stream, Target};
use super::mutant::{self, Mutant};
use super::pieces::{Piece, Pieces};
use super::progress::{Known, NOT_REASSEMBLED, Progress, Segment, StreamWrite};
use super::{Alert, Block, Response, SignatureState, Signatures, Subject, forward};
use crate::mutant as planted;

/// Places that a segment has to do with, at most: what comes before it and its two pieces may each lie near the border of two.
const PLACES_MAX: usize = 6;

/// Of those a segment changes the ones that its two pieces lie in, each in two at most.
pub(super) const PLACES_WRITTEN_MAX: u32 = 4;
/// Signatures that a packet of a reassembled stream reports at most: the write of its stream takes the bytes of two alerts.
const REASSEMBLED_FOUND_MAX: usize = FOUND_MAX - 2;

/// Bytes before a place from which offsets count: as long as a signature, which may begin in the place before.
const MARGIN: u32 = 64;

/// Where signatures of a list begin that may end right before a segment, by its sequence number: two places near the border of two,
/// else one.
#[inline(always)]
pub(super) fn places_before(stream: Stream, sequence: u32, list: u32) -> [Place; 2] {
    [1, MARGIN].map(|bytes| Place::of(stream, sequence.wrapping_sub(bytes), list))
}

/// What is known of a place, and what it is to become.
#[derive(Clone, Copy)]
struct Change {
    place: Place,
    at: Option<At<Single<Place>, Pieces>>,
    pieces: Pieces,
}

impl Change {
    fn is_none(&self) -> bool {
        match &self.at {
            Some(at) => at.value == self.pieces,
            None => self.pieces == Pieces::default(),
        }
    }
}

/// What is to become of the places of a segment.
#[derive(Default)]
pub(super) struct Changes([Option<Change>; PLACES_MAX]);

impl Signatures {
    /// Signatures that a packet reports at most.
    const fn found_max(&self) -> usize {
        match self.config.reassembly {
            true => REASSEMBLED_FOUND_MAX,
            false => FOUND_MAX,
        }
    }

    /// Entries that a segment writes at most: alerts, one for each signature and one for a stream with too many pieces; and in all, with
    /// pieces, a block and a reassembled stream.
    pub(super) const fn writes_max(&self) -> (u32, u32) {
        let alerts = self.found_max() as u32 + 1;
        (
            alerts,
            PLACES_WRITTEN_MAX + alerts + 1 + self.config.reassembly as u32,
        )
    }

    /// Records a segment's pieces and puts together what is known around it.
    #[inline(never)]
    pub(super) fn follow(
        &self,
        ask: Ask<'_, SignatureState>,
        stream: Stream,
        sequence: u32,
        edges: [Option<Edge>; 2],
        mut found: Found,
        reassembled: Option<(Segment, Result<Known, Late>)>,
    ) -> Result<Verdict, Late> {
        let mut places = [None; PLACES_MAX];
        let add = |places: &mut [Option<Place>; PLACES_MAX], sequence| {
            let place = Some(Place::of(stream, sequence, self.finder.list()));
            if !places.contains(&place)
                && let Some(free) = places.iter_mut().find(|free| free.is_none())
            {
                *free = place;
            }
        };
        for edge in edges.iter().flatten() {
            let (lowest, highest) = starts(sequence, edge);
            add(&mut places, lowest);
            add(&mut places, highest);
        }
        add(&mut places, sequence.wrapping_sub(1));
        add(&mut places, sequence.wrapping_sub(MARGIN));
        // All are asked before the first answer is looked at, so that late ones are fetched at once.
        let answers = places.map(|place| place.map(|place| (place, ask.pieces.get(&place))));
        let mut changes = Changes::default();
        for (change, answer) in changes.0.iter_mut().zip(answers) {
            if let Some((place, at)) = answer {
                let at = at?;
                let pieces = at.map_or_else(Pieces::default, |at| at.value);
                *change = Some(Change { place, at, pieces });
            }
        }
        let (mut continues, mut is_preceded) = (false, false);
        for change in changes.0.iter_mut().flatten() {
            for edge in edges.iter().flatten() {
                let Some(piece) = piece_in(change.place, sequence, edge) else {
                    continue;
                };
                if piece.is_open_left() {
                    continues = true;
                    is_preceded |= Finder::is_preceded(&change.pieces, piece);
                }
                if piece.is_open_left() || !planted::active(planted::Mutant::BeginningForgotten) {
                    change.pieces.add(piece);
                }
            }
            self.finder
                .put_together(&change.pieces, &stream, &mut found);
        }
        let progress = match reassembled {
            None => None,
            Some((segment, known)) => {
                let progress = self.progress(known?, segment, &mut found);
                // Runs know more of the stream than pieces do.
                (continues, is_preceded) = (progress.continues, progress.is_preceded);
                Some(progress)
            }
        };
        self.wait_for_begin(&ask, continues, is_preceded, &found)?;
        self.conclude(ask, stream, changes, found, progress)
    }

    /// Waits for the segment before this one, if a signature may go on from there and nothing is known of it.
    pub(super) fn wait_for_begin(
        &self,
        ask: &Ask<'_, SignatureState>,
        continues: bool,
        is_preceded: bool,
        found: &Found,
    ) -> Result<(), Late> {
        // What begins a signature waits for nothing: else the parts of one would wait for each other.
        if continues
            && !is_preceded
            && self.config.wait_us > 0
            && self.config.response != Response::Detect
            && found.all().is_empty()
            && !self.finder.may_begin(ask.packet().payload())
        {
            ask.expect(self.config.wait_us.into())?;
        }
        Ok(())
    }

    /// Writes what was learnt: pieces, alerts, a block, the stream's runs.
    #[inline(never)]
    pub(super) fn conclude(
        &self,
        ask: Ask<'_, SignatureState>,
        stream: Stream,
        changes: Changes,
        mut found: Found,
        progress: Option<Progress>,
    ) -> Result<Verdict, Late> {
        let out = forward(&ask);
        let now = ask.now();
        found.truncate(self.found_max());
        // A reassembled stream does without them.
        let is_overfull = progress.is_none()
            && (changes.0.iter().flatten()).any(|change| change.pieces.is_overfull());
        let blocks = self.config.response != Response::Detect
            && (!found.all().is_empty() || is_overfull && self.config.strict);
        let mut ids = [None; FOUND_MAX + 1];
        for (id, &place) in ids.iter_mut().zip(found.all()) {
            *id = Some(self.finder.signature(place).id);
        }
        ids[FOUND_MAX] = is_overfull.then_some(0);
        let known = ids.map(|id| {
            id.map(|id| {
                let subject = Subject { stream, id };
                (subject, ask.alerts.get(&subject))
            })
        });
        let target = match self.config.response {
            Response::Detect => None,
            Response::BlockConnection { block_s } => {
                Some((Target::Connection(stream.connection()), block_s))
            }
            Response::BlockSource { block_s } => Some((Target::Source(stream.source.0), block_s)),
        }
        .filter(|_| blocks)
        .map(|(target, block_s)| {
            (
                target,
                now.saturating_add(block_s),
                ask.blocked.get(&target),
            )
        });
        let mut alerts = [const { None }; FOUND_MAX + 1];
        for (alert, known) in alerts.iter_mut().zip(known) {
            if let Some((subject, at)) = known
                && at?.is_none()
            {
                *alert = Some(ask.alerts.entry_at(None, subject)?);
            }
        }
        let block = match target {
            None => None,
            Some((target, until, at)) => Some((ask.blocked.entry_at(at?, target)?, until)),
        };
        let mut writes = [const { None }; PLACES_MAX];
        for (write, change) in writes.iter_mut().zip(&changes.0) {
            if let Some(change) = change.filter(|change| !change.is_none()) {
                let room = ask.pieces.entry_at(change.at, change.place)?;
                *write = Some((room, change.pieces));
            }
        }
        // A dropped segment does not count as seen: retransmitted, it completes the signature again.
        let progress = progress.filter(|_| !blocks || mutant::active(Mutant::DroppedRemembered));
        let stream_write = match &progress {
            None => StreamWrite::NONE,
            Some(progress) => {
                let write = Self::stream_write(&ask, progress)?;
                if self.is_refused(progress, &write) {
                    return Ok(NOT_REASSEMBLED);
                }
                write
            }
        };
        let is_idle = writes.iter().all(Option::is_none) && alerts.iter().all(Option::is_none);
        if is_idle && block.is_none() && stream_write.is_none() && !found.is_cut {
            return Ok(Verdict::Forward(out));
        }
        let mut act = ask.act()?;
        let mut unrecorded = u64::from(found.is_cut);
        if let Some(progress) = progress {
            unrecorded += u64::from(!stream_write.write(&mut act.streams));
            if progress.is_out_of_order {
                act.out_of_order.add(1);
            }
            if progress.taken.gaps > 0 {
                act.gaps.add(progress.taken.gaps.into());
            }
        }
        for (room, pieces) in writes.into_iter().flatten() {
            unrecorded += u64::from(!act.pieces.put(room, pieces));
        }
        let alert = Alert {
            first: now,
            blocked: blocks,
        };
        for room in alerts.into_iter().flatten() {
            unrecorded += u64::from(!act.alerts.put(room, alert));
        }
        if let Some((room, until)) = block {
            unrecorded += u64::from(!act.blocked.put(room, Block { until }));
        }
        if unrecorded > 0 {
            act.unrecorded.add(unrecorded);
        }
        Ok(if blocks {
            Verdict::Drop(Reason::SignatureFound)
        } else {
            Verdict::Forward(out)
        })
    }
}

/// The lowest and the highest sequence number at which a signature may begin that has an edge's bytes.
const fn starts(sequence: u32, edge: &Edge) -> (u32, u32) {
    let first = sequence.wrapping_add(edge.at as u32);
    (
        first.wrapping_sub(MARGIN - 1),
        first.wrapping_add(edge.length as u32 - 1),
    )
}

/// An edge as a piece of a place; `None` if no signature that begins in the place has its bytes.
fn piece_in(place: Place, sequence: u32, edge: &Edge) -> Option<Piece> {
    let (lowest, highest) = starts(sequence, edge);
    let block = place.block;
    if block != lowest >> BLOCK_BITS && block != highest >> BLOCK_BITS {
        return None;
    }
    let begin = (block << BLOCK_BITS).wrapping_sub(MARGIN);
    let offset = sequence.wrapping_add(edge.at as u32).wrapping_sub(begin);
    Some(Piece::new(
        offset as u16,
        edge.rank,
        edge.length as u8,
        edge.open,
    ))
}
