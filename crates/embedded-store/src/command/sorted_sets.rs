//! Commands of sorted sets: keys that hold members with scores.

use super::{Call, Refused, float, held, integer, is, shown};
use crate::keyspace::Stored;
use crate::sorted::{Bound, Score, Sorted};

fn members(stored: &Stored) -> Option<&Sorted> {
    match stored {
        Stored::Sorted(members) => Some(members),
        _ => None,
    }
}

pub(super) fn zadd(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let (mut only_new, mut only_known, mut counts_changes) = (false, false, false);
    let mut from = 2;
    while let Some(word) = call.arguments.get(from) {
        match word {
            word if is(word, "nx") => only_new = true,
            word if is(word, "xx") => only_known = true,
            word if is(word, "ch") => counts_changes = true,
            _ => break,
        }
        from += 1;
    }
    let (pairs, rest) = call.from(from).as_chunks::<2>();
    if pairs.is_empty() || !rest.is_empty() {
        return Err(Refused::Syntax);
    }
    if only_new && only_known {
        return Err(Refused::Contradiction);
    }
    let scored = pairs
        .iter()
        .map(|[score, member]| Some((float(score)?, *member)));
    let scored: Vec<_> = scored.collect::<Option<_>>().ok_or(Refused::Float)?;
    let key = call.argument(1);
    held(call.keyspace, key, members)?;
    let new = || Stored::Sorted(Sorted::default());
    let (added, changed) = call.keyspace.change(key, new, |stored| {
        let Stored::Sorted(members) = stored else {
            return ((0, 0), false);
        };
        let (mut added, mut changed) = (0, 0);
        for (score, member) in scored {
            let before = members.score(member);
            if only_new && before.is_some() || only_known && before.is_none() {
                continue;
            }
            if before != Some(score) {
                members.add(member, score);
                added += i64::from(before.is_none());
                changed += 1;
            }
        }
        ((added, changed), changed > 0)
    });
    if changed > 0 {
        call.note_as_it_is();
    }
    call.reply
        .integer(if counts_changes { changed } else { added });
    Ok(())
}

pub(super) fn zrem(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let names = call.from(2);
    remove(call, |members| {
        names.iter().filter(|member| members.remove(member)).count()
    })
}

/// Takes members away, and replies how many.
fn remove(call: &mut Call<'_, '_>, take: impl FnOnce(&mut Sorted) -> usize) -> Result<(), Refused> {
    let key = call.argument(1);
    if held(call.keyspace, key, members)?.is_none() {
        call.reply.integer(0);
        return Ok(());
    }
    let new = || Stored::Sorted(Sorted::default());
    let removed = call.keyspace.change(key, new, |stored| {
        let Stored::Sorted(members) = stored else {
            return (0, false);
        };
        let removed = take(members);
        (removed, removed > 0)
    });
    if removed > 0 {
        call.note_as_it_is();
    }
    call.reply.integer(removed as i64);
    Ok(())
}

pub(super) fn zscore(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let members = held(call.keyspace, call.argument(1), members)?;
    match members.and_then(|members| members.score(call.argument(2))) {
        Some(score) => call.reply.double(&shown(score)),
        None => call.reply.null(),
    }
    Ok(())
}

pub(super) fn zcard(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let members = held(call.keyspace, call.argument(1), members)?;
    call.reply.integer(members.map_or(0, Sorted::len) as i64);
    Ok(())
}

fn bound(argument: &[u8]) -> Result<Bound, Refused> {
    let (number, is_exclusive) = match argument.strip_prefix(b"(") {
        Some(number) => (number, true),
        None => (argument, false),
    };
    let score = float(number).map(Score).ok_or(Refused::Range)?;
    Ok(Bound {
        score,
        is_exclusive,
    })
}

pub(super) fn zrangebyscore(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let (from, to) = (bound(call.argument(2))?, bound(call.argument(3))?);
    let (mut with_scores, mut skipped, mut most) = (false, 0, usize::MAX);
    let mut words = call.from(4).iter();
    while let Some(word) = words.next() {
        match word {
            word if is(word, "withscores") => with_scores = true,
            word if is(word, "limit") => {
                let mut number = || integer(words.next().ok_or(Refused::Syntax)?);
                let (offset, count) = (number()?, number()?);
                // Fewer than none are passed over: then there is nothing. Fewer than none are wanted: then all.
                most = usize::try_from(count).unwrap_or(usize::MAX);
                match usize::try_from(offset) {
                    Ok(offset) => skipped = offset,
                    Err(_) => most = 0,
                }
            }
            _ => return Err(Refused::Syntax),
        }
    }
    let found: Vec<(&[u8], f64)> = match held(call.keyspace, call.argument(1), members)? {
        Some(members) => members.between(from, to).skip(skipped).take(most).collect(),
        None => Vec::new(),
    };
    let is_paired = with_scores && call.reply.is_version_3();
    let each = if with_scores && !is_paired { 2 } else { 1 };
    call.reply.array(found.len() * each);
    for (member, score) in found {
        if is_paired {
            call.reply.array(2);
        }
        call.reply.string(member);
        if with_scores {
            call.reply.double(&shown(score));
        }
    }
    Ok(())
}

pub(super) fn zcount(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let (from, to) = (bound(call.argument(2))?, bound(call.argument(3))?);
    let members = held(call.keyspace, call.argument(1), members)?;
    let count = members.map_or(0, |members| members.count(from, to));
    call.reply.integer(count as i64);
    Ok(())
}

pub(super) fn zremrangebyscore(call: &mut Call<'_, '_>) -> Result<(), Refused> {
    let (from, to) = (bound(call.argument(2))?, bound(call.argument(3))?);
    remove(call, |members| {
        let between = members.between(from, to);
        let gone: Vec<Vec<u8>> = between.map(|(member, _)| member.to_vec()).collect();
        gone.iter().for_each(|member| _ = members.remove(member));
        gone.len()
    })
}
