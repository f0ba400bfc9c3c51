//! `tree.words` and `tree.circles`: what the tests of the tree check, counted in the tree that this program was built from.

use asterism_tidy::{Source, circles, sources, words};

use super::{Context, Measure};
use crate::contract::{Failure, Outcome};

pub(super) const MEASURES: &[Measure] = &[
    Measure {
        name: "tree.words",
        make: words_left,
    },
    Measure {
        name: "tree.circles",
        make: large_circles,
    },
];

fn words_left(context: &Context) -> Result<Outcome, Failure> {
    let sources = sources(words::ENDINGS);
    if sources.is_empty() {
        return Err(Failure::Unsound("no file of the tree was found".into()));
    }
    let left = words::left(&sources);
    left.iter().for_each(|word| context.say(word));
    Ok(Outcome::new(left.len() as f64, 1).variant("files", sources.len() as f64))
}

fn large_circles(context: &Context) -> Result<Outcome, Failure> {
    let sources: Vec<Source> = sources(&[".rs"]);
    let crates = circles::crates(&sources);
    let mut large = 0;
    let mut too_long = 0;
    let mut largest = 0;
    for of_crate in &crates {
        for circle in &of_crate.circles {
            largest = largest.max(circle.len());
            if circle.len() > circles::FILES_MAX {
                large += 1;
                context.say(&format!(
                    "{}: {} files: {}",
                    of_crate.name,
                    circle.len(),
                    circle.join(" ")
                ));
            }
        }
        if of_crate.lines > circles::LINES_MAX {
            too_long += 1;
            context.say(&format!("{}: {} lines", of_crate.name, of_crate.lines));
        }
    }
    if crates.is_empty() {
        return Err(Failure::Unsound("no crate of the tree was found".into()));
    }
    Ok(Outcome::new(f64::from(large), 1)
        .variant("largest", largest as f64)
        .variant("crates-too-long", f64::from(too_long)))
}
