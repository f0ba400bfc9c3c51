//! Reads configuration files, and the files that they name.

use std::io::Read;
use std::path::{Path, PathBuf};

use asterism_functions::firewall::RULE_FILE_BYTES_MAX;

use crate::{Config, FILE_BYTES_MAX, ObjectChoice, Purpose, Settings, key_file};
pub use asterism_function_settings::FileError;
use asterism_function_settings::{FunctionError, Functions};
use asterism_notation::text::without_mark;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};

/// Reads a configuration file for this purpose and the host of `member`, and checks the key file that it names.
///
/// # Errors
/// The reason why the file could not be read.
pub fn load(
    path: &Path,
    purpose: Purpose,
    member: Option<&str>,
    functions: Functions,
) -> Result<(Option<Config>, Report), FileError> {
    let name = path.display().to_string();
    let text = text_of(path, "the configuration")?;
    let (mut config, mut report) = Config::read_as(&name, &text, purpose, member, functions);
    if let Some(key) = config
        .as_ref()
        .and_then(|config| config.cluster.key.as_deref())
        && let Err(error) = key_file::read(&key_path(path, key))
    {
        let start = text.find(key.to_string_lossy().as_ref()).unwrap_or(0);
        let end = start + key.to_string_lossy().len();
        report.add(
            Diagnostic::error("the cluster's key cannot be used", start..end)
                .help(error.to_string()),
        );
        report.sort();
        config = None;
    }
    let config = with_files(config, path, &mut report);
    Ok((config, report))
}

/// The text of a file; the message of a failure calls the file `what`.
///
/// # Errors
/// The file could not be read, is longer than a configuration may be, or is not UTF-8.
pub fn text_of(path: &Path, what: &str) -> Result<String, FileError> {
    let name = path.display().to_string();
    let cannot = |error| FileError::Unreadable {
        file: format!("{what} {name}"),
        error,
    };
    let file = std::fs::File::open(path).map_err(cannot)?;
    let bytes = bytes_of(file, FILE_BYTES_MAX).map_err(cannot)?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(FileError::NoConfiguration { file: name });
    }
    utf8(bytes, name, what)
}

/// A file's content, at most one byte more than `most`, since the file may be an endless device.
fn bytes_of(file: std::fs::File, most: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a file that was read, without a byte-order mark.
fn utf8(bytes: Vec<u8>, file: String, what: &str) -> Result<String, FileError> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
            + 1;
        let what = what.to_owned();
        FileError::NotUtf8 {
            file,
            line,
            at,
            what,
        }
    })?;
    Ok(match without_mark(&text) {
        plain if plain.len() < text.len() => plain.to_owned(),
        _ => text,
    })
}

/// Reads the files that a configuration names, relative to the folder of the file at `path`. `None` after a mistake, which is in
/// the report.
#[must_use]
pub fn with_files(config: Option<Config>, path: &Path, report: &mut Report) -> Option<Config> {
    let mut config = config?;
    let mistakes = report.errors();
    let settings = &mut config.function.settings;
    settings.read_files(&|file| read_file(&key_path(path, file)), report);
    if report.errors() > mistakes {
        report.sort();
        return None;
    }
    Some(config)
}

/// Makes the function of a configuration once, as a check. `None` if the function refuses its settings; the report says why, at the
/// function's table. Commands that run the function need no such check.
#[must_use]
pub fn made(config: Option<Config>, report: &mut Report) -> Option<Config> {
    let config = config?;
    let function = &config.function;
    let make = |settings: &Settings, objects: &[ObjectChoice]| settings.try_function(objects);
    let stages = match &function.settings {
        Settings::Chain(chain) => &chain.stages[..],
        _ => &[],
    };
    let stages = stages
        .iter()
        .map(|stage| (stage.name, make(&stage.settings, &stage.objects)));
    let mut refused: Vec<(&str, FunctionError)> = stages
        .filter_map(|(name, made)| Some((name, made.err()?)))
        .collect();
    if refused.is_empty()
        && let Err(why) = make(&function.settings, &function.objects)
    {
        refused.push((function.name, why));
    }
    if refused.is_empty() {
        return Some(config);
    }
    for (name, why) in refused {
        let place = crate::place_of_function(&report.text, name);
        report.add(
            Diagnostic::error(why.to_string(), place).label("its settings contradict each other"),
        );
    }
    report.sort();
    None
}

/// Name and text of a file that the configuration names. Reads no more bytes than a rule file may have.
fn read_file(path: &Path) -> Result<(String, String), FileError> {
    let name = path.display().to_string();
    let cannot = |error| FileError::Unreadable {
        file: name.clone(),
        error,
    };
    let file = std::fs::File::open(path).map_err(cannot)?;
    let bytes = bytes_of(file, RULE_FILE_BYTES_MAX).map_err(cannot)?;
    if bytes.len() > RULE_FILE_BYTES_MAX {
        return Err(FileError::TooLong { file: name });
    }
    let text = utf8(bytes, name.clone(), "the file")?;
    Ok((name, text))
}

/// A key file's path: from the configuration's folder, unless it is absolute.
#[must_use]
pub fn key_path(config: &Path, key: &Path) -> PathBuf {
    config.parent().unwrap_or(Path::new("")).join(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_refused() {
        let refused = read_file(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(refused.contains("more than 4194304 bytes"), "{refused}");
        assert!(read_file(Path::new("/nonexistent/rules")).is_err());
    }
}
