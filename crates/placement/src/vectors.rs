//! Reads the golden vectors of `docs/src/vectors`, which the page Wire formats shows: for tests, here and in other crates.

use std::path::Path;

/// A name, what it says field by field, and its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Vector {
    pub(crate) name: String,
    /// Names and values, in their order; a name may stand several times.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) bytes: Vec<u8>,
}

/// The vectors of a file.
pub(crate) fn read(file: &str) -> Vec<Vector> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/src/vectors")
        .join(file);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut found: Vec<Vector> = Vec::new();
    for line in text.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            let name = name.strip_suffix(']').expect("a name ends in a bracket");
            assert!(
                !found.iter().any(|vector| vector.name == name),
                "{file}: {name} stands twice"
            );
            found.push(Vector {
                name: name.to_owned(),
                fields: Vec::new(),
                bytes: Vec::new(),
            });
            continue;
        }
        let vector = found.last_mut().expect("a field belongs to a name");
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        if name == "bytes" {
            vector.bytes.extend(hex(value));
        } else {
            vector.fields.push((name.to_owned(), value.to_owned()));
        }
    }
    assert!(!found.is_empty(), "{file} has no vector");
    found
}

/// The vector of that name.
pub(crate) fn named<'a>(vectors: &'a [Vector], name: &str) -> &'a Vector {
    vectors
        .iter()
        .find(|vector| vector.name == name)
        .unwrap_or_else(|| panic!("there is no vector {name}"))
}

impl Vector {
    /// The first word of the name.
    pub(crate) fn kind(&self) -> &str {
        self.name.split(' ').next().unwrap_or_default()
    }

    /// The values of a field, as often as it stands.
    pub(crate) fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> + Clone + use<'a> {
        let values: Vec<&str> = self
            .fields
            .iter()
            .filter(|(field, _)| field == name)
            .map(|(_, value)| value.as_str())
            .collect();
        values.into_iter()
    }

    /// The value of a field that stands once.
    pub(crate) fn text(&self, name: &str) -> &str {
        let mut all = self.all(name);
        match (all.next(), all.next()) {
            (Some(value), None) => value,
            _ => panic!("{}: `{name}` must stand once", self.name),
        }
    }

    /// The number of a field that stands once, in as many bits as are wanted.
    pub(crate) fn number<N: TryFrom<u64>>(&self, name: &str) -> N {
        number(self.text(name))
    }
}

/// Bytes of hexadecimal digits in pairs.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    text.split_whitespace()
        .map(|pair| {
            assert_eq!(pair.len(), 2, "{text}");
            u8::from_str_radix(pair, 16).unwrap_or_else(|error| panic!("{text}: {error}"))
        })
        .collect()
}

/// Bytes as hexadecimal digits in pairs.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    pairs.join(" ")
}

/// A number, in as many bits as are wanted.
pub(crate) fn number<N: TryFrom<u64>>(text: &str) -> N {
    let number: u64 = text
        .parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"));
    N::try_from(number).unwrap_or_else(|_| panic!("{text} has too many bits"))
}

/// A part `name=value` of a field.
pub(crate) fn part<'a>(value: &'a str, name: &str) -> &'a str {
    value
        .split(' ')
        .filter_map(|part| part.split_once('='))
        .find(|(part, _)| *part == name)
        .unwrap_or_else(|| panic!("`{value}` has no {name}"))
        .1
}

/// Runs `first-last` with commas between them, or `none`.
pub(crate) fn runs(text: &str) -> Vec<(u64, u64)> {
    let pairs = text.split(',').filter(|run| *run != "none");
    pairs
        .map(|run| {
            let (first, last) = run.split_once('-').expect("a run is first-last");
            (number(first), number(last))
        })
        .collect()
}

/// Runs as [`runs`] reads them.
pub(crate) fn to_runs(runs: &[(u64, u64)]) -> String {
    if runs.is_empty() {
        return "none".into();
    }
    let each: Vec<String> = runs.iter().map(|(a, b)| format!("{a}-{b}")).collect();
    each.join(",")
}
