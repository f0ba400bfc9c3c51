//! Words of our own that code, pages and messages use no more, because the field has a term for each. The test of the tree and the
//! measure `tree.words` read this list.

use crate::Source;

/// The files in which words are looked for.
pub const ENDINGS: &[&str] = &[
    ".rs",
    ".md",
    ".toml",
    ".scenario",
    ".service",
    ".sh",
    ".json",
];

/// Words that stand nowhere: not in code, comments, pages or messages.
pub const WORST: &[&str] = &["anew", "whoever", "whom", "told", "by hand"];

/// Words that are no type's name and no part of a public name: keys, events, metrics, fields of JSON.
pub const RETIRED: &[&str] = &[
    "approach",
    "aside",
    "bell",
    "belongs",
    "carriage",
    "census",
    "clue",
    "dealing",
    "dealt",
    "desk",
    "dominated",
    "duty",
    "forgiven",
    "foresight",
    "hearsay",
    "heeded",
    "image",
    "laggard",
    "lesson",
    "life",
    "lives",
    "lots",
    "onward",
    "prober",
    "rope",
    "seat",
    "shelf",
    "shelves",
    "strangers",
    "surroundings",
    "survivor",
    "teller",
    "told",
    "trail",
    "unechoed",
    "untranslated",
    "walk",
];

/// Names of types that are as bad alone and good as a part of another name.
pub const RETIRED_ALONE: &[&str] = &[
    "Board", "Came", "Cells", "Closing", "Finding", "Heard", "Journal", "Kept", "Lane", "Lead",
    "Look", "Loose", "Manner", "Marks", "News", "Rest", "Room", "Said", "Visit", "Votes", "Way",
];

/// Every use that is left, as `path:line: what`.
#[must_use]
pub fn left(sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    for source in sources {
        if source.path.ends_with("tidy/src/words.rs") {
            continue;
        }
        for (number, line) in source.lines() {
            for word in WORST.iter().filter(|word| has_word(line, word)) {
                faults.push(format!("{}:{number}: `{word}`", source.path));
            }
            let names: Vec<&str> = match source.path.rsplit_once('.') {
                Some((_, "rs")) => type_names(line).chain(public_names(line)).collect(),
                Some((_, "json")) => described_fields(line).collect(),
                _ => continue,
            };
            for name in names {
                if is_retired(name) {
                    faults.push(format!("{}:{number}: the name `{name}`", source.path));
                }
            }
        }
    }
    faults
}

fn is_retired(name: &str) -> bool {
    RETIRED_ALONE.contains(&name) || parts(name).any(|part| RETIRED.contains(&part.as_str()))
}

/// Whether a line has a word by itself, in any case: letters beside it make it another one.
fn has_word(line: &str, word: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    let is_letter = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_lowercase);
    lower.match_indices(word).any(|(place, _)| {
        let bytes = lower.as_bytes();
        let before = place.checked_sub(1).and_then(|place| bytes.get(place));
        !is_letter(before) && !is_letter(bytes.get(place + word.len()))
    })
}

/// The words of a name in any style: `RoundPort`, `round_port`, `round-port`.
fn parts(name: &str) -> impl Iterator<Item = String> {
    let mut spaced = String::with_capacity(2 * name.len());
    let mut before = ' ';
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && before.is_ascii_lowercase() {
            spaced.push(' ');
        }
        spaced.push(if letter.is_ascii_alphanumeric() {
            letter.to_ascii_lowercase()
        } else {
            ' '
        });
        before = letter;
    }
    let words: Vec<String> = spaced.split_whitespace().map(str::to_owned).collect();
    words.into_iter()
}

/// The type that a line declares.
fn type_names(line: &str) -> impl Iterator<Item = &str> {
    let code = line.trim_start();
    let code = code
        .strip_prefix("pub ")
        .unwrap_or_else(|| match code.starts_with("pub(") {
            true => code.split_once(") ").map_or(code, |(_, rest)| rest),
            false => code,
        });
    let declared = ["struct ", "enum ", "trait ", "type "];
    let rest = declared
        .iter()
        .find_map(|keyword| code.strip_prefix(keyword));
    rest.map(|rest| {
        let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        &rest[..end.unwrap_or(rest.len())]
    })
    .into_iter()
}

/// The field of JSON that a line of a schema describes.
fn described_fields(line: &str) -> impl Iterator<Item = &str> {
    let name = line.trim_start().strip_prefix('"');
    let name = name.and_then(|rest| rest.split_once("\": "));
    name.map(|(name, _)| name).into_iter()
}

/// Public names that a line has in quotes: a metric, an event or a key.
fn public_names(line: &str) -> impl Iterator<Item = &str> {
    let starts = [
        "name: \"",
        "Event::info(\"",
        "Event::warning(\"",
        "Event::error(\"",
        "\"asterism_",
    ];
    let code = line.trim_start();
    let is_code = !code.starts_with("//");
    starts.into_iter().filter_map(move |start| {
        let place = line.find(start).filter(|_| is_code)?;
        let rest = &line[place..];
        let quoted = rest.split('"').nth(1)?;
        Some(quoted).filter(|name| !name.contains(' '))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_file(text: &str) -> Vec<String> {
        left(&[Source {
            path: "crates/a/src/lib.rs".to_owned(),
            text: text.to_owned(),
        }])
    }

    #[test]
    fn words_are_found_by_themselves_and_names_by_their_parts() {
        for fault in [
            "// It is told.",
            "fn is_told() {}",
            "// Whoever asks",
            "// a block by hand",
            "pub struct LaggardList;",
            "pub(crate) enum Room {",
            "Event::info(\"life-ended\")",
            "    name: \"untranslated\",",
            "\"asterism_lives\"",
        ] {
            assert_eq!(in_file(fault).len(), 1, "{fault}");
        }
        for sound in [
            "// It untolds.",
            "struct HealthVotes;",
            "let walk = 3;",
            "// the trail",
            "Event::info(\"started\")",
            "name: \"a sentence on life\",",
        ] {
            assert_eq!(in_file(sound), Vec::<String>::new(), "{sound}");
        }
    }
}
