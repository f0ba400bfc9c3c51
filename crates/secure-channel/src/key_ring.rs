//! The keys that a host has at one time: the one that it seals under, and others that it opens; and the file of them.

use core::fmt;

use zeroize::Zeroizing;

use super::key::{ClusterKey, KeyError, LINE_BYTES_MAX, parse_id};
use super::opener::KEYS_MAX;

/// What the first line of a file of several keys starts with; the digit is the version of the format.
pub const RING_TEXT_PREFIX: &str = "asterism-keys-1";

/// One to [`KEYS_MAX`] cluster keys of different numbers, one of which is sealed under while all are accepted.
///
/// As a file, with one key, it may be that key's line alone. Else it is a heading, `asterism-keys-1:<key id to seal
/// under>:<number of keys>`, and so many lines of keys that name one hash seed (`asterism-key-2`). Blanks around lines, empty lines and
/// lines that start with `#` are passed over. The heading comes first and counts, so that no beginning of a file that is
/// still being copied is another file of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRing {
    keys: Vec<ClusterKey>,
    sending: usize,
}

/// What is wrong with a file of keys, and at which line. Nothing repeats what the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRingError {
    /// The line, from 1; `None` when the whole file is meant.
    pub line: Option<usize>,
    /// What is wrong.
    pub why: KeyRingMistake,
}

/// What can be wrong with keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRingMistake {
    /// A line is no key.
    Key(KeyError),
    /// A second heading, or one after a key.
    HeadingLate,
    /// The heading is not of three fields, or one is no number.
    Heading,
    /// There are several keys and no heading.
    NoHeading,
    /// The heading announces so many keys; there are so many.
    Count(usize, usize),
    /// There are more than [`KEYS_MAX`].
    TooMany,
    /// Another line, of this number, has a key of this id.
    IdTwice(u8, usize),
    /// No key has the id that the heading names.
    NoSuchKey(u8),
    /// With a heading every key names the hash seed; this one does not.
    NoSeed,
    /// The key names another hash seed than that of the line of this number.
    OtherSeed(usize),
}

impl fmt::Display for KeyRingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

impl core::error::Error for KeyRingError {}

impl fmt::Display for KeyRingMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const WRITE: &str = "`asterism key` writes files of several keys";
        match self {
            KeyRingMistake::Key(error) => error.fmt(f),
            KeyRingMistake::HeadingLate => {
                write!(
                    f,
                    "`{RING_TEXT_PREFIX}` stands once, before all keys; {WRITE}"
                )
            }
            KeyRingMistake::Heading => write!(
                f,
                "the heading is `{RING_TEXT_PREFIX}:<key id to send with>:<number of keys>`; {WRITE}"
            ),
            KeyRingMistake::NoHeading => write!(
                f,
                "several keys need a first line `{RING_TEXT_PREFIX}:<key id to send with>:<number of keys>`; {WRITE}"
            ),
            KeyRingMistake::Count(announced, found) => write!(
                f,
                "the heading announces {announced} keys and there are {found}: the file was cut short, or changed manually"
            ),
            KeyRingMistake::TooMany => write!(
                f,
                "there are more than {KEYS_MAX} keys; drop those that nobody sends with (`asterism key --drop`)"
            ),
            KeyRingMistake::IdTwice(id, line) => {
                write!(
                    f,
                    "line {line} has a key {id} too; keys are distinguished by their ids"
                )
            }
            KeyRingMistake::NoSuchKey(id) => {
                write!(
                    f,
                    "the heading names key {id} to send with, and no key has that id"
                )
            }
            KeyRingMistake::NoSeed => write!(
                f,
                "among several keys each names the cluster's hash seed, and this one does not: add keys with `asterism key --new`, which writes it"
            ),
            KeyRingMistake::OtherSeed(line) => write!(
                f,
                "the key names another hash seed than that of line {line}: it is of another cluster"
            ),
        }
    }
}

impl From<ClusterKey> for KeyRing {
    fn from(key: ClusterKey) -> KeyRing {
        KeyRing {
            keys: vec![key],
            sending: 0,
        }
    }
}

impl KeyRing {
    /// A ring of these keys that seals under the one of that number.
    ///
    /// # Errors
    /// There are none or too many, two have one number, none has that one, or they do not name one hash seed.
    pub fn new(keys: Vec<ClusterKey>, sending: u8) -> Result<KeyRing, KeyRingError> {
        let numbered = keys.into_iter().map(|key| (None, key)).collect();
        KeyRing::check(numbered, sending, None)
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// Says what is wrong and where, without repeating it.
    pub fn parse(text: &str) -> Result<KeyRing, KeyRingError> {
        let at = |line, why| KeyRingError {
            line: Some(line),
            why,
        };
        let mut heading = None;
        let mut keys: Vec<(Option<usize>, ClusterKey)> = Vec::new();
        let lines = text.lines().map(str::trim).enumerate();
        for (place, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            let number = place + 1;
            if line.split(':').next() == Some(RING_TEXT_PREFIX) {
                if heading.is_some() || !keys.is_empty() {
                    return Err(at(number, KeyRingMistake::HeadingLate));
                }
                let read = parse_heading(line).ok_or(at(number, KeyRingMistake::Heading))?;
                heading = Some((number, read));
                continue;
            }
            let key = ClusterKey::parse_line(line)
                .map_err(|error| at(number, KeyRingMistake::Key(error)))?;
            if heading.is_none() && !keys.is_empty() {
                return Err(at(number, KeyRingMistake::NoHeading));
            }
            if keys.len() == KEYS_MAX {
                return Err(at(number, KeyRingMistake::TooMany));
            }
            keys.push((Some(number), key));
        }
        match heading {
            Some((line, (_, count))) if count != keys.len() => {
                Err(at(line, KeyRingMistake::Count(count, keys.len())))
            }
            Some((line, (sending, _))) => KeyRing::check(keys, sending, Some(line)),
            None => {
                let why = KeyRingMistake::Key(KeyError::Empty);
                let (_, key) = keys.pop().ok_or(KeyRingError { line: None, why })?;
                Ok(key.into())
            }
        }
    }

    fn check(
        keys: Vec<(Option<usize>, ClusterKey)>,
        sending: u8,
        heading: Option<usize>,
    ) -> Result<KeyRing, KeyRingError> {
        let fail = |line, why| Err(KeyRingError { line, why });
        if keys.len() > KEYS_MAX {
            return fail(None, KeyRingMistake::TooMany);
        }
        for (place, (line, key)) in keys.iter().enumerate() {
            let earlier = |wanted: &dyn Fn(&ClusterKey) -> bool| {
                let found = keys[..place].iter().find(|(_, other)| wanted(other));
                found.map(|(line, _)| line.unwrap_or(0))
            };
            if let Some(other) = earlier(&|other| other.id() == key.id()) {
                return fail(*line, KeyRingMistake::IdTwice(key.id(), other));
            }
            if keys.len() > 1 && key.hash_seed().is_none() {
                return fail(*line, KeyRingMistake::NoSeed);
            }
            if let Some(other) = earlier(&|other| other.hash_seed() != key.hash_seed()) {
                return fail(*line, KeyRingMistake::OtherSeed(other));
            }
        }
        let keys: Vec<ClusterKey> = keys.into_iter().map(|(_, key)| key).collect();
        match keys.iter().position(|key| key.id() == sending) {
            Some(sending) => Ok(KeyRing { keys, sending }),
            None => fail(heading, KeyRingMistake::NoSuchKey(sending)),
        }
    }

    /// The file's text: a lone key that names no hash seed as its line, else with a heading. Overwritten when dropped.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(LINE_BYTES_MAX * (KEYS_MAX + 1)));
        if self.keys.len() > 1 || self.sending().hash_seed().is_some() {
            text.push_str(&format!(
                "{RING_TEXT_PREFIX}:{}:{}\n",
                self.sending().id(),
                self.keys.len()
            ));
        }
        for key in &self.keys {
            text.push_str(&key.to_text());
        }
        text
    }

    /// All keys, in the file's order.
    #[must_use]
    pub fn keys(&self) -> &[ClusterKey] {
        &self.keys
    }

    /// The numbers of all keys, in the file's order.
    pub fn ids(&self) -> impl Iterator<Item = u8> + '_ {
        self.keys.iter().map(ClusterKey::id)
    }

    /// The key to seal under.
    #[must_use]
    pub fn sending(&self) -> &ClusterKey {
        &self.keys[self.sending]
    }

    /// Whether there is a key of that number.
    #[must_use]
    pub fn has(&self, id: u8) -> bool {
        self.ids().any(|known| known == id)
    }
}

fn parse_heading(line: &str) -> Option<(u8, usize)> {
    let mut fields = line.split(':').skip(1);
    let (sending, count) = (fields.next()?, fields.next()?);
    let (sending, count) = (parse_id(sending).ok()?, parse_id(count).ok()?);
    fields.next().is_none().then_some((sending, count.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: u8) -> ClusterKey {
        ClusterKey::from_random(id, core::array::from_fn(|i| i as u8 ^ id)).with_hash_seed(7)
    }

    #[test]
    fn text_round_trip() {
        let alone = KeyRing::from(ClusterKey::from_random(9, [1; 32]));
        assert_eq!(alone.to_text(), alone.sending().to_text());
        let one = KeyRing::new(vec![ClusterKey::from_random(3, [2; 32])], 3).unwrap();
        assert_eq!(one.sending().id(), 3);
        for (ids, sending) in [
            (&[1][..], 1),
            (&[1, 2], 1),
            (&[1, 2], 2),
            (&[9, 1, 255, 0], 255),
        ] {
            let keys = ids.iter().copied().map(key).collect();
            let ring = KeyRing::new(keys, sending).unwrap();
            assert_eq!(ring.sending().id(), sending);
            let text = ring.to_text();
            assert_eq!(KeyRing::parse(&text), Ok(ring.clone()));
            assert!(
                text.len() <= text.capacity() && text.capacity() <= LINE_BYTES_MAX * (KEYS_MAX + 1)
            );
            let commented = format!("# keys\r\n\r\n  {}\n#\n", text.replace('\n', "\r\n\n# \n "));
            assert_eq!(KeyRing::parse(&commented), Ok(ring));
        }
    }

    /// A file is copied while a host looks: what it sees then is no other file of keys.
    #[test]
    fn no_beginning_of_a_file_reads_as_keys() {
        for ids in [&[1][..], &[1, 2], &[1, 2, 30, 4]] {
            let keys = ids.iter().copied().map(key).collect();
            let text = KeyRing::new(keys, ids[0]).unwrap().to_text();
            for end in 0..text.len() - 1 {
                assert!(
                    KeyRing::parse(&text[..end]).is_err(),
                    "{end} of {}",
                    text.len()
                );
            }
            assert!(
                KeyRing::parse(&text[..text.len() - 1]).is_ok(),
                "but for its newline"
            );
        }
    }

    #[test]
    fn mistakes_are_pointed_at() {
        use KeyRingMistake as Mistake;
        let line = |id| key(id).to_text().trim().to_owned();
        let plain = |id| {
            let key = ClusterKey::from_random(id, [id, 2, 3, 4].repeat(8).try_into().unwrap());
            key.to_text().trim().to_owned()
        };
        let other = key(2).with_hash_seed(8).to_text().trim().to_owned();
        let (a, b, c, d, e) = (line(1), line(2), line(3), line(4), line(5));
        let cases = [
            (String::new(), None, Mistake::Key(KeyError::Empty)),
            ("# 1\n\n# 3".into(), None, Mistake::Key(KeyError::Empty)),
            (format!("# 1\n{a}\n{b}"), Some(3), Mistake::NoHeading),
            (
                format!("{}\n{}", plain(1), plain(2)),
                Some(2),
                Mistake::NoHeading,
            ),
            (
                format!("{a}\nasterism-keys-1:1:1"),
                Some(2),
                Mistake::HeadingLate,
            ),
            (
                format!("asterism-keys-1:1:1\nasterism-keys-1:1:1\n{a}"),
                Some(2),
                Mistake::HeadingLate,
            ),
            (format!("asterism-keys-1:1\n{a}"), Some(1), Mistake::Heading),
            (
                format!("asterism-keys-1:1:x\n{a}"),
                Some(1),
                Mistake::Heading,
            ),
            (
                format!("asterism-keys-1:1:1:1\n{a}"),
                Some(1),
                Mistake::Heading,
            ),
            (
                format!("asterism-keys-1:256:1\n{a}"),
                Some(1),
                Mistake::Heading,
            ),
            (
                format!("asterism-keys-2:1:1\n{a}"),
                Some(1),
                Mistake::Key(KeyError::NotAKey),
            ),
            (
                format!("\nasterism-keys-1:1:2\n{a}\n"),
                Some(2),
                Mistake::Count(2, 1),
            ),
            (
                format!("asterism-keys-1:1:1\n{a}\n{b}"),
                Some(1),
                Mistake::Count(1, 2),
            ),
            (
                format!("asterism-keys-1:1:5\n{a}\n{b}\n{c}\n{d}\n{e}"),
                Some(6),
                Mistake::TooMany,
            ),
            (
                format!("asterism-keys-1:1:2\n{a}\n#\n{a}"),
                Some(4),
                Mistake::IdTwice(1, 2),
            ),
            (
                format!("asterism-keys-1:3:2\n{a}\n{b}"),
                Some(1),
                Mistake::NoSuchKey(3),
            ),
            (
                format!("asterism-keys-1:1:2\n{a}\n{}", plain(2)),
                Some(3),
                Mistake::NoSeed,
            ),
            (
                format!("asterism-keys-1:1:2\n{a}\n{other}"),
                Some(3),
                Mistake::OtherSeed(2),
            ),
            (
                format!("asterism-keys-1:1:2\n{a}\n{}", &b[..40]),
                Some(3),
                Mistake::Key(KeyError::Fields(3)),
            ),
        ];
        for (text, line, why) in cases {
            let error = KeyRing::parse(&text).unwrap_err();
            assert_eq!(error, KeyRingError { line, why }, "{text}");
            let said = error.to_string();
            assert!(
                !said.contains(&a[17..40]) && !said.contains(&b[17..40]),
                "{said}"
            );
        }
        assert!(KeyRing::new(Vec::new(), 1).is_err());
        assert!(KeyRing::new(vec![key(1), key(1)], 1).is_err());
        assert!(KeyRing::new((1..6).map(key).collect(), 1).is_err());
    }
}
