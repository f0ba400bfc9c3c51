//! Reads names with their documentation out of sources: for lists that have no other form than their declaration.

use asterism_tidy::read;

/// A name and what is said of it.
pub(crate) struct Documented {
    pub(crate) name: String,
    pub(crate) meaning: String,
}

/// The items between a line that contains `from` and the next line that is `to`: each `///` paragraph goes with the
/// name that follows it.
pub(crate) fn items(path: &str, from: &str, to: &str) -> Vec<Documented> {
    let text = read(path);
    let mut lines = text.lines().skip_while(|line| !line.contains(from));
    assert!(lines.next().is_some(), "{path} has no `{from}`");
    let mut found = Vec::new();
    let mut meaning = String::new();
    for line in lines.take_while(|line| *line != to) {
        let line = line.trim();
        if let Some(words) = line.strip_prefix("///") {
            meaning = format!("{meaning} {}", words.trim());
            continue;
        }
        let declared = line.trim_start_matches("pub ");
        let name: String = declared
            .chars()
            .take_while(|sign| sign.is_alphanumeric() || *sign == '_')
            .collect();
        if !name.is_empty() && !meaning.is_empty() {
            let meaning = plain(&core::mem::take(&mut meaning));
            found.push(Documented { name, meaning });
        }
    }
    assert!(
        !found.is_empty(),
        "{path}: nothing documented after `{from}`"
    );
    found
}

/// Links of rustdoc lead nowhere in a book: only their words are kept.
fn plain(text: &str) -> String {
    let mut out = text.trim().to_owned();
    while let Some(start) = out.find("[`") {
        let Some(end) = out[start..].find("`]").map(|end| start + end) else {
            break;
        };
        let words = out[start + 2..end].to_owned();
        let after = &out[end + 2..];
        let after = if after.starts_with('(') {
            after.split_once(')').map_or(after, |(_, rest)| rest)
        } else {
            after
        };
        out = format!("{}`{words}`{after}", &out[..start]);
    }
    out.replace('|', "\\|")
}

/// `RemoteEntryNotLogged` as `remote-entry-not-logged`.
pub(crate) fn words(name: &str) -> String {
    let mut out = String::new();
    for sign in name.chars() {
        if sign.is_uppercase() && !out.is_empty() {
            out.push('-');
        }
        out.extend(sign.to_lowercase());
    }
    out
}
