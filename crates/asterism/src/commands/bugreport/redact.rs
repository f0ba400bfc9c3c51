//! Takes secrets out of what a report contains: cluster keys, tokens, private keys, passwords.
//!
//! A configuration is read as TOML and written as JSON, so that comments go, and values go by the names of their fields. Every text of a
//! report then passes [`Redactor::text`], which knows secrets by their look. The report says how many were taken out.

use serde_json::{Map, Value};

/// What stands in the place of a secret.
pub(super) const REMOVED: &str = "(removed)";
/// Parts of names whose values are secrets.
const SECRET_NAMES: [&str; 6] = [
    "password",
    "passwd",
    "secret",
    "passphrase",
    "credential",
    "bearer",
];
/// What cluster keys and tokens begin with; the secret follows up to a mark.
const SECRET_BEGINNINGS: [&str; 2] = ["asterism-key-", "asterism-token-"];
/// Names before a secret in a text, as in `password=…` or `Authorization: Bearer …`.
const SECRET_WORDS: [&str; 5] = ["password", "passwd", "secret", "passphrase", "bearer"];
/// Hexadecimal digits from which a word counts as a key: an incarnation has 16, a digest 32.
const KEY_DIGITS: usize = 48;
const PRIVATE_KEY_BEGINS: &str = "-----BEGIN ";
const PRIVATE_KEY_ENDS: &str = "-----END ";

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Redactor {
    /// The secrets that this command was given.
    known: Vec<String>,
    removed: u64,
}

impl Redactor {
    /// Knows these secrets beside those that it recognises.
    pub(super) fn new(known: Vec<String>) -> Redactor {
        let known = known.into_iter().filter(|secret| !secret.is_empty());
        Redactor {
            known: known.collect(),
            removed: 0,
        }
    }

    /// How many secrets were taken out.
    pub(super) fn removed(&self) -> u64 {
        self.removed
    }

    /// A configuration as JSON, without comments and secrets; `None` if it is no TOML.
    pub(super) fn configuration(&mut self, text: &str) -> Option<String> {
        let table: toml::Table = toml::from_str(text).ok()?;
        let json = self.value(toml::Value::Table(table), false);
        serde_json::to_string_pretty(&json).ok()
    }

    fn value(&mut self, value: toml::Value, is_secret: bool) -> Value {
        match value {
            toml::Value::Table(table) => {
                let mut fields = Map::new();
                for (name, value) in table {
                    let is_secret = is_secret || is_secret_name(&name);
                    fields.insert(name, self.value(value, is_secret));
                }
                Value::Object(fields)
            }
            toml::Value::Array(all) => {
                let all = all.into_iter().map(|one| self.value(one, is_secret));
                Value::Array(all.collect())
            }
            _ if is_secret => {
                self.removed += 1;
                Value::from(REMOVED)
            }
            toml::Value::String(text) => Value::from(self.text(&text)),
            toml::Value::Integer(number) => Value::from(number),
            toml::Value::Float(number) => Value::from(number),
            toml::Value::Boolean(flag) => Value::from(flag),
            toml::Value::Datetime(date) => Value::from(date.to_string()),
        }
    }

    /// A text without the secrets that it shows.
    pub(super) fn text(&mut self, text: &str) -> String {
        let mut text = self.without_known(text);
        text = self.without_private_keys(&text);
        for beginning in SECRET_BEGINNINGS {
            text = self.without_marked(&text, beginning);
        }
        text = self.without_user_information(&text);
        text = self.without_named(&text);
        self.without_digits(&text)
    }

    fn without_known(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.known {
            self.removed += text.matches(secret.as_str()).count() as u64;
            text = text.replace(secret.as_str(), REMOVED);
        }
        text
    }

    /// Private keys in PEM, also within a string of JSON.
    fn without_private_keys(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(PRIVATE_KEY_BEGINS) {
            let (before, block) = rest.split_at(at);
            let line = block.split(['\n', '\\']).next().unwrap_or(block);
            out.push_str(before);
            if !line.contains("PRIVATE KEY") {
                let (begin, after) = block.split_at(PRIVATE_KEY_BEGINS.len());
                out.push_str(begin);
                rest = after;
                continue;
            }
            self.removed += 1;
            out.push_str(REMOVED);
            // One that does not end takes all that follows.
            let end = block.find(PRIVATE_KEY_ENDS).map_or("", |end| {
                let end = &block[end + PRIVATE_KEY_ENDS.len()..];
                end.find("-----")
                    .map_or("", |end_of_line| &end[end_of_line + 5..])
            });
            rest = end;
        }
        out + rest
    }

    /// Words that begin so.
    fn without_marked(&mut self, text: &str, beginning: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(beginning) {
            let (before, word) = rest.split_at(at);
            let end = word.find(is_mark).unwrap_or(word.len());
            // `asterism-key-1` alone says which form a key has.
            let has_secret = word[..end].contains(':');
            out.push_str(before);
            out.push_str(match has_secret {
                true => REMOVED,
                false => &word[..end],
            });
            self.removed += u64::from(has_secret);
            rest = &word[end..];
        }
        out + rest
    }

    /// Name and password of an address: `http://user:password@host`.
    fn without_user_information(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("://") {
            let (before, after) = rest.split_at(at + 3);
            out.push_str(before);
            let end = after
                .find(|letter: char| is_mark(letter) || letter == '/')
                .unwrap_or(after.len());
            rest = match after[..end].rfind('@') {
                Some(user) => {
                    self.removed += 1;
                    out.push_str(REMOVED);
                    &after[user..]
                }
                None => after,
            };
        }
        out + rest
    }

    /// The word behind a name of a secret: `password=…`, `"password": "…"`, `Bearer …`.
    fn without_named(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        loop {
            let lower = rest.to_ascii_lowercase();
            let found = SECRET_WORDS
                .iter()
                .filter_map(|word| lower.find(word).map(|at| at + word.len()))
                .min();
            let Some(end) = found else {
                return out + rest;
            };
            let (before, after) = rest.split_at(end);
            out.push_str(before);
            let is_gap = |letter: char| letter.is_whitespace() || "\"'=:\\".contains(letter);
            let gap = after.find(|letter| !is_gap(letter)).unwrap_or(after.len());
            let (gap, after) = after.split_at(gap);
            out.push_str(gap);
            // A word that goes on, such as `passwords`, or a sentence about secrets, names none.
            let is_assigned =
                gap.contains(['=', ':']) || before.to_ascii_lowercase().ends_with("bearer");
            let end = after.find(is_mark).unwrap_or(after.len());
            if gap.is_empty() || !is_assigned || end == 0 || after.starts_with(REMOVED) {
                rest = after;
                continue;
            }
            self.removed += 1;
            out.push_str(REMOVED);
            rest = &after[end..];
        }
    }

    /// Long runs of hexadecimal digits: keys without a name.
    fn without_digits(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(start) = rest.find(|letter: char| letter.is_ascii_hexdigit()) {
            let (before, run) = rest.split_at(start);
            let end = run
                .find(|letter: char| !letter.is_ascii_hexdigit())
                .unwrap_or(run.len());
            out.push_str(before);
            let is_key = end >= KEY_DIGITS;
            self.removed += u64::from(is_key);
            out.push_str(match is_key {
                true => REMOVED,
                false => &run[..end],
            });
            rest = &run[end..];
        }
        out + rest
    }
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

/// What ends a word.
fn is_mark(letter: char) -> bool {
    letter.is_whitespace() || "\"'`,;()[]{}<>\\".contains(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    #[test]
    fn secrets_are_taken_out_of_texts() {
        let key = format!("asterism-key-1:1:{DIGITS}");
        let token = format!("asterism-token-1:{DIGITS}");
        let pem = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIA\n-----END EC PRIVATE KEY-----";
        let in_json = pem.replace('\n', "\\n");
        for (text, expected, removed) in [
            (format!("key {key}."), "key (removed)".to_owned(), 1),
            (format!("\"{token}\","), "\"(removed)\",".to_owned(), 1),
            (format!("a {pem} b"), "a (removed) b".to_owned(), 1),
            (format!("\"{in_json}\""), "\"(removed)\"".to_owned(), 1),
            (
                "a -----BEGIN PRIVATE KEY----- never ends".to_owned(),
                "a (removed)".to_owned(),
                1,
            ),
            (
                "at http://root:hunter2@192.0.2.1:2379/v3, https://192.0.2.2".to_owned(),
                "at http://(removed)@192.0.2.1:2379/v3, https://192.0.2.2".to_owned(),
                1,
            ),
            (
                "Authorization: Bearer abc123\npassword = \"hunter2\" Password:x".to_owned(),
                "Authorization: Bearer (removed)\npassword = \"(removed)\" Password:(removed)"
                    .to_owned(),
                3,
            ),
            (format!("bare {DIGITS}!"), "bare (removed)!".to_owned(), 1),
            ("my own word".to_owned(), "my (removed) word".to_owned(), 1),
        ] {
            let mut redactor = Redactor::new(vec!["own".to_owned(), String::new()]);
            assert_eq!(redactor.text(&text), expected);
            assert_eq!(redactor.removed(), removed, "{text}");
        }
    }

    #[test]
    fn what_is_no_secret_stays() {
        let certificate = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----";
        for text in [
            "incarnation 00112233445566778899aabbccddeeff",
            "secrets are kept in files, and no password was asked for",
            "a key of the form asterism-key-1",
            "\"password\": \"(removed)\", bearer (removed)",
            "é https://192.0.2.1/a@b",
            certificate,
            "",
        ] {
            let mut redactor = Redactor::default();
            assert_eq!(redactor.text(text), text);
            assert_eq!(redactor.removed(), 0);
        }
    }

    #[test]
    fn a_configuration_loses_comments_and_secrets_and_keeps_the_rest() {
        let text = format!(
            "# the password is hunter2\n[cluster]\nkey = \"cluster.key\"\nmembers = [\"a\"]\n[orchestrator]\n\
             etcd_password = \"hunter2\"\nuser = {{ secret = [\"hunter2\", 3] }}\nlisten = \"http://u:hunter2@h\"\nother = \"{DIGITS}\"\n"
        );
        let mut redactor = Redactor::default();
        let json = redactor.configuration(&text).unwrap();
        assert!(
            !json.contains("hunter2") && !json.contains(DIGITS),
            "{json}"
        );
        assert_eq!(redactor.removed(), 5);
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["cluster"]["key"], "cluster.key");
        assert_eq!(json["cluster"]["members"][0], "a");
        assert_eq!(redactor.configuration("half a [table"), None);
    }
}
