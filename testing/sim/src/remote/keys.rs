//! The keys of a shard in its servers, and what must be there of sums.

use std::collections::BTreeMap;

use asterism_resp::Value;

use super::ledger::{GUESTS, Name, ROOMS, SUMS};
use super::servers::Server;
use crate::report::Failure;

/// The keys of a function's objects, which begin with its name in the store.
pub(super) struct ShardKeys(String);

impl ShardKeys {
    pub(super) fn of(function: &str) -> Self {
        Self(format!("{{{function}}}"))
    }

    /// Whether a key is one of them.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        key.starts_with(self.0.as_bytes())
    }

    /// A key of an object.
    pub(super) fn of_object(&self, object: u8, name: &[u8]) -> Vec<u8> {
        [format!("{}{object}:", self.0).as_bytes(), name].concat()
    }

    /// The object and the lane of a key under which an answer is.
    pub(super) fn parts(&self, key: &[u8]) -> Option<(u8, u8)> {
        let mut parts = key
            .strip_prefix(self.0.as_bytes())?
            .split(|byte| *byte == b':');
        let mut number = || core::str::from_utf8(parts.next()?).ok()?.parse().ok();
        Some((number()?, number()?))
    }

    /// The sums of an object, of one bucket of time or, if that is 0, of all time.
    pub(super) fn sums(
        &self,
        server: &mut Server,
        (object, bucket): (u8, u32),
    ) -> BTreeMap<Vec<u8>, i64> {
        let name = match bucket {
            0 => "sums".to_owned(),
            bucket => format!("sums:{bucket}"),
        };
        let fields = strings(&server.ask(&[b"HGETALL", &self.of_object(object, name.as_bytes())]));
        let pairs = fields.chunks_exact(2);
        let sums = pairs.map(|pair| (pair[0].clone(), number(&pair[1]).unwrap_or_default()));
        sums.collect()
    }

    /// The sums in the store are those of the guests that it has, by the rows of the set that says when they end.
    pub(super) fn sums_count_guests(&self, server: &mut Server) -> Result<(), Failure> {
        let rows = strings(&server.ask(&[
            b"ZRANGEBYSCORE",
            &self.of_object(GUESTS, b"ends"),
            b"-inf",
            b"+inf",
        ]));
        let mut guests = [0_i64; ROOMS as usize];
        for row in rows {
            guests[(Name::of_row(&row).number() % ROOMS) as usize] += 1;
        }
        let mut sums = [0_i64; ROOMS as usize];
        for (room, sum) in self.sums(server, (SUMS, 0)) {
            sums[number(&room).unwrap_or_default() as usize % ROOMS as usize] = sum;
        }
        match sums == guests {
            true => Ok(()),
            false => Err(Failure::new(
                "sums count the entries that there are",
                format!("{sums:?} of {guests:?}"),
            )),
        }
    }
}

fn number(text: &[u8]) -> Option<i64> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

fn strings(reply: &[u8]) -> Vec<Vec<u8>> {
    let Ok(Some((Value::Array(values), _))) = Value::read(reply) else {
        return Vec::new();
    };
    values
        .filter_map(|value| value.bytes().map(<[u8]>::to_vec))
        .collect()
}
