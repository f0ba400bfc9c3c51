//! `asterism direct`: a director on a machine's own interfaces, which orchestrators command.
//!
//! Two threads: the packet loop, and this one, which takes commands by sealed datagrams and writes the log. `parts.rs` makes a
//! director of the configuration.

mod parts;

pub(crate) use parts::space;

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use asterism_config::{Config, Director, DirectorMachine, Purpose, files};
use asterism_director::{DirectorStatistics, run as run_loop};
use asterism_director_control::Receiver;
use asterism_host::run::event_log::{Event, EventLog, Style};
use asterism_host::run::key_watch::KeyWatch;
use asterism_host::run::{keys_of, signals};
use asterism_io::clock::MonotonicClock;
use asterism_orchestrator::steering::director::remote::ServedDirector;
use asterism_orchestrator::steering::director::{DirectorError, DirectorSteering};
use asterism_output::{End, Output};
use asterism_secure_channel::DATAGRAM_BYTES_MAX;
use clap::Args;

/// How long the socket is waited for before signals, keys and the director's role are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// Datagrams that are taken between two such looks at most.
const DATAGRAMS_MAX: usize = 64;

/// The arguments of `asterism direct`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// The configuration file; the same for all hosts, orchestrators and directors of the cluster
    #[arg(value_name = "CONFIG")]
    pub config: PathBuf,
    /// Which of the configured machines this one is, if there are several
    #[arg(long, value_name = "NAME")]
    pub machine: Option<String>,
    /// How the log on standard error is written
    #[arg(long, value_enum, default_value_t = Style::Text)]
    pub log: Style,
}

/// Why a director does not run.
#[derive(Debug, thiserror::Error)]
enum DirectError {
    #[error(
        "{0} has no director: add [orchestrator.director.NAME] with an arm and a machine, as docs/src/director.md shows"
    )]
    None(String),
    #[error("there are several machines with a director: say which one this is, by --machine {0}")]
    Which(String),
    #[error("{0} is no machine with a director; there are {1}")]
    NotListed(String, String),
    #[error(transparent)]
    Keys(#[from] asterism_host::run::error::RunError),
    #[error("the operating system gives no randomness: {0}")]
    NoRandomness(#[from] getrandom::Error),
    #[error("signals cannot be heard: {0}")]
    Signals(std::io::Error),
    #[error("commands cannot be heard at {0}: {1}")]
    Socket(SocketAddr, std::io::Error),
    #[error("there is no thread: {0}")]
    Thread(std::io::Error),
    #[error(transparent)]
    Parts(#[from] parts::PartsError),
    #[error(transparent)]
    Director(#[from] DirectorError),
    #[error("the packet loop failed; please report what it said")]
    Failed,
}

/// `asterism direct CONFIG`.
pub fn command(arguments: &Arguments, output: &mut Output<'_>) -> End {
    let file = &arguments.config;
    let (config, report) = match files::load(file, Purpose::Host, None, output.functions()) {
        Ok(read) => read,
        Err(error) => return output.fail(End::File, &error),
    };
    output.report(&report);
    let Some(config) = config else {
        return End::Configuration;
    };
    match run(arguments, &config, output) {
        Ok(()) => End::Done,
        Err(error) => {
            let end = match error {
                DirectError::None(_) | DirectError::NotListed(..) | DirectError::Which(_) => {
                    End::Configuration
                }
                DirectError::Failed => End::DoesNotHold,
                _ => End::File,
            };
            output.fail(end, &error)
        }
    }
}

/// The director of this machine, and the machine's number in it.
fn own<'c>(
    config: &'c Config,
    shown: &str,
    wanted: Option<&str>,
) -> Result<(&'c Director, usize), DirectError> {
    let directors = config.orchestrator.as_ref().map(|one| &one.director[..]);
    let directors = directors.unwrap_or_default();
    let all: Vec<(&Director, usize)> = directors
        .iter()
        .flat_map(|director| (0..director.machines.len()).map(move |place| (director, place)))
        .collect();
    let name = |(director, place): &(&Director, usize)| director.machines[*place].name.clone();
    let names = || all.iter().map(name).collect::<Vec<_>>();
    match (wanted, &all[..]) {
        (_, []) => Err(DirectError::None(shown.to_owned())),
        (None, [only]) => Ok(*only),
        (None, _) => Err(DirectError::Which(names().join(" or "))),
        (Some(wanted), _) => {
            let found = all.iter().find(|one| name(one) == wanted).copied();
            found.ok_or_else(|| DirectError::NotListed(wanted.to_owned(), names().join(", ")))
        }
    }
}

fn run(arguments: &Arguments, config: &Config, output: &mut Output<'_>) -> Result<(), DirectError> {
    let file = &arguments.config;
    let shown = file.display().to_string();
    let (director, place) = own(config, &shown, arguments.machine.as_deref())?;
    let machine = &director.machines[place];
    let keys = keys_of(file, config)?;
    let (stop, _hang_up) = signals().map_err(DirectError::Signals)?;
    let mut random = [0; 40];
    getrandom::fill(&mut random)?;
    let (salt, random) = random.split_at(16);
    let (challenge, incarnation) = random.split_at(16);
    let incarnation = u64::from_le_bytes(incarnation.try_into().unwrap_or_default()).max(1);
    let socket = socket(machine.control)?;
    let clock = MonotonicClock::new();
    let made = parts::make(
        &config.cluster,
        director,
        place,
        (&keys, incarnation),
        clock.now(),
    )?;
    let mut packet_loop = PacketLoop::start(made.director, clock)?;
    let mut steering = DirectorSteering::new(made.space, vec![made.control]);
    let targets = director.targets(&config.cluster);
    for (name, host) in parts::hosts(director, &targets) {
        steering.set_host(&name, host)?;
    }
    let receiver = Receiver::new(
        config.cluster.id(),
        keys.clone(),
        salt.try_into().unwrap_or_default(),
        challenge.try_into().unwrap_or_default(),
    );
    let mut served = ServedDirector::new(steering, targets, receiver, director.takeover_after);
    let mut log = EventLog::new(output.progress(), arguments.log, &machine.name);
    let mut write = |event: &Event| log.write(clock.now(), clock.wall(), event);
    write(&began(config, director, machine));
    let key_file = config.cluster.key.as_ref();
    let mut key_watch = key_file.map(|key| KeyWatch::new(files::key_path(file, key), keys));
    let mut seen = Seen::default();
    while !stop.load(Ordering::Acquire) {
        take_commands(&socket, &mut served);
        if let Some(statistics) = served.look() {
            seen.look(&statistics, served.generation(), &mut write);
        }
        if let Some(read) = key_watch
            .as_mut()
            .and_then(|watch| watch.query(clock.now()))
        {
            match read {
                Ok(keys) => {
                    served.set_keys(keys.clone());
                    write(&Event::info("keys").with("sends_with", keys.sending().id()));
                    if let Some(watch) = &mut key_watch {
                        watch.note_installed(keys);
                    }
                }
                Err(why) => write(
                    &Event::warning("keys-refused")
                        .with("why", why)
                        .effect("the keys in force stay")
                        .cure("change keys with `asterism key`, and copy its file to every host, orchestrator and director with mode 0600"),
                ),
            }
        }
        if !packet_loop.is_running() {
            return Err(DirectError::Failed);
        }
    }
    let last = packet_loop.end().ok_or(DirectError::Failed)?;
    write(
        &Event::info("stopped")
            .with("forwarded", last.forwarded)
            .with("dropped", last.dropped_total())
            .effect("the other director has the shared addresses, if there is one"),
    );
    Ok(())
}

fn socket(address: SocketAddr) -> Result<UdpSocket, DirectError> {
    let opened = UdpSocket::bind(address).and_then(|socket| {
        socket.set_read_timeout(Some(LOOK))?;
        Ok(socket)
    });
    opened.map_err(|error| DirectError::Socket(address, error))
}

fn began(config: &Config, director: &Director, machine: &DirectorMachine) -> Event {
    let arms = director.arms.iter().zip(&machine.plugs);
    let arms: Vec<String> = arms
        .map(|(arm, plug)| format!("{}={}", arm.name, plug.interface))
        .collect();
    Event::info("directs")
        .with("cluster", &config.cluster.name)
        .with("director", &director.name)
        .with("control", machine.control)
        .with("arms", arms.join(","))
        .with("hosts", director.targets(&config.cluster).len())
}

/// Answers the datagrams that wait, after waiting for one.
fn take_commands(socket: &UdpSocket, served: &mut ServedDirector) {
    let mut bytes = [0; DATAGRAM_BYTES_MAX + 1];
    for _ in 0..DATAGRAMS_MAX {
        match socket.recv_from(&mut bytes) {
            Ok((length, from)) => {
                if let Some(answer) = served.handle(&mut bytes[..length]) {
                    // One that cannot be sent is lost like any other; the command comes again.
                    let _ = socket.send_to(&answer, from);
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return;
            }
            // Of a datagram that was sent before, as ICMP reports it.
            Err(_) => {}
        }
    }
}

/// What the log has.
#[derive(Default)]
struct Seen {
    is_active: Option<bool>,
    generation: Option<u64>,
}

impl Seen {
    fn look(
        &mut self,
        statistics: &DirectorStatistics,
        generation: Option<u64>,
        write: &mut impl FnMut(&Event),
    ) {
        let is_active = statistics.active_now != 0;
        if self.is_active.replace(is_active) != Some(is_active) {
            write(&match is_active {
                true => {
                    Event::info("director-active").effect("it answers for the shared addresses")
                }
                false => Event::info("director-standby")
                    .effect("it forwards, and does not answer for the shared addresses"),
            });
        }
        if generation.is_some() && self.generation != generation {
            self.generation = generation;
            write(&Event::info("steered").with("generation", generation.unwrap_or_default()));
        }
    }
}

/// The packet loop on its thread, which ends when this is dropped.
struct PacketLoop {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<DirectorStatistics>>,
}

impl PacketLoop {
    fn start(
        director: asterism_director::Director,
        clock: MonotonicClock,
    ) -> Result<PacketLoop, DirectError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut director, ends) = (director, Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("director".to_owned())
            .spawn(move || {
                run_loop(&mut director, clock, &ends);
                director.statistics()
            })
            .map_err(DirectError::Thread)?;
        Ok(PacketLoop {
            stop,
            thread: Some(thread),
        })
    }

    fn is_running(&self) -> bool {
        let thread = self.thread.as_ref();
        thread.is_some_and(|thread| !thread.is_finished())
    }

    /// Ends it: its last counts, unless it failed.
    fn end(&mut self) -> Option<DirectorStatistics> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()
    }
}

impl Drop for PacketLoop {
    fn drop(&mut self) {
        // A panic was reported on standard error when it happened.
        let _ = self.end();
    }
}
