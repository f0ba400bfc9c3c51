//! Errors: of bytes that are no message, and of a switch that refuses one.

use std::fmt;

/// Why bytes are no message, or a message has no bytes. Nothing was sent, nothing was taken as understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The named part ends before its last field.
    #[error("{0} ends too early")]
    Short(&'static str),
    /// A part gives itself a length that it cannot have.
    #[error("{what} cannot have {length} bytes")]
    Length {
        /// The part.
        what: &'static str,
        /// Its length.
        length: usize,
    },
    /// A part would have more bytes than its length field can hold.
    #[error("{what} of {length} bytes is too long for a message")]
    Long {
        /// The part.
        what: &'static str,
        /// Its length.
        length: usize,
    },
    /// A version of OpenFlow in which this codec knows only the greeting and errors.
    #[error("OpenFlow's version number {0:#04x} is not spoken here (1.3 is 0x04, 1.5 is 0x06)")]
    Version(u8),
    /// A message that does not exist in the version in which it was sent or is to be sent.
    #[error("{0} does not exist in this version")]
    NotInVersion(&'static str),
    /// A field has a value that the specification does not give it.
    #[error("{what} cannot be {value}")]
    Value {
        /// The field.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// A text that does not fit into its field.
    #[error("{0:?} does not fit into its field")]
    Text(String),
    /// More bytes are waiting than one message can have.
    #[error("{0} bytes are waiting, more than a message can have")]
    Pending(usize),
}

/// A refusal of the switch (`OFPT_ERROR`): what was refused did not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchError {
    /// Its class (`OFPET_`).
    pub class: u16,
    /// Its code within the class.
    pub code: u16,
    /// The beginning of the message that was refused, or a text.
    pub data: Vec<u8>,
}

/// Names of classes, by their numbers (OpenFlow 1.5.1, section 7.5.4).
const CLASSES: [&str; 18] = [
    "hello failed",
    "bad request",
    "bad action",
    "bad instruction",
    "bad match",
    "flow-mod failed",
    "group-mod failed",
    "port-mod failed",
    "table-mod failed",
    "queue operation failed",
    "switch configuration failed",
    "role request failed",
    "meter-mod failed",
    "table features failed",
    "bad property",
    "asynchronous configuration failed",
    "flow monitor failed",
    "bundle failed",
];

/// Names of the codes that a driver meets.
const CODES: &[(u16, u16, &str)] = &[
    (0, 0, "no version in common"),
    (0, 1, "not permitted"),
    (1, 0, "version not supported"),
    (1, 1, "type not supported"),
    (1, 2, "multipart type not supported"),
    (1, 5, "not permitted"),
    (1, 6, "wrong length"),
    (1, 9, "the controller is a slave"),
    (1, 11, "no such port"),
    (2, 0, "action not supported"),
    (2, 4, "no such output port"),
    (2, 9, "no such group"),
    (4, 6, "field not supported"),
    (4, 7, "value not supported"),
    (4, 9, "prerequisite missing"),
    (5, 0, "unknown"),
    (5, 1, "table full"),
    (5, 2, "no such table"),
    (5, 3, "overlaps another flow"),
    (5, 4, "not permitted"),
    (6, 0, "group exists already"),
    (6, 1, "invalid group"),
    (6, 3, "too many groups"),
    (6, 4, "too many buckets"),
    (6, 8, "no such group"),
    (6, 10, "bad type"),
    (6, 12, "bad bucket"),
    (6, 14, "not permitted"),
    (17, 0, "unknown"),
    (17, 1, "not permitted"),
    (17, 2, "no such bundle"),
    (17, 4, "bundle closed"),
    (17, 5, "out of bundles"),
    (17, 7, "message not supported in a bundle"),
    (17, 11, "a message of it was refused"),
    (17, 13, "too many messages"),
    (17, 15, "timed out"),
];

impl fmt::Display for SwitchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = CLASSES.get(usize::from(self.class));
        f.write_str(class.unwrap_or(&"error"))?;
        let known =
            |(class, code, _): &&(u16, u16, &str)| (*class, *code) == (self.class, self.code);
        if let Some((_, _, name)) = CODES.iter().find(known) {
            write!(f, ": {name}")?;
        }
        write!(f, " (type {}, code {})", self.class, self.code)
    }
}

impl std::error::Error for SwitchError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_names_and_numbers() {
        let error = |class, code| {
            let data = Vec::new();
            SwitchError { class, code, data }.to_string()
        };
        assert_eq!(error(5, 1), "flow-mod failed: table full (type 5, code 1)");
        assert_eq!(error(9, 77), "queue operation failed (type 9, code 77)");
        assert_eq!(error(999, 7), "error (type 999, code 7)");
    }
}
