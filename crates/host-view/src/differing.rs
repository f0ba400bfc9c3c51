//! The settings that two hosts must share but have with different values.

use asterism_secure_channel::Terms;

use crate::documents::DifferingSetting;

/// The differing settings, each with both values. A difference beyond the end of a cut text is listed as such.
#[must_use]
pub fn differing(ours: &Terms, theirs: &Terms) -> Vec<DifferingSetting> {
    let mut found = Vec::new();
    let names = ours.text().lines().chain(theirs.text().lines());
    let mut seen: Vec<&str> = Vec::new();
    for (name, _) in names.filter_map(|line| line.split_once(" = ")) {
        if seen.contains(&name) {
            continue;
        }
        seen.push(name);
        let (ours, theirs) = (value(ours, name), value(theirs, name));
        note(&mut found, name, ours, theirs);
    }
    if ours.agree(theirs) {
        return found;
    }
    if found.is_empty() {
        let both = |terms: &Terms| {
            let (keep_alive, silent_after) = (terms.keep_alive(), terms.silent_after());
            format!("keep_alive {keep_alive:?}, silent_after {silent_after:?}")
        };
        note(&mut found, "timers", both(ours), both(theirs));
    }
    if found.is_empty() {
        let last = |terms: &Terms| format!("{}...", value(terms, "members"));
        let (ours, theirs) = (last(ours), last(theirs));
        found.push(DifferingSetting {
            name: "members (beyond what is shown)".to_owned(),
            ours,
            theirs,
        });
    }
    found
}

fn note(found: &mut Vec<DifferingSetting>, name: &str, ours: String, theirs: String) {
    if ours != theirs {
        let name = name.to_owned();
        found.push(DifferingSetting { name, ours, theirs });
    }
}

/// The value of a setting, or `none`.
fn value(terms: &Terms, name: &str) -> String {
    let mut lines = terms
        .text()
        .lines()
        .filter_map(|line| line.split_once(" = "));
    let found = lines.find(|(other, _)| *other == name);
    found.map_or_else(|| "none".to_owned(), |(_, value)| value.to_owned())
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn terms(text: &str, keep_alive: u64) -> Terms {
        let seconds = Duration::from_secs;
        Terms::new(text, seconds(keep_alive), seconds(10))
    }

    #[test]
    fn what_differs_is_named_with_both_values() {
        let named = |ours: &Terms, theirs: &Terms| {
            let all = differing(ours, theirs).into_iter();
            all.map(|one| format!("{}: {} / {}", one.name, one.ours, one.theirs))
                .collect::<Vec<_>>()
        };
        let ours = terms("epochs = none\nmembers = a, b", 1);
        assert!(named(&ours, &ours).is_empty());
        assert_eq!(
            named(&ours, &terms("epochs = none\nmembers = a, b, c", 1)),
            ["members: a, b / a, b, c"]
        );
        assert_eq!(
            named(
                &ours,
                &terms("epochs = a file\nsite = x, y\nmembers = a, b", 1)
            ),
            ["epochs: none / a file", "site: none / x, y"]
        );
        assert_eq!(
            named(&ours, &terms("epochs = none\nmembers = a, b", 6)),
            ["timers: keep_alive 1s, silent_after 10s / keep_alive 6s, silent_after 10s"]
        );
        let long = format!("members = {}", "abc, ".repeat(400));
        let more = format!("{long}d");
        assert_eq!(named(&terms(&long, 1), &terms(&more, 1)).len(), 1);
    }
}
