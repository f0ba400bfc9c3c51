//! Commands of keys, whatever they hold.

use super::pattern::is_match;
use super::{Call, Refused, integer, is};

/// Keys that one step of a scan looks at, unless it says how many.
pub(super) const SCANNED: i64 = 10;

pub(super) fn del(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let keys = call.from(1);
    let removed = keys.iter().filter(|key| call.keyspace.remove(key)).count();
    if removed > 0 {
        call.note_as_it_is();
    }
    call.reply.integer(removed as i64);
    Ok(())
}

pub(super) fn exists(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let keys = call.from(1).iter();
    let there = keys.filter(|key| call.keyspace.get(key).is_some()).count();
    call.reply.integer(there as i64);
    Ok(())
}

pub(super) fn expire_after(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let wrong = Refused::Expiry("expire");
    let after_s = integer(call.argument(2))?;
    let now_ms = i64::try_from(call.keyspace.now_ms()).map_err(|_| wrong)?;
    let after_ms = after_s.checked_mul(1_000).ok_or(wrong)?;
    expire(call, now_ms.checked_add(after_ms).ok_or(wrong)?)
}

pub(super) fn pexpire(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let wrong = Refused::Expiry("pexpire");
    let after_ms = integer(call.argument(2))?;
    let now_ms = i64::try_from(call.keyspace.now_ms()).map_err(|_| wrong)?;
    expire(call, now_ms.checked_add(after_ms).ok_or(wrong)?)
}

pub(super) fn pexpireat(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let at_ms = integer(call.argument(2))?;
    expire(call, at_ms)
}

/// A time that is over ends the key at once.
fn expire(call: &mut Call<'_, '_>, at_ms: i64) -> Result<(), Refused> {
    let key = call.argument(1);
    let at_ms = at_ms.max(0) as u64;
    let is_there = call.keyspace.set_expiry(key, Some(at_ms));
    if is_there {
        call.note(&[b"pexpireat", key, at_ms.to_string().as_bytes()]);
    }
    call.reply.integer(is_there.into());
    Ok(())
}

pub(super) fn persist(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let key = call.argument(1);
    let has_ended = call.keyspace.expires_ms(key).is_some() && call.keyspace.set_expiry(key, None);
    if has_ended {
        call.note_as_it_is();
    }
    call.reply.integer(has_ended.into());
    Ok(())
}

pub(super) fn pttl(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let key = call.argument(1);
    let left = match (call.keyspace.get(key), call.keyspace.expires_ms(key)) {
        (None, _) => -2,
        (Some(_), None) => -1,
        (Some(_), Some(at_ms)) => at_ms.saturating_sub(call.keyspace.now_ms()) as i64,
    };
    call.reply.integer(left);
    Ok(())
}

/// Keys are looked at in the order in which they came to be, and the cursor names the next one by its place in that order: so what is
/// there all the while is found once, whatever is added and removed.
pub(super) fn scan(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let (mut pattern, mut kind, mut count) = (None, None, SCANNED);
    let mut words = call.from(2).iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or(Refused::Syntax)?;
        match word {
            word if is(word, "match") => pattern = Some(*value),
            word if is(word, "type") => kind = Some(*value),
            word if is(word, "count") => count = integer(value)?,
            _ => return Err(Refused::Syntax),
        }
    }
    if count < 1 {
        return Err(Refused::Syntax);
    }
    let text = core::str::from_utf8(call.argument(1)).ok();
    let from: u64 = text
        .and_then(|text| text.parse().ok())
        .ok_or(Refused::Cursor)?;
    let mut keys = call.keyspace.born_from(from);
    let is_wanted = |key: &[u8]| {
        let is_kind =
            |kind: &[u8]| (call.keyspace.get(key)).is_some_and(|one| is(kind, one.kind()));
        pattern.is_none_or(|pattern| is_match(pattern, key)) && kind.is_none_or(is_kind)
    };
    let some = keys.by_ref().take(count as usize);
    let found: Vec<&[u8]> = some
        .map(|(_, key)| key)
        .filter(|key| is_wanted(key))
        .collect();
    let next = keys.next().map_or(0, |(born, _)| born);
    call.reply.array(2);
    call.reply.string(next.to_string().as_bytes());
    call.reply.array(found.len());
    found.iter().for_each(|key| call.reply.string(key));
    Ok(())
}

pub(super) fn dbsize(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let keys = call.keyspace.len();
    call.reply.integer(keys as i64);
    Ok(())
}

pub(super) fn flushall(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    match call.from(1) {
        [] => {}
        [how] if is(how, "sync") || is(how, "async") => {}
        _ => return Err(Refused::Syntax),
    }
    call.keyspace.clear();
    call.note(&[b"flushall"]);
    call.reply.status("OK");
    Ok(())
}
