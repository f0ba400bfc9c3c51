//! Pictures of what some measures found: one SVG file for each, written by `report --plots DIR`.
//!
//! A picture shows a document's samples and nothing else, so whoever has the JSON can draw it again.

use std::fmt::Write;

use crate::contract::Document;

/// The picture of a document, if its measure has one.
pub(crate) fn picture(document: &Document) -> Option<String> {
    match document.name.as_str() {
        "paper.figure-7" => Some(throughput_of_joins(document)),
        _ => None,
    }
}

/// Pixels of a panel's inside, and around it.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 150.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 34.0;
const BELOW: f64 = 46.0;
/// Lines' colours: who walks its tables, and who does not.
const COLOURS: [(&str, &str); 2] = [("other", "#9aa5b1"), ("sponsor", "#b3261e")];

/// One panel for each size: millions of packets a second over milliseconds on the processor, the join shaded.
fn throughput_of_joins(document: &Document) -> String {
    let sizes = ["20k", "1m", "10m"];
    let shown: Vec<&str> = sizes
        .into_iter()
        .filter(|size| document.samples.contains_key(&format!("{size}-sponsor")))
        .collect();
    let (wide, panel) = (LEFT + WIDTH + 20.0, TOP + HEIGHT + BELOW);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide}\" height=\"{}\" font-family=\"sans-serif\" font-size=\"12\">\n",
        panel * shown.len() as f64
    );
    svg.push_str("<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
    for (place, size) in shown.into_iter().enumerate() {
        let variant = |name: &str| document.variants.get(&format!("{size}-{name}")).copied();
        let slice_ms = variant("slice-us").unwrap_or(0.0) / 1e3;
        let top = panel * place as f64 + TOP;
        let all = COLOURS.map(|(who, _)| document.samples.get(&format!("{size}-{who}")));
        let slices = all.iter().flatten().map(|all| all.len()).max().unwrap_or(0);
        let most = all
            .iter()
            .flatten()
            .flat_map(|all| all.iter().copied())
            .fold(f64::MIN_POSITIVE, f64::max);
        let x = |slice: f64| LEFT + WIDTH * slice / slices.max(1) as f64;
        let y = |mpps: f64| top + HEIGHT * (1.0 - mpps / (most * 1.1));
        let from = variant("sponsor-slices-before").unwrap_or(0.0);
        let until = from + variant("sponsor-slices-join").unwrap_or(0.0);
        // Writing to a string does not fail.
        let _ = writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"{}\">{size} entries: Mpps of on-CPU time, in slices of {slice_ms} ms; shaded: a third host joins</text>",
            top - 12.0
        );
        let _ = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{HEIGHT}\" fill=\"#eef2f6\"/>",
            x(from),
            x(until) - x(from)
        );
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {top:.1}V{:.1}H{:.1}\" fill=\"none\" stroke=\"black\"/>",
            top + HEIGHT,
            LEFT + WIDTH
        );
        for share in [0.0, 0.5, 1.0] {
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{:.2}</text>",
                LEFT - 6.0,
                y(most * share) + 4.0,
                most * share
            );
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{:.1} ms</text>",
                LEFT + WIDTH * share,
                top + HEIGHT + 16.0,
                slices as f64 * slice_ms * share
            );
        }
        for (number, (all, (who, colour))) in all.into_iter().zip(COLOURS).enumerate() {
            let mut points = String::new();
            for (slice, &mpps) in all.into_iter().flatten().enumerate() {
                let _ = write!(points, "{:.1},{:.1} ", x(slice as f64), y(mpps));
            }
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\"/>",
                points.trim_end()
            );
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{:.1}\" fill=\"{colour}\">{who}</text>",
                LEFT + 90.0 * number as f64,
                top + HEIGHT + 34.0
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Outcome;
    use crate::registry;

    fn document(name: &str, outcome: Outcome) -> Document {
        let row = registry::find(name).expect("a row of this name");
        Document::new(row, outcome, 1.0, false).expect("sound")
    }

    #[test]
    fn the_picture_shows_each_sample_of_each_size_that_is_there() {
        let outcome = Outcome::new(0.9, 3)
            .variant("20k-slice-us", 100.0)
            .variant("20k-sponsor-slices-before", 2.0)
            .variant("20k-sponsor-slices-join", 1.0)
            .samples("20k-sponsor", vec![2.0, 2.0, 1.0, 2.0])
            .samples("20k-other", vec![2.0; 4]);
        let svg = picture(&document("paper.figure-7", outcome)).expect("a picture");
        assert_eq!(svg.matches("<polyline").count(), 2);
        let line = svg.lines().rfind(|line| line.starts_with("<polyline"));
        let line = line.expect("the sponsor is drawn last, above");
        assert_eq!(line.matches(',').count(), 4);
        // The join begins after half of the slices and takes a quarter of them.
        assert!(svg.contains("x=\"440.0\" y=\"34.0\" width=\"190.0\""));
        assert!(svg.contains("20k entries") && !svg.contains("1m entries"));
    }

    #[test]
    fn other_measures_have_no_picture() {
        assert_eq!(picture(&document("nat.10k", Outcome::new(1.0, 9))), None);
    }
}
