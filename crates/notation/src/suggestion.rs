//! "Did you mean": the nearest of some known words.

/// Letters of a word that is compared at most: no known one is nearly so long.
const LETTERS_MAX: usize = 128;

/// Fields that had another name before, and their name now.
const RENAMED: [(&str, &str); 2] = [("port_rest", "port_quarantine"), ("untranslated", "exempt")];

/// What a field of an earlier version is called now, if it is one of the known ones.
#[must_use]
pub fn renamed<'a>(written: &str, mut known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (_, now) = RENAMED.iter().find(|(before, _)| *before == written)?;
    known.find(|name| name == now)
}

/// The known word nearest to what was written, if it is near enough to be meant.
#[must_use]
pub fn nearest<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if written.len() > LETTERS_MAX {
        return None;
    }
    let plain = |word: &str| word.to_lowercase().replace(['_', ' '], "-");
    let written = plain(written);
    known
        .map(|word| (strsim::damerau_levenshtein(&written, &plain(word)), word))
        .filter(|(distance, word)| *distance <= word.len().max(written.len()) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// Words in quotes, in a row: `"a", "b" or "c"`.
#[must_use]
pub fn quoted<'a>(words: impl Iterator<Item = &'a str>) -> String {
    row(words.map(|word| format!("\"{word}\"")))
}

/// Names of fields, in a row: `` `a`, `b` or `c` ``.
#[must_use]
pub fn ticked<'a>(words: impl Iterator<Item = &'a str>) -> String {
    row(words.map(|word| format!("`{word}`")))
}

fn row(words: impl Iterator<Item = String>) -> String {
    let mut words: Vec<String> = words.collect();
    match words.pop() {
        None => String::new(),
        Some(last) if words.is_empty() => last,
        Some(last) => format!("{} or {last}", words.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let known = ["placement", "absent", "capacity"];
        assert_eq!(nearest("placment", known.into_iter()), Some("placement"));
        assert_eq!(nearest("Absent", known.into_iter()), Some("absent"));
        assert_eq!(nearest("capcaity", known.into_iter()), Some("capacity"));
        assert_eq!(nearest("colour", known.into_iter()), None);
        assert_eq!(nearest("", known.into_iter()), None);
        assert_eq!(quoted(["a", "b", "c"].into_iter()), "\"a\", \"b\" or \"c\"");
        assert_eq!(ticked(["a"].into_iter()), "`a`");
    }
}
