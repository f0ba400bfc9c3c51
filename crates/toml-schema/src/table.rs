//! Parsed tables, whatever is in them: look-ups by name, and one table laid over another. Places in the file stay unchanged, so that
//! messages point at the written text.

use core::ops::Range;
use std::borrow::Cow;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The field of a name in a table, with its key. Compares with each name of the table.
#[must_use]
pub fn get<'t, 'i>(
    table: &'t DeTable<'i>,
    name: &str,
) -> Option<(&'t Spanned<Cow<'i, str>>, &'t Spanned<DeValue<'i>>)> {
    table.iter().find(|(key, _)| key.get_ref().as_ref() == name)
}

/// Where the value under these keys is written, in bytes of the file; `None` if it is not.
#[must_use]
pub fn place(document: &DeTable<'_>, keys: &[&str]) -> Option<Range<usize>> {
    let (key, rest) = keys.split_first()?;
    let (_, value) = get(document, key)?;
    match value.get_ref() {
        DeValue::Table(table) if !rest.is_empty() => place(table, rest),
        _ => rest.is_empty().then(|| value.span()),
    }
}

/// Writes a field into a table, over the one of the same name. Of a table that is there already only the fields that `value` has are
/// replaced.
pub fn lay_over<'i>(
    table: &mut DeTable<'i>,
    key: &Spanned<Cow<'i, str>>,
    value: &Spanned<DeValue<'i>>,
) {
    let name = key.get_ref().as_ref();
    if let DeValue::Table(over) = value.get_ref()
        && let Some(below) = table.get_mut(name)
        && let DeValue::Table(inner) = below.get_mut()
    {
        for (key, value) in over {
            lay_over(inner, key, value);
        }
        return;
    }
    table.remove(name);
    table.insert(key.clone(), value.clone());
}
