//! The code that a page shows is code that is compiled and run.

use asterism_tidy::{must_be_empty, read};

/// Fenced blocks of a language, with the line on which each begins.
fn blocks(text: &str, language: &str) -> Vec<(usize, Vec<String>)> {
    let fence = format!("```{language}");
    let mut found = Vec::new();
    let mut open: Option<(usize, Vec<String>)> = None;
    let mut other = false;
    for (place, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            match open.take() {
                Some(block) => found.push(block),
                None if !other && line == fence => open = Some((place + 1, Vec::new())),
                None => other = !other,
            }
        } else if let Some((_, lines)) = &mut open {
            lines.push(line.to_owned());
        }
    }
    found
}

/// Lines without indentation and without empty ones: a page may show a piece of an `impl` at the margin.
fn flat<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .fold(String::from("\n"), |all, line| all + line + "\n")
}

fn faults(page: &str, source: &str) -> Vec<String> {
    let code = flat(read(source).lines());
    let shown = blocks(&read(page), "rust");
    assert!(!shown.is_empty(), "{page} shows no code");
    shown
        .iter()
        .filter(|(_, lines)| !code.contains(&flat(lines.iter().map(String::as_str))))
        .map(|(place, _)| format!("{page}:{place}: this code is not in {source} as it stands here"))
        .collect()
}

#[test]
fn the_code_of_the_readme_is_compiled_and_run() {
    must_be_empty(&faults(
        "README.md",
        "testing/tidy/tests/readme/function.rs",
    ));
}

#[test]
fn the_code_of_the_tutorial_is_compiled_and_run() {
    must_be_empty(&faults(
        "docs/src/tutorial.md",
        "testing/tidy/tests/tutorial.rs",
    ));
}

#[test]
fn the_nat_of_the_tutorial_is_compiled_run_and_short() {
    let page = "docs/src/tutorial-nat.md";
    must_be_empty(&faults(page, "testing/tidy/tests/tutorial_nat.rs"));
    let text = read(page);
    let (nat, _) = text.split_once("## Both directions").expect("a heading");
    let shown = blocks(nat, "rust");
    let lines = shown.iter().flat_map(|(_, lines)| lines);
    let code = lines.map(|line| line.trim());
    let code = code.filter(|line| !line.is_empty() && !line.starts_with("//"));
    assert!(
        (50..=60).contains(&code.count()),
        "the page promises 60 lines"
    );
}

/// Each page of a state object shows the file of its name.
#[test]
fn the_code_of_the_pages_of_objects_is_compiled_and_run() {
    let pages = asterism_tidy::sources(&[".md"]);
    let names = pages.iter().filter_map(|page| {
        let name = page.path.strip_prefix("docs/src/objects/")?;
        name.strip_suffix(".md")
    });
    let names: Vec<_> = names.collect();
    assert_eq!(names.len(), 17);
    let found = names.iter().flat_map(|name| {
        let file = name.replace('-', "_");
        faults(
            &format!("docs/src/objects/{name}.md"),
            &format!("testing/tidy/tests/objects/{file}.rs"),
        )
    });
    must_be_empty(&found.collect::<Vec<_>>());
}

/// "A function of fifteen lines" is a promise of the first screen.
#[test]
fn the_function_of_the_readme_is_short() {
    let blocks = blocks(&read("README.md"), "rust");
    let lines = blocks[0]
        .1
        .iter()
        .filter(|line| !line.trim().is_empty())
        .count();
    assert!(lines <= 16, "{lines} lines");
    assert!(blocks[0].1.iter().all(|line| line.chars().count() <= 120));
}

/// The configurations that pages show are accepted by the program that they are for.
#[test]
fn configurations_are_accepted() {
    let mut shown = 0;
    let mut faults = Vec::new();
    for page in asterism_tidy::sources(&[".md"]) {
        for (place, lines) in blocks(&page.text, "toml") {
            shown += 1;
            let (_, report) = asterism_config::Config::read(&page.path, &lines.join("\n"));
            if report.errors() > 0 {
                faults.push(format!("{}:{place}:\n{}", page.path, report.render(false)));
            }
        }
    }
    assert!(shown > 0);
    must_be_empty(&faults);
}

#[test]
fn blocks_are_found_and_differences_seen() {
    let page = "text\n```text\nno\n```\n```rust\nfn a() {\n}\n```\n```rust\nb\n```\n";
    let found = blocks(page, "rust");
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].0, found[0].1.len(), found[1].0), (5, 2, 9));
    let code = flat("    fn a() {\n\n    }\n".lines());
    assert!(code.contains(&flat(found[0].1.iter().map(String::as_str))));
    assert!(!code.contains(&flat(found[1].1.iter().map(String::as_str))));
}
