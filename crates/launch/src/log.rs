//! The log of a host: a file that its process appends to, and the file before it. Together they hold at most twice
//! [`LOG_BYTES_MAX`] and what was written since the launcher last looked.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes of a log from which it is copied to the file before it and emptied.
pub const LOG_BYTES_MAX: u64 = 8 << 20;
/// Lines of the end of a log that are reported.
pub const LAST_LINES_MAX: usize = 10;
/// Bytes of the end of a log that are read for them.
pub const LAST_LINES_BYTES_MAX: u64 = 4_096;

/// Opens a log to append to; the log of the launch before becomes the file before it.
pub(super) fn begin(path: &Path) -> std::io::Result<File> {
    if std::fs::metadata(path).is_ok_and(|log| log.len() > 0) {
        std::fs::rename(path, before(path))?;
    }
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
}

/// Keeps a log within its bound. Its process goes on appending; lines that it writes between the copy and the cut are lost.
pub(super) fn bound(path: &Path, bytes_max: u64) -> std::io::Result<()> {
    let mut log = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(log) => log,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let length = log.metadata()?.len();
    if length <= bytes_max {
        return Ok(());
    }
    log.seek(SeekFrom::Start(length - bytes_max))?;
    let mut copy = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(before(path))?;
    std::io::copy(&mut (&mut log).take(bytes_max), &mut copy)?;
    log.set_len(0)
}

/// The last lines of a log, without control characters; none if there is no log.
pub(super) fn last_lines(path: &Path) -> Vec<String> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut log = File::open(path)?;
        let length = log.metadata()?.len();
        log.seek(SeekFrom::Start(length.saturating_sub(LAST_LINES_BYTES_MAX)))?;
        let mut bytes = Vec::new();
        log.take(LAST_LINES_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    lines_of(&read().unwrap_or_default())
}

/// The last lines of a text, without control characters.
pub(super) fn lines_of(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let printable = |line: &str| {
        let letters = line.chars().filter(|letter| !letter.is_control());
        letters.collect::<String>()
    };
    let mut lines: Vec<_> = text
        .lines()
        .rev()
        .map(printable)
        .filter(|line| !line.is_empty())
        .take(LAST_LINES_MAX)
        .collect();
    lines.reverse();
    lines
}

/// The file before it.
fn before(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_log_stays_within_its_bound_while_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        bound(&path, 100).unwrap();
        assert!(last_lines(&path).is_empty());
        let mut log = begin(&path).unwrap();
        for number in 0..30 {
            writeln!(log, "line \x1b{number:02}").unwrap();
        }
        assert_eq!(last_lines(&path).len(), LAST_LINES_MAX);
        assert_eq!(last_lines(&path)[9], "line 29");
        bound(&path, 1_000).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 30 * 9);
        bound(&path, 90).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        let copy = std::fs::read_to_string(before(&path)).unwrap();
        assert_eq!((copy.len(), copy.lines().count()), (90, 10));
        writeln!(log, "more").unwrap();
        assert_eq!(last_lines(&path), ["more"]);
        drop(begin(&path).unwrap());
        assert_eq!(std::fs::read_to_string(before(&path)).unwrap(), "more\n");
        assert!(last_lines(&path).is_empty());
    }
}
