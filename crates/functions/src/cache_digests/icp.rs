//! The Internet Cache Protocol, version 2 (RFC 2186): queries, and the answers to them.

/// Bytes before what is of each kind of message.
const HEADER_BYTES: usize = 20;
const QUERY: u8 = 1;
const HIT: u8 = 2;
const MISS: u8 = 3;
const VERSION: u8 = 2;
/// A query names the host that asks for the object before the URL.
const REQUESTER_BYTES: usize = 4;
/// Bytes of a URL at most: of what fits a frame, with which a packet on Ethernet ends.
pub const URL_BYTES_MAX: usize = 1_400;

/// What a datagram to a cache's ICP port is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// A query.
    Query {
        /// Its number, which comes back with the answer.
        number: u32,
        /// The URL that is asked for.
        url: &'a [u8],
    },
    /// Another message, or another version's.
    Other,
    /// A query that is none: its length is another, or its URL is missing, too long or has no end.
    Malformed,
}

impl<'a> Message<'a> {
    /// What a datagram's payload says. Never fails.
    #[must_use]
    pub fn read(payload: &'a [u8]) -> Self {
        let Some((head, rest)) = payload.split_at_checked(HEADER_BYTES) else {
            return Self::Malformed;
        };
        if head[0] != QUERY || head[1] != VERSION {
            return Self::Other;
        }
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let url = rest.get(REQUESTER_BYTES..).and_then(|url| url.split_last());
        match url {
            Some((0, url))
                if length == payload.len()
                    && (1..=URL_BYTES_MAX).contains(&url.len())
                    && !url.contains(&0) =>
            {
                let number = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
                Self::Query { number, url }
            }
            _ => Self::Malformed,
        }
    }
}

/// Writes the answer to a query: whether the object is there. Tells its length; `None` if it does not fit.
pub fn write_answer(hit: bool, number: u32, url: &[u8], out: &mut [u8]) -> Option<usize> {
    let length = HEADER_BYTES + url.len() + 1;
    let out = out.get_mut(..length)?;
    out.fill(0);
    out[0] = if hit { HIT } else { MISS };
    out[1] = VERSION;
    out[2..4].copy_from_slice(&u16::try_from(length).ok()?.to_be_bytes());
    out[4..8].copy_from_slice(&number.to_be_bytes());
    out[HEADER_BYTES..length - 1].copy_from_slice(url);
    Some(length)
}

/// Writes a query, as a cache does. Tells its length; `None` if it does not fit.
pub fn write_query(number: u32, url: &[u8], out: &mut [u8]) -> Option<usize> {
    let length = HEADER_BYTES + REQUESTER_BYTES + url.len() + 1;
    let out = out.get_mut(..length)?;
    out.fill(0);
    out[0] = QUERY;
    out[1] = VERSION;
    out[2..4].copy_from_slice(&u16::try_from(length).ok()?.to_be_bytes());
    out[4..8].copy_from_slice(&number.to_be_bytes());
    out[HEADER_BYTES + REQUESTER_BYTES..length - 1].copy_from_slice(url);
    Some(length)
}

/// What an answer says: its number and whether the object is there; `None` for anything else.
#[must_use]
pub fn read_answer(payload: &[u8]) -> Option<(u32, bool)> {
    let head = payload.get(..HEADER_BYTES)?;
    let hit = match head[0] {
        HIT => true,
        MISS => false,
        _ => return None,
    };
    Some((
        u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
        hit,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_and_answers_are_as_the_rfc_has_them() {
        let mut bytes = [0xaa; 64];
        let url = b"http://a.example/";
        let length = write_query(7, url, &mut bytes).unwrap();
        let expected = [&[1, 2, 0, 42, 0, 0, 0, 7][..], &[0; 16], url, &[0]].concat();
        assert_eq!(bytes[..length], expected);
        let query = Message::Query { number: 7, url };
        assert_eq!(Message::read(&bytes[..length]), query);
        let length = write_answer(true, 7, url, &mut bytes).unwrap();
        let expected = [&[2, 2, 0, 38, 0, 0, 0, 7][..], &[0; 12], url, &[0]].concat();
        assert_eq!(bytes[..length], expected);
        assert_eq!(read_answer(&bytes[..length]), Some((7, true)));
        assert_eq!(Message::read(&bytes[..length]), Message::Other);
        assert_eq!(write_answer(false, 7, url, &mut bytes[..37]), None);
        assert_eq!(write_query(7, url, &mut bytes[..41]), None);
    }

    #[test]
    fn queries_that_are_none_are_reported_apart() {
        let mut bytes = [0; 64];
        let length = write_query(7, b"http://a/", &mut bytes).unwrap();
        let changed = |at: usize, to: u8| {
            let mut bytes = bytes;
            bytes[at] = to;
            match Message::read(&bytes[..length]) {
                Message::Query { .. } => "query",
                Message::Other => "other",
                Message::Malformed => "malformed",
            }
        };
        assert_eq!(changed(1, 3), "other");
        assert_eq!(changed(0, 10), "other");
        assert_eq!(changed(3, 1), "malformed");
        assert_eq!(changed(length - 1, b'x'), "malformed", "no end");
        assert_eq!(changed(length - 3, 0), "malformed", "two ends");
        for shorter in 0..length {
            assert_eq!(Message::read(&bytes[..shorter]), Message::Malformed);
        }
        let mut empty = [0; 64];
        let length = write_query(7, b"", &mut empty).unwrap();
        assert_eq!(Message::read(&empty[..length]), Message::Malformed);
    }
}
