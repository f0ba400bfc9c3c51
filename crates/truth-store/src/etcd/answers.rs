//! The JSON of etcd's gateway: requests are built, answers are read with a fault for each way in which they can be wrong.
//!
//! Fields that are zero are absent, 64-bit integers are strings, keys and values are base64.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::answer::{Change, Entry, Revision, Version};
use crate::key::Key;
use crate::keyspace::{ENTRIES_MAX, STORE_BYTES_MAX};

/// Bytes of an answer at most: a full store in base64, with its numbers.
pub(super) const ANSWER_BYTES_MAX: usize = STORE_BYTES_MAX / 3 * 4 + ENTRIES_MAX * 1024;

/// Why an answer cannot be used.
pub(super) type Fault = String;

pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The first key that does not begin so. What begins with these bytes is between the two.
pub(super) fn range_end(prefix: &str) -> String {
    let mut end = prefix.as_bytes().to_vec();
    // Keys are ASCII, so the last byte can always grow.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    base64(&end)
}

/// The text of an answer as JSON.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, Fault> {
    let value: Value =
        serde_json::from_slice(bytes).map_err(|error| format!("no JSON: {error}"))?;
    match value.is_object() {
        true => Ok(value),
        false => Err("no object of JSON".to_owned()),
    }
}

/// A 64-bit integer. Zero where it is absent.
pub(super) fn integer(value: &Value, name: &str) -> Result<u64, Fault> {
    match value.get(name) {
        None => Ok(0),
        Some(Value::String(text)) => text
            .parse()
            .map_err(|_| format!("{name} is no integer: {:.40}", text)),
        Some(other) => other
            .as_u64()
            .ok_or_else(|| format!("{name} is no integer")),
    }
}

pub(super) fn boolean(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool).unwrap_or(false)
}

pub(super) fn list<'a>(value: &'a Value, name: &str) -> Result<&'a [Value], Fault> {
    match value.get(name) {
        None => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(format!("{name} is no list")),
    }
}

fn bytes(value: &Value, name: &str) -> Result<Vec<u8>, Fault> {
    match value.get(name) {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => STANDARD
            .decode(text)
            .map_err(|_| format!("{name} is no base64")),
        Some(_) => Err(format!("{name} is no text")),
    }
}

/// Cluster and revision of an answer's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) cluster_id: u64,
    pub(super) revision: Revision,
}

pub(super) fn header(answer: &Value) -> Result<Header, Fault> {
    let header = answer.get("header").ok_or("it has no header")?;
    let cluster_id = integer(header, "cluster_id")?;
    if cluster_id == 0 {
        return Err("its header names no cluster".to_owned());
    }
    Ok(Header {
        cluster_id,
        revision: Revision(integer(header, "revision")?),
    })
}

/// A key of etcd's under a folder of ours.
pub(super) fn key(kv: &Value, folder: &str) -> Result<Key, Fault> {
    let name = bytes(kv, "key")?;
    let name = String::from_utf8(name).map_err(|_| "a key is no text")?;
    let own = name
        .strip_prefix(folder)
        .ok_or_else(|| format!("the key {name:.40} was not asked for"))?;
    Key::new(own).map_err(|_| format!("the foreign key {name:.80} is in it: remove it from etcd"))
}

pub(super) fn value(kv: &Value) -> Result<Arc<[u8]>, Fault> {
    Ok(bytes(kv, "value")?.into())
}

pub(super) fn version(kv: &Value) -> Result<Version, Fault> {
    match integer(kv, "mod_revision")? {
        0 => Err("an entry has no revision".to_owned()),
        revision => Ok(Version(revision)),
    }
}

pub(super) fn entry(kv: &Value, folder: &str) -> Result<Entry, Fault> {
    Ok(Entry {
        key: key(kv, folder)?,
        value: value(kv)?,
        version: version(kv)?,
    })
}

pub(super) fn change(event: &Value, folder: &str) -> Result<Change, Fault> {
    let kv = event.get("kv").ok_or("an event has no entry")?;
    let is_removal = match event.get("type") {
        None => false,
        Some(Value::String(kind)) if kind == "DELETE" => true,
        Some(Value::String(kind)) if kind == "PUT" => false,
        Some(_) => return Err("an event is neither PUT nor DELETE".to_owned()),
    };
    Ok(Change {
        revision: Revision(version(kv)?.0),
        key: key(kv, folder)?,
        value: if is_removal { None } else { Some(value(kv)?) },
    })
}

/// A condition: the key has this version.
pub(super) fn expects(key: &str, version: u64) -> Value {
    json!({
        "target": "MOD", "result": "EQUAL",
        "key": base64(key.as_bytes()), "mod_revision": version.to_string(),
    })
}

pub(super) fn put(key: &str, value: &[u8], lease: i64) -> Value {
    let mut put = json!({ "key": base64(key.as_bytes()), "value": base64(value) });
    if lease != 0 {
        put["lease"] = Value::String(lease.to_string());
    }
    json!({ "request_put": put })
}

pub(super) fn remove(key: &str) -> Value {
    json!({ "request_delete_range": { "key": base64(key.as_bytes()) } })
}

pub(super) fn version_of(key: &str) -> Value {
    json!({ "request_range": { "key": base64(key.as_bytes()), "keys_only": true } })
}

pub(super) fn get(key: &str) -> Value {
    json!({ "request_range": { "key": base64(key.as_bytes()) } })
}

/// The entry that a `request_range` of one key found.
pub(super) fn found(response: Option<&Value>) -> Result<Option<&Value>, Fault> {
    let range = response
        .and_then(|response| response.get("response_range"))
        .ok_or("an answer within the transaction is missing")?;
    Ok(list(range, "kvs")?.first())
}

/// What etcd says of a call that failed: its code and its words.
pub(super) fn failure(body: &[u8]) -> (Option<u64>, String) {
    let Ok(value) = parse(body) else {
        let text = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        return (None, format!("{:?}", text.trim()));
    };
    // Answers of streams wrap it.
    let value = match value.get("error") {
        Some(inner @ Value::Object(_)) => inner,
        _ => &value,
    };
    let said = ["message", "error"]
        .iter()
        .find_map(|name| value.get(*name)?.as_str());
    let code = ["code", "grpc_code"]
        .iter()
        .find_map(|name| value.get(*name)?.as_u64());
    let said: String = said
        .unwrap_or("without a reason")
        .chars()
        .take(200)
        .collect();
    (code, said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_fields_are_zero_and_integers_are_texts() {
        let answer = parse(br#"{"header":{"cluster_id":"18446744073709551615","revision":"2"}}"#);
        let header = header(&answer.unwrap()).unwrap();
        assert_eq!(
            (header.cluster_id, header.revision),
            (u64::MAX, Revision(2))
        );
        let none = parse(b"{}").unwrap();
        assert_eq!(integer(&none, "TTL"), Ok(0));
        assert_eq!(list(&none, "kvs"), Ok(&[][..]));
        let kv = parse(br#"{"key":"ZC9h","mod_revision":"3","version":"1"}"#).unwrap();
        let entry = entry(&kv, "d/").unwrap();
        assert_eq!((entry.key.as_str(), entry.value.len()), ("a", 0));
    }

    #[test]
    fn what_is_no_answer_is_a_fault() {
        for bad in ["", "[]", "7", "{", "<html>", "\u{feff}{}"] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        let deep = "[".repeat(100_000);
        assert!(parse(deep.as_bytes()).is_err());
        for bad in [
            r#"{}"#,
            r#"{"header":{}}"#,
            r#"{"header":{"cluster_id":"x"}}"#,
            r#"{"header":{"cluster_id":"-1"}}"#,
            r#"{"header":{"cluster_id":"1","revision":[]}}"#,
        ] {
            assert!(header(&parse(bad.as_bytes()).unwrap()).is_err(), "{bad}");
        }
        for bad in [
            r#"{"key":"ZC9h"}"#,
            r#"{"key":"ZC9h","mod_revision":"0"}"#,
            r#"{"key":"!","mod_revision":"1"}"#,
            r#"{"key":"ZS9h","mod_revision":"1"}"#,
            r#"{"key":"ZC8g","mod_revision":"1"}"#,
            r#"{"key":"ZC9h","mod_revision":"1","value":5}"#,
        ] {
            assert!(
                entry(&parse(bad.as_bytes()).unwrap(), "d/").is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn ranges_end_behind_their_prefix() {
        assert_eq!(range_end("a/"), base64(b"a0"));
        assert_eq!(range_end("az"), base64(b"a{"));
    }
}
