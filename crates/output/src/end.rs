//! How commands end: exit codes.

use std::process::ExitCode;

/// What each exit code means, for the help of a program.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  success: every check of the command holds
  1  the command ran without success: a check does not hold (demo, test), packets were lost on the way (replay), no datagram
     was opened (decrypt), the host could not start or continue (run), the entry does not exist (state get, where), no host
     knows the flow (flows find), a replica differs (audit), a host did not take the epoch (epoch --hand), no cache holds
     the object (digests), a source was not blocked, or is still blocked (block, unblock), no flow was ended, or a flow is
     still or again known (flows end)
  2  the command line is wrong
  3  the configuration is refused; every mistake is listed
  4  a file could not be read or written, or no host answers
  5  the system refused a request: a right or a program is missing (lab)
  `lab up --exec` ends with the exit code of the program that it ran.
";

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Success: every check of the command holds.
    Done,
    /// The command ran, and a check does not hold.
    DoesNotHold,
    /// The command line is wrong.
    CommandLine,
    /// The configuration is refused.
    Configuration,
    /// A file could not be read or written.
    File,
    /// The system refused a request.
    System,
    /// The program that the command ran ended with this exit code.
    Program(u8),
}

impl End {
    /// The exit code of the process.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            End::Done => 0,
            End::DoesNotHold => 1,
            End::CommandLine => 2,
            End::Configuration => 3,
            End::File => 4,
            End::System => 5,
            End::Program(code) => code,
        }
    }
}

impl From<End> for ExitCode {
    fn from(end: End) -> ExitCode {
        ExitCode::from(end.code())
    }
}
