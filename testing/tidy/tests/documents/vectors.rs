//! The vectors that the page of wire formats shows are those that the tests of the formats read.

use asterism_tidy::{must_be_empty, read, sources};

const PAGE: &str = "docs/src/wire-formats.md";

/// A file's vectors: the blocks between empty lines that begin with a name in brackets.
fn vectors(text: &str) -> Vec<&str> {
    let blocks = text.split("\n\n").map(|block| block.trim_matches('\n'));
    blocks.filter(|block| block.starts_with('[')).collect()
}

/// The vectors in a page's fenced blocks of them.
fn shown(page: &str) -> Vec<&str> {
    let fenced = page.split("```vector\n").skip(1);
    let inside = fenced.map(|rest| rest.split("```").next().unwrap_or_default());
    inside.flat_map(vectors).collect()
}

#[test]
fn shown_vectors_are_the_files() {
    let files = sources(&[".txt"]);
    let files = files
        .iter()
        .filter(|file| file.path.starts_with("docs/src/vectors/"));
    let known: Vec<&str> = files.flat_map(|file| vectors(&file.text)).collect();
    let page = read(PAGE);
    let shown = shown(&page);
    assert!(known.len() > 60 && shown.len() > 15);
    let faults: Vec<String> = shown
        .iter()
        .filter(|vector| !known.contains(vector))
        .map(|vector| format!("{PAGE}: not in docs/src/vectors as it stands here:\n{vector}"))
        .collect();
    must_be_empty(&faults);
}

/// Every kind of frame that there is has a vector on the page, and a row in its table.
#[test]
fn every_kind_of_frame_is_shown() {
    let frames = read("docs/src/vectors/frames.txt");
    let page = read(PAGE);
    let kind = |vector: &str| {
        let line = vector.lines().find_map(|line| line.strip_prefix("kind "));
        line.map(str::to_owned)
    };
    let shown: Vec<String> = shown(&page).into_iter().filter_map(kind).collect();
    let mut faults = Vec::new();
    for kind in vectors(&frames).into_iter().filter_map(kind) {
        if !shown.contains(&kind) {
            faults.push(format!("{PAGE}: shows no vector of kind {kind}"));
        }
        if !page.contains(&format!("| {kind} | [")) && kind != "254" {
            faults.push(format!("{PAGE}: kind {kind} is not in the table"));
        }
    }
    must_be_empty(&faults);
}

#[test]
fn vectors_are_reported_from_what_is_around_them() {
    let page = "a\n```vector\n[one]\nbytes 00\n\n[two]\nbytes 01\n```\nb\n```text\n[three]\n```\n";
    assert_eq!(shown(page), ["[one]\nbytes 00", "[two]\nbytes 01"]);
    assert_eq!(
        vectors("# words\n\n[one]\nbytes 00\n\n# words\n"),
        ["[one]\nbytes 00"]
    );
}
