//! What an operator chooses, and what can be wrong with it.

use asterism_function::Tick;
use asterism_function::objects::hash;

/// Bytes of the shortest signature: shorter ones are found everywhere.
pub const SIGNATURE_BYTES_MIN: usize = 4;
/// Bytes of the longest signature.
pub const SIGNATURE_BYTES_MAX: usize = 64;
/// Signatures at most.
pub const SIGNATURES_MAX: usize = 1_024;
/// Bytes of all signatures together at most, equal ones counted once.
pub const SIGNATURES_BYTES_MAX: usize = 65_535;
/// The largest `min_piece`.
pub const MIN_PIECE_MAX: u8 = 4;

/// What carries a signature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// TCP alone.
    Tcp,
    /// UDP alone.
    Udp,
    /// Either.
    Any,
}

/// Bytes to find.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signature {
    /// What alerts call it: unique, not 0.
    pub id: u32,
    /// What it is, for people.
    pub message: String,
    /// 4 to 64 bytes, compared as they are: large and small letters differ.
    pub bytes: Vec<u8>,
    /// By what it comes.
    pub carrier: Carrier,
    /// The destination ports that it is looked for at; none: at all.
    pub ports: Vec<u16>,
}

/// What is done about a signature that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Response {
    /// An alert is raised; every packet passes.
    Detect,
    /// The packet that completes it is dropped, and both directions of its connection are dropped by every instance for
    /// so many seconds.
    BlockConnection {
        /// Seconds.
        block_s: Tick,
    },
    /// The packet that completes it is dropped, and all that its source sends is dropped by every instance for so many
    /// seconds. Source addresses of UDP can be forged: a block can be brought upon somebody else.
    BlockSource {
        /// Seconds.
        block_s: Tick,
    },
}

/// What becomes of IP fragments, whose payload is not looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fragments {
    /// They pass, counted.
    Pass,
    /// They are dropped, counted under their reason.
    Drop,
}

/// What an operator chooses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignatureConfig {
    /// What to find: 1 to 1,024. Members may have different lists while they change; an identifier means the same in all.
    pub signatures: Vec<Signature>,
    /// What is done about it. Default: detect.
    pub response: Response,
    /// Bytes of the shortest piece of a signature that is recorded at a segment's edge, 1 to 4. Default 2: a single
    /// byte of some signature is at very many edges, each of which would be a write.
    pub min_piece: u8,
    /// Microseconds for which a segment that may go on with a signature waits for what comes before it, under a response
    /// that blocks. Default 0: it does not wait, and what two instances see within the lag of each other gets through.
    pub wait_us: u32,
    /// What becomes of IP fragments. Default: they pass.
    pub fragments: Fragments,
    /// Whether a response that blocks is also given to a stream that is cut into more pieces than are kept. With `reassembly`: whether
    /// a segment is dropped for which a bound is reached, of gaps or of streams. Default no.
    pub strict: bool,
    /// Whether TCP streams are reassembled: then no split hides a signature, and each segment with new data writes an entry. Default no.
    pub reassembly: bool,
    /// Entries of reassembled streams at most, over the whole cluster: one for each direction. Default 65,536.
    pub streams_max: u32,
    /// Entries of pieces at most, over the whole cluster: one for each 16 KiB of a stream that has some. Default 65,536.
    pub pieces_max: u32,
    /// Alerts, blocks and manual blocks at most, each. Default 8,192.
    pub alerts_max: u32,
    /// Seconds for which pieces are kept after the last new one. Default 30: retransmission is over by then.
    pub pieces_keep_s: Tick,
    /// Seconds for which a reassembled stream is kept after its last new data. Default 120.
    pub streams_keep_s: Tick,
    /// Seconds for which an alert is kept. Default 3,600.
    pub alert_keep_s: Tick,
}

impl SignatureConfig {
    /// The defaults with these signatures.
    #[must_use]
    pub const fn new(signatures: Vec<Signature>) -> Self {
        Self {
            signatures,
            response: Response::Detect,
            min_piece: 2,
            wait_us: 0,
            fragments: Fragments::Pass,
            strict: false,
            reassembly: false,
            streams_max: 1 << 16,
            pieces_max: 1 << 16,
            alerts_max: 1 << 13,
            pieces_keep_s: 30,
            streams_keep_s: 120,
            alert_keep_s: 3_600,
        }
    }

    /// A number that is the same for lists that say the same of the same signatures, in whatever order.
    pub(super) fn list(&self) -> u32 {
        let mut sorted: Vec<&Signature> = self.signatures.iter().collect();
        sorted.sort_by_key(|signature| signature.id);
        let digest = sorted.into_iter().fold(0, |digest, signature| {
            let digest = hash::words(signature.id.into(), signature.carrier as u64, digest);
            let digest = hash::bytes(
                &signature.bytes,
                hash::bytes(signature.message.as_bytes(), digest),
            );
            let mut ports = signature.ports.clone();
            ports.sort_unstable();
            let ports = ports.into_iter();
            ports.fold(digest, |digest, port| hash::word(port.into(), digest))
        });
        digest as u32
    }

    /// All that is wrong.
    pub(super) fn faults(&self) -> Vec<SignatureFault> {
        let mut faults = Vec::new();
        if self.signatures.is_empty() || self.signatures.len() > SIGNATURES_MAX {
            faults.push(SignatureFault::Count(self.signatures.len()));
        }
        let mut known = std::collections::BTreeSet::new();
        let mut distinct = std::collections::BTreeSet::new();
        for signature in &self.signatures {
            if signature.id == 0 || !known.insert(signature.id) {
                faults.push(SignatureFault::Id(signature.id));
            }
            let length = signature.bytes.len();
            if !(SIGNATURE_BYTES_MIN..=SIGNATURE_BYTES_MAX).contains(&length) {
                faults.push(SignatureFault::Length(signature.id, length));
            }
            distinct.insert(&signature.bytes);
        }
        let bytes: usize = distinct.iter().map(|bytes| bytes.len()).sum();
        if bytes > SIGNATURES_BYTES_MAX {
            faults.push(SignatureFault::Bytes(bytes));
        }
        if !(1..=MIN_PIECE_MAX).contains(&self.min_piece) {
            faults.push(SignatureFault::MinPiece(self.min_piece));
        }
        faults
    }
}

/// What is wrong with a configuration; no function was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignatureFault {
    /// How many signatures there are.
    Count(usize),
    /// An identifier that is 0 or occurs twice.
    Id(u32),
    /// A signature's identifier, and its bytes, which are too few or too many.
    Length(u32, usize),
    /// Bytes of all signatures, which are too many.
    Bytes(usize),
    /// The shortest piece, which is none or too long.
    MinPiece(u8),
}

impl core::fmt::Display for SignatureFault {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Count(count) => write!(
                out,
                "there are {count} signatures: there must be 1 to {SIGNATURES_MAX}"
            ),
            Self::Id(id) => write!(out, "the identifier {id} is 0 or is used twice"),
            Self::Length(id, length) => write!(
                out,
                "signature {id} has {length} bytes: it must have {SIGNATURE_BYTES_MIN} to {SIGNATURE_BYTES_MAX}"
            ),
            Self::Bytes(bytes) => write!(
                out,
                "all signatures have {bytes} bytes: at most {SIGNATURES_BYTES_MAX} are allowed"
            ),
            Self::MinPiece(bytes) => write!(
                out,
                "the shortest piece has {bytes} bytes: it must have 1 to {MIN_PIECE_MAX}"
            ),
        }
    }
}

impl core::error::Error for SignatureFault {}
