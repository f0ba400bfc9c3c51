//! The messages of a question to a host and of its answer, and their bytes.
//!
//! What a question and an answer mean is not the business of this crate: to it both are bytes.

use asterism_secure_channel::MESSAGE_BYTES_MAX;

/// Bytes of a question at most.
pub const QUESTION_BYTES_MAX: usize = 1_024;
/// Bytes of an answer at most.
pub const ANSWER_BYTES_MAX: usize = 512 << 10;
/// Bytes of an answer in one datagram.
pub(crate) const ANSWER_PART_BYTES: usize = 1_024;
/// Parts that one question brings.
pub(crate) const WINDOW_PARTS: usize = 16;

const QUESTION_HEAD_BYTES: usize = 16 + 8 + 8 + 4;
const ANSWER_HEAD_BYTES: usize = 16 + 8 + 4 + 16 + 4;
const _: () = assert!(QUESTION_HEAD_BYTES + QUESTION_BYTES_MAX <= MESSAGE_BYTES_MAX);
const _: () = assert!(ANSWER_HEAD_BYTES + ANSWER_PART_BYTES <= MESSAGE_BYTES_MAX);

/// A question, or the same again for the parts of its answer from an offset on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// The salt and the last sequence number of the process that is asked.
    pub(crate) salt: [u8; 16],
    pub(crate) sequence: u64,
    /// The number of the question; numbers of one start of an orchestrator rise.
    pub(crate) number: u64,
    pub(crate) offset: u32,
    /// At least one byte, and at most [`QUESTION_BYTES_MAX`].
    pub(crate) text: Vec<u8>,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AnswerPart {
    /// The salt of the start of the orchestrator that asked, and its question's number.
    pub(crate) asker: [u8; 16],
    pub(crate) number: u64,
    /// Bytes of the whole answer.
    pub(crate) total: u32,
    /// The first half of the answer's SHA-256.
    pub(crate) digest: [u8; 16],
    pub(crate) offset: u32,
    /// At least one byte, and at most [`ANSWER_PART_BYTES`].
    pub(crate) bytes: Vec<u8>,
}

impl Question {
    /// Appends the question's bytes: 36 and the text.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.salt);
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.text);
    }

    /// Reads a question; `None` if the bytes are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Question> {
        let (head, text) = bytes.split_first_chunk::<QUESTION_HEAD_BYTES>()?;
        if text.is_empty() || text.len() > QUESTION_BYTES_MAX {
            return None;
        }
        Some(Question {
            salt: head[..16].try_into().ok()?,
            sequence: u64::from_le_bytes(head[16..24].try_into().ok()?),
            number: u64::from_le_bytes(head[24..32].try_into().ok()?),
            offset: u32::from_le_bytes(head[32..36].try_into().ok()?),
            text: text.to_vec(),
        })
    }
}

impl AnswerPart {
    /// Appends the part's bytes: 48 and those of the answer.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.asker);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.total.to_le_bytes());
        out.extend_from_slice(&self.digest);
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.bytes);
    }

    /// Reads a part; `None` if the bytes are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<AnswerPart> {
        let (head, rest) = bytes.split_first_chunk::<ANSWER_HEAD_BYTES>()?;
        if rest.is_empty() || rest.len() > ANSWER_PART_BYTES {
            return None;
        }
        Some(AnswerPart {
            asker: head[..16].try_into().ok()?,
            number: u64::from_le_bytes(head[16..24].try_into().ok()?),
            total: u32::from_le_bytes(head[24..28].try_into().ok()?),
            digest: head[28..44].try_into().ok()?,
            offset: u32::from_le_bytes(head[44..48].try_into().ok()?),
            bytes: rest.to_vec(),
        })
    }
}
