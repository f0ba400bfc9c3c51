//! Under which keys a function's objects are kept. All have one hash tag, so that a cluster of stores has them in one place.
//!
//! | key | value |
//! |---|---|
//! | `{name}` object `:` lane `:` key | a string: the entries under that key of the lane, as [`Fetch::extract`](asterism_state::Fetch::extract) writes them |
//! | `{name}` object `:ends` | a sorted set: each entry's row, with the second of the cluster's time at which its idle time is over |
//! | `{name}` object `:sums` | a hash: for each place its sum under the place's number in digits, or for each key under the key's bytes |
//! | `{name}` object `:sums:` bucket | the same of one bucket of time; it expires once no window reaches the bucket |
//! | `{name}` object `:listed` | a sorted set: the keys of which such hashes have sums, each with the last bucket that it was added in |
//! | `{name}` object `:word` | a string: the client that ends entries of the object, for some seconds |
//! | `{name}` `layout` | two numbers in hexadecimal digits, joined by a dot: how entries are laid out, and a mark of the hash seed; alike for all clients |
//! | `{name}` `pipe:` client `:` pipe | a string: the last batch of that client and pipe that was made, and by which try, as `batch.try` |

use asterism_state::{Query, Ring, Tick};

/// Sums by buckets of time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    pub(crate) object: u8,
    pub(crate) ring: Ring,
    /// Their keys are listed.
    pub(crate) lists_keys: bool,
}

/// Begins the keys of a function.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    tag: Vec<u8>,
    /// The objects that have sums there, a bit for each.
    sums: u64,
    /// Those of them with sums by buckets of time.
    timed: Vec<Timed>,
}

impl Keys {
    /// Of the function of this name.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            tag: format!("{{{name}}}").into_bytes(),
            sums: 0,
            timed: Vec::new(),
        }
    }

    /// These objects have sums there, and these of them by buckets of time.
    pub(crate) fn with_sums(self, sums: u64, timed: Vec<Timed>) -> Self {
        Self {
            sums,
            timed,
            ..self
        }
    }

    fn timed(&self, object: u8) -> Option<&Timed> {
        self.timed.iter().find(|timed| timed.object == object)
    }

    /// The buckets of an object that people see at a time; one that is 0 of an object without buckets.
    pub(crate) fn buckets_shown(&self, object: u8, tick: Tick) -> core::ops::RangeInclusive<u32> {
        match self.timed(object) {
            Some(timed) => timed.ring.read_at(tick),
            None => 0..=0,
        }
    }

    /// Seconds that a bucket of an object stays after an addition.
    pub(crate) fn stays_s(&self, object: u8) -> Tick {
        self.timed(object)
            .map_or(1, |timed| timed.ring.kept_seconds())
    }

    /// Whether an object's keys are listed.
    pub(crate) fn lists_keys(&self, object: u8) -> bool {
        self.timed(object).is_some_and(|timed| timed.lists_keys)
    }

    /// The last bucket of an object that is dropped when this one is there.
    pub(crate) fn dropped_before(&self, object: u8, bucket: u32) -> u32 {
        let slots = self.timed(object).map_or(0, |timed| timed.ring.slots());
        bucket.saturating_sub(slots)
    }

    /// Where the keys of sums are listed.
    pub(crate) fn of_listed(&self, object: u8) -> Vec<u8> {
        self.of(object, b"listed")
    }

    /// Where the sums of an object are to which packets add at a time.
    pub(crate) fn of_sums_now(&self, object: u8, tick: Tick) -> Vec<u8> {
        let timed = self.timed(object);
        self.of_sums_in(object, timed.map_or(0, |timed| timed.ring.bucket(tick)))
    }

    /// Where the sums of an object in a bucket are; 0: it has no buckets.
    pub(crate) fn of_sums_in(&self, object: u8, bucket: u32) -> Vec<u8> {
        match bucket {
            0 => self.of_sums(object),
            bucket => self.of(object, format!("sums:{bucket}").as_bytes()),
        }
    }

    /// Whether an object has sums there, and no entries.
    pub(crate) fn has_sums(&self, object: u8) -> bool {
        self.sums >> object & 1 != 0
    }

    /// What all keys begin with.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.tag
    }

    /// A key that is never there.
    pub(crate) fn of_none(&self) -> Vec<u8> {
        [&self.tag[..], b"none"].concat()
    }

    /// Appends what the keys of an object begin with.
    fn append_object(&self, object: u8, key: &mut Vec<u8>) {
        key.extend_from_slice(&self.tag);
        append_number(object, key);
    }

    /// Appends where the answer to a read by a key is.
    pub(crate) fn append_read(&self, query: &Query<'_>, key: &mut Vec<u8>) {
        self.append_object(query.object, key);
        append_number(query.lane, key);
        key.extend_from_slice(query.key);
    }

    /// Where the answer to a read by a key is.
    pub(crate) fn of_read(&self, query: &Query<'_>) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.tag.len() + 8 + query.key.len());
        self.append_read(query, &mut key);
        key
    }

    /// What is known of an object beside its entries.
    fn of(&self, object: u8, name: &[u8]) -> Vec<u8> {
        let mut key = Vec::new();
        self.append_object(object, &mut key);
        key.extend(name);
        key
    }

    /// Where it says which entries an object has, and when they end.
    pub(crate) fn of_ends(&self, object: u8) -> Vec<u8> {
        self.of(object, b"ends")
    }

    /// Appends that.
    pub(crate) fn append_ends(&self, object: u8, key: &mut Vec<u8>) {
        self.append_object(object, key);
        key.extend(b"ends");
    }

    /// Where the sums of an object are.
    pub(crate) fn of_sums(&self, object: u8) -> Vec<u8> {
        self.of(object, b"sums")
    }

    /// Where it says which client ends entries of an object.
    pub(crate) fn of_word(&self, object: u8) -> Vec<u8> {
        self.of(object, b"word")
    }

    /// The object of a key.
    pub(crate) fn object_of(&self, key: &[u8]) -> Option<u8> {
        let mut parts = key.strip_prefix(&self.tag[..])?.split(|byte| *byte == b':');
        core::str::from_utf8(parts.next()?).ok()?.parse().ok()
    }

    /// Where it says how entries are laid out.
    pub(crate) fn of_layout(&self) -> Vec<u8> {
        let mut key = self.tag.clone();
        key.extend(b"layout");
        key
    }

    /// Where the commits of a pipe are counted.
    pub(crate) fn of_pipe(&self, client: &str, pipe: usize) -> Vec<u8> {
        let mut key = self.tag.clone();
        key.extend(format!("pipe:{client}:{pipe}").as_bytes());
        key
    }
}

/// Appends a number and a colon.
fn append_number(number: u8, key: &mut Vec<u8>) {
    // Each read names a key: what formats numbers took a twentieth of it.
    let digits = [number / 100, number / 10 % 10, number % 10];
    let zeros = digits[..2].iter().take_while(|digit| **digit == 0).count();
    key.extend(digits[zeros..].iter().map(|digit| b'0' + digit));
    key.push(b':');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_decimal_digits() {
        for number in 0..=u8::MAX {
            let mut key = Vec::new();
            append_number(number, &mut key);
            assert_eq!(key, format!("{number}:").into_bytes());
        }
    }
}
