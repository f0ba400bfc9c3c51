//! Every relative link leads to a file, and every anchor to a heading.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use asterism_tidy::{Source, book, must_be_empty, root, sources};

/// A page without its code: fenced blocks and code spans are blanked.
fn prose(text: &str) -> Vec<String> {
    let mut fenced = false;
    text.lines()
        .map(|line| {
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
                return String::new();
            }
            if fenced {
                String::new()
            } else {
                line.split('`').step_by(2).collect::<Vec<_>>().join("`")
            }
        })
        .collect()
}

/// The anchors of a page, as mdBook and GitHub make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut fenced = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        let title = line.trim_start_matches('#');
        if !fenced && title.len() < line.len() && title.starts_with(' ') {
            let kept = title
                .trim()
                .chars()
                .filter(|sign| sign.is_alphanumeric() || " -_".contains(*sign));
            found.insert(kept.collect::<String>().to_lowercase().replace(' ', "-"));
        }
    }
    found
}

/// The targets of a line's links: `[words](target)`.
fn targets(line: &str) -> Vec<String> {
    let ends = line.match_indices("](").map(|(place, _)| place + 2);
    ends.filter_map(|from| {
        line[from..]
            .split_once(')')
            .map(|(target, _)| target.to_owned())
    })
    .collect()
}

fn resolved(from: &str, target: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for part in Path::new(from)
        .parent()
        .unwrap_or(Path::new(""))
        .join(target)
        .components()
    {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

fn faults(page: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    for (place, line) in prose(&page.text).iter().enumerate() {
        for target in targets(line) {
            if target.starts_with("https://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if file.is_empty() {
                PathBuf::from(&page.path)
            } else {
                resolved(&page.path, file)
            };
            let whole = root().join(&path);
            if !whole.exists() {
                faults.push(format!(
                    "{}:{}: `{target}` leads nowhere",
                    page.path,
                    place + 1
                ));
            } else if !anchor.is_empty() {
                let text = std::fs::read_to_string(&whole).unwrap_or_default();
                let text = book::complete(&text);
                if !anchors(&text).contains(anchor) {
                    faults.push(format!(
                        "{}:{}: `{target}`: no such heading",
                        page.path,
                        place + 1
                    ));
                }
            }
        }
    }
    faults
}

#[test]
fn links_lead_somewhere() {
    let pages = sources(&[".md"]);
    assert!(pages.len() > 10);
    let completed = pages.into_iter().map(|page| Source {
        text: book::complete(&page.text),
        ..page
    });
    let found: Vec<_> = completed.flat_map(|page| faults(&page)).collect();
    must_be_empty(&found);
}

/// The chapter that the book's preprocessor completes has a place for the reference, to whose headings other pages link.
#[test]
fn the_reference_has_its_place_in_the_book() {
    let page = asterism_tidy::read("docs/src/configuration.md");
    assert_eq!(page.matches(book::MARK).count(), 1);
    assert!(!anchors(&page).contains("functionnat"));
    assert!(anchors(&book::complete(&page)).contains("functionnat"));
    let settings = asterism_tidy::read("docs/book.toml");
    assert!(settings.contains("--bin mdbook-asterism"));
}

#[test]
fn the_check_of_links_can_fail() {
    let page = |text: &str| Source {
        path: "docs/src/introduction.md".into(),
        text: text.into(),
    };
    for bad in [
        "[a](nowhere.md)",
        "[a](introduction.md#nothing-of-the-kind)",
        "[a](configuration.md#functionnot)",
        "[a](../../nowhere)",
        "[a](http://example.org)",
    ] {
        assert_eq!(faults(&page(bad)).len(), 1, "{bad}");
    }
    for good in [
        "[a](tutorial.md)",
        "`[a](nowhere.md)`",
        "```\n[a](nowhere.md)\n```",
        "[a](../../README.md)",
        "[a](configuration.md#functionnat)",
    ] {
        assert_eq!(faults(&page(good)).len(), 0, "{good}");
    }
}
