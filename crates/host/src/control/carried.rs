//! Requests that an orchestrator carries to a host from another machine: those that only read.
//!
//! They come through heartbeats (`run/heartbeats/questions.rs`) and are answered as those of the control socket. A request that changes
//! something, or that reads every entry to make a digest, is refused: only the host's own user gives such a request, at its socket.

use super::request_handler::{Refused, RequestHandler};
use super::{Answer, Ask};

impl Ask {
    /// Whether the request may come from another machine. It may come twice, so it changes nothing.
    #[must_use]
    pub fn is_carried(&self) -> bool {
        match self {
            Ask::Status { digests } => !digests,
            Ask::StateGet { .. }
            | Ask::Entries(_)
            | Ask::Digests { .. }
            | Ask::Backends
            | Ask::Blocked
            | Ask::Rules
            | Ask::Traffic(_) => true,
            Ask::Trace { .. }
            | Ask::Block { .. }
            | Ask::Unblock { .. }
            | Ask::EndFlows { .. }
            | Ask::Repair { .. }
            | Ask::Epoch { .. }
            | Ask::Drain
            | Ask::Reload
            | Ask::Stop => false,
        }
    }
}

/// Answers a question of an orchestrator: a request as a line of the control socket has it. The answer has `bytes_max` bytes at most.
#[must_use]
pub fn answer(handler: &RequestHandler, question: &[u8], bytes_max: usize) -> Vec<u8> {
    let result = match serde_json::from_slice::<Ask>(question) {
        Ok(ask) if ask.is_carried() => handler.answer(ask),
        Ok(_) => Err(
            "this request is not carried from another machine: ask at the host's control socket"
                .into(),
        ),
        Err(error) => {
            Err(format!("the host is of another version, or the request malformed: {error}").into())
        }
    };
    let answer = bytes(result);
    if answer.len() <= bytes_max {
        return answer;
    }
    bytes(Err(format!(
        "the answer has {} bytes, and {bytes_max} is the most that is carried: ask at the host's control socket",
        answer.len()
    )
    .into()))
}

fn bytes(result: Result<serde_json::Value, Refused>) -> Vec<u8> {
    // Plain values and sentences have a form in JSON.
    serde_json::to_vec(&Answer::from(result)).unwrap_or_else(|_| b"{}".to_vec())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    fn handler() -> RequestHandler {
        let text =
            "[cluster]\nmembers = [\"a\", \"b\"]\n[function.nat]\noutside = [\"203.0.113.1\"]\n";
        let (config, _) = asterism_config::Config::read("test", text);
        RequestHandler::new(config.unwrap().cluster, sync_channel(1).0)
    }

    fn refusal(question: &[u8], bytes_max: usize) -> String {
        let answer = answer(&handler(), question, bytes_max);
        assert!(answer.len() <= bytes_max.max(300));
        let answer: Answer = serde_json::from_slice(&answer).unwrap();
        answer.error.unwrap()
    }

    #[test]
    fn what_changes_a_host_is_not_carried() {
        for line in [
            r#"{"do":"stop"}"#,
            r#"{"do":"drain"}"#,
            r#"{"do":"reload"}"#,
            r#"{"do":"status","digests":true}"#,
            r#"{"do":"block","source":"192.0.2.1","seconds":9}"#,
            r#"{"do":"unblock","source":"192.0.2.1"}"#,
            r#"{"do":"end-flows","filter":{}}"#,
            r#"{"do":"repair","object":"sessions"}"#,
            r#"{"do":"epoch","text":"epoch = 3"}"#,
            r#"{"do":"trace","packets":1,"within_ms":1}"#,
        ] {
            let error = refusal(line.as_bytes(), 4_096);
            assert!(error.contains("not carried"), "{line}: {error}");
        }
        for line in [&b"\xff\xfe"[..], b"{}", br#"{"do":"fly"}"#] {
            assert!(refusal(line, 4_096).contains("another version"));
        }
    }

    #[test]
    fn an_answer_that_is_too_long_says_so() {
        let error = refusal(br#"{"do":"status"}"#, 10);
        assert!(error.contains("10 is the most that is carried"), "{error}");
    }
}
