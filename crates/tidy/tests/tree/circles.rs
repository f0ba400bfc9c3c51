//! The shape of crates: no large circle of imports, and none too large.

use asterism_tidy::circles::circles;
use asterism_tidy::{must_be_empty, sources};

#[test]
fn circles_are_small() {
    let sources = sources(&[".rs"]);
    let mut faults = Vec::new();
    for entry in std::fs::read_dir(asterism_tidy::root().join("crates")).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        for circle in circles(&sources, &format!("crates/{name}/src/")) {
            if circle.len() > 10 {
                faults.push(format!("{name}: {} files: {}", circle.len(), circle.join(" ")));
            }
        }
    }
    must_be_empty(&faults);
}
