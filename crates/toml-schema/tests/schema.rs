//! A schema of a small file: what is read by it, what is reported of mistakes, and how it is described.

use std::sync::Arc;
use std::time::Duration;

use asterism_toml_schema::Schema;
use asterism_toml_schema::diagnostic::{HELD_MAX, Report};
use asterism_toml_schema::differences::between;
use asterism_toml_schema::kind::{Kind, NamedValues};
use asterism_toml_schema::reference::{reference, reference_text};
use asterism_toml_schema::section::{Default, Setting, Values, choices, section};
use asterism_toml_schema::table;
use toml::de::DeTable;

choices! {
    /// What a lamp shines in.
    pub enum Colour {
        Red = "red", "Stop.";
        Green = "green", "Go.";
    }
}

section! {
    static LAMP: LampKeys = {
        path: "lamp",
        meaning: "A lamp.",
        fields: {
            colour: Colour = Setting {
                kind: Kind::Choice { allowed: Colour::WORDS, refused: &[] },
                default: Default::Is("\"red\""),
                meaning: "What it shines in.",
            },
            period: Duration = Setting {
                kind: Kind::Duration {
                    least: Duration::from_millis(1),
                    most: Duration::from_secs(1),
                },
                default: Default::Required("\"20ms\""),
                meaning: "How often it shines.",
            },
            bulb: Vec<NamedValues> = Setting {
                kind: Kind::Named { section: BULB.section(), most: 2 },
                default: Default::Is("{}"),
                meaning: "Its bulbs.",
            },
        },
    };
}

section! {
    static BULB: BulbKeys = {
        path: "lamp.bulb.NAME",
        meaning: "A bulb.",
        fields: {
            watts: u64 = Setting {
                kind: Kind::Count { least: 1, most: 100 },
                default: Default::Unset("the lamp is dark"),
                meaning: "What it takes.",
            },
        },
    };
}

/// The lamp of a file, and each mistake with its line.
fn read(text: &str) -> (Option<Values>, Vec<String>) {
    let mut report = Report::new("lamp.toml", text);
    report.schema = Arc::new(Schema {
        sections: LAMP.section().with_inner(),
        top_fields: &["title"],
    });
    let (document, mistakes) = DeTable::parse_recoverable(text);
    let values = LAMP
        .section()
        .read_top("lamp", document.get_ref(), &mut report);
    report.add_syntax(&mistakes);
    report.shorten(10);
    let shown = report.documents().into_iter();
    let lines = shown.map(|one| format!("{}: {}; {}", one.line, one.message, one.help.join("; ")));
    (values, lines.collect())
}

#[test]
fn fields_are_read_by_their_keys() {
    let (values, mistakes) = read("[lamp]\nperiod = \"5ms\"\n[lamp.bulb.left]\nwatts = 7\n");
    assert_eq!(mistakes, [""; 0]);
    let values = values.unwrap();
    assert_eq!(values.get(LAMP.colour), Some(Colour::Red));
    assert_eq!(values.get(LAMP.period), Some(Duration::from_millis(5)));
    assert_eq!(values.place(LAMP.colour), None);
    assert_eq!(values.span_of(LAMP.period), 16..21);
    let bulbs = values.get(LAMP.bulb).unwrap();
    assert_eq!(bulbs[0].name, "left");
    assert_eq!(bulbs[0].values.get(BULB.watts), Some(7));
}

#[test]
fn every_mistake_is_reported_at_its_line() {
    let (_, mistakes) = read(
        "[lamp]\ncolour = \"rad\"\nperid = \"5ms\"\nwatts = 3\ntitle = \"x\"\n[lamp.bulb.left]\nwatts = 101\n",
    );
    assert_eq!(
        mistakes,
        [
            "1: `period` is missing in [lamp]; write period = \"20ms\"; How often it shines.",
            "2: bad value for `colour`; did you mean \"red\"? (allowed are \"red\" and \"green\")",
            "3: unknown field `perid` in `lamp`; did you mean `period`?; its fields are `colour`, `period` and `bulb`",
            "4: unknown field `watts` in `lamp`; `watts` belongs in [lamp.bulb.NAME]; its fields are `colour`, `period` and `bulb`",
            "5: unknown field `title` in `lamp`; `title` stands at the top of the file, before all tables; its fields are `colour`, `period` and `bulb`",
            "7: bad value for `watts`; the bounds are 1 to 100",
        ]
    );
}

/// A line that is no TOML is reported once, and fields that may have stood there are not reported as missing.
#[test]
fn errors_of_the_parser_replace_what_follows_from_them() {
    let (_, mistakes) = read("[lamp]\nperiod = \"5ms\ncolour = \"blue\"\n");
    assert!(mistakes[0].starts_with("2: this is not TOML"));
    assert!(mistakes.iter().all(|one| !one.contains("missing")));
    assert!(mistakes.iter().any(|one| one.starts_with("3: ")));
}

#[test]
fn reports_are_bounded() {
    let text: String = (0..2 * HELD_MAX).map(|at| format!("x{at} = 1\n")).collect();
    let (_, mistakes) = read(&format!("[lamp]\nperiod = \"5ms\"\n{text}"));
    assert_eq!(mistakes.len(), 11);
    assert!(mistakes[10].contains("1990 further mistakes"));
}

#[test]
fn a_table_is_laid_over_another_field_by_field() {
    let (mut below, over) = (
        DeTable::parse("a = { x = 1, y = 2 }").unwrap().into_inner(),
        DeTable::parse("a.y = 3\nb = 4").unwrap().into_inner(),
    );
    let before = below.clone();
    for (key, value) in &over {
        table::lay_over(&mut below, key, value);
    }
    assert!(table::place(&below, &["a", "x"]).is_some());
    assert!(table::place(&below, &["a", "z"]).is_none());
    let report = Report::new("", "a.y = 3\nb = 4");
    let differences: Vec<_> = between(&before, &below, &report)
        .iter()
        .map(|one| format!("{:?} {one}", one.line))
        .collect();
    assert_eq!(differences, ["Some(1) [a] y", "Some(2) b"]);
}

#[test]
fn the_reference_has_every_table_and_field() {
    let sections = || LAMP.section().with_inner().into_iter();
    let documents = reference(sections());
    let fields: Vec<_> = documents
        .iter()
        .flat_map(|table| table.fields.iter().map(|field| (table.table, field.name)))
        .collect();
    assert_eq!(
        fields,
        [
            ("lamp", "colour"),
            ("lamp", "period"),
            ("lamp", "bulb"),
            ("lamp.bulb.NAME", "watts"),
        ]
    );
    let text = reference_text(sections());
    assert!(text.contains("  period (duration; required, such as \"20ms\")\n"));
    assert!(text.contains("      Bounds: 1 to 100.\n"));
    assert!(text.contains("      \"green\": Go.\n"));
}
