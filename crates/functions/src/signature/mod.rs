//! Finds byte signatures in packets and in TCP streams, also where a signature is split over segments that go through
//! different instances (the IDPS of Constellation §3.1, whose flows take several paths).
//!
//! Without `reassembly` no stream is reassembled. No segment is ever kept. An instance searches each payload by itself. A whole signature is an
//! alert. A possible piece of a signature at a payload's edge is recorded by sequence number, in sets that join (`pieces.rs`,
//! read it first), which every instance knows after the lag. An instance that sees a piece, or any later segment near by,
//! joins the recorded pieces (`finder.rs`). So order, retransmission, overlap, and the instance of each segment do not
//! matter.
//!
//! Hosts may search for different signatures while a list changes: only hosts with a list find its pieces (`flow.rs`), and
//! alerts name a signature by its identifier, which the operator gives and keeps.
//!
//! With `reassembly` each TCP stream has an entry with its runs of contiguous bytes, without the bytes (`runs.rs`). No split hides a
//! signature then, and each segment with new data writes that entry (`reassembly.rs`).
//!
//! Not seen without it: signatures split so that a part in the middle has fewer than `min_piece` bytes; those split within IP fragments
//! or over UDP datagrams; bytes that a receiver takes otherwise than the instances, as segments with a wrong checksum or two
//! that disagree about the same bytes; parts of one signature that were seen under different lists.

mod alert;
mod config;
mod finder;
mod flow;
mod metrics;
pub mod mutant;
mod pieces;
mod progress;
mod reassembly;
mod record;
mod runs;

use asterism_function::notice::{self, End, Notice, Outcome};
use asterism_function::{
    Ask, Builder, CONTROL, Counter, Fragment, Host, Key, Late, Map, NetworkFunction, Observable,
    OwnEvent, OwnMetric, PortNumber, Reason, Single, TcpFlags, Verdict, objects::hash, state,
};

pub use alert::{Alert, Block, Subject};
pub use config::{
    Carrier, Fragments, MIN_PIECE_MAX, Response, SIGNATURE_BYTES_MAX, SIGNATURE_BYTES_MIN,
    SIGNATURES_BYTES_MAX, SIGNATURES_MAX, Signature, SignatureConfig, SignatureFault,
};
pub use flow::{Place, Stream, Target};
pub use pieces::{PIECES_MAX, Piece, Pieces};
pub use runs::{Part, RUN_BYTES_MAX, RUNS_MAX, Reading, Run, Runs};

use crate::events::{ATTACK, UNUSUAL, event};
use asterism_blocking::blocked::BLOCKED_QUESTION;
use asterism_blocking::manual;
use finder::{Finder, Found};

const IN_MANY_PIECES: OwnEvent = event(20, "Stream in more pieces than are kept", UNUSUAL, 2);
/// A signature, by the number and under the words that the operator gave it.
const WRITTEN: OwnEvent = OwnEvent {
    generator: OwnEvent::OPERATOR,
    ..event(0, "Signature of the operator's list", ATTACK, 2)
};
/// What the detector finds.
pub const EVENTS: [OwnEvent; 2] = [IN_MANY_PIECES, WRITTEN];

/// What the instances share.
#[state]
pub struct SignatureState {
    /// Pieces of signatures, by place of a stream.
    pub pieces: Map<Place, Pieces>,
    /// Connections or sources that are blocked for a signature.
    pub blocked: Map<Target, Block>,
    /// Sources that are blocked manually, whichever the response blocks.
    pub manual: Map<Host, manual::Block>,
    /// Signatures found: one for each stream and signature.
    pub alerts: Map<Subject, Alert>,
    /// TCP segments that carry fewer bytes than the shortest piece: not looked at.
    pub short: Counter,
    /// IP fragments: not looked at.
    pub fragments: Counter,
    /// Pieces, alerts, blocks and streams for which there was no room.
    pub unrecorded: Counter,
    /// Reassembled TCP streams.
    pub streams: Map<Reading, Runs>,
    /// Segments of reassembled streams that left a gap before them.
    pub out_of_order: Counter,
    /// Gaps of reassembled streams beyond the bound.
    pub gaps: Counter,
}

/// What is measured of it.
impl SignatureState {
    /// All alerts, the oldest first: what this instance found and what others did, as far as it has arrived. For the
    /// control plane: walks the table and allocates.
    #[must_use]
    pub fn alerts(&self) -> Vec<(Subject, Alert)> {
        let mut alerts = Vec::with_capacity(self.alerts.len_now());
        self.alerts
            .for_each(|row, alert| alerts.push((row.0, *alert)));
        alerts.sort_by_key(|(subject, alert)| (alert.first, *subject));
        alerts
    }
}

/// The function: forwards from its first port to its second and back, but for what is blocked.
#[derive(Clone, Debug)]
pub struct Signatures {
    config: SignatureConfig,
    finder: Finder,
    /// Names all that is said of the signatures, for people who compare hosts.
    list: u32,
}

impl Signatures {
    /// A function that looks for the signatures of a configuration. Builds their automaton: some milliseconds.
    ///
    /// # Errors
    /// All that is wrong with the configuration; nothing was made.
    pub fn new(config: SignatureConfig) -> Result<Self, Vec<SignatureFault>> {
        let faults = config.faults();
        if !faults.is_empty() {
            return Err(faults);
        }
        let (finder, list) = (Finder::new(&config), config.list());
        Ok(Self {
            config,
            finder,
            list,
        })
    }

    /// What the operator chose.
    #[must_use]
    pub fn config(&self) -> &SignatureConfig {
        &self.config
    }

    /// The signature that an alert names; `None` for 0.
    #[must_use]
    pub fn signature(&self, id: u32) -> Option<&Signature> {
        self.config
            .signatures
            .iter()
            .find(|signature| signature.id == id)
    }

    fn notice(&self, subject: &Subject, alert: &Alert, member: u16) -> Notice {
        let known = match subject.id {
            0 => Notice::of(&IN_MANY_PIECES, member),
            id => Notice {
                id,
                text: self.signature(id).map_or_else(
                    || format!("signature {id}, which this host does not look for"),
                    |signature| signature.message.clone(),
                ),
                ..Notice::of(&WRITTEN, member)
            },
        };
        let stream = &subject.stream;
        Notice {
            first: Some(alert.first),
            source: End::endpoint(stream.source),
            destination: End::endpoint(stream.destination),
            protocol: Some(stream.protocol().0),
            outcome: match alert.blocked {
                true => Outcome::Dropped,
                false => Outcome::Passed,
            },
            flow: Some(stream.connection().hash(0)),
            ..known
        }
    }

    /// Bytes of memory of the automaton and the lists beside it, about; each host has one.
    #[must_use]
    pub fn finder_bytes(&self) -> usize {
        self.finder.bytes()
    }

    /// What a state's pieces make up though no alert says so: two instances saw the parts within the lag of each other,
    /// and no segment near by came since. What was seen under another list is left out. For the control plane: walks the
    /// table, and allocates.
    #[must_use]
    pub fn unreported(&self, state: &SignatureState) -> Vec<Subject> {
        let mut subjects = Vec::new();
        state.pieces.for_each(|row, pieces| {
            if row.0.list != self.finder.list() {
                return;
            }
            let (stream, mut found) = (row.0.stream, Found::default());
            self.finder.put_together(pieces, &stream, &mut found);
            let ids = found
                .all()
                .iter()
                .map(|&place| self.finder.signature(place).id);
            subjects.extend(ids.map(|id| Subject { stream, id }));
            if pieces.is_overfull() && !self.config.reassembly {
                subjects.push(Subject { stream, id: 0 });
            }
        });
        state.streams.for_each(|row, runs| {
            if row.0.list != self.finder.list() {
                return;
            }
            let (stream, mut found) = (row.0.stream, Found::default());
            self.finder.take(runs, None, &stream, &mut found);
            let signatures = found.all().iter();
            let ids = signatures.map(|&place| self.finder.signature(place).id);
            subjects.extend(ids.map(|id| Subject { stream, id }));
        });
        let known = state.alerts();
        subjects.retain(|subject| !known.iter().any(|(other, _)| other == subject));
        subjects.sort();
        subjects.dedup();
        subjects
    }

    /// Whether the packet's source or connection is blocked: why.
    #[inline(always)]
    fn refused(
        &self,
        ask: &Ask<'_, SignatureState>,
        stream: Option<&Stream>,
    ) -> Result<Option<Reason>, Late> {
        match ask.manual.is_empty() {
            Ok(true) => self.refused_for_signature(ask, stream),
            is_empty => self.refused_manual(ask, stream, is_empty),
        }
    }

    /// While anybody is blocked manually: why the packet is refused, manually or not.
    #[inline(never)]
    fn refused_manual(
        &self,
        ask: &Ask<'_, SignatureState>,
        stream: Option<&Stream>,
        is_empty: Result<bool, Late>,
    ) -> Result<Option<Reason>, Late> {
        let block = match Host::ends(ask.packet()) {
            Some((source, _)) => ask.manual.get(&source),
            None => Ok(None),
        };
        let found = self.refused_for_signature(ask, stream);
        // All at once: where answers are late, one wait serves all.
        let (_, block, found) = ask.all((is_empty, block, found))?;
        let is_blocked = block.is_some_and(|block| ask.now() < block.value.until);
        Ok(if is_blocked {
            Some(Reason::Blocked)
        } else {
            found
        })
    }

    /// The same for a signature that was found. Costs a comparison while nobody is blocked.
    #[inline(always)]
    fn refused_for_signature(
        &self,
        ask: &Ask<'_, SignatureState>,
        stream: Option<&Stream>,
    ) -> Result<Option<Reason>, Late> {
        let is_empty = ask.blocked.is_empty();
        if is_empty == Ok(true) {
            return Ok(None);
        }
        let (target, reason) = match (self.config.response, stream) {
            (Response::BlockConnection { .. }, Some(stream)) => (
                Target::Connection(stream.connection()),
                Reason::ConnectionBlocked,
            ),
            (Response::BlockSource { .. }, Some(stream)) => {
                (Target::Source(stream.source.0), Reason::Blocked)
            }
            (Response::BlockSource { .. }, None) => match Host::ends(ask.packet()) {
                Some((source, _)) => (Target::Source(source), Reason::Blocked),
                None => return is_empty.map(|_| None),
            },
            _ => return is_empty.map(|_| None),
        };
        let (_, block) = ask.all((is_empty, ask.blocked.get(&target)))?;
        Ok(block
            .is_some_and(|block| ask.now() < block.value.until)
            .then_some(reason))
    }

    /// What is neither TCP nor UDP.
    #[inline(never)]
    fn other(ask: Ask<'_, SignatureState>) -> Result<Verdict, Late> {
        match ask.port() {
            CONTROL => Self::reported(ask),
            _ => Ok(Verdict::Forward(forward(&ask))),
        }
    }

    #[inline(never)]
    fn fragment(&self, ask: Ask<'_, SignatureState>) -> Result<Verdict, Late> {
        if let Some(reason) = self.refused(&ask, None)? {
            return Ok(Verdict::Drop(reason));
        }
        let out = forward(&ask);
        let mut act = ask.act()?;
        act.fragments.add(1);
        Ok(match self.config.fragments {
            Fragments::Pass => Verdict::Forward(out),
            Fragments::Drop => Verdict::Drop(Reason::FragmentNotInspected),
        })
    }

    #[inline(always)]
    fn tcp(&self, ask: Ask<'_, SignatureState>, stream: Stream) -> Result<Verdict, Late> {
        let packet = ask.packet();
        let payload = packet.payload();
        if payload.len() < usize::from(self.config.min_piece) {
            let out = forward(&ask);
            ask.act()?.short.add(1);
            return Ok(Verdict::Forward(out));
        }
        let mut found = Found::default();
        self.finder.find(payload, &stream, &mut found);
        let edges = self.finder.edges(payload, self.config.min_piece.into());
        let sequence = sequence(&ask);
        if found.all().is_empty()
            && edges == [None, None]
            && !self.is_near_pieces(&ask, stream, sequence)?
        {
            return Ok(Verdict::Forward(forward(&ask)));
        }
        self.follow(ask, stream, sequence, edges, found, None)
    }
}

impl Signatures {
    /// Whether pieces are recorded that a segment may follow: what two other instances saw within the lag of each other may be known by
    /// now.
    #[inline(always)]
    fn is_near_pieces(
        &self,
        ask: &Ask<'_, SignatureState>,
        stream: Stream,
        sequence: u32,
    ) -> Result<bool, Late> {
        let [place, other] = record::places_before(stream, sequence, self.finder.list());
        Ok(
            ask.pieces.get(&place)?.is_some()
                || place != other && ask.pieces.get(&other)?.is_some(),
        )
    }
}

impl NetworkFunction for Signatures {
    type State = SignatureState;

    fn state(&self, builder: &Builder) -> SignatureState {
        let config = &self.config;
        let block_s = match config.response {
            Response::Detect => 1,
            // Entries are never touched, so a block ends on its own.
            Response::BlockConnection { block_s } | Response::BlockSource { block_s } => {
                block_s.max(1)
            }
        };
        let (alerts_written, written) = self.writes_max();
        builder.writing(
            written,
            &[
                ("pieces", record::PLACES_WRITTEN_MAX),
                ("alerts", alerts_written),
                ("blocked", 1),
                ("manual", 1),
                ("streams", config.reassembly.into()),
            ],
        );
        SignatureState {
            pieces: builder.table("pieces", config.pieces_max, &[config.pieces_keep_s.max(1)]),
            blocked: builder.table("blocked", config.alerts_max, &[block_s]),
            manual: builder.table("manual", config.alerts_max, &manual::Block::idle(1)),
            alerts: builder.table("alerts", config.alerts_max, &[config.alert_keep_s.max(1)]),
            short: builder.counter("short"),
            fragments: builder.counter("fragments"),
            unrecorded: builder.counter("unrecorded"),
            streams: builder.table(
                "streams",
                config.streams_max,
                &[config.streams_keep_s.max(1)],
            ),
            out_of_order: builder.counter("out_of_order"),
            gaps: builder.counter("gaps"),
        }
    }

    #[inline(always)]
    fn packet(&self, ask: Ask<'_, SignatureState>) -> Result<Verdict, Late> {
        let packet = ask.packet();
        if packet.layout().fragment() != Fragment::Whole {
            return self.fragment(ask);
        }
        let stream = Stream::of(packet);
        if let Some(reason) = self.refused(&ask, stream.as_ref())? {
            return Ok(Verdict::Drop(reason));
        }
        let Some(stream) = stream else {
            return Self::other(ask);
        };
        // A SYN matters to reassembled streams.
        let is_empty = packet.payload().is_empty() && !self.config.reassembly;
        if is_empty || !self.finder.is_watched(&stream) {
            return Ok(Verdict::Forward(forward(&ask)));
        }
        if stream.is_tcp && self.config.reassembly {
            return self.reassemble(ask, stream);
        }
        if stream.is_tcp {
            return self.tcp(ask, stream);
        }
        let mut found = Found::default();
        self.finder.find(packet.payload(), &stream, &mut found);
        if found.all().is_empty() {
            return Ok(Verdict::Forward(forward(&ask)));
        }
        self.conclude(ask, stream, record::Changes::default(), found, None)
    }

    fn observable(&self) -> Option<&dyn Observable<SignatureState>> {
        Some(self)
    }

    /// Which pieces are recorded, and whether streams are reassembled. The list is none of it: pieces of another one are not read.
    fn schema(&self) -> u64 {
        let reassembly = u64::from(self.config.reassembly);
        hash::words(self.config.min_piece.into(), reassembly, 0x51_68)
    }
}

impl Observable<SignatureState> for Signatures {
    /// Alerts, as [`Notice::read_all`] reads them; or who is blocked, as
    /// [`BlockedRecord`](asterism_blocking::blocked::BlockedRecord).
    fn report(
        &self,
        state: &SignatureState,
        question: u32,
        range: (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        if question == BLOCKED_QUESTION {
            return alert::blocks(state, range, out);
        }
        if question != notice::QUESTION {
            return None;
        }
        let each = |row: &Single<Subject>, alert: &Alert, member| {
            self.notice(&row.0, alert, member).write(out);
        };
        state.alerts.for_each_from(range, each)
    }

    fn metrics(&self) -> &[OwnMetric] {
        &metrics::METRICS
    }

    fn measure(&self, state: &SignatureState, values: &mut Vec<u64>) {
        state.measure(values);
        values.extend([self.config.signatures.len() as u64, self.list.into()]);
    }

    fn events(&self) -> &[OwnEvent] {
        &EVENTS
    }
}

#[inline(always)]
fn forward(ask: &Ask<'_, SignatureState>) -> PortNumber {
    PortNumber(ask.port().0 ^ 1)
}

/// The sequence number of a segment's first byte of payload: a SYN counts as one before it (RFC 9293 §3.4).
#[inline(always)]
fn sequence(ask: &Ask<'_, SignatureState>) -> u32 {
    let packet = ask.packet();
    let syn = packet
        .tcp_flags()
        .is_some_and(|flags| flags.contains(TcpFlags::SYN));
    packet
        .tcp_sequence()
        .unwrap_or_default()
        .wrapping_add(syn.into())
}
