//! Commands of strings.

use super::{Call, Refused, held, integer, is, values};
use crate::keyspace::Stored;

fn string(stored: &Stored) -> Option<&[u8]> {
    match stored {
        Stored::String(bytes) => Some(bytes),
        _ => None,
    }
}

pub(super) fn get(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    match held(call.keyspace, call.argument(1), string)? {
        Some(bytes) => call.reply.string(bytes),
        None => call.reply.null(),
    }
    Ok(())
}

/// What holds no string is nothing here.
pub(super) fn mget(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let (keyspace, keys) = (&*call.keyspace, call.from(1));
    let each = keys.iter().map(|key| keyspace.get(key).and_then(string));
    values(call.reply, each)
}

/// What a `SET` is to do besides.
#[derive(Default)]
struct Options {
    only_if_absent: bool,
    only_if_present: bool,
    answers_before: bool,
    keeps_expiry: bool,
    expires_ms: Option<u64>,
}

fn options(call: &Call<'_, '_>) -> Result<Options, Refused> {
    let mut options = Options::default();
    let now_ms = call.keyspace.now_ms();
    let units = [
        ("ex", 1_000, now_ms),
        ("px", 1, now_ms),
        ("exat", 1_000, 0),
        ("pxat", 1, 0),
    ];
    let mut words = call.from(3).iter();
    while let Some(word) = words.next() {
        let has_time = options.expires_ms.is_some() || options.keeps_expiry;
        match units.iter().find(|(name, ..)| is(word, name)) {
            Some((_, each_ms, from_ms)) if !has_time => {
                let wrong = Refused::Expiry("set");
                let number = integer(words.next().ok_or(Refused::Syntax)?)?;
                let number = u64::try_from(number).map_err(|_| wrong)?;
                let ms = number.checked_mul(*each_ms).filter(|ms| *ms > 0);
                let ms = ms.and_then(|ms| from_ms.checked_add(ms));
                let ms = ms.filter(|ms| i64::try_from(*ms).is_ok());
                options.expires_ms = Some(ms.ok_or(wrong)?);
            }
            Some(_) => return Err(Refused::Syntax),
            None if is(word, "nx") && !options.only_if_present => options.only_if_absent = true,
            None if is(word, "xx") && !options.only_if_absent => options.only_if_present = true,
            None if is(word, "get") => options.answers_before = true,
            None if is(word, "keepttl") && !has_time => options.keeps_expiry = true,
            None => return Err(Refused::Syntax),
        }
    }
    Ok(options)
}

pub(super) fn set(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let options = options(call)?;
    let (key, value) = (call.argument(1), call.argument(2));
    let is_there = call.keyspace.get(key).is_some();
    if options.answers_before {
        match held(call.keyspace, key, string)? {
            Some(bytes) => call.reply.string(bytes),
            None => call.reply.null(),
        }
    }
    if options.only_if_absent && is_there || options.only_if_present && !is_there {
        if !options.answers_before {
            call.reply.null();
        }
        return Ok(());
    }
    let expires_ms = match options.keeps_expiry {
        true => call.keyspace.expires_ms(key),
        false => options.expires_ms,
    };
    call.keyspace
        .set(key, Stored::String(value.to_vec()), expires_ms);
    match expires_ms {
        Some(ms) => call.note(&[b"set", key, value, b"pxat", ms.to_string().as_bytes()]),
        None => call.note(&[b"set", key, value]),
    }
    // Of a time that is over.
    call.keyspace.advance(call.keyspace.now_ms());
    if !options.answers_before {
        call.reply.status("OK");
    }
    Ok(())
}

pub(super) fn mset(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let pairs = call.from(1);
    if !pairs.len().is_multiple_of(2) {
        return Err(Refused::Arguments("mset"));
    }
    for pair in pairs.chunks_exact(2) {
        let (key, value) = (pair[0], pair[1]);
        call.keyspace.set(key, Stored::String(value.to_vec()), None);
    }
    let mut words: Vec<&[u8]> = vec![b"mset"];
    words.extend(pairs.iter().map(|word| &word[..]));
    call.note(&words);
    call.reply.status("OK");
    Ok(())
}

pub(super) fn incr(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    add(call, 1)
}

pub(super) fn incrby(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    add(call, integer(call.argument(2))?)
}

fn add(call: &mut Call<'_, '_>, amount: i64) -> Result<(), Refused> {
    let key = call.argument(1);
    let before = match held(call.keyspace, key, string)? {
        Some(bytes) => integer(bytes)?,
        None => 0,
    };
    let sum = before.checked_add(amount).ok_or(Refused::Overflow)?;
    let expires_ms = call.keyspace.expires_ms(key);
    let digits = sum.to_string().into_bytes();
    call.keyspace.set(key, Stored::String(digits), expires_ms);
    call.note(&[b"incrby", key, amount.to_string().as_bytes()]);
    call.reply.integer(sum);
    Ok(())
}
