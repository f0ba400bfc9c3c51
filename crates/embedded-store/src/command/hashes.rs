//! Commands of hashes: keys that hold fields.

use super::keys::SCANNED;
use super::pattern::is_match;
use super::{Call, Refused, held, integer, is, values};
use crate::fields::Fields;
use crate::keyspace::Stored;

fn fields(stored: &Stored) -> Option<&Fields> {
    match stored {
        Stored::Hash(fields) => Some(fields),
        _ => None,
    }
}

pub(super) fn hget(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let fields = held(call.keyspace, call.argument(1), fields)?;
    match fields.and_then(|fields| fields.get(call.argument(2))) {
        Some(value) => call.reply.string(value),
        None => call.reply.null(),
    }
    Ok(())
}

pub(super) fn hmget(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let fields = held(call.keyspace, call.argument(1), fields)?;
    let names = call.from(2).iter();
    let each = names.map(|name| fields.and_then(|fields| fields.get(name)));
    values(call.reply, each)
}

/// Some of the fields, in the order of their hashes: the cursor is the hash of the first one that is not shown yet.
pub(super) fn hscan(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let text = core::str::from_utf8(call.argument(2)).ok();
    let cursor = text.and_then(|text| text.parse::<u64>().ok());
    let from = cursor.ok_or(Refused::Cursor)?;
    let Some(fields) = held(call.keyspace, call.argument(1), fields)? else {
        call.reply.array(2);
        call.reply.string(b"0");
        call.reply.array(0);
        return Ok(());
    };
    let (mut pattern, mut count) = (None, SCANNED);
    let mut words = call.from(3).iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or(Refused::Syntax)?;
        match word {
            word if is(word, "match") => pattern = Some(*value),
            word if is(word, "count") => count = integer(value)?,
            _ => return Err(Refused::Syntax),
        }
    }
    if count < 1 {
        return Err(Refused::Syntax);
    }
    let all = fields.all();
    let all = all.map(|(field, value)| (cursor_of(field), field, value));
    let mut left: Vec<_> = all.filter(|(cursor, ..)| *cursor >= from).collect();
    left.sort_unstable();
    // Those of one hash go together.
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let mut others = left.iter().skip(count).map(|(cursor, ..)| *cursor);
    let next = others.find(|cursor| *cursor > from).unwrap_or(0);
    left.retain(|(cursor, field, _)| {
        (next == 0 || *cursor < next) && pattern.is_none_or(|pattern| is_match(pattern, field))
    });
    call.reply.array(2);
    call.reply.string(next.to_string().as_bytes());
    call.reply.array(2 * left.len());
    for (_, field, value) in left {
        call.reply.string(field);
        call.reply.string(value);
    }
    Ok(())
}

/// A number that a field has in every process (FNV-1a), and that is not 0.
fn cursor_of(field: &[u8]) -> u64 {
    let hash = field.iter().fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    });
    hash.max(1)
}

pub(super) fn hset(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let (pairs, rest) = call.from(2).as_chunks::<2>();
    if !rest.is_empty() {
        return Err(call.wrong_arguments());
    }
    let key = call.argument(1);
    held(call.keyspace, key, fields)?;
    let new = || Stored::Hash(Fields::default());
    let added = call.keyspace.change(key, new, |stored| {
        let Stored::Hash(fields) = stored else {
            return (0, false);
        };
        let added = pairs
            .iter()
            .filter(|[field, value]| fields.set(field, value));
        (added.count(), true)
    });
    call.note_as_it_is();
    call.reply.integer(added as i64);
    Ok(())
}

pub(super) fn hincrby(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let (key, field) = (call.argument(1), call.argument(2));
    let amount = integer(call.argument(3))?;
    let before = held(call.keyspace, key, fields)?.and_then(|fields| fields.get(field));
    let before = before.map(integer).transpose();
    let before = before.map_err(|_| Refused::HashInteger)?.unwrap_or(0);
    let sum = before.checked_add(amount).ok_or(Refused::Overflow)?;
    let new = || Stored::Hash(Fields::default());
    call.keyspace.change(key, new, |stored| {
        if let Stored::Hash(fields) = stored {
            fields.set(field, sum.to_string().as_bytes());
        }
        ((), true)
    });
    call.note(&[b"hincrby", key, field, amount.to_string().as_bytes()]);
    call.reply.integer(sum);
    Ok(())
}

pub(super) fn hdel(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let (key, names) = (call.argument(1), call.from(2));
    if held(call.keyspace, key, fields)?.is_none() {
        call.reply.integer(0);
        return Ok(());
    }
    let new = || Stored::Hash(Fields::default());
    let removed = call.keyspace.change(key, new, |stored| {
        let Stored::Hash(fields) = stored else {
            return (0, false);
        };
        let removed = names.iter().filter(|field| fields.remove(field)).count();
        (removed, removed > 0)
    });
    if removed > 0 {
        call.note_as_it_is();
    }
    call.reply.integer(removed as i64);
    Ok(())
}

pub(super) fn hgetall(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let Some(fields) = held(call.keyspace, call.argument(1), fields)? else {
        call.reply.map(0);
        return Ok(());
    };
    call.reply.map(fields.len());
    for (field, value) in fields.all() {
        call.reply.string(field);
        call.reply.string(value);
    }
    Ok(())
}

pub(super) fn hlen(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let fields = held(call.keyspace, call.argument(1), fields)?;
    call.reply.integer(fields.map_or(0, Fields::len) as i64);
    Ok(())
}
