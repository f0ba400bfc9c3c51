//! What can go wrong in a laboratory, in sentences with the cure.

use std::fmt;
use std::io;
use std::process::Command;
use std::time::Duration;

use crate::namespace::permitted;

/// Why the laboratory could not do what it was asked to. What was built before stays until it is dropped.
#[derive(Debug)]
pub enum LabError {
    /// The process may not make network namespaces.
    NotPermitted,
    /// The kernel refused a call.
    Kernel {
        /// What was to be done.
        doing: String,
        /// The kernel's answer.
        error: io::Error,
    },
    /// A program that the laboratory needs is not installed.
    Absent {
        /// The program.
        program: String,
        /// The Debian package that has it, if the laboratory knows.
        package: Option<&'static str>,
    },
    /// A program ended with a failure.
    Failed {
        /// What was run.
        what: String,
        /// What it said.
        said: String,
    },
    /// Something did not happen in time.
    TooSlow {
        /// What was waited for.
        what: String,
        /// How long.
        waited: Duration,
        /// What the program had said until then.
        said: String,
    },
    /// A name that cannot be used.
    BadName {
        /// The name.
        name: String,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// The user-space link was too late to stand for the conditions that it was given.
    Late {
        /// 99 % of the frames left within so many microseconds after they were due.
        p99_us: u64,
        /// The bound.
        bound_us: u64,
    },
}

impl LabError {
    pub(crate) fn kernel(doing: impl Into<String>, error: io::Error) -> LabError {
        LabError::Kernel {
            doing: doing.into(),
            error,
        }
    }

    /// The failure of starting a program: absent, or refused by the kernel.
    pub(crate) fn starting(program: &str, error: io::Error) -> LabError {
        if error.kind() == io::ErrorKind::NotFound {
            LabError::Absent {
                program: program.to_owned(),
                package: package_of(program),
            }
        } else {
            LabError::kernel(format!("starting {program}"), error)
        }
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabError::NotPermitted => f.write_str(
                "the laboratory makes network namespaces and raw sockets, which needs root: run it as root (sudo)",
            ),
            LabError::Kernel { doing, error } => write!(f, "{doing}: the kernel refused ({error})"),
            LabError::Absent {
                program,
                package: Some(package),
            } => write!(f, "{program} is not installed: apt-get install {package}"),
            LabError::Absent { program, .. } => {
                write!(f, "{program} is not installed, or not where it was looked for")
            }
            LabError::Failed { what, said } => write!(f, "`{what}` failed: {}", said.trim_end()),
            LabError::TooSlow { what, waited, said } => {
                write!(f, "{what} took longer than {waited:?}")?;
                if !said.trim().is_empty() {
                    write!(f, "; it had said: {}", said.trim_end())?;
                }
                Ok(())
            }
            LabError::BadName { name, fault } => write!(f, "{name:?} cannot be used: {fault}"),
            LabError::Late { p99_us, bound_us } => write!(
                f,
                "the emulated link was late: 99 % of the frames left within {p99_us} µs of their time, \
                 {bound_us} µs is the most; the run counts for nothing, repeat it on a quieter machine"
            ),
        }
    }
}

impl std::error::Error for LabError {}

/// Programs that laboratories run, and the Debian packages that have them.
const PACKAGES: &[(&str, &str)] = &[
    ("ip", "iproute2"),
    ("arping", "iputils-arping"),
    ("bird", "bird2"),
    ("birdc", "bird2"),
    ("conntrackd", "conntrackd"),
    ("curl", "curl"),
    ("dig", "bind9-dnsutils"),
    ("dnsmasq", "dnsmasq-base"),
    ("etcd", "etcd-server"),
    ("haproxy", "haproxy"),
    ("iperf3", "iperf3"),
    ("keepalived", "keepalived"),
    ("nft", "nftables"),
    ("nginx", "nginx-light"),
    ("ovs-ofctl", "openvswitch-switch"),
    ("ovs-vsctl", "openvswitch-switch"),
    ("ovs-vswitchd", "openvswitch-switch"),
    ("ovsdb-server", "openvswitch-switch"),
    ("ovsdb-tool", "openvswitch-switch"),
    ("openssl", "openssl"),
    ("ping", "iputils-ping"),
    ("podman", "podman"),
    ("redis-server", "redis-server"),
    ("runc", "runc"),
    ("squid", "squid"),
    ("stun", "stun-client"),
    ("tcpdump", "tcpdump"),
    ("traceroute", "traceroute"),
    ("turnserver", "coturn"),
    ("turnutils_natdiscovery", "coturn"),
    ("wrk", "wrk"),
];

/// Refuses where laboratories cannot be built, or one of these programs is not installed.
///
/// # Errors
/// [`LabError::NotPermitted`] or [`LabError::Absent`], of the first program that is not there.
pub fn needs(programs: &[&str]) -> Result<(), LabError> {
    if !permitted() {
        return Err(LabError::NotPermitted);
    }
    for program in programs {
        let found = Command::new("sh")
            .args(["-c", "command -v \"$0\" >/dev/null", program])
            .status();
        if !found.is_ok_and(|status| status.success()) {
            return Err(LabError::Absent {
                program: (*program).to_owned(),
                package: package_of(program),
            });
        }
    }
    Ok(())
}

/// The Debian package that has a program, if it is one of those that laboratories run.
#[must_use]
pub fn package_of(program: &str) -> Option<&'static str> {
    let name = program.rsplit('/').next().unwrap_or(program);
    PACKAGES
        .iter()
        .find(|(one, _)| *one == name)
        .map(|(_, package)| *package)
}
