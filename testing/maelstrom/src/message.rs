//! Messages, as Maelstrom's `protocol.md` has them: read from a line, and written as one.

use serde_json::{Map, Value, json};

/// The type of the messages that carry our datagrams.
pub(crate) const DATAGRAM: &str = "asterism";

/// A message that was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Message {
    /// Who sent it, to be answered.
    pub(crate) from: String,
    /// The recipient it was sent.
    pub(crate) to: String,
    /// What `type` says; empty if it says nothing.
    pub(crate) kind: String,
    /// What an answer names, if one is expected.
    pub(crate) id: Option<Value>,
    body: Map<String, Value>,
}

impl Message {
    /// Reads a line.
    ///
    /// # Errors
    /// Why it is no message; only the log can say so.
    pub(crate) fn read(line: &str) -> Result<Self, String> {
        let value: Value =
            serde_json::from_str(line).map_err(|error| format!("no JSON: {error}"))?;
        let Value::Object(mut fields) = value else {
            return Err("no JSON object".into());
        };
        let mut text = |name: &str| match fields.remove(name) {
            Some(Value::String(text)) => Ok(text),
            _ => Err(format!("`{name}` is no string")),
        };
        let (from, to) = (text("src")?, text("dest")?);
        let Some(Value::Object(mut body)) = fields.remove("body") else {
            return Err("`body` is no object".into());
        };
        let kind = match body.remove("type") {
            Some(Value::String(kind)) => kind,
            _ => String::new(),
        };
        // What is no whole number could not be named in an answer.
        let id = body
            .remove("msg_id")
            .filter(|id| id.is_i64() || id.is_u64());
        Ok(Self {
            from,
            to,
            kind,
            id,
            body,
        })
    }

    /// A field of the body.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn field(&self, name: &str) -> Result<&Value, Fault> {
        let missing = || Fault::new(Code::MalformedRequest, format!("`{name}` is missing"));
        self.body.get(name).ok_or_else(missing)
    }

    /// A field that is a string.
    ///
    /// # Errors
    /// There is none, or it is something else.
    pub(crate) fn text(&self, name: &str) -> Result<&str, Fault> {
        let other = || Fault::new(Code::MalformedRequest, format!("`{name}` is no string"));
        self.field(name)?.as_str().ok_or_else(other)
    }
}

/// Maelstrom's numbers of errors, as far as they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// This node does not do that.
    NotSupported = 10,
    /// It was certainly not done, and may be tried again.
    TemporarilyUnavailable = 11,
    /// The request is not as the workload has it.
    MalformedRequest = 12,
    /// Whether it was done cannot be said.
    Crash = 13,
    /// The node is in no state for this.
    PreconditionFailed = 22,
}

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// What Maelstrom reads.
    pub(crate) code: Code,
    /// What people read.
    pub(crate) text: String,
}

impl Fault {
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { code, text }
    }

    /// The fields of the answer that says it.
    pub(crate) fn fields(self) -> Value {
        json!({"type": "error", "code": self.code as u16, "text": self.text})
    }
}

/// The line of a message with this body.
pub(crate) fn line(from: &str, to: &str, body: &Value) -> String {
    json!({"src": from, "dest": to, "body": body}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_message_is_said() {
        for (line, why) in [
            ("", "no JSON: "),
            ("{", "no JSON: "),
            ("7", "no JSON object"),
            ("{}", "`src` is no string"),
            (r#"{"src":"c1","dest":4}"#, "`dest` is no string"),
            (r#"{"src":"c1","dest":"n1"}"#, "`body` is no object"),
        ] {
            let error = Message::read(line).unwrap_err();
            assert!(error.starts_with(why), "{line}: {error}");
        }
        let deep = "[".repeat(100_000);
        assert!(Message::read(&deep).is_err());
    }

    #[test]
    fn an_answer_can_only_name_a_whole_number() {
        for (id, named) in [("3", true), ("-3", true), ("3.5", false), ("\"3\"", false)] {
            let line = format!(r#"{{"src":"c1","dest":"n1","body":{{"msg_id":{id}}}}}"#);
            let message = Message::read(&line).unwrap();
            assert_eq!(message.id.is_some(), named, "{id}");
            assert_eq!(message.kind, "");
        }
    }
}
