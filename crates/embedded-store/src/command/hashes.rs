//! Commands of hashes: keys that hold fields.

use super::{Call, Refused, held, integer};
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
