//! Tables of a file: the fields of each, and reading a table with all its mistakes.

use core::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use super::declared::{
    ChosenWord, Declared, FieldName, Held, Key, List, Shape, choices, keys, section,
};
use super::diagnostic::{Diagnostic, Report};
use super::kind::{Kind, Value};
use asterism_notation::suggestion;

/// A table of a file.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Its name in messages and the reference, such as `cluster.channel`.
    pub path: &'static str,
    /// What it is for.
    pub meaning: &'static str,
    /// Its fields.
    pub fields: &'static [Field],
}

/// A field of a table: the one definition of its name, kind, bounds, default and meaning.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// What it may hold.
    pub kind: Kind,
    /// What it is when it is not written.
    pub default: Default,
    /// What it means.
    pub meaning: &'static str,
}

/// A field but for its name: what it may hold, and what it means.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// What it may hold.
    pub kind: Kind,
    /// What it is when it is not written.
    pub default: Default,
    /// What it means.
    pub meaning: &'static str,
}

/// What a field is when it is not written.
#[derive(Clone, Copy, Debug)]
pub enum Default {
    /// It must be written; an example of it, as TOML.
    Required(&'static str),
    /// Nothing; what that means.
    Unset(&'static str),
    /// This value, as TOML.
    Is(&'static str),
}

/// The fields of one table as they were read.
#[derive(Clone, Debug)]
pub struct Values {
    section: &'static Section,
    /// Where the table is.
    pub span: Range<usize>,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    name: &'static str,
    /// `None`: wrong, or not written and without a default.
    value: Option<Value>,
    /// Where it is written; `None` if it is not.
    place: Option<Place>,
}

/// Where a field is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its name.
    pub key: Range<usize>,
    /// Its value.
    pub value: Range<usize>,
}

impl Section {
    /// Reads the table of a name at the top of a file; one that is not there has no fields. `None`: it is no table.
    pub fn read_top(
        &'static self,
        name: &str,
        document: &DeTable<'_>,
        report: &mut Report,
    ) -> Option<Values> {
        match document
            .iter()
            .find(|(key, _)| key.get_ref().as_ref() == name)
        {
            None => Some(self.read(name, &DeTable::new(), 0..0, report)),
            Some((key, value)) => match value.get_ref() {
                DeValue::Table(table) => Some(self.read(name, table, value.span(), report)),
                _ => {
                    report.add(
                        Diagnostic::error(format!("`{name}` is a table"), key.span())
                            .help(format!("write [{name}] on a line of its own")),
                    );
                    None
                }
            },
        }
    }

    /// Reads a table; `name` is what to call it.
    pub fn read(
        &'static self,
        name: &str,
        table: &DeTable<'_>,
        span: Range<usize>,
        report: &mut Report,
    ) -> Values {
        for (key, _) in table {
            if !self
                .fields
                .iter()
                .any(|field| field.name == key.get_ref().as_ref())
            {
                let unknown = self.unknown(name, key.get_ref(), key.span(), report);
                report.add(unknown);
            }
        }
        let entries = self
            .fields
            .iter()
            .map(|field| {
                let written = table
                    .iter()
                    .find(|(key, _)| key.get_ref().as_ref() == field.name);
                match written {
                    Some((key, value)) => Entry {
                        name: field.name,
                        value: field.kind.read(field.name, value, report),
                        place: Some(Place {
                            key: key.span(),
                            value: value.span(),
                        }),
                    },
                    None => Entry {
                        name: field.name,
                        value: self.missing(name, field, &span, report),
                        place: None,
                    },
                }
            })
            .collect();
        Values {
            section: self,
            span,
            entries,
        }
    }

    /// The table and the tables inside it that are declared as such, in the order of their declaration.
    #[must_use]
    pub fn with_inner(&'static self) -> Vec<&'static Section> {
        let mut all = vec![self];
        for field in self.fields {
            match field.kind {
                Kind::Table(inner) | Kind::Named { section: inner, .. } => {
                    all.extend(inner.with_inner())
                }
                Kind::List {
                    of: Kind::Table(inner),
                    ..
                } => all.extend(inner.with_inner()),
                _ => {}
            }
        }
        all
    }

    fn missing(
        &self,
        name: &str,
        field: &Field,
        span: &Range<usize>,
        report: &mut Report,
    ) -> Option<Value> {
        match field.default {
            Default::Unset(_) => None,
            Default::Is(text) => Some(default_value(field, text)),
            Default::Required(example) => {
                report.add(
                    Diagnostic::error(
                        format!("`{}` is missing in [{name}]", field.name),
                        span.clone(),
                    )
                    .label("in this table")
                    .help(format!("write {} = {example}", field.name))
                    .help(field.meaning),
                );
                None
            }
        }
    }

    fn unknown(&self, table: &str, key: &str, span: Range<usize>, report: &Report) -> Diagnostic {
        let names = || self.fields.iter().map(|field| field.name);
        let mut unknown = Diagnostic::error(format!("unknown field `{key}` in `{table}`"), span)
            .label("not known here");
        if report.schema.top_fields.contains(&key) {
            unknown = unknown.help(format!(
                "`{key}` stands at the top of the file, before all tables"
            ));
        } else if let Some(now) = suggestion::renamed(key, names()) {
            unknown = unknown.help(format!("`{key}` is now called `{now}`"));
        } else if let Some(near) = suggestion::nearest(key, names()) {
            unknown = unknown.help(format!("did you mean `{near}`?"));
        } else if let Some(other) = report.schema.section_with(key, self.path) {
            unknown = unknown.help(format!("`{key}` belongs in [{}]", other.path));
        }
        match self.fields {
            [] => unknown.help("this table has no fields"),
            [only] => unknown.help(format!("its only field is `{}`", only.name)),
            _ => unknown.help(format!(
                "its fields are {}",
                suggestion::ticked(names()).replace(" or ", " and ")
            )),
        }
    }
}

impl Field {
    /// Reads a default or an example, which is written as an operator would.
    ///
    /// # Errors
    /// A report of what is wrong with it.
    pub fn read_default(&self, text: &str) -> Result<Value, Report> {
        let document = format!("{} = {text}", self.name);
        let mut report = Report::new("default", &document);
        let table = DeTable::parse(&document).ok().map(Spanned::into_inner);
        table
            .as_ref()
            .and_then(|table| table.get(self.name))
            .and_then(|value: &Spanned<DeValue<'_>>| self.kind.read(self.name, value, &mut report))
            .ok_or(report)
    }
}

/// The value of a default.
fn default_value(field: &Field, text: &str) -> Value {
    field.read_default(text).unwrap_or_else(|report| {
        let report = report.render(false);
        panic!("the default of `{}` is not good: {report}", field.name)
    })
}

impl Values {
    /// What a field holds. `None` when it was wrong (the report says so), or not written and without a default.
    ///
    /// # Panics
    /// The key is of another table, which reading any file shows.
    #[must_use]
    pub fn get<T: Held>(&self, key: Key<T>) -> Option<T> {
        let value = self.entry(key.into()).value.as_ref()?;
        let held = T::of(value);
        Some(held.unwrap_or_else(|| panic!("`{}` holds {value:?}", key.name())))
    }

    /// Where a field is written; `None` if it is not.
    #[must_use]
    pub fn place(&self, field: impl Into<FieldName>) -> Option<&Place> {
        self.entry(field.into()).place.as_ref()
    }

    /// Where to point for a field: its value, or the table that lacks it.
    #[must_use]
    pub fn span_of(&self, field: impl Into<FieldName>) -> Range<usize> {
        self.place(field)
            .map_or(self.span.clone(), |place| place.value.clone())
    }

    /// The section that was read.
    #[must_use]
    pub fn section(&self) -> &'static Section {
        self.section
    }

    /// Whether the section has such a field at all.
    #[must_use]
    pub fn has(&self, field: impl Into<FieldName>) -> bool {
        let name = field.into().text();
        self.entries.iter().any(|entry| entry.name == name)
    }

    fn entry(&self, field: FieldName) -> &Entry {
        self.entries
            .iter()
            .find(|entry| entry.name == field.text())
            .unwrap_or_else(|| panic!("[{}] has no field `{field}`", self.section.path))
    }
}
