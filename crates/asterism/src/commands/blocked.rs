//! `asterism blocked`: the sources that a host's functions block, until when and why.

use asterism_host::control::Ask;
use asterism_host::run::blocked::{BlockDocument, BlockedDocument};
use asterism_output::End;
use asterism_output::{Output, Schema};
use clap::Args;

use super::client::Which;
use super::{WITHIN, with_answer};

/// The arguments of `asterism blocked`.
#[derive(Args, Clone, Debug)]
pub struct BlockedArguments {
    /// Which host.
    #[command(flatten)]
    pub which: Which,
}

/// The schema of `asterism blocked`.
pub const BLOCKED: Schema = Schema {
    name: "asterism.blocked",
    version: 1,
};

/// `asterism blocked`.
pub fn blocked(arguments: &BlockedArguments, output: &mut Output<'_>) -> End {
    with_answer(
        &arguments.which,
        &Ask::Blocked,
        WITHIN,
        output,
        |document: BlockedDocument, output| {
            if output.json() {
                output.document(BLOCKED, &document);
            } else {
                output.text(&blocked_text(&document));
            }
        },
    )
}

fn blocked_text(document: &BlockedDocument) -> String {
    let unsearched = document.unsearched.iter().map(|why| format!("{why}\n"));
    if document.blocked.is_empty() {
        let none = match document.unsearched.is_empty() {
            true => "no source is blocked\n",
            false => "no blocked source was found\n",
        };
        return core::iter::once(none.to_owned())
            .chain(unsearched)
            .collect();
    }
    let blocked = document.blocked.iter();
    blocked
        .map(|block| line(block) + "\n")
        .chain(unsearched)
        .collect()
}

/// A block as a line.
pub(super) fn line(block: &BlockDocument) -> String {
    let who = match (&block.source, &block.destination) {
        (Some(source), Some(destination)) => format!("{source} with {destination}"),
        (Some(source), None) => source.clone(),
        (None, Some(destination)) => format!("all to {destination}"),
        (None, None) => "all".to_owned(),
    };
    let until = match (&block.until, block.seconds) {
        (Some(until), Some(seconds)) => format!("until {until}, {seconds} s more"),
        _ => "for ever".to_owned(),
    };
    format!("{who} by {}, {until}: {}", block.function, block.by)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_says_who_until_when_and_what_for() {
        let block = |source: Option<&str>, destination: Option<&str>, seconds| BlockDocument {
            function: "firewall".to_owned(),
            source: source.map(str::to_owned),
            destination: destination.map(str::to_owned),
            until: Some("2024-12-31T23:59:59Z".to_owned()).filter(|_| seconds > 0),
            seconds: Some(seconds).filter(|seconds| *seconds > 0),
            by: "line 3: block 10m tcp".to_owned(),
        };
        let document = BlockedDocument {
            blocked: vec![
                block(Some("192.0.2.7"), None, 600),
                block(None, Some("port 53"), 0),
                block(Some("192.0.2.7:9"), Some("192.0.2.8:80"), 5),
            ],
            unsearched: Vec::new(),
        };
        assert_eq!(
            blocked_text(&document),
            "192.0.2.7 by firewall, until 2024-12-31T23:59:59Z, 600 s more: line 3: block 10m tcp\n\
             all to port 53 by firewall, for ever: line 3: block 10m tcp\n\
             192.0.2.7:9 with 192.0.2.8:80 by firewall, until 2024-12-31T23:59:59Z, 5 s more: line 3: block 10m tcp\n"
        );
        let mut none = BlockedDocument {
            blocked: Vec::new(),
            unsearched: Vec::new(),
        };
        assert_eq!(blocked_text(&none), "no source is blocked\n");
        none.unsearched.push("the store is away".to_owned());
        assert_eq!(
            blocked_text(&none),
            "no blocked source was found\nthe store is away\n"
        );
    }
}
