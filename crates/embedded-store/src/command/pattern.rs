//! Patterns of keys as Redis reads them: `*`, `?`, `[abc]`, `[a-z]`, `[^a]`, and a backslash before a character that stands for itself.

/// Whether a key is as a pattern says. Takes as many steps as the two are long, multiplied, at most.
pub(super) fn is_match(pattern: &[u8], key: &[u8]) -> bool {
    // Where the last star was, and the part of the key that it stands for so far.
    let (mut at, mut place, mut star) = (0, 0, None);
    while let Some(&byte) = key.get(place) {
        let rest = pattern.get(at..).unwrap_or_default();
        if rest.first() == Some(&b'*') {
            star = Some((at, place));
            at += 1;
            continue;
        }
        match takes(rest, byte) {
            Some(length) => (at, place) = (at + length, place + 1),
            None => {
                let Some((star_at, from)) = star else {
                    return false;
                };
                star = Some((star_at, from + 1));
                (at, place) = (star_at + 1, from + 1);
            }
        }
    }
    let mut rest = pattern.get(at..).unwrap_or_default().iter();
    rest.all(|&byte| byte == b'*')
}

/// The length of the pattern's first part, if that is so for a byte.
fn takes(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'[', class @ ..] => {
            let (length, is_in) = class_has(class, byte);
            is_in.then_some(1 + length)
        }
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [plain, ..] => (*plain == byte).then_some(1),
        [] => None,
    }
}

/// How long a class is behind its first bracket, and whether a byte is in it. One without an end has all that follows.
fn class_has(class: &[u8], byte: u8) -> (usize, bool) {
    let is_inverted = class.first() == Some(&b'^');
    let (mut at, mut is_in) = (usize::from(is_inverted), false);
    let length = loop {
        match class.get(at..).unwrap_or_default() {
            [] => break at,
            [b'\\', escaped, ..] => {
                is_in |= *escaped == byte;
                at += 2;
            }
            [b']', ..] => break at + 1,
            // Redis compares bytes as numbers with a sign.
            [one, b'-', other, ..] => {
                let ends = [*one as i8, *other as i8];
                let (first, last) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
                is_in |= (first..=last).contains(&(byte as i8));
                at += 3;
            }
            [one, ..] => {
                is_in |= *one == byte;
                at += 1;
            }
        }
    };
    (length, is_in != is_inverted)
}
