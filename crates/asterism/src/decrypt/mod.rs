//! `asterism decrypt`: opens the sealed datagrams of a capture, for the Wireshark dissector in `tools/wireshark`.
//!
//! Every packet is written as it was read, except that in an opened datagram the text replaces the ciphertext and
//! [`OPENED_MARK`](asterism_secure_channel::OPENED_MARK) replaces the tag: lengths, addresses and times stay. The capture is
//! read twice, so that datagrams before a session's first handshake open too. `frame.rs` finds datagrams in frames;
//! `report.rs` counts the results.

mod frame;
mod report;

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use asterism_config::key_file::{self, KeyFileError};
use asterism_io::port::{CaptureError, CaptureReader, CaptureWriter};
use asterism_output::End;
use asterism_output::Output;
use asterism_placement::replicated::Frame;
use asterism_secure_channel::{AddKeyError, RecordedOpener};

use frame::Found;

pub use report::{DECRYPT, DecryptReport, SESSIONS_SHOWN_MAX, SessionReport};

/// The wire version that this program opens.
const WIRE_VERSION: u8 = 1;
/// What is written can be read by its owner alone: it is the cluster's state.
const MODE: u32 = 0o600;

/// The arguments of `asterism decrypt`.
#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    /// A key file; several, if the key was changed during the capture and no file has all. Up to four keys
    #[arg(long = "key", value_name = "FILE", required = true)]
    pub keys: Vec<PathBuf>,
    /// Another capture of the same cluster, to take handshakes from; may be given several times
    #[arg(long, value_name = "CAPTURE")]
    pub handshakes: Vec<PathBuf>,
    /// The capture to open (pcap or pcapng, Ethernet)
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// Where to write it, opened (pcap); only its owner can read it
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
}

/// `asterism decrypt`.
pub fn command(arguments: &Arguments, output: &mut Output<'_>) -> End {
    let (report, failure) = match decrypt(arguments) {
        Ok(done) => done,
        Err(error) => return output.fail(End::File, &format!("nothing was written: {error}")),
    };
    if let Some(failure) = &failure {
        output.say(&format!("error: {failure}\n"));
    }
    if output.json() {
        output.document(DECRYPT, &report);
    } else {
        output.text(&report.text());
    }
    output.end(match failure {
        Some(_) => End::File,
        None if report.datagrams_opened == 0 => End::DoesNotHold,
        None => End::Done,
    })
}

/// Why no capture was opened; nothing was written.
#[derive(Debug, thiserror::Error)]
enum DecryptError {
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// A key of this file does not go with those before it.
    #[error("{}: {error}", file.display())]
    Key { file: PathBuf, error: AddKeyError },
    #[error("{} is not a file: captures are read twice, so save it to one first", .0.display())]
    NotReadTwice(PathBuf),
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error("{} is read: name another file for what is opened", .0.display())]
    IsRead(PathBuf),
    #[error("{} is not a file", .0.display())]
    NotAFile(PathBuf),
    #[error("cannot create {}: {error}", file.display())]
    NotCreated { file: PathBuf, error: io::Error },
}

/// Opens a capture. A capture that fails on the way is opened until there: the failure comes beside the report.
fn decrypt(arguments: &Arguments) -> Result<(DecryptReport, Option<CaptureError>), DecryptError> {
    let mut opener = RecordedOpener::new(WIRE_VERSION);
    for path in &arguments.keys {
        for key in key_file::read(path)?.keys() {
            opener
                .add_key(key.clone())
                .map_err(|error| DecryptError::Key {
                    file: path.clone(),
                    error,
                })?;
        }
    }
    for path in [&arguments.input].into_iter().chain(&arguments.handshakes) {
        if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            return Err(DecryptError::NotReadTwice(path.clone()));
        }
    }
    for path in &arguments.handshakes {
        learn(path, &mut opener)?;
    }
    let mut reader = CaptureReader::open(&arguments.input)?;
    // What fails here fails again below, at the same packet, and is reported there.
    let _ = learn(&arguments.input, &mut opener);
    let mut writer = create(arguments)?;

    let mut report = DecryptReport {
        output: arguments.output.display().to_string(),
        sessions: opener.sessions() as u64,
        ..DecryptReport::default()
    };
    let mut bytes = Vec::new();
    let mut failure = loop {
        match reader.next(&mut bytes) {
            Ok(Some(packet)) => {
                open_frame(&mut bytes, packet.truncated, &mut opener, &mut report);
                // A loss shows when the writer is flushed.
                writer.write(packet.timestamp_ns, packet.original_length as usize, &bytes);
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    if let Err(error) = writer.flush() {
        failure.get_or_insert(error);
    }
    report.packets_written = writer.written_packets();
    Ok((report, failure))
}

fn open_frame(
    bytes: &mut [u8],
    truncated: bool,
    opener: &mut RecordedOpener,
    report: &mut DecryptReport,
) {
    report.packets_read += 1;
    let payload = match frame::find(bytes, truncated) {
        Found::Udp(payload) => payload,
        Found::Cut => return report.packets_cut += 1,
        Found::Fragment => return report.fragments += 1,
        Found::Other => return report.packets_other += 1,
    };
    let joined = &mut bytes[payload];
    let opened_before = report.datagrams_opened;
    for segment in Frame::datagrams(joined) {
        let datagram = &mut joined[segment];
        match opener.open(datagram) {
            Ok(recorded) => report.count_opened(&recorded),
            Err(why) => report.count_unopened(why, datagram),
        }
    }
    if report.datagrams_opened > opened_before {
        frame::correct_checksum(bytes);
    }
}

/// Takes the salts of a capture's handshakes.
fn learn(path: &Path, opener: &mut RecordedOpener) -> Result<(), CaptureError> {
    let mut reader = CaptureReader::open(path)?;
    let mut bytes = Vec::new();
    while let Some(packet) = reader.next(&mut bytes)? {
        if let Found::Udp(payload) = frame::find(&mut bytes, packet.truncated) {
            let joined = &bytes[payload];
            for segment in Frame::datagrams(joined) {
                // What does not open is counted when it is to be opened.
                let _ = opener.learn(&joined[segment]);
            }
        }
    }
    Ok(())
}

fn create(arguments: &Arguments) -> Result<CaptureWriter, DecryptError> {
    let path = &arguments.output;
    let read = [&arguments.input]
        .into_iter()
        .chain(&arguments.handshakes)
        .chain(&arguments.keys);
    for other in read {
        if is_same_file(path, other) {
            return Err(DecryptError::IsRead(path.clone()));
        }
    }
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(DecryptError::NotAFile(path.clone()));
    }
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(MODE)
        .open(path)
        // A file that was there keeps its mode when it is opened.
        .and_then(|file| {
            file.set_permissions(fs::Permissions::from_mode(MODE))?;
            Ok(file)
        })
        .map_err(|error| DecryptError::NotCreated {
            file: path.clone(),
            error,
        })?;
    Ok(CaptureWriter::new(path.display().to_string(), file))
}

/// Whether both names are of one file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}
