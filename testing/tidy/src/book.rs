//! The book's preprocessor: the reference of the configuration is made when the book is built, and is in no file of the tree.
//!
//! `docs/book.toml` names the command, `mdbook-asterism`. mdBook gives it the book as JSON and takes the book that it writes. A chapter
//! with the line [`MARK`] gets the reference in its place; everything else stays as it is.

use std::fmt::Write;

use asterism_config::fields;
use asterism_config::functions::Functions;
use serde_json::Value;

/// The line of a chapter in whose place the reference stands.
pub const MARK: &str = "<!-- made with the book: configuration -->\n";

/// Why [`write!`] into a text cannot fail.
const WRITES: &str = "a text takes all that is written";

/// What can be wrong with a book that mdBook gives.
#[derive(Debug)]
pub enum BookError {
    /// It is not JSON.
    NotJson(serde_json::Error),
    /// It is JSON, but not a pair of a context and a book.
    NotABook,
    /// No chapter has the mark, or several have it; so many have.
    Marks(usize),
}

impl std::fmt::Display for BookError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BookError::NotJson(error) => write!(f, "the input is not JSON: {error}"),
            BookError::NotABook => f.write_str("the input is not a context and a book"),
            BookError::Marks(count) => write!(
                f,
                "{count} chapters have the line `{}`, instead of one",
                MARK.trim_end()
            ),
        }
    }
}

impl std::error::Error for BookError {}

/// The book that mdBook gave, with the reference in it, as JSON.
///
/// # Errors
/// It is not what mdBook gives, or has no place for the reference, which would be lost.
pub fn preprocessed(input: &str) -> Result<String, BookError> {
    let input: Value = serde_json::from_str(input).map_err(BookError::NotJson)?;
    let Value::Array(pair) = input else {
        return Err(BookError::NotABook);
    };
    let Ok([_context, mut book]) = <[Value; 2]>::try_from(pair) else {
        return Err(BookError::NotABook);
    };
    match complete_chapters(&mut book) {
        1 => Ok(book.to_string()),
        count => Err(BookError::Marks(count)),
    }
}

/// A page as the book has it.
#[must_use]
pub fn complete(page: &str) -> String {
    page.replace(MARK, &reference())
}

/// Completes every chapter, however deep, and counts those that had the mark. mdBook 0.4 calls the list of chapters `sections`, 0.5
/// `items`: a chapter is known by its `content`.
fn complete_chapters(value: &mut Value) -> usize {
    match value {
        Value::Array(values) => values.iter_mut().map(complete_chapters).sum(),
        Value::Object(fields) => {
            let below = fields.values_mut().map(complete_chapters).sum();
            match fields.get_mut("content") {
                Some(Value::String(page)) if page.contains(MARK) => {
                    *page = complete(page);
                    below + 1
                }
                _ => below,
            }
        }
        _ => 0,
    }
}

/// The reference of all tables and fields, as Markdown.
#[must_use]
pub fn reference() -> String {
    let mut out = String::new();
    for section in fields::reference(Functions::default()) {
        writeln!(out, "### `[{}]`\n\n{}\n", section.table, section.meaning).expect(WRITES);
        writeln!(
            out,
            "| field | holds | default | meaning |\n|---|---|---|---|"
        )
        .expect(WRITES);
        for field in section.fields {
            let bounds = if field.bounds.is_empty() {
                String::new()
            } else {
                format!("; {}", field.bounds)
            };
            let default = match (field.required, field.default) {
                (true, example) => format!("required, such as `{example}`"),
                (false, default) if is_toml_value(default) => format!("`{default}`"),
                (false, words) => words.to_owned(),
            };
            let choices: String = field
                .choices
                .iter()
                .map(|choice| format!("<br>`\"{}\"`: {}", choice.word, choice.meaning))
                .collect();
            let row = format!(
                "| `{}` | {}{bounds} | {default} | {}{choices} |",
                field.name, field.kind, field.meaning
            );
            writeln!(out, "{row}").expect(WRITES);
        }
        out.push('\n');
    }
    out
}

/// Whether a default is a value, not words about it.
fn is_toml_value(default: &str) -> bool {
    toml::from_str::<toml::Table>(&format!("default = {default}")).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A book of three chapters, one of them below another, in the form in which mdBook 0.4 hands it over.
    const SMALL: &str = include_str!("book/small.json");

    fn content(book: &Value, path: &str) -> String {
        let found = book.pointer(path).and_then(Value::as_str);
        found.unwrap_or_else(|| panic!("{path}")).to_owned()
    }

    #[test]
    fn the_chapter_with_the_mark_gets_the_reference_and_others_stay() {
        let book: Value = serde_json::from_str(&preprocessed(SMALL).unwrap()).unwrap();
        let given: Value = serde_json::from_str(SMALL).unwrap();
        let page = content(&book, "/sections/2/Chapter/sub_items/0/Chapter/content");
        assert!(page.starts_with("# Configuration\n"));
        assert!(page.contains("### `[function.nat.idle]`\n") && !page.contains(MARK));
        assert!(page.ends_with("\nBehind it.\n"));
        for path in [
            "/sections/0/Chapter",
            "/sections/1",
            "/sections/2/Chapter/content",
            "/sections/2/Chapter/sub_items/0/Chapter/path",
        ] {
            let before = given.pointer(&format!("/1{path}"));
            assert!(before.is_some() && before == book.pointer(path), "{path}");
        }
        // As mdBook 0.5 calls the list.
        let newer = SMALL.replace("\"sections\"", "\"items\"");
        let book: Value = serde_json::from_str(&preprocessed(&newer).unwrap()).unwrap();
        content(&book, "/items/2/Chapter/sub_items/0/Chapter/content");
    }

    #[test]
    fn what_is_no_book_or_has_no_place_is_refused() {
        let unmarked = SMALL.replace("made with the book", "something else");
        for (input, said) in [
            ("", "not JSON"),
            ("{}", "not a context and a book"),
            ("[1, 2, 3]", "not a context and a book"),
            (&unmarked, "0 chapters"),
        ] {
            let error = preprocessed(input).unwrap_err().to_string();
            assert!(error.contains(said), "{input}: {error}");
        }
    }
}
