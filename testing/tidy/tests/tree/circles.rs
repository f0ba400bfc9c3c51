//! The shape of crates: no large circle of imports, and none too long.

use asterism_tidy::circles::{self, FILES_MAX, LINES_MAX};
use asterism_tidy::{must_be_empty, sources};

#[test]
fn circles_are_small_and_crates_short() {
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
        if shape.lines > LINES_MAX {
            faults.push(format!("{name}: {} lines", shape.lines));
        }
    }
    must_be_empty(&faults);
}
