//! All that a store has of a function, read for people: by a connection of its own, which waits, so not on an instance's thread.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use asterism_function::NetworkFunction;
use asterism_resp::{Value, Values};
use asterism_state::{Query, Shown, SumsShown, Tick, each_sum, write_sums};

use crate::keys::Keys;
use crate::link::RemoteConfig;
use crate::login::{Greeting, PATIENCE_MIN, Passed, Tracks, exchange, open_waiting, refusal};
use crate::statistics::AwayReason;
use crate::sums::answer_of_all;
use crate::workbench::{Read as ReadOf, Workbench};

/// Keys that the store looks at for one command.
const KEYS_EACH: &str = "512";
/// Keys with a sum over a window that are listed, at most.
const WINDOW_KEYS_MAX: usize = 1 << 18;
/// Of which so many are shown at a time.
const SHOWN_EACH: usize = 512;
/// Bytes of a reply at most.
const REPLY_BYTES_MAX: usize = 16 << 20;

/// What came of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// All was shown that was there all the while.
    All,
    /// It took too long, or enough was shown: there is more.
    Some,
}

/// Shows what a store has of a function, whatever the function's type.
pub trait Listing: Send + Sync {
    /// Shows the entries of an object, or of all that are in the store, until `is_over` says that it took long enough: `each` is given the
    /// object's number and says whether it goes on. An entry that changes meanwhile may be shown twice.
    ///
    /// # Errors
    /// The store does not answer, or something else does.
    fn list(
        &self,
        object: Option<u8>,
        tick: Tick,
        is_over: &dyn Fn() -> bool,
        each: &mut dyn FnMut(u8, &Shown<'_>) -> bool,
    ) -> Result<Listed, AwayReason>;
}

/// A function's listing: one connection for each, of several shards one after the other.
pub struct StoreListing<F> {
    function: Arc<F>,
    shards: Vec<RemoteConfig>,
}

impl<F> core::fmt::Debug for StoreListing<F> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "StoreListing({:?})", self.shards)
    }
}

impl<F> StoreListing<F> {
    /// Of the store that instances of this function use, or of each of its shards.
    pub fn new(function: Arc<F>, shards: Vec<RemoteConfig>) -> Self {
        Self { function, shards }
    }
}

impl<F: NetworkFunction + Send + Sync> Listing for StoreListing<F> {
    fn list(
        &self,
        object: Option<u8>,
        tick: Tick,
        is_over: &dyn Fn() -> bool,
        each: &mut dyn FnMut(u8, &Shown<'_>) -> bool,
    ) -> Result<Listed, AwayReason> {
        for shard in &self.shards {
            if self.list_one(shard, (object, tick), is_over, each)? == Listed::Some {
                return Ok(Listed::Some);
            }
        }
        Ok(Listed::All)
    }
}

impl<F: NetworkFunction> StoreListing<F> {
    fn list_one(
        &self,
        config: &RemoteConfig,
        (object, tick): (Option<u8>, Tick),
        is_over: &dyn Fn() -> bool,
        each: &mut dyn FnMut(u8, &Shown<'_>) -> bool,
    ) -> Result<Listed, AwayReason> {
        let client = &config.client;
        let in_store = (0..u64::BITS as u8).filter(|number| client.objects >> number & 1 != 0);
        let asked = in_store.filter(|number| object.is_none_or(|object| object == *number));
        let asked: Vec<u8> = asked.collect();
        if asked.is_empty() {
            return Ok(Listed::All);
        }
        let mut bench = Workbench::new(&*self.function, client.seed, client.objects);
        bench.set_tick(tick);
        let mut asker = Asker::open(config)?;
        asker.keys = asker.keys.with_sums(bench.sums(), bench.timed());
        for object in asked {
            let has_sums = bench.has_sums(object);
            let shown = bench.shows_sums(object);
            if has_sums && shown != SumsShown::All {
                continue;
            }
            if asker.keys.lists_keys(object) {
                let shown = &mut |entry: &Shown<'_>| each(object, entry);
                match asker.show_window((object, tick), &mut bench, is_over, shown)? {
                    true => continue,
                    false => return Ok(Listed::Some),
                }
            }
            let mut cursor = b"0".to_vec();
            loop {
                let shown = &mut |entry: &Shown<'_>| each(object, entry);
                let (next, goes_on) = if has_sums {
                    asker.show_sums((&cursor, object), &mut bench, is_over, shown)?
                } else {
                    let (next, keys) = asker.scan(&cursor, object, is_over)?;
                    let goes_on = asker.show((&keys, object), &mut bench, is_over, shown)?;
                    (next, goes_on)
                };
                if !goes_on || is_over() {
                    return Ok(Listed::Some);
                }
                if next == b"0" {
                    break;
                }
                cursor = next;
            }
        }
        Ok(Listed::All)
    }
}

/// A part of a scan: where to go on, and what was found.
fn scanned<'a>(value: &Value<'a>) -> Option<(Vec<u8>, Values<'a>)> {
    let Value::Array(mut values) = *value else {
        return None;
    };
    let next = values.next()?.bytes()?.to_vec();
    match values.next()? {
        Value::Array(found) => Some((next, found)),
        _ => None,
    }
}

/// A connection that waits for each reply.
struct Asker {
    stream: TcpStream,
    address: SocketAddr,
    keys: Keys,
}

impl Asker {
    fn open(config: &RemoteConfig) -> Result<Self, AwayReason> {
        let keys = Keys::new(&config.client.function);
        let greeting = Greeting {
            login: config.login.clone(),
            layout: config.layout_at(),
            tracks: Tracks::Nothing,
            patience: PATIENCE_MIN,
            waits_for_replica: false,
            takes_replicas: false,
        };
        let (stream, address) = open_waiting(config.addresses.clone(), &greeting)?;
        Ok(Self {
            stream,
            address,
            keys,
        })
    }

    /// Sends a command, and gives its reply to `take`.
    fn ask<T>(
        &mut self,
        words: &[&[u8]],
        is_over: &dyn Fn() -> bool,
        take: impl FnOnce(&Value<'_>) -> Option<T>,
    ) -> Result<T, AwayReason> {
        let address = self.address;
        let bounds = (REPLY_BYTES_MAX, is_over);
        let taken = exchange(&mut &self.stream, words, bounds, |reply| match reply {
            Value::Error(_) => Err(refusal(reply, address)),
            reply => take(reply).ok_or(AwayReason::NoStore.into()),
        });
        taken.map_err(Passed::without_redirection)
    }

    /// Some keys of the first lane of an object, under each of which some of its entries are, and where to go on.
    fn scan(
        &mut self,
        cursor: &[u8],
        object: u8,
        is_over: &dyn Fn() -> bool,
    ) -> Result<(Vec<u8>, Vec<Vec<u8>>), AwayReason> {
        let query = Query {
            object,
            lane: 0,
            hash: 0,
            key: b"*",
            conversation: 0,
        };
        let pattern = self.keys.of_read(&query);
        let each = KEYS_EACH.as_bytes();
        let words: [&[u8]; 6] = [b"SCAN", cursor, b"MATCH", &pattern, b"COUNT", each];
        self.ask(&words, is_over, |value| {
            let Value::Array(mut values) = *value else {
                return None;
            };
            let next = values.next()?.bytes()?.to_vec();
            let Value::Array(keys) = values.next()? else {
                return None;
            };
            let keys: Option<Vec<_>> = keys.map(|key| key.bytes().map(<[u8]>::to_vec)).collect();
            Some((next, keys?))
        })
    }

    /// Shows some sums of an object, and where to go on. False: that is enough.
    fn show_sums<F: NetworkFunction>(
        &mut self,
        (cursor, object): (&[u8], u8),
        bench: &mut Workbench<F>,
        is_over: &dyn Fn() -> bool,
        each: &mut dyn FnMut(&Shown<'_>) -> bool,
    ) -> Result<(Vec<u8>, bool), AwayReason> {
        let key = self.keys.of_sums(object);
        let words: [&[u8]; 5] = [b"HSCAN", &key, cursor, b"COUNT", KEYS_EACH.as_bytes()];
        self.ask(&words, is_over, |value| {
            let (next, fields) = scanned(value)?;
            bench.clear();
            bench.note_sums(object, &answer_of_all(fields));
            Some((next, bench.show(object, each)))
        })
    }

    /// Shows the sums of an object over the buckets of the window that ends now. False: that is enough, or more than can be listed.
    fn show_window<F: NetworkFunction>(
        &mut self,
        (object, tick): (u8, Tick),
        bench: &mut Workbench<F>,
        is_over: &dyn Fn() -> bool,
        each: &mut dyn FnMut(&Shown<'_>) -> bool,
    ) -> Result<bool, AwayReason> {
        let mut sums: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
        for bucket in self.keys.buckets_shown(object, tick) {
            let key = self.keys.of_sums_in(object, bucket);
            let mut cursor = b"0".to_vec();
            // A scan may show a field twice.
            let mut of_bucket: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
            loop {
                let words: [&[u8]; 5] = [b"HSCAN", &key, &cursor, b"COUNT", KEYS_EACH.as_bytes()];
                cursor = self.ask(&words, is_over, |value| {
                    let (next, fields) = scanned(value)?;
                    each_sum(&answer_of_all(fields), |field, sum| {
                        of_bucket.insert(field.to_vec(), sum);
                    })
                    .ok()?;
                    Some(next)
                })?;
                if is_over() || of_bucket.len() + sums.len() > WINDOW_KEYS_MAX {
                    return Ok(false);
                }
                if cursor == b"0" {
                    break;
                }
            }
            for (field, sum) in of_bucket {
                let known = sums.entry(field).or_default();
                *known = known.saturating_add(sum);
            }
        }
        let sums: Vec<_> = sums.into_iter().collect();
        let mut answer = Vec::new();
        for some in sums.chunks(SHOWN_EACH) {
            answer.clear();
            write_sums(
                some.iter().map(|(field, sum)| (&**field, *sum)),
                &mut answer,
            );
            bench.clear();
            bench.note_sums(object, &answer);
            if !bench.show(object, each) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Shows the entries under these keys. False: that is enough.
    fn show<F: NetworkFunction>(
        &mut self,
        (keys, object): (&[Vec<u8>], u8),
        bench: &mut Workbench<F>,
        is_over: &dyn Fn() -> bool,
        each: &mut dyn FnMut(&Shown<'_>) -> bool,
    ) -> Result<bool, AwayReason> {
        if keys.is_empty() {
            return Ok(true);
        }
        let mut words: Vec<&[u8]> = vec![b"MGET"];
        words.extend(keys.iter().map(Vec::as_slice));
        let read = ReadOf::of_lane(object, 0);
        self.ask(&words, is_over, |value| {
            let Value::Array(values) = *value else {
                return None;
            };
            for value in values {
                let Some(answer) = value.bytes() else {
                    // It ended meanwhile.
                    continue;
                };
                bench.clear();
                bench.install(&read, answer).ok()?;
                if !bench.show(object, each) {
                    return Some(false);
                }
            }
            Some(true)
        })
    }
}
