//! In which fields two texts of a configuration differ, as one host reads them: for a reload that is refused, which must point at the
//! line.

use toml::de::DeTable;

use super::overlay;
use asterism_toml_schema::diagnostic::Report;
use asterism_toml_schema::differences;
pub use asterism_toml_schema::differences::Difference;

/// The fields that differ, in the order of their names, as the host of this name reads both texts.
#[must_use]
pub fn between(now: &str, wanted: &str, host: &str) -> Vec<Difference> {
    let report = Report::new("", wanted);
    let (now, _) = DeTable::parse_recoverable(now);
    let (wanted, _) = DeTable::parse_recoverable(wanted);
    differences::between(
        &overlay::lay(now.get_ref(), host),
        &overlay::lay(wanted.get_ref(), host),
        &report,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_differ_are_reported_with_their_lines() {
        let now = "chain = [\"a\", \"b\"]\n[function.a]\nx = 1\ny = { z = \"s\", l = [{ n = 1 }] }\n[on.h.host]\nidle = \"spin\"\n[on.k.host]\nidle = \"spin\"\n[gone]\nb = true";
        let wanted = "# moved\nchain = [\"b\", \"a\"]\n[function.a]\nx = 2\ny.z = \"s\"\ny.l = [{ n = 2 }]\n[new.table]\nf = 1.5\n[on.h.host]\nidle = \"sleep\"\n[on.k.host]\nidle = \"sleep\"";
        let mut reported: Vec<_> = between(now, wanted, "h")
            .iter()
            .map(|one| format!("{:?} {one}", one.line))
            .collect();
        reported.sort();
        assert_eq!(
            reported,
            [
                "None [gone] b",
                "Some(10) [host] idle",
                "Some(2) chain",
                "Some(4) [function.a] x",
                "Some(6) [function.a.y] l",
                "Some(8) [new.table] f",
            ]
        );
        assert_eq!(between(now, &format!("# moved\n\n{now}"), "h"), []);
        let one = &between("[a.b]\nc = 1", "", "")[0];
        assert!(one.is_below(&["a"]) && one.is_below(&["a", "b", "c"]));
        assert!(!one.is_below(&["b"]) && !one.is_below(&["a", "b", "c", "d"]));
    }
}
