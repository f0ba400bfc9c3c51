//! All that a store has of a function, read for people: by a connection of its own, which waits, so not on an instance's thread.

use std::any::Any;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use arc_swap::ArcSwap;
use asterism_function::NetworkFunction;
use asterism_resp::{Value, Values};
use asterism_state::{BadBytes, Query, Shown, SumsShown, Tick, each_sum, write_sums};

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

/// Keys whose entries the function reports on together, at most.
const REPORTED_EACH: u64 = 128;

/// What came of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// It took too long, or enough was shown: there may be more.
    pub is_cut: bool,
    /// The shards that could not be asked, by their places, each with the reason; a store without shards is one. What all others have was
    /// shown.
    pub away: Vec<(usize, AwayReason)>,
}

impl Listed {
    /// Whether all was shown that was there all the while.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.is_cut && self.away.is_empty()
    }
}

/// The entries of an object on which a function reports.
#[derive(Clone, Copy, Debug)]
pub enum Entries<'a> {
    /// All of them. Costs a scan of everything that the store has, of other objects and other functions too.
    All,
    /// Those of these rows, as an answer has a row; what is no row of the object is passed over. Costs a read of each.
    Rows(&'a [Vec<u8>]),
}

/// Shows what a store has of a function, whatever the function's type.
pub trait Listing: Send + Sync {
    /// The objects that are in the store, a bit for each.
    fn objects(&self) -> u64;

    /// Shows the entries of an object, or of all that are in the store, until `is_over` says that it took long enough: `each` is given the
    /// object's number and says whether it goes on. An entry that changes meanwhile may be shown twice. Waits for the store: for each shard
    /// that does not answer a second.
    fn list(
        &self,
        object: Option<u8>,
        tick: Tick,
        is_over: &dyn Fn() -> bool,
        each: &mut dyn FnMut(u8, &Shown<'_>) -> bool,
    ) -> Listed;

    /// Has the function [report](asterism_function::Observable::report) on entries of an object that is in the store, in parts, as if they were
    /// all that its state has. Waits as [`Listing::list`] does; shards that have none of the named rows are not asked.
    fn report(
        &self,
        question: u32,
        entries: (u8, Entries<'_>),
        tick: Tick,
        is_over: &dyn Fn() -> bool,
        each: &mut dyn FnMut(&[u8]),
    ) -> Listed;

    /// Goes on with another function of the same kind, an `Arc` of it: its settings are those of which it reports.
    fn set_function(&self, function: Box<dyn Any + Send>);
}

/// A function's listing: one connection for each, of several shards one after the other.
pub struct StoreListing<F> {
    function: ArcSwap<F>,
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
        Self {
            function: ArcSwap::new(function),
            shards,
        }
    }

    /// Asks each shard, which says whether it showed all. One that is away keeps none of the others from being asked.
    fn each_shard(
        &self,
        is_over: &dyn Fn() -> bool,
        mut ask: impl FnMut(&RemoteConfig) -> Result<bool, AwayReason>,
    ) -> Listed {
        let mut listed = Listed::default();
        for (place, shard) in self.shards.iter().enumerate() {
            if place > 0 && is_over() {
                listed.is_cut = true;
            }
            if listed.is_cut {
                break;
            }
            match ask(shard) {
                Ok(is_all) => listed.is_cut = !is_all,
                Err(why) => listed.away.push((place, why)),
            }
        }
        listed
    }
}

impl<F: NetworkFunction + Send + Sync> Listing for StoreListing<F> {
    fn objects(&self) -> u64 {
        self.shards.first().map_or(0, |shard| shard.client.objects)
    }

    fn list(
        &self,
        object: Option<u8>,
        tick: Tick,
        is_over: &dyn Fn() -> bool,
        each: &mut dyn FnMut(u8, &Shown<'_>) -> bool,
    ) -> Listed {
        self.each_shard(is_over, |shard| {
            self.list_one(shard, (object, tick), is_over, each)
        })
    }

    fn report(
        &self,
        question: u32,
        entries: (u8, Entries<'_>),
        tick: Tick,
        is_over: &dyn Fn() -> bool,
        each: &mut dyn FnMut(&[u8]),
    ) -> Listed {
        self.each_shard(is_over, |shard| {
            self.report_one(shard, (question, entries), tick, is_over, each)
        })
    }

    fn set_function(&self, function: Box<dyn Any + Send>) {
        if let Ok(function) = function.downcast::<Arc<F>>() {
            self.function.store(*function);
        }
    }
}

impl<F: NetworkFunction> StoreListing<F> {
    /// Whether all was shown.
    fn list_one(
        &self,
        config: &RemoteConfig,
        (object, tick): (Option<u8>, Tick),
        is_over: &dyn Fn() -> bool,
        each: &mut dyn FnMut(u8, &Shown<'_>) -> bool,
    ) -> Result<bool, AwayReason> {
        let client = &config.client;
        let in_store = (0..u64::BITS as u8).filter(|number| client.objects >> number & 1 != 0);
        let asked = in_store.filter(|number| object.is_none_or(|object| object == *number));
        let asked: Vec<u8> = asked.collect();
        if asked.is_empty() {
            return Ok(true);
        }
        let function = self.function.load_full();
        let mut bench = Workbench::new(&*function, client.seed, client.objects);
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
                    false => return Ok(false),
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
                if !goes_on {
                    return Ok(false);
                }
                if next == b"0" {
                    break;
                }
                if is_over() {
                    return Ok(false);
                }
                cursor = next;
            }
        }
        Ok(true)
    }

    /// Whether the function reported on all of these entries.
    fn report_one(
        &self,
        config: &RemoteConfig,
        (question, (object, entries)): (u32, (u8, Entries<'_>)),
        tick: Tick,
        is_over: &dyn Fn() -> bool,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, AwayReason> {
        let client = &config.client;
        let function = self.function.load_full();
        let bench = Workbench::new(&*function, client.seed, client.objects);
        let mut bench = bench.of_shard(client.shard.clone());
        bench.set_tick(tick);
        // No more at a time than the objects have room for.
        let together = (bench.capacity(object) / 2).clamp(1, REPORTED_EACH) as usize;
        let named = match entries {
            Entries::All => None,
            Entries::Rows(rows) => {
                let keys = Keys::new(&client.function);
                let key_of = |row: &Vec<u8>| bench.key_of(&keys, object, row);
                Some(rows.iter().filter_map(key_of).collect::<Vec<_>>())
            }
        };
        // Whether there was time for all: a store may name as many keys at a time as it likes.
        let mut report = |asker: &mut Asker, keys: &[Vec<u8>]| {
            for (number, keys) in keys.chunks(together).enumerate() {
                if number > 0 && is_over() {
                    return Ok(false);
                }
                bench.clear();
                asker.read(keys, is_over, |answer| {
                    bench.install(&ReadOf::of_lane(object, 0), answer)
                })?;
                bench.report(&function, question, each);
            }
            Ok(true)
        };
        if let Some(keys) = named {
            return match keys.is_empty() {
                true => Ok(true),
                false => report(&mut Asker::open(config)?, &keys),
            };
        }
        let mut asker = Asker::open(config)?;
        let mut cursor = b"0".to_vec();
        loop {
            let (next, keys) = asker.scan(&cursor, object, is_over)?;
            let is_all = report(&mut asker, &keys)?;
            if !is_all || next == b"0" {
                return Ok(is_all);
            }
            if is_over() {
                return Ok(false);
            }
            cursor = next;
        }
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
            let (next, keys) = scanned(value)?;
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
        let read = ReadOf::of_lane(object, 0);
        let mut goes_on = true;
        self.read(keys, is_over, |answer| {
            if goes_on {
                bench.clear();
                bench.install(&read, answer)?;
                goes_on = bench.show(object, each);
            }
            Ok(())
        })?;
        Ok(goes_on)
    }

    /// Gives what is under each of these keys to `take`, if anything is.
    fn read(
        &mut self,
        keys: &[Vec<u8>],
        is_over: &dyn Fn() -> bool,
        mut take: impl FnMut(&[u8]) -> Result<(), BadBytes>,
    ) -> Result<(), AwayReason> {
        if keys.is_empty() {
            return Ok(());
        }
        let mut words: Vec<&[u8]> = vec![b"MGET"];
        words.extend(keys.iter().map(Vec::as_slice));
        self.ask(&words, is_over, |value| {
            let Value::Array(values) = *value else {
                return None;
            };
            // Without bytes it ended meanwhile.
            for answer in values {
                if let Some(answer) = answer.bytes() {
                    take(answer).ok()?;
                }
            }
            Some(())
        })
    }
}
