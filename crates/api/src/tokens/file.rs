//! The file of tokens: TOML, one table for each token. It is read whole or refused whole.
//!
//! ```toml
//! [[token]]
//! name = "alice"
//! scope = "operator"              # operator, read-only or tenant
//! expires = 2027-01-31T00:00:00Z  # optional
//! sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
//!
//! [[token]]
//! name = "blue-portal"
//! scope = "tenant"
//! tenant = "blue"
//! sha256 = "cb8379ac2098aa165029e3938a51da0bcecfc008fd6795f401178647f96c5b34"
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use toml::value::Datetime;

use super::{Hash, Token, Tokens, date, is_name};
use crate::cluster_api::Scope;

/// Bytes of a file of tokens.
pub const FILE_BYTES_MAX: u64 = 512 * 1024;
/// Tokens of a file.
pub const TOKENS_MAX: usize = 1_024;
/// Mode bits that let others write.
const OTHERS_WRITE: u32 = 0o022;

/// Why a file of tokens is refused. Tokens that were in force stay so, and a file that was to be changed is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// It cannot be read or written.
    #[error("the token file {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others may write it, and so make tokens.
    #[error("the token file {} can be written by others (mode {mode:03o}); do chmod 600", path.display())]
    Writable {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is longer than [`FILE_BYTES_MAX`].
    #[error("the token file {} has more than {FILE_BYTES_MAX} bytes", path.display())]
    Long {
        /// The file.
        path: PathBuf,
    },
    /// A line of it is wrong.
    #[error("the token file {}, line {line}: {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// A token that was to be added or removed does not fit the file.
    #[error("{why}")]
    Change {
        /// What is wrong.
        why: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    #[serde(default)]
    token: Vec<Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    scope: String,
    tenant: Option<String>,
    expires: Option<Datetime>,
    sha256: String,
}

/// Reads a file of tokens.
///
/// # Errors
/// See [`TokenFileError`].
pub fn read(path: &Path) -> Result<Tokens, TokenFileError> {
    let text = read_text(path)?;
    parse(path, &text)
}

/// Adds a token at the end of a file, and makes the file with mode 0600 if there is none. The file is replaced whole or not at all.
///
/// # Errors
/// A name or hash that the file has already, and see [`TokenFileError`].
pub fn add(path: &Path, token: &Token) -> Result<(), TokenFileError> {
    let _lock = lock(path)?;
    let text = match read_text(path) {
        Err(TokenFileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            String::new()
        }
        other => other?,
    };
    let whole = format!("{text}{}", table(token, text.is_empty())?);
    // What was written must read as it was meant, and beside what was there.
    parse(path, &whole)?;
    replace(path, &whole)
}

/// Removes the token of a name. The file is written again, without its comments. True if there was one.
///
/// # Errors
/// See [`TokenFileError`].
pub fn remove(path: &Path, name: &str) -> Result<bool, TokenFileError> {
    let _lock = lock(path)?;
    let tokens = read(path)?;
    let mut whole = String::new();
    for token in tokens.all().iter().filter(|token| token.name != name) {
        let next = table(token, whole.is_empty())?;
        whole.push_str(&next);
    }
    let has_it = tokens.all().iter().any(|token| token.name == name);
    if has_it {
        replace(path, &whole)?;
    }
    Ok(has_it)
}

/// Locks the folder of a file, so that of two changes at once neither is lost. Dropping the folder's file unlocks it.
fn lock(path: &Path) -> Result<File, TokenFileError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let locked = File::open(folder).and_then(|folder| folder.lock().map(|()| folder));
    locked.map_err(|source| TokenFileError::Io {
        path: path.to_owned(),
        source,
    })
}

fn read_text(path: &Path) -> Result<String, TokenFileError> {
    let io = |source| TokenFileError::Io {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(io)?;
    let mode = file.metadata().map_err(io)?.mode() & 0o777;
    if mode & OTHERS_WRITE != 0 {
        return Err(TokenFileError::Writable {
            path: path.to_owned(),
            mode,
        });
    }
    let mut text = String::new();
    let mut bounded = file.take(FILE_BYTES_MAX + 1);
    bounded.read_to_string(&mut text).map_err(io)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(TokenFileError::Long {
            path: path.to_owned(),
        });
    }
    Ok(text)
}

/// Reads the text of a file of tokens.
pub(super) fn parse(path: &Path, text: &str) -> Result<Tokens, TokenFileError> {
    let fault = |place: usize, why: String| TokenFileError::Line {
        path: path.to_owned(),
        line: 1 + text.as_bytes()[..place.min(text.len())]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count(),
        why,
    };
    let tables: Tables = toml::from_str(text).map_err(|error| {
        let place = error.span().map_or(0, |span| span.start);
        fault(place, error.message().to_owned())
    })?;
    if tables.token.len() > TOKENS_MAX {
        let place = tables.token[TOKENS_MAX].span().start;
        return Err(fault(place, format!("more than {TOKENS_MAX} tokens")));
    }
    let mut tokens: Vec<Token> = Vec::new();
    for entry in tables.token {
        let place = entry.span().start;
        let token = token(entry.into_inner()).map_err(|why| fault(place, why))?;
        for other in &tokens {
            if other.name == token.name {
                let why = format!("a second token is named {}", token.name);
                return Err(fault(place, why));
            }
            if other.hash == token.hash {
                let why = format!("{} and {} have the same hash", other.name, token.name);
                return Err(fault(place, why));
            }
        }
        tokens.push(token);
    }
    Ok(Tokens(tokens))
}

/// A sentence says what is wrong.
fn token(entry: Entry) -> Result<Token, String> {
    let Entry {
        name,
        scope,
        tenant,
        expires,
        sha256,
    } = entry;
    let name_rule = "has 1 to 64 letters, digits, - _ or .";
    if !is_name(&name) {
        return Err(format!("the name of a token {name_rule}"));
    }
    let scope = match (scope.as_str(), tenant) {
        ("operator", None) => Scope::Operator,
        ("read-only", None) => Scope::ReadOnly,
        ("tenant", Some(tenant)) if is_name(&tenant) => Scope::Tenant(tenant),
        ("tenant", Some(_)) => return Err(format!("the tenant of {name} {name_rule}")),
        ("tenant", None) => return Err(format!("{name} names no tenant; add tenant = \"NAME\"")),
        ("operator" | "read-only", Some(_)) => {
            return Err(format!("{name} has a tenant, but its scope is {scope:?}"));
        }
        _ => {
            return Err(format!(
                "the scope of {name} is operator, read-only or tenant, and not {scope:?}"
            ));
        }
    };
    let expires = match expires {
        None => None,
        Some(date) => match date::seconds(&date) {
            Some(seconds) => Some(seconds),
            None => {
                return Err(format!(
                    "the expiry of {name} needs an offset and a year after 1970, such as 2027-01-31T00:00:00Z"
                ));
            }
        },
    };
    // The hash is not repeated: somebody may have put the secret there.
    let Some(hash) = Hash::parse(&sha256) else {
        return Err(format!("the sha256 of {name} has 64 hexadecimal digits"));
    };
    Ok(Token {
        name,
        scope,
        expires,
        hash,
    })
}

/// A token as a table of the file.
fn table(token: &Token, is_first: bool) -> Result<String, TokenFileError> {
    let Token {
        name,
        scope,
        expires,
        hash,
    } = token;
    let change = |why: String| TokenFileError::Change { why };
    let mut text = String::new();
    if !is_first {
        text.push('\n');
    }
    // Names are checked when the whole is read again, before it is written: a quote in one cannot get out.
    if !is_name(name) {
        let why =
            format!("{name:?} is no name of a token: it has 1 to 64 letters, digits, - _ or .");
        return Err(change(why));
    }
    text.push_str(&format!("[[token]]\nname = \"{name}\"\n"));
    match scope {
        Scope::Operator => text.push_str("scope = \"operator\"\n"),
        Scope::ReadOnly => text.push_str("scope = \"read-only\"\n"),
        Scope::Tenant(tenant) if is_name(tenant) => {
            text.push_str(&format!("scope = \"tenant\"\ntenant = \"{tenant}\"\n"));
        }
        Scope::Tenant(tenant) => return Err(change(format!("{tenant:?} is no name of a tenant"))),
    }
    if let Some(expires) = expires {
        let Some(date) = date::date(*expires) else {
            return Err(change("a token expires before the year 10000".to_owned()));
        };
        text.push_str(&format!("expires = {date}\n"));
    }
    text.push_str(&format!("sha256 = \"{hash}\"\n"));
    Ok(text)
}

/// Writes a file beside the former and puts it in its place, so that a reader sees one of them whole.
fn replace(path: &Path, text: &str) -> Result<(), TokenFileError> {
    let io = |source| TokenFileError::Io {
        path: path.to_owned(),
        source,
    };
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // What could not be completed is of no use; that it may stay changes nothing.
        let _ = fs::remove_file(&beside);
    }
    written.map_err(io)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::{Found, Secret};

    const GOOD: &str = "# people
[[token]]
name = \"alice\"
scope = \"operator\"
expires = 2027-01-31T00:00:00Z
sha256 = \"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"

[[token]]
name = \"blue\"
scope = \"tenant\"
tenant = \"blue\"
sha256 = \"cb8379ac2098aa165029e3938a51da0bcecfc008fd6795f401178647f96c5b34\"
";

    fn fault(text: &str) -> String {
        let error = parse(Path::new("tokens.toml"), text).unwrap_err();
        error.to_string()
    }

    #[test]
    fn a_good_file_is_read() {
        let tokens = parse(Path::new("tokens.toml"), GOOD).unwrap();
        let [alice, blue] = tokens.all() else {
            panic!("{tokens:?}")
        };
        assert_eq!(alice.expires, Some(1_801_353_600));
        assert_eq!(blue.scope, Scope::Tenant("blue".to_owned()));
        assert_eq!(tokens.find("abc", 0), Found::Valid(alice));
    }

    #[test]
    fn every_mistake_has_its_line_and_sentence() {
        for (from, to, line, part) in [
            (
                "scope = \"operator\"",
                "scope = \"root\"",
                2,
                "operator, read-only or tenant",
            ),
            ("tenant = \"blue\"", "", 8, "names no tenant"),
            ("name = \"blue\"", "name = \"alice\"", 8, "second token"),
            (
                "name = \"blue\"",
                "name = \"b\\nlue\"",
                8,
                "1 to 64 letters",
            ),
            ("name = \"blue\"", "nom = \"blue\"", 9, "unknown field"),
            ("cb83", "cb8", 8, "64 hexadecimal"),
            ("2027-01-31T00:00:00Z", "2027-01-31T00:00:00", 2, "offset"),
            ("2027-01-31T00:00:00Z", "2027-02-31T00:00:00Z", 5, ""),
            (
                "[[token]]\nname = \"blue\"",
                "[[token]\nname = \"blue\"",
                8,
                "",
            ),
        ] {
            let text = fault(&GOOD.replacen(from, to, 1));
            let place = format!("tokens.toml, line {line}: ");
            assert!(
                text.contains(&place) && text.contains(part),
                "{from}: {text}"
            );
        }
        let twice = GOOD.replace(
            "cb8379ac2098aa165029e3938a51da0bcecfc008fd6795f401178647f96c5b34",
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        );
        assert!(fault(&twice).contains("same hash"));
    }

    #[test]
    fn tokens_are_added_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        let secret = Secret::draw().unwrap();
        let mut token = Token {
            name: "carol".to_owned(),
            scope: Scope::ReadOnly,
            expires: Some(4_107_542_400),
            hash: Hash::of(secret.reveal()),
        };
        add(&path, &token).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(!fs::read_to_string(&path).unwrap().contains(secret.reveal()));
        assert_eq!(
            read(&path).unwrap().find(secret.reveal(), 0),
            Found::Valid(&token)
        );

        add(&path, &token).unwrap_err();
        token.name = "x\"\nscope = \"operator".to_owned();
        add(&path, &token).unwrap_err();
        token.name = "dave".to_owned();
        token.hash = Hash::of("other");
        token.scope = Scope::Tenant("blue".to_owned());
        add(&path, &token).unwrap();
        assert_eq!(read(&path).unwrap().all().len(), 2);

        assert!(remove(&path, "carol").unwrap() && !remove(&path, "carol").unwrap());
        assert_eq!(read(&path).unwrap().all(), [token]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn of_changes_at_once_none_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        std::thread::scope(|scope| {
            for number in 0..16 {
                let path = &path;
                scope.spawn(move || {
                    let name = format!("token-{number}");
                    let token = Token {
                        hash: Hash::of(&name),
                        name,
                        scope: Scope::ReadOnly,
                        expires: None,
                    };
                    add(path, &token).unwrap();
                });
            }
        });
        assert_eq!(read(&path).unwrap().all().len(), 16);
    }

    #[test]
    fn a_file_that_others_can_write_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        fs::write(&path, GOOD).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
        let text = read(&path).unwrap_err().to_string();
        assert!(
            text.contains("mode 620") && text.contains("chmod 600"),
            "{text}"
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        read(&path).unwrap();
    }
}
