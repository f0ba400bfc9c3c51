//! Why a configuration file, or a file that the settings of a function name, is not read.

use asterism_functions::firewall::RULE_FILE_BYTES_MAX;

/// The longest configuration file that is read, in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system does not give it.
    #[error("cannot read {file}: {error}")]
    Unreadable {
        /// The file, and for what it was to be read.
        file: String,
        /// Why.
        error: std::io::Error,
    },
    /// It is longer than a configuration may be.
    #[error("{file} has more than {FILE_BYTES_MAX} bytes: is this the right file?")]
    NoConfiguration {
        /// The file.
        file: String,
    },
    /// It is longer than a file may be that a configuration names.
    #[error("{file} has more than {RULE_FILE_BYTES_MAX} bytes, the most of such a file")]
    TooLong {
        /// The file.
        file: String,
    },
    /// It is no text.
    #[error("{file}:{line}: byte {at} is not UTF-8, as {what} must be: save the file as UTF-8")]
    NotUtf8 {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The first byte that is not.
        at: usize,
        /// For what it was to be read.
        what: String,
    },
}
