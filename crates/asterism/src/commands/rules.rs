//! `asterism rules`: a firewall's rules, and the number of new flows that each decided.

use asterism_host::control::Ask;
use asterism_host::run::rules::RulesDocument;
use asterism_output::End;
use asterism_output::{Output, Schema};
use clap::Args;

use super::client::Which;
use super::{WITHIN, with_answer};

/// The arguments of `asterism rules`.
#[derive(Args, Clone, Debug)]
pub struct RulesArguments {
    /// Only rules that decided no flow
    #[arg(long)]
    pub unused: bool,
    /// Which host.
    #[command(flatten)]
    pub which: Which,
}

/// The schema of `asterism rules`.
pub const RULES: Schema = Schema {
    name: "asterism.rules",
    version: 1,
};

/// `asterism rules`.
pub fn rules(arguments: &RulesArguments, output: &mut Output<'_>) -> End {
    with_answer(
        &arguments.which,
        &Ask::Rules,
        WITHIN,
        output,
        |mut document: RulesDocument, output| {
            if arguments.unused {
                document.rules.retain(|rule| rule.hits == 0);
            }
            if output.json() {
                output.document(RULES, &document);
            } else {
                output.text(&rules_text(&document));
            }
        },
    )
}

fn rules_text(document: &RulesDocument) -> String {
    let line = |line: Option<u32>| line.map_or_else(String::new, |line| line.to_string());
    let mut text = format!("{:>6}  {:>12}  rule\n", "line", "new flows");
    for rule in &document.rules {
        text.push_str(&format!(
            "{:>6}  {:>12}  {}\n",
            line(rule.line),
            rule.hits,
            rule.rule
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_host::run::rules::RuleDocument;

    #[test]
    fn rules_stand_in_order_with_their_lines() {
        let rule = |line, hits, rule: &str| RuleDocument {
            line,
            hits,
            rule: rule.to_owned(),
        };
        let rules = vec![
            rule(Some(7), 1_234_567, "allow tcp on outside to any port 80"),
            rule(None, 0, "default drop"),
        ];
        assert_eq!(
            rules_text(&RulesDocument { rules }),
            "  line     new flows  rule\n     7       1234567  allow tcp on outside to any port 80\n                   0  default drop\n"
        );
    }
}
