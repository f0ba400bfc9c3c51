//! The reference: tables and fields as operators read about them, as data and as text.

use serde::Serialize;

use super::section::{Default, Field, Section};

/// A table of the reference.
#[derive(Clone, Debug, Serialize)]
pub struct SectionDocument {
    /// Its name.
    pub table: &'static str,
    /// What it is for.
    pub meaning: &'static str,
    /// Its fields.
    pub fields: Vec<FieldDocument>,
}

/// A field of the reference.
#[derive(Clone, Debug, Serialize)]
pub struct FieldDocument {
    /// Its name.
    pub name: &'static str,
    /// What it may hold.
    pub kind: String,
    /// Whether it must be written.
    pub required: bool,
    /// What it is when it is not written, as TOML or in words; an example when it must be written.
    pub default: &'static str,
    /// Its bounds; empty if there are none.
    pub bounds: String,
    /// What it means.
    pub meaning: &'static str,
    /// The words that it may hold.
    pub choices: Vec<ChoiceDocument>,
}

/// A word that a field may hold.
#[derive(Clone, Debug, Serialize)]
pub struct ChoiceDocument {
    /// The word.
    pub word: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

/// The reference of these tables.
pub fn reference(sections: impl Iterator<Item = &'static Section>) -> Vec<SectionDocument> {
    sections
        .map(|section| SectionDocument {
            table: section.path,
            meaning: section.meaning,
            fields: section.fields.iter().map(field_document).collect(),
        })
        .collect()
}

/// The reference of these tables as text.
pub fn reference_text(sections: impl Iterator<Item = &'static Section>) -> String {
    let mut text = String::new();
    for section in reference(sections) {
        text.push_str(&format!("[{}]\n  {}\n\n", section.table, section.meaning));
        for field in section.fields {
            let required = if field.required {
                "required, such as"
            } else {
                "default"
            };
            text.push_str(&format!(
                "  {} ({}; {required} {})\n",
                field.name, field.kind, field.default
            ));
            text.push_str(&format!("      {}\n", field.meaning));
            if !field.bounds.is_empty() {
                text.push_str(&format!("      Bounds: {}.\n", field.bounds));
            }
            for choice in field.choices {
                text.push_str(&format!("      \"{}\": {}\n", choice.word, choice.meaning));
            }
        }
        text.push('\n');
    }
    text
}

fn field_document(field: &Field) -> FieldDocument {
    let (required, default) = match field.default {
        Default::Required(example) => (true, example),
        Default::Unset(words) => (false, words),
        Default::Is(text) => (false, text),
    };
    FieldDocument {
        name: field.name,
        kind: field.kind.words(),
        required,
        default,
        bounds: field.kind.bounds(),
        meaning: field.meaning,
        choices: field
            .kind
            .choices()
            .iter()
            .map(|word| ChoiceDocument {
                word: word.word,
                meaning: word.meaning,
            })
            .collect(),
    }
}
