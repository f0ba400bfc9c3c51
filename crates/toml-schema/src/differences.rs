//! In which fields two documents differ, and where.

use toml::de::{DeTable, DeValue};

use super::diagnostic::Report;
use super::table;

/// A field that is written otherwise than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The names of its tables, and its own.
    pub path: Vec<String>,
    /// Its line in the new text, from 1; `None` if it is not written there any more.
    pub line: Option<usize>,
}

impl Difference {
    /// Whether it is this field, or one in the table of this path.
    #[must_use]
    pub fn is_below(&self, path: &[&str]) -> bool {
        path.len() <= self.path.len() && path.iter().zip(&self.path).all(|(a, b)| a == b)
    }
}

impl core::fmt::Display for Difference {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.path.split_last() {
            Some((field, [])) => write!(formatter, "{field}"),
            Some((field, tables)) => write!(formatter, "[{}] {field}", tables.join(".")),
            None => Ok(()),
        }
    }
}

/// The fields that differ, in the order of their names. `report` has the text of the document `wanted`, for the lines.
#[must_use]
pub fn between(now: &DeTable<'_>, wanted: &DeTable<'_>, report: &Report) -> Vec<Difference> {
    let mut found = Vec::new();
    compare(now, wanted, (&mut Vec::new(), report), &mut found);
    found
}

fn compare(
    now: &DeTable<'_>,
    wanted: &DeTable<'_>,
    (path, report): (&mut Vec<String>, &Report),
    found: &mut Vec<Difference>,
) {
    for (key, value) in wanted {
        let before = table::get(now, key.get_ref()).map(|(_, before)| before.get_ref());
        path.push(key.get_ref().to_string());
        match (before, value.get_ref()) {
            (Some(DeValue::Table(now)), DeValue::Table(wanted)) => {
                compare(now, wanted, (&mut *path, report), found);
            }
            (None, DeValue::Table(wanted)) => {
                compare(&DeTable::new(), wanted, (&mut *path, report), found);
            }
            (Some(before), value) if is_same(before, value) => {}
            _ => found.push(Difference {
                path: path.clone(),
                line: Some(report.place(key.span().start).0),
            }),
        }
        path.pop();
    }
    for (key, value) in now {
        if table::get(wanted, key.get_ref()).is_some() {
            continue;
        }
        path.push(key.get_ref().to_string());
        match value.get_ref() {
            DeValue::Table(now) => compare(now, &DeTable::new(), (&mut *path, report), found),
            _ => found.push(Difference {
                path: path.clone(),
                line: None,
            }),
        }
        path.pop();
    }
}

/// Whether two values are the same wherever they stand.
fn is_same(a: &DeValue<'_>, b: &DeValue<'_>) -> bool {
    match (a, b) {
        (DeValue::Array(a), DeValue::Array(b)) => {
            let mut pairs = a.iter().zip(b.iter());
            a.len() == b.len() && pairs.all(|(a, b)| is_same(a.get_ref(), b.get_ref()))
        }
        (DeValue::Table(a), DeValue::Table(b)) => {
            let mut fields = a.iter();
            let other = |name: &str| table::get(b, name).map(|(_, value)| value.get_ref());
            a.len() == b.len()
                && fields.all(|(key, value)| {
                    other(key.get_ref()).is_some_and(|other| is_same(value.get_ref(), other))
                })
        }
        (DeValue::Array(_) | DeValue::Table(_), _) | (_, DeValue::Array(_) | DeValue::Table(_)) => {
            false
        }
        // Plain values have no places of their own.
        (a, b) => format!("{a:?}") == format!("{b:?}"),
    }
}
