//! Checks a bridge's `fail_mode` in the database of Open vSwitch, by its protocol (RFC 7047): one question, one answer.

use std::io;

use serde::Deserialize;
use serde_json::json;

use super::channel::{Channel, Deadline, Socket};
use super::config::OvsDatabase;
use crate::SteeringError;

/// Bytes of an answer at most: that of one setting is a hundredth of it.
const ANSWER_BYTES_MAX: usize = 16 << 10;
/// Bytes that are received at once.
const RECEIVE_BYTES: usize = 4 << 10;

/// The answer to a question of one operation.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    result: Option<Vec<Selected>>,
}

#[derive(Deserialize)]
struct Selected {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    /// A text, or an empty set if it is not set.
    fail_mode: serde_json::Value,
}

/// Refuses a bridge whose `fail_mode` is not `secure`: in the mode `standalone`, which is the default, a bridge replaces its
/// rules by those of an ordinary switch when a controller of it fails.
pub(super) fn check_fail_mode(
    database: &OvsDatabase,
    deadline: Deadline,
) -> Result<(), SteeringError> {
    let OvsDatabase { address, bridge } = database;
    let what = format!("the setting fail_mode of {bridge} in {address}");
    let unreachable = |error: io::Error| SteeringError::Unreachable {
        what: what.clone(),
        said: error.to_string(),
    };
    let question = json!({
        "id": 0,
        "method": "transact",
        "params": ["Open_vSwitch", {
            "op": "select",
            "table": "Bridge",
            "where": [["name", "==", bridge]],
            "columns": ["fail_mode"],
        }],
    });
    let mut socket = Socket::connect(address, deadline).map_err(unreachable)?;
    let question = question.to_string();
    socket
        .send(question.as_bytes(), deadline)
        .map_err(unreachable)?;
    let mut answer = Vec::new();
    let parsed = loop {
        match parse(&answer) {
            Parsed::Whole(mode) => break mode,
            Parsed::Unreadable(said) => return Err(SteeringError::Unreadable { what, said }),
            Parsed::More => {}
        }
        let mut bytes = [0; RECEIVE_BYTES];
        let received = socket
            .receive(&mut bytes, Some(deadline))
            .map_err(unreachable)?;
        if received == 0 || answer.len() > ANSWER_BYTES_MAX {
            let said = "it ends too early, or not at all".to_owned();
            return Err(SteeringError::Unreadable { what, said });
        }
        answer.extend(bytes.get(..received).unwrap_or_default());
    };
    let said = match parsed.as_deref() {
        Some("secure") => return Ok(()),
        Some(mode) => format!("it is {mode}: ovs-vsctl set-fail-mode {bridge} secure"),
        None => "there is no such bridge".to_owned(),
    };
    Err(SteeringError::Refused { what, said })
}

/// An answer, as far as it has come.
#[derive(Debug, PartialEq, Eq)]
enum Parsed {
    /// The mode of the bridge, if there is one.
    Whole(Option<String>),
    More,
    Unreadable(String),
}

fn parse(bytes: &[u8]) -> Parsed {
    let mut answers = serde_json::Deserializer::from_slice(bytes).into_iter::<Answer>();
    let answer = match answers.next() {
        Some(Ok(answer)) => answer,
        Some(Err(error)) if !error.is_eof() => return Parsed::Unreadable(error.to_string()),
        Some(Err(_)) | None => return Parsed::More,
    };
    let Some(selected) = answer.result.and_then(|all| all.into_iter().next()) else {
        return Parsed::Unreadable("it has no result".to_owned());
    };
    let mode = selected.rows.into_iter().next().map(|row| {
        let mode = row
            .fail_mode
            .as_str()
            .unwrap_or("not set, which is standalone");
        mode.to_owned()
    });
    Parsed::Whole(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_when_they_are_whole() {
        let set = br#"{"id":0,"result":[{"rows":[{"fail_mode":"secure"}]}],"error":null}"#;
        for end in 0..set.len() {
            assert_eq!(parse(&set[..end]), Parsed::More, "{end}");
        }
        assert_eq!(parse(set), Parsed::Whole(Some("secure".to_owned())));
        let unset = br#"{"id":0,"result":[{"rows":[{"fail_mode":["set",[]]}]}],"error":null}"#;
        let Parsed::Whole(Some(mode)) = parse(unset) else {
            panic!("it is there");
        };
        assert!(mode.contains("not set"));
        let absent = br#"{"id":0,"result":[{"rows":[]}],"error":null}"#;
        assert_eq!(parse(absent), Parsed::Whole(None));
        for wrong in [
            "[",
            "7",
            "{\"result\":null}",
            "{\"result\":[]}",
            "{\"result\":[{}]}",
            "x",
        ] {
            let parsed = parse(wrong.as_bytes());
            assert!(!matches!(parsed, Parsed::Whole(_)), "{wrong}");
        }
    }
}
