//! The program that Maelstrom starts: standard streams, the machine's clock and its randomness around a
//! [`Node`](asterism_maelstrom::Node).

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use asterism_io::clock::MonotonicClock;
use asterism_maelstrom::{Node, Output, Start, Workload};
use asterism_placement::Incarnation;
use lexopt::prelude::*;

const USAGE: &str = "\
A node of Maelstrom: one JSON message a line on standard input and output, the log on standard error.

Usage: asterism-maelstrom --workload g-set|g-counter|pn-counter|broadcast

Exit: 0 standard input ended; 1 a stream failed; 2 usage.
";

/// The longest line that is read, in bytes; a longer one is skipped, and the log says so.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Lines that wait for the node; at more the pipe's other end waits.
const LINES_WAITING_MAX: usize = 1_024;
/// Lines that are handled between two turns.
const LINES_PER_TURN: usize = 256;
/// How long the node waits for a line before `init`, when nothing is due.
const IDLE: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let workload = match workload(std::env::args_os()) {
        Ok(Some(workload)) => workload,
        Ok(None) => {
            return match write!(io::stdout(), "{USAGE}") {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            };
        }
        Err(error) => {
            log(&format!("asterism-maelstrom: {error}; `--help` says more"));
            return ExitCode::from(2);
        }
    };
    match serve(workload) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log(&format!("asterism-maelstrom: the node stopped: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// What the arguments (the program's name first) say; `None` asks for help.
fn workload(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<Option<Workload>, lexopt::Error> {
    let mut parser = lexopt::Parser::from_iter(arguments);
    let mut workload = None;
    while let Some(argument) = parser.next()? {
        match argument {
            Long("help") | Short('h') => return Ok(None),
            Long("workload") | Short('w') => {
                let name = parser.value()?.string()?;
                let known = Workload::named(&name);
                workload = Some(known.ok_or_else(|| format!("there is no workload {name:?}"))?);
            }
            other => return Err(other.unexpected()),
        }
    }
    match workload {
        Some(workload) => Ok(Some(workload)),
        None => Err("--workload is missing".into()),
    }
}

/// Runs a node until standard input ends.
fn serve(workload: Workload) -> io::Result<()> {
    let clock = MonotonicClock::new();
    let mut node = Node::new(Start {
        workload,
        incarnation: Incarnation(u64::from_le_bytes(random()?) | 1),
        secrets: random()?,
        tick_at_zero: clock.wall_at_zero(),
    });
    let (sender, lines) = sync_channel(LINES_WAITING_MAX);
    thread::spawn(move || read_lines(&sender));
    let mut output = BufWriter::new(io::stdout().lock());
    loop {
        let goes_on = take_lines(&mut node, clock, &lines)?;
        let now = clock.now();
        node.turn(now);
        while let Some(written) = node.poll_output(now) {
            match written {
                Output::Line(line) => writeln!(output, "{line}")?,
                Output::Log(sentence) => log(&sentence),
            }
        }
        output.flush()?;
        if !goes_on {
            log(&format!("standard input ended: {:?}", node.tally()));
            return Ok(());
        }
    }
}

/// Hands the node what came until a turn is due; false when standard input has ended.
fn take_lines(
    node: &mut Node,
    clock: MonotonicClock,
    lines: &Receiver<io::Result<String>>,
) -> io::Result<bool> {
    let mut wait = node.poll_timeout().map_or(IDLE, |due| due - clock.now());
    for _ in 0..LINES_PER_TURN {
        match lines.recv_timeout(wait) {
            Ok(line) => node.handle_line(clock.now(), &line?),
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => return Ok(false),
        }
        // The first ends the wait: what is here with it is handled, what comes later has a turn of its own.
        wait = Duration::ZERO;
    }
    Ok(true)
}

/// Reads standard input to its end, on a thread of its own: a read cannot be given up when a turn is due.
fn read_lines(sender: &SyncSender<io::Result<String>>) {
    let mut input = BufReader::new(io::stdin());
    loop {
        let line = match read_line(&mut input) {
            Ok(Some(line)) => Ok(line),
            Ok(None) => return,
            Err(error) => Err(error),
        };
        let failed = line.is_err();
        if sender.send(line).is_err() || failed {
            return;
        }
    }
}

/// The next line, without its end; `None` when there is none.
fn read_line(input: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    loop {
        line.clear();
        input.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        if line.ends_with(b"\n") || (line.len() as u64) < LINE_BYTES_MAX {
            let text = String::from_utf8_lossy(&line);
            return Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned()));
        }
        input.skip_until(b'\n')?;
        log(&format!(
            "a line of {LINE_BYTES_MAX} bytes or more was skipped"
        ));
    }
}

/// Writes a line of the log. There is nobody to tell that nobody reads it.
fn log(sentence: &str) {
    let _ = writeln!(io::stderr(), "{sentence}");
}

/// Bytes from the operating system.
fn random<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}
