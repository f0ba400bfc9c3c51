//! TCP reassembly: adds each segment to the runs of its stream. Read `runs.rs` first.
//!
//! A segment out of order is forwarded at once, since its receiver delivers no byte to an application before the gap in front of it is
//! filled. The instance that gets the gap's segment searches across both borders, and drops the segment if it completes a signature.

use asterism_function::{Ask, Late, TcpFlags, Verdict};

use super::finder::Found;
use super::flow::Stream;
use super::mutant::{self, Mutant};
use super::progress::{Known, Progress, Segment, StreamWrite};
use super::record::Changes;
use super::runs::{Reading, Run, Runs};
use super::{Response, SignatureState, Signatures, forward, sequence};

impl Signatures {
    /// Handles a TCP segment of a reassembled stream.
    #[inline(never)]
    pub(super) fn reassemble(
        &self,
        ask: Ask<'_, SignatureState>,
        stream: Stream,
    ) -> Result<Verdict, Late> {
        let packet = ask.packet();
        let payload = packet.payload();
        let is_syn = packet
            .tcp_flags()
            .is_some_and(|flags| flags.contains(TcpFlags::SYN));
        if payload.is_empty() && !is_syn {
            return Ok(Verdict::Forward(forward(&ask)));
        }
        let sequence = sequence(&ask);
        let list = self.finder.list();
        let mut segment = Segment {
            reading: Reading { stream, list },
            run: None,
            begins: is_syn.then_some(sequence),
        };
        let known = ask.streams.get(&segment.reading);
        let mut found = Found::default();
        let mut pieces = [None, None];
        if !payload.is_empty() {
            self.finder.find(payload, &stream, &mut found);
            let edges = self.finder.edges(payload, 1);
            segment.run = Some(Run::of(sequence, payload, edges));
            let least = usize::from(self.config.min_piece);
            pieces = edges.map(|edge| edge.filter(|edge| edge.length >= least));
        }
        let is_near = found.all().is_empty()
            && segment.run.is_some()
            && self.is_near_pieces(&ask, stream, sequence)?;
        if pieces != [None, None] || is_near {
            return self.follow(ask, stream, sequence, pieces, found, Some((segment, known)));
        }
        let progress = self.progress(known?, segment, &mut found);
        self.wait_for_begin(&ask, progress.continues, progress.is_preceded, &found)?;
        self.conclude(ask, stream, Changes::default(), found, Some(progress))
    }

    /// Adds a segment to the runs of its stream.
    pub(super) fn progress(&self, known: Known, segment: Segment, found: &mut Found) -> Progress {
        let runs = known.map_or_else(Runs::default, |at| at.value);
        let begun = segment.begins.and_then(|sequence| runs.begun_at(sequence));
        let runs = begun.unwrap_or(runs);
        let stream = &segment.reading.stream;
        let taken = self.finder.take(&runs, segment.run, stream, found);
        let is_preceded = segment.run.is_some_and(|run| runs.is_preceded(run.begin));
        Progress {
            reading: segment.reading,
            known,
            taken,
            is_preceded,
            continues: segment.run.is_some_and(|run| run.head.length > 0),
            is_out_of_order: segment.run.is_some() && !is_preceded && !runs.all().is_empty(),
        }
    }

    /// Whether a segment is dropped because a bound is reached: of gaps, or of streams.
    pub(super) fn is_refused(&self, progress: &Progress, write: &StreamWrite) -> bool {
        self.config.strict
            && self.config.response != Response::Detect
            && (progress.taken.gaps > 0 || write.is_full())
            && !mutant::active(Mutant::GapsIgnored)
    }

    /// The write that a segment needs, with its vacancy.
    pub(super) fn stream_write(
        ask: &Ask<'_, SignatureState>,
        progress: &Progress,
    ) -> Result<StreamWrite, Late> {
        let Progress {
            reading,
            known,
            taken,
            ..
        } = progress;
        let value = known.map_or_else(Runs::default, |at| at.value);
        if taken.runs == value {
            return Ok(StreamWrite::NONE);
        }
        let room = ask.streams.entry_at(*known, *reading)?;
        Ok(StreamWrite::new(room, taken.runs))
    }
}
