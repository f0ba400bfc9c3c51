//! Pictures of what some measures found: one SVG file for each, written by `report --plots DIR`.
//!
//! A picture shows a document's samples and nothing else, so anyone who has the JSON can draw it again.

use std::fmt::Write;

use crate::contract::Document;

/// The picture of a document, if its measure has one.
pub(crate) fn picture(document: &Document) -> Option<String> {
    match document.name.as_str() {
        "paper.figure-5" => Some(curves(document, &FIGURE_5)),
        "paper.figure-6" => Some(curves(document, &FIGURE_6)),
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

/// A panel of curves over the same samples.
struct Panel {
    title: &'static str,
    /// The samples along the bottom, and their unit.
    across: (&'static str, &'static str),
    /// The samples of each curve, what it is called, and its colour.
    curves: [(&'static str, &'static str, &'static str); 2],
}

const SHARED: &str = "#b3261e";
const SHARDED: &str = "#9aa5b1";

const FIGURE_5: [Panel; 1] = [Panel {
    title: "Mpps of two NATs, of on-CPU time, over the delay of the state channel",
    across: ("delay-ms", "ms"),
    curves: [
        ("sharded-mpps", "without shared state", SHARDED),
        ("shared-mpps", "sharing", SHARED),
    ],
}];
const FIGURE_6: [Panel; 2] = [
    Panel {
        title: "Average latency of the first of two NATs, µs, over its load",
        across: ("mpps", "Mpps"),
        curves: [
            ("sharded-average-us", "without shared state", SHARDED),
            ("shared-average-us", "sharing", SHARED),
        ],
    },
    Panel {
        title: "99 % latency of the first of two NATs, µs, over its load",
        across: ("mpps", "Mpps"),
        curves: [
            ("sharded-99-us", "without shared state", SHARDED),
            ("shared-99-us", "sharing", SHARED),
        ],
    },
];

/// The panels below each other, from zero to a tenth above the largest sample.
fn curves(document: &Document, panels: &[Panel]) -> String {
    let none = Vec::new();
    let samples = |name: &str| document.samples.get(name).unwrap_or(&none);
    let most = |names: &[&str]| {
        let all = names.iter().flat_map(|name| samples(name).iter().copied());
        all.fold(f64::MIN_POSITIVE, f64::max)
    };
    let (wide, panel_high) = (LEFT + WIDTH + 20.0, TOP + HEIGHT + BELOW);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide}\" height=\"{}\" font-family=\"sans-serif\" font-size=\"12\">\n",
        panel_high * panels.len() as f64
    );
    svg.push_str("<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
    for (place, panel) in panels.iter().enumerate() {
        let top = panel_high * place as f64 + TOP;
        let (across, unit) = panel.across;
        let right = most(&[across]);
        let high = most(&panel.curves.map(|(name, ..)| name));
        let x = |figure: f64| LEFT + WIDTH * figure / right;
        let y = |figure: f64| top + HEIGHT * (1.0 - figure / (high * 1.1));
        // Writing to a string does not fail.
        let _ = writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"{}\">{}</text>\n<path d=\"M{LEFT} {top:.1}V{:.1}H{:.1}\" fill=\"none\" stroke=\"black\"/>",
            top - 12.0,
            panel.title,
            top + HEIGHT,
            LEFT + WIDTH
        );
        for share in [0.0, 0.5, 1.0] {
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{:.2}</text>\n<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{:.1} {unit}</text>",
                LEFT - 6.0,
                y(high * share) + 4.0,
                high * share,
                x(right * share),
                top + HEIGHT + 16.0,
                right * share
            );
        }
        for (number, (name, called, colour)) in panel.curves.into_iter().enumerate() {
            let mut points = String::new();
            for (&along, &figure) in samples(across).iter().zip(samples(name)) {
                let _ = write!(points, "{:.1},{:.1} ", x(along), y(figure));
            }
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\"/>\n<text x=\"{}\" y=\"{:.1}\" fill=\"{colour}\">{called}</text>",
                points.trim_end(),
                LEFT + 160.0 * number as f64,
                top + HEIGHT + 34.0
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

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
    fn curves_show_each_sample_over_what_lies_along_the_bottom() {
        let outcome = Outcome::new(0.97, 9)
            .samples("delay-ms", vec![0.0, 50.0, 100.0])
            .samples("sharded-mpps", vec![80.0; 3])
            .samples("shared-mpps", vec![80.0, 40.0, 0.0]);
        let svg = picture(&document("paper.figure-5", outcome)).expect("a picture");
        // 150 pixels are a tenth more than 80 Mpps, so that 40 lie 68.2 above the bottom at 184.
        assert!(
            svg.contains("points=\"60.0,47.6 440.0,115.8 820.0,184.0\""),
            "{svg}"
        );
        assert!(svg.contains("points=\"60.0,47.6 440.0,47.6 820.0,47.6\""));
        assert!(svg.contains("100.0 ms"));
        let empty = document("paper.figure-6", Outcome::new(0.1, 9));
        let svg = picture(&empty).expect("a picture of nothing");
        assert_eq!(svg.matches("points=\"\"").count(), 4);
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn other_measures_have_no_picture() {
        assert_eq!(picture(&document("nat.10k", Outcome::new(1.0, 9))), None);
    }
}
