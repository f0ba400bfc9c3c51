//! Counts the instructions of a piece of work by single-stepping a process that does only that.
//!
//! Hardware counters are often absent from virtual machines, and callgrind cannot run every binary.
//! So the binary starts itself again with a hidden subcommand that prepares a named [`Workload`] and does
//! about N packets at full speed; then it raises a marker signal, does N packets and `FEW` more, and raises it
//! again, and the parent steps from marker to marker with `ptrace`. A second pair of markers stands around the few
//! alone. What markers and calls cost is in both, so the difference is I(2N) − I(N), at a third of the
//! steps that two whole runs would take. A step is dear: some 3 µs on bare metal, 20 µs in a virtual machine
//! within another, where each ends in the outer host. A REP instruction steps once per iteration.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::contract::Failure;

/// N of the definition: the packets of the shorter run.
pub const PACKETS: u32 = 2_000;
/// The hidden subcommand: `run-workload NAME PACKETS`.
pub const SUBCOMMAND: &str = "run-workload";

/// The packets of the shorter stepped run: two bursts.
const FEW: u32 = 64;
const MARKER: libc::c_int = libc::SIGUSR1;
/// Beyond this a workload is taken to hang: 2,000 instructions a packet.
const STEPS_MAX: u64 = 4_000_000;

/// Work that the counter knows by name.
#[derive(Clone, Copy)]
pub struct Workload {
    /// The name, as `floor.two-way`.
    pub name: &'static str,
    /// Prepares everything (untraced, at full speed, the same whatever N) and hands back the work: the argument is
    /// the number of packets. The work must be deterministic and single-threaded; it is asked for 2N packets in all.
    pub prepare: fn() -> Work,
}

/// Prepared work; handles as many packets as the caller asks for.
pub type Work = Box<dyn FnMut(u32)>;

/// Instructions per packet of the workload: (I(2N) − I(N)) / N with N = [`PACKETS`]. At 250 instructions a packet it
/// takes 2 to 10 s.
pub fn per_packet(workload: &str) -> Result<f64, Failure> {
    per_packet_on(current_core(), workload)
}

/// [`per_packet`] of several workloads, as many at a time as there are cores.
pub fn per_packet_each<const N: usize>(workloads: [&str; N]) -> Result<[f64; N], Failure> {
    let own_cores = own_affinity();
    // SAFETY: the set is initialised; the call reads it.
    let is_own = |core: &usize| unsafe { libc::CPU_ISSET(*core, &own_cores) };
    let cores: Vec<usize> = (0..libc::CPU_SETSIZE as usize).filter(is_own).collect();
    let next = AtomicUsize::new(0);
    let mut found = [0.0; N];
    std::thread::scope(|scope| {
        let on = |core: usize| {
            let next = &next;
            scope.spawn(move || {
                let mut counted = Vec::new();
                while let place = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(workload) = workloads.get(place)
                {
                    counted.push((place, per_packet_on(core, workload)?));
                }
                Ok(counted)
            })
        };
        let threads: Vec<_> = cores.into_iter().take(N).map(on).collect();
        for thread in threads {
            let counted = thread
                .join()
                .map_err(|_| Failure::Unsound("a counting thread panicked".into()))??;
            for (place, instructions) in counted {
                found[place] = instructions;
            }
        }
        Ok(found)
    })
}

fn per_packet_on(core: usize, workload: &str) -> Result<f64, Failure> {
    let Counted { long, short } = count(core, workload, PACKETS)?;
    difference(workload, short, long)
}

/// The same as callgrind counts it, or `None` where valgrind is not installed. Takes some 2 s.
pub fn per_packet_by_callgrind(workload: &str) -> Option<Result<f64, Failure>> {
    Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .ok()?;
    Some((|| {
        // The child does its packets twice, so these two runs are N packets apart.
        let short = count_by_callgrind(workload, PACKETS / 2)?;
        let long = count_by_callgrind(workload, PACKETS)?;
        difference(workload, short, long)
    })())
}

/// The child's side: 2 × `packets` in all, marked around `packets` + `FEW` and around `FEW` of them.
pub fn run_workload(workload: &Workload, packets: u32) {
    let mut work = (workload.prepare)();
    // Ignoring the marker keeps an untraced run alive, as callgrind's; a traced one stops all the same.
    // SAFETY: setting a disposition touches no memory.
    unsafe { libc::signal(MARKER, libc::SIG_IGN) };
    work(packets.saturating_sub(2 * FEW));
    // Opaque counts and one body: both runs execute the very same instructions around the work.
    marked(&mut work, std::hint::black_box(packets + FEW));
    marked(&mut work, std::hint::black_box(FEW));
}

#[inline(never)]
fn marked(work: &mut Work, packets: u32) {
    raise_marker();
    work(packets);
    raise_marker();
}

/// Steps between the markers of either pair.
struct Counted {
    long: u64,
    short: u64,
}

fn count(core: usize, workload: &str, packets: u32) -> Result<Counted, Failure> {
    let mut command = command_for(workload, packets)?;
    // SAFETY: between fork and exec only async-signal-safe system calls are made.
    unsafe {
        command.pre_exec(move || {
            stay_on(core);
            if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) == -1 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    // Tracer and tracee on one core: a switch is cheaper than waking the other core.
    let own_cores = own_affinity();
    stay_on(core);
    let result = command
        .spawn()
        .map_err(|error| {
            Failure::Absent(format!(
                "instructions: cannot trace a process of our own ({error})"
            ))
        })
        .and_then(|mut child| {
            let pid = child.id() as libc::pid_t;
            let steps = step_between_markers(pid, workload);
            // Whatever happened, no traced process is left behind.
            let _ = child.kill();
            let _ = child.wait();
            steps
        });
    restore_affinity(&own_cores);
    result
}

fn command_for(workload: &str, packets: u32) -> Result<Command, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::Absent(format!(
            "instructions: this program's own file is unknown ({error})"
        ))
    })?;
    let mut command = Command::new(program);
    command.args([
        OsString::from(SUBCOMMAND),
        workload.into(),
        packets.to_string().into(),
    ]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}

fn difference(workload: &str, short: u64, long: u64) -> Result<f64, Failure> {
    if long <= short {
        return Err(Failure::Unsound(format!(
            "{workload}: {long} instructions for twice the packets, {short} for once: nothing was done"
        )));
    }
    Ok((long - short) as f64 / f64::from(PACKETS))
}

fn step_between_markers(pid: libc::pid_t, workload: &str) -> Result<Counted, Failure> {
    let lost = |what: &str| {
        Failure::Unsound(format!(
            "{workload}: {what} while instructions were counted"
        ))
    };
    // The first stop is the exec.
    if stop_of(pid) != Some(libc::SIGTRAP) {
        return Err(Failure::Absent(format!(
            "{workload}: the process did not stop for its tracer"
        )));
    }
    // A tracer that dies takes the child along.
    // SAFETY: `pid` is our stopped tracee.
    unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, libc::PTRACE_O_EXITKILL) };

    Ok(Counted {
        long: step_one_pair(pid, &lost)?,
        short: step_one_pair(pid, &lost)?,
    })
}

/// Lets the process run to its next marker, then steps it to the one after.
fn step_one_pair(pid: libc::pid_t, lost: &impl Fn(&str) -> Failure) -> Result<u64, Failure> {
    let mut deliver = 0;
    loop {
        resume(pid, libc::PTRACE_CONT, deliver);
        match stop_of(pid) {
            Some(MARKER) => break,
            Some(signal) => deliver = signal,
            None => return Err(lost("the process ended before its marker")),
        }
    }
    for steps in 0..STEPS_MAX {
        resume(pid, libc::PTRACE_SINGLESTEP, 0);
        match stop_of(pid) {
            Some(libc::SIGTRAP) => {}
            Some(MARKER) => return Ok(steps),
            Some(signal) => return Err(lost(&format!("signal {signal} came"))),
            None => return Err(lost("the process ended")),
        }
    }
    Err(lost("the bound of steps was passed"))
}

/// Waits for the next stop: its signal, or none if the process is gone.
fn stop_of(pid: libc::pid_t) -> Option<libc::c_int> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is a place to write to; `pid` is our child.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
        if waited == pid {
            return libc::WIFSTOPPED(status).then(|| libc::WSTOPSIG(status));
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return None;
        }
    }
}

fn resume(pid: libc::pid_t, how: libc::c_uint, signal: libc::c_int) {
    // SAFETY: `pid` is our stopped tracee; a failure shows at the next wait.
    unsafe { libc::ptrace(how, pid, 0, libc::c_long::from(signal)) };
}

fn raise_marker() {
    // SAFETY: signalling oneself touches no memory.
    unsafe { libc::raise(MARKER) };
}

fn count_by_callgrind(workload: &str, packets: u32) -> Result<u64, Failure> {
    let direct = command_for(workload, packets)?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(direct.get_program())
        .args(direct.get_args())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::Absent(format!("callgrind did not start ({error})")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines()
        .find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
        .ok_or_else(|| Failure::Absent(format!("{workload}: callgrind ran and counted nothing")))
}

fn current_core() -> usize {
    // SAFETY: takes no arguments.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

fn own_affinity() -> libc::cpu_set_t {
    // SAFETY: all zeros is an empty set, and the call writes one of the size given.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        set
    }
}

fn restore_affinity(set: &libc::cpu_set_t) {
    // SAFETY: the set is initialised and of the size given.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) };
}

fn stay_on(core: usize) {
    // SAFETY: all zeros is an empty set; `core` is below its size, as the kernel named it; the call reads the set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
