//! The shape of crates: no large circle of imports, and none too long.

use std::collections::BTreeMap;

use asterism_tidy::circles::{self, FILES_MAX, LINES_MAX};
use asterism_tidy::{must_be_empty, sources};

/// Crates that are longer still: their lines in thousands, which may only become fewer.
const LONG: [(&str, usize); 2] = [("asterism", 32), ("state", 20)];

#[test]
fn circles_are_small_and_crates_short() {
    let long: BTreeMap<_, _> = LONG.into();
    let mut faults = Vec::new();
    for shape in circles::crates(&sources(&[".rs"])) {
        let name = shape.name.as_str();
        for circle in shape.circles.iter().filter(|one| one.len() > FILES_MAX) {
            faults.push(format!(
                "{name}: {} files import each other: {}",
                circle.len(),
                circle.join(" ")
            ));
        }
        let lines_max = long
            .get(name)
            .map_or(LINES_MAX, |thousands| thousands * 1_000);
        if shape.lines > lines_max {
            faults.push(format!("{name}: {} lines", shape.lines));
        }
    }
    must_be_empty(&faults);
}
