//! `asterism block` and `asterism unblock`: an operator blocks a source, or lifts a block early.

use std::net::IpAddr;
use std::time::Duration;

use asterism_config::value::{self, Mistake, show_duration};
use asterism_functions::blocked::SECONDS_MAX;
use asterism_host::control::Ask;
use asterism_host::run::manual::{BlockingDocument, RefusedDocument, UnblockingDocument};
use asterism_output::End;
use asterism_output::{Output, Schema};
use clap::Args;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::blocked::line;
use super::client::Which;
use super::{WITHIN, with_answer};

/// The arguments of `asterism block`.
#[derive(Args, Clone, Debug)]
pub struct BlockArguments {
    /// The source whose packets are dropped, such as 192.0.2.7 or 2001:db8::7
    #[arg(value_parser = address)]
    pub address: IpAddr,
    /// The block's duration: 1s to 7d, such as 10m or 2h
    #[arg(long = "for", value_name = "TIME", value_parser = seconds)]
    pub seconds: u32,
    /// Only at this function or stage of a chain; without this option at each that blocks
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,
    /// At which host.
    #[command(flatten)]
    pub which: Which,
}

/// The arguments of `asterism unblock`.
#[derive(Args, Clone, Debug)]
pub struct UnblockArguments {
    /// The address whose packets and connections are let through again
    #[arg(value_parser = address)]
    pub address: IpAddr,
    /// Only at this function or stage of a chain; without this option at each that blocks
    #[arg(long, value_name = "NAME")]
    pub function: Option<String>,
    /// At which host.
    #[command(flatten)]
    pub which: Which,
}

/// The schema of `asterism block`.
pub const BLOCK: Schema = Schema {
    name: "asterism.block",
    version: 1,
};
/// The schema of `asterism unblock`.
pub const UNBLOCK: Schema = Schema {
    name: "asterism.unblock",
    version: 1,
};

/// How to write an address.
const WRITE_ADDRESS: &str = "write an address such as 192.0.2.7 or 2001:db8::7";
/// How to write a block's duration.
const WRITE_TIME: &str = "write 1s to 7d, such as 10m or 2h";

/// Why a text is no address to block.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum AddressError {
    /// A group's address.
    #[error("a multicast address is never a source: {WRITE_ADDRESS}")]
    Multicast,
    /// This IPv4 address, written as one of IPv6.
    #[error("no packet has an IPv4 address in this form: write {0}")]
    Mapped(IpAddr),
    /// This network.
    #[error(
        "one address is blocked at a time: {WRITE_ADDRESS}; for a network write a rule of a firewall, such as `drop any from {0}`"
    )]
    Network(String),
    /// This address, with a port.
    #[error("all that an address sends is blocked, whatever its port: write {0}")]
    WithPort(IpAddr),
    /// Some other text.
    #[error("not an address: {WRITE_ADDRESS}")]
    NotAnAddress,
}

/// Why a text is no duration of a block.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum TimeError {
    /// Not a duration at all.
    #[error("{}: {WRITE_TIME}", .0.wrong)]
    NotADuration(#[from] Mistake),
    /// A fraction of a second.
    #[error("blocks last whole seconds: {WRITE_TIME}")]
    NotWholeSeconds,
    /// Less than a second.
    #[error("{} is too short: {WRITE_TIME}", show_duration(*.0))]
    TooShort(Duration),
    /// More than the bound.
    #[error("{} is too long: {WRITE_TIME}", show_duration(*.0))]
    TooLong(Duration),
}

fn address(text: &str) -> Result<IpAddr, AddressError> {
    match text.parse::<IpAddr>() {
        Ok(address) if address.is_multicast() => Err(AddressError::Multicast),
        Ok(address) if address.to_canonical() != address => {
            Err(AddressError::Mapped(address.to_canonical()))
        }
        Ok(address) => Ok(address),
        Err(_) if text.contains('/') => Err(AddressError::Network(text.to_owned())),
        Err(_) => match text.parse::<std::net::SocketAddr>() {
            Ok(endpoint) => Err(AddressError::WithPort(endpoint.ip())),
            Err(_) => Err(AddressError::NotAnAddress),
        },
    }
}

fn seconds(text: &str) -> Result<u32, TimeError> {
    let time = value::duration(text)?;
    if time.subsec_nanos() != 0 {
        return Err(TimeError::NotWholeSeconds);
    }
    match u32::try_from(time.as_secs()) {
        Ok(seconds @ 1..=SECONDS_MAX) => Ok(seconds),
        _ if time.is_zero() => Err(TimeError::TooShort(time)),
        _ => Err(TimeError::TooLong(time)),
    }
}

/// `asterism block`.
pub fn block(arguments: &BlockArguments, output: &mut Output<'_>) -> End {
    let request = Ask::Block {
        source: arguments.address,
        seconds: arguments.seconds,
        function: arguments.function.clone(),
    };
    let is_done = |document: &BlockingDocument| document.refused.is_empty();
    let to = (&arguments.which, &request);
    reported(to, output, BLOCK, is_done, blocking_text)
}

/// `asterism unblock`.
pub fn unblock(arguments: &UnblockArguments, output: &mut Output<'_>) -> End {
    let request = Ask::Unblock {
        source: arguments.address,
        function: arguments.function.clone(),
    };
    let is_done = |document: &UnblockingDocument| {
        let UnblockingDocument {
            lifted,
            left,
            refused,
            ..
        } = document;
        refused.is_empty() && left.is_empty() && !lifted.is_empty()
    };
    let to = (&arguments.which, &request);
    reported(to, output, UNBLOCK, is_done, unblocking_text)
}

/// Sends the request to a host, and shows the result.
fn reported<D: Serialize + DeserializeOwned>(
    (which, request): (&Which, &Ask),
    output: &mut Output<'_>,
    schema: Schema,
    is_done: fn(&D) -> bool,
    text: fn(&D) -> String,
) -> End {
    let mut done = false;
    let end = with_answer(which, request, WITHIN, output, |document: D, output| {
        done = is_done(&document);
        match output.json() {
            true => output.document(schema, &document),
            false => output.text(&text(&document)),
        }
    });
    match end {
        End::Done if !done => End::DoesNotHold,
        end => end,
    }
}

fn blocking_text(document: &BlockingDocument) -> String {
    let blocked = document
        .blocked
        .iter()
        .map(|block| format!("blocked: {}\n", line(block)));
    let refused = |refused: &RefusedDocument| {
        format!(
            "{} has not confirmed the block of {}: {}\n",
            refused.function, document.source, refused.why
        )
    };
    blocked
        .chain(document.refused.iter().map(refused))
        .collect()
}

fn unblocking_text(document: &UnblockingDocument) -> String {
    let lifted = document
        .lifted
        .iter()
        .map(|block| format!("no longer blocked: {}\n", line(block)));
    let left = document
        .left
        .iter()
        .map(|block| format!("still blocked, or again: {}\n", line(block)));
    let refused = |refused: &RefusedDocument| {
        format!(
            "whether {} is blocked by {} is not known: {}\n",
            document.source, refused.function, refused.why
        )
    };
    let text: String = lifted
        .chain(left)
        .chain(document.refused.iter().map(refused))
        .collect();
    match text.is_empty() {
        true => format!("no function blocks {}\n", document.source),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asterism_host::run::blocked::BlockDocument;

    #[test]
    fn addresses_and_times_are_read_or_it_is_said_what_to_write() {
        assert_eq!(address("192.0.2.7"), Ok([192, 0, 2, 7].into()));
        assert!(address("2001:db8::7").is_ok());
        for (text, said) in [
            ("192.0.2.0/24", "`drop any from 192.0.2.0/24`"),
            ("192.0.2.7:80", "whatever its port: write 192.0.2.7"),
            ("[::1]:80", "write ::1"),
            ("192.0.2", "not an address: write"),
            ("", "not an address: write"),
            ("224.0.0.1", "multicast"),
            ("ff02::1", "multicast"),
            ("::ffff:192.0.2.7", "write 192.0.2.7"),
        ] {
            let why = address(text).unwrap_err().to_string();
            assert!(why.contains(said), "{text}: {why}");
        }
        for (text, expected) in [
            ("1s", 1),
            ("10m", 600),
            ("1h30m", 5_400),
            ("7d", SECONDS_MAX),
        ] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for (text, said) in [
            ("0s", "too short"),
            ("8d", "too long"),
            ("1000d", "too long"),
            ("1500ms", "whole seconds"),
            ("600", "no unit"),
            ("soon", "not a duration"),
        ] {
            let why = seconds(text).unwrap_err().to_string();
            assert!(
                why.contains(said) && why.contains("write 1s to 7d"),
                "{text}: {why}"
            );
        }
    }

    fn of(function: &str, by: &str) -> BlockDocument {
        BlockDocument {
            function: function.to_owned(),
            source: Some("192.0.2.7".to_owned()),
            destination: None,
            until: Some("2024-12-31T23:59:59Z".to_owned()),
            seconds: Some(600),
            by: by.to_owned(),
        }
    }

    #[test]
    fn it_is_said_who_is_blocked_and_who_is_not() {
        let source = "192.0.2.7".to_owned();
        let refused = vec![RefusedDocument {
            function: "scan".to_owned(),
            why: "it has no room".to_owned(),
        }];
        let text = blocking_text(&BlockingDocument {
            source: source.clone(),
            blocked: vec![of("guard", "manually")],
            refused: refused.clone(),
        });
        assert_eq!(
            text,
            "blocked: 192.0.2.7 by guard, until 2024-12-31T23:59:59Z, 600 s more: manually\n\
             scan has not confirmed the block of 192.0.2.7: it has no room\n"
        );
        let document = UnblockingDocument {
            source,
            lifted: vec![of("guard", "line 3: block 10m tcp")],
            left: vec![of("scan", "it scanned")],
            refused,
        };
        assert_eq!(
            unblocking_text(&document),
            "no longer blocked: 192.0.2.7 by guard, until 2024-12-31T23:59:59Z, 600 s more: line 3: block 10m tcp\n\
             still blocked, or again: 192.0.2.7 by scan, until 2024-12-31T23:59:59Z, 600 s more: it scanned\n\
             whether 192.0.2.7 is blocked by scan is not known: it has no room\n"
        );
        let nobody = UnblockingDocument {
            lifted: Vec::new(),
            left: Vec::new(),
            refused: Vec::new(),
            ..document
        };
        assert_eq!(unblocking_text(&nobody), "no function blocks 192.0.2.7\n");
    }
}
