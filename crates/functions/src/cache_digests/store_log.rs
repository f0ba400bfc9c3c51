//! Squid's log of its store (`cache_store_log`), which it can send by UDP: what it stored on disk and what it let go.
//!
//! A line has thirteen fields: time, action, disk and file of the object, key, status, three times, type, sizes, method, URL.

use super::squid::StoreKey;

/// Fields of a line.
const FIELDS: usize = 13;
const ACTION: usize = 1;
const DISK: usize = 2;
const KEY: usize = 4;
const METHOD: usize = 11;
const URL: usize = 12;

/// What a line tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line {
    /// An object was stored.
    Stored(StoreKey),
    /// An object was let go, which was stored before.
    Released(StoreKey),
    /// Nothing of interest: an object that was never on disk, or that another method than GET brought.
    Other,
    /// It is no line of that log.
    Malformed,
}

impl Line {
    /// What a line tells, without its end. Never fails, allocates nothing; costs an MD5 of the URL.
    #[must_use]
    pub fn read(line: &[u8]) -> Self {
        let mut fields = [&[][..]; FIELDS];
        let mut words = line
            .split(|byte| *byte == b' ')
            .filter(|word| !word.is_empty());
        for field in &mut fields {
            match words.next() {
                Some(word) => *field = word,
                None => return Self::Malformed,
            }
        }
        let is_key = fields[KEY].len() == 32 && fields[KEY].iter().all(u8::is_ascii_hexdigit);
        if words.next().is_some() || !is_key {
            return Self::Malformed;
        }
        // Private keys are of this run alone, and one is logged when an object goes: the URL says which it was.
        let key = || StoreKey::of_get(fields[URL]);
        match (fields[ACTION], fields[DISK], fields[METHOD]) {
            (_, b"-1", _) => Self::Other,
            (b"SWAPOUT", _, b"GET") => Self::Stored(key()),
            (b"RELEASE", _, b"GET") => Self::Released(key()),
            (b"SWAPOUT" | b"RELEASE" | b"SWAPIN" | b"CREATE" | b"SO_FAIL", ..) => Self::Other,
            _ => Self::Malformed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_squid_are_read() {
        let key = StoreKey::of_get(b"http://127.0.0.1:38080/o/1");
        let stored = b"1795423463.329 SWAPOUT 00 00000000 52FAF89614672CA3DA5D82478E9D788F  200 1795423463 1795337063 1795509863 unknown 512/512 GET http://127.0.0.1:38080/o/1";
        assert_eq!(Line::read(stored), Line::Stored(key));
        let text = String::from_utf8(stored.to_vec()).unwrap();
        let read = |from: &str, to: &str| Line::read(text.replacen(from, to, 1).as_bytes());
        assert_eq!(read("SWAPOUT", "RELEASE"), Line::Released(key));
        assert_eq!(read("GET", "POST"), Line::Other);
        assert_eq!(read("SWAPOUT 00", "RELEASE -1"), Line::Other);
        for (from, to) in [
            ("SWAPOUT", "EVIL"),
            ("GET ", ""),
            ("52FA", "52F"),
            ("52FA", "52FG"),
            ("/o/1", "/o/1 more"),
        ] {
            assert_eq!(read(from, to), Line::Malformed, "{from}");
        }
        assert_eq!(Line::read(b""), Line::Malformed);
    }
}
