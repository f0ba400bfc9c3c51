//! Cuts a stream of bytes into messages.

use super::{HEADER_BYTES, WireError};

/// Bytes that may wait: the longest message, and as much that follows it.
pub const PENDING_BYTES_MAX: usize = 2 << 16;

/// Received bytes that were not yet taken as messages: at most [`PENDING_BYTES_MAX`]. After an error the stream's boundaries are lost:
/// its connection can only be closed.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    /// Bytes before it were taken.
    taken: usize,
}

impl Inbox {
    /// Adds what was received.
    ///
    /// # Errors
    /// [`WireError::Pending`]: more waits than may; take messages first. Nothing was added.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        let pending = self.bytes.len() + bytes.len();
        if pending > PENDING_BYTES_MAX {
            return Err(WireError::Pending(pending));
        }
        self.bytes.extend(bytes);
        Ok(())
    }

    /// The bytes of the next message, header included, if all of them are there.
    ///
    /// # Errors
    /// [`WireError::Length`]: a message that is shorter than its header.
    pub fn next_message(&mut self) -> Result<Option<&[u8]>, WireError> {
        let waiting = self.bytes.get(self.taken..).unwrap_or_default();
        let Some([_, _, high, low]) = waiting.first_chunk() else {
            return Ok(None);
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if length < HEADER_BYTES {
            let what = "a message";
            return Err(WireError::Length { what, length });
        }
        let Some(message) = waiting.get(..length) else {
            return Ok(None);
        };
        self.taken += length;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_wherever_the_stream_was() {
        let stream = [6, 2, 0, 9, 0, 0, 0, 1, 77, 6, 20, 0, 8, 0, 0, 0, 2];
        for size in 1..=stream.len() {
            let mut inbox = Inbox::default();
            let mut got = Vec::new();
            for part in stream.chunks(size) {
                inbox.push(part).unwrap();
                while let Some(message) = inbox.next_message().unwrap() {
                    got.push(message.to_vec());
                }
            }
            assert_eq!(got, [&stream[..9], &stream[9..]], "{size}");
        }
    }

    #[test]
    fn lengths_that_cannot_be_and_floods_are_refused() {
        let mut inbox = Inbox::default();
        inbox.push(&[6, 2, 0, 7, 0, 0, 0, 1]).unwrap();
        let what = "a message";
        let refused = inbox.next_message();
        assert_eq!(refused, Err(WireError::Length { what, length: 7 }));

        let mut inbox = Inbox::default();
        inbox.push(&vec![0xff; PENDING_BYTES_MAX]).unwrap();
        assert_eq!(
            inbox.push(&[0]),
            Err(WireError::Pending(PENDING_BYTES_MAX + 1))
        );
        assert_eq!(inbox.next_message().unwrap().unwrap().len(), 0xffff);
        inbox.push(&[0]).unwrap();
    }
}
