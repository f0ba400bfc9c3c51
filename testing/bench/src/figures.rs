//! The page of figures: one table, whose rows `report --into` writes.

use std::collections::BTreeMap;

use crate::contract::{Document, Failure};

/// The head of the table; rows follow it to the end of the page.
const HEAD: &str =
    "| measure | value | bar | met | spread | machine | commit |\n|---|---|---|---|---|---|---|\n";

/// A row of the table.
pub(crate) fn row(document: &Document) -> String {
    let spread = match document.quartiles {
        Some([first, third]) => format!(
            "{} to {}, {} runs",
            figure(first),
            figure(third),
            document.runs
        ),
        None => "one run".to_owned(),
    };
    let machine = &document.machine;
    format!(
        "| `{}` | {} {} | {} | {} | {spread} | {}, {} cores, {} | {} |\n",
        document.name,
        figure(document.value),
        document.unit,
        document.bar,
        in_words(document.met),
        machine.processor,
        machine.cores,
        machine.kernel,
        document.commit
    )
}

/// The page with new rows in place of those of the same measures; all rows in the order of `names`. Rows of measures that are
/// not among them are left out.
///
/// # Errors
/// The page has no table of figures.
pub(crate) fn merge<'n>(
    page: &str,
    new: &BTreeMap<String, String>,
    names: impl Iterator<Item = &'n str>,
) -> Result<String, Failure> {
    let (before, rows) = page.split_once(HEAD).ok_or_else(|| {
        Failure::Usage(format!(
            "the page has no table of figures: it needs the lines\n{HEAD}"
        ))
    })?;
    let name = |row: &str| Some(row.split('`').nth(1)?.to_owned());
    let lines = rows.lines().map(|line| format!("{line}\n"));
    let mut all: BTreeMap<String, String> =
        lines.filter_map(|row| Some((name(&row)?, row))).collect();
    all.extend(new.iter().map(|(name, row)| (name.clone(), row.clone())));
    let rows: String = names.filter_map(|name| all.remove(name)).collect();
    Ok(format!("{before}{HEAD}{rows}"))
}

/// Whether a bar is met.
pub(crate) fn in_words(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "met",
        Some(false) => "not met",
        None => "not judged",
    }
}

/// A figure with as many digits as it deserves.
pub(crate) fn figure(number: f64) -> String {
    match number.abs() {
        size if size >= 1_000.0 || number.fract() == 0.0 => format!("{number:.0}"),
        size if size >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_replaced_in_the_order_of_the_measures() {
        let page =
            format!("# Figures\n\nText.\n\n{HEAD}| `b` | 1 |\n| `a` | 2 |\n| `gone` | 3 |\n");
        let new = BTreeMap::from([
            ("b".to_owned(), "| `b` | 7 |\n".to_owned()),
            ("c".to_owned(), "| `c` | 9 |\n".to_owned()),
        ]);
        let merged = merge(&page, &new, ["a", "b", "c"].into_iter()).unwrap();
        let rows = "| `a` | 2 |\n| `b` | 7 |\n| `c` | 9 |\n";
        assert_eq!(merged, format!("# Figures\n\nText.\n\n{HEAD}{rows}"));
        assert!(merge("# Figures\n", &new, ["a"].into_iter()).is_err());
    }
}
