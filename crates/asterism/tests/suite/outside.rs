//! A function of another crate in a program of its own: everything that a configuration can ask of the library's functions it can ask
//! of this one. The function lets each source send so many packets.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::Duration;

use asterism::Program;
use asterism::outside::{
    Default, DescribedObject, Field, FunctionError, FunctionSettings, Kind, ObjectChoice,
    ObjectKind, OutsideFunction, REPLICATED, Report, Section, Setting, Values, delay, described,
    placement, section,
};
use asterism_function::{
    Ask, Builder, Counters, Flow4, Late, MetricKind, NetworkFunction, Observable, OwnMetric,
    OwnReason, PortNumber, Reason, Verdict, build, state,
};
use asterism_io::clock::MonotonicClock;
use asterism_io::frame::{Burst, FramePool};
use asterism_io::port::{LinkState, Port, SharedMemoryConfig, SharedMemoryPort, SharedMemoryRole};
use asterism_output::End;
use asterism_placement::Time;

/// How long anything may take that should take a moment.
const PATIENCE: Duration = Duration::from_secs(60);

/// Packets of each source.
#[state]
#[derive(Debug)]
pub(crate) struct QuotaState {
    /// By source.
    pub packets: Counters<Ipv4Addr>,
}

/// Lets each source send so many packets.
#[derive(Clone, Debug)]
pub(crate) struct Quota {
    packets_max: u64,
}

const REASONS: &[OwnReason] = &[OwnReason {
    label: "share-used-up",
    meaning: "The source sent as many packets as it may.",
}];

const METRICS: &[OwnMetric] = &[OwnMetric {
    name: "share_packets",
    kind: MetricKind::Gauge,
    meaning: "Packets that each source may send.",
}];

impl NetworkFunction for Quota {
    type State = QuotaState;

    fn state(&self, builder: &Builder) -> QuotaState {
        QuotaState {
            packets: builder.counters("packets", 1_024),
        }
    }

    fn packet(&self, ask: Ask<'_, QuotaState>) -> Result<Verdict, Late> {
        let out = PortNumber(ask.port().0 ^ 1);
        let Some(source) = ask.packet().ipv4_source() else {
            return Ok(Verdict::Forward(out));
        };
        let Some(count) = ask.packets.find(&source)? else {
            return Ok(Verdict::Drop(Reason::TableFull));
        };
        if count.total >= self.packets_max {
            return Ok(Verdict::Drop(Reason::own(0)));
        }
        ask.act()?.packets.add(&count, 1);
        Ok(Verdict::Forward(out))
    }

    fn observable(&self) -> Option<&dyn Observable<QuotaState>> {
        Some(self)
    }
}

impl Observable<QuotaState> for Quota {
    fn reasons(&self) -> &[OwnReason] {
        REASONS
    }

    fn metrics(&self) -> &[OwnMetric] {
        METRICS
    }

    fn measure(&self, _: &QuotaState, values: &mut Vec<u64>) {
        values.push(self.packets_max);
    }
}

/// Its settings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QuotaSettings {
    packets_max: u64,
}

section! {
    static SETTINGS: SettingsKeys = {
        path: "function.quota",
        meaning: "Lets each source send so many packets.",
        fields: {
            packets_max: u64 = Setting {
                kind: Kind::Count {
                    least: 1,
                    most: 1_000_000,
                },
                default: Default::Is("10"),
                meaning: "Packets that each source may send.",
            },
        },
    };
}

static PACKETS: Section = Section {
    path: "function.quota.state.packets",
    meaning: "Packets of each source.",
    fields: &[placement(REPLICATED), delay()],
};

impl OutsideFunction for QuotaSettings {
    const NAME: &'static str = "quota";
    const SECTION: &'static Section = SETTINGS.section();
    const OBJECTS: &'static [DescribedObject] =
        &[described("packets", ObjectKind::Counter, &PACKETS)];

    fn read(values: &Values, _: &mut Report) -> Option<Self> {
        Some(Self {
            packets_max: values.get(SETTINGS.packets_max)?,
        })
    }
}

impl FunctionSettings for QuotaSettings {
    type Function = Quota;

    fn function(&self, _: &[ObjectChoice]) -> Result<Quota, FunctionError> {
        Ok(Quota {
            packets_max: self.packets_max,
        })
    }

    fn words(&self) -> String {
        format!("each source may send {} packets", self.packets_max)
    }

    fn change_to(&self, wanted: &Self) -> Option<Vec<String>> {
        let changed = self.packets_max != wanted.packets_max;
        Some(
            changed
                .then(|| "packets_max".to_owned())
                .into_iter()
                .collect(),
        )
    }
}

fn program() -> Program {
    Program::new("quota").with::<QuotaSettings>()
}

fn run(arguments: &[&str]) -> (End, String, String) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let all = ["quota"].into_iter().chain(arguments.iter().copied());
    let end = program().run_with(all.map(Into::into), &mut stdout, &mut stderr, false);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (end, text(stdout), text(stderr))
}

fn written(folder: &tempfile::TempDir, text: &str) -> String {
    let path = folder.path().join("quota.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_configuration_can_name_it_and_mistakes_are_shown_at_their_lines() {
    let folder = tempfile::tempdir().unwrap();
    let good = written(&folder, "[function.quota]\npackets_max = 7\n");
    let (end, stdout, stderr) = run(&["check", &good]);
    assert_eq!(end, End::Done, "{stderr}");
    assert!(
        stdout.contains("quota: each source may send 7 packets"),
        "{stdout}"
    );
    let chain = "chain = [\"port-scan\", \"mine\"]\n[stage.mine]\nfunction = \"quota\"\non_failure = \"bypass\"\n[function.mine]\npackets_max = 9\n";
    let (end, stdout, stderr) = run(&["check", &written(&folder, chain)]);
    assert_eq!(end, End::Done, "{stderr}");
    assert!(stdout.contains("mine.packets"), "{stdout}");
    for (text, line, shown) in [
        (
            "[function.quota]\npackets_mx = 7\n",
            2,
            "did you mean `packets_max`?",
        ),
        (
            "[function.quota]\n\npackets_max = 0\n",
            3,
            "bad value for `packets_max`",
        ),
        ("[function.quotta]\n", 1, "did you mean [function.quota]?"),
        (
            "chain = [\"nat\", \"quot\"]\n",
            1,
            "did you mean \"quota\"?",
        ),
        (
            "[function.quota.state]\npacket = {}\n",
            2,
            "did you mean `packets`?",
        ),
        (
            "[function.quota.state]\npackets = { placement = \"owned\" }\n",
            2,
            "choose \"replicated\"",
        ),
        (
            "packets_max = 3\n[function.quota]\n",
            1,
            "belongs in [function.quota]",
        ),
    ] {
        let (end, _, stderr) = run(&["check", &written(&folder, text)]);
        assert_eq!(end, End::Configuration, "{text}");
        let place = format!("quota.toml:{line}:");
        assert!(
            stderr.contains(&place) && stderr.contains(shown),
            "{text}: {stderr}"
        );
    }
    let (_, stdout, _) = run(&["check", "--fields"]);
    assert!(stdout.contains("[function.quota.state.packets]") && stdout.contains("[function.nat]"));
    // The program without it does not know it.
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let arguments = ["asterism", "check", &good].map(Into::into);
    let end = asterism::command_line::run(arguments, &mut stdout, &mut stderr, false);
    assert_eq!(end, End::Configuration);
    assert!(run(&["--help"]).1.contains("Usage: quota"));
}

/// A second function with the settings of the first, called otherwise or wrongly.
macro_rules! misdescribed {
    ($name:ident, $called:literal, $section:expr, $objects:expr) => {
        #[derive(Clone, Debug, PartialEq)]
        struct $name(QuotaSettings);
        impl OutsideFunction for $name {
            const NAME: &'static str = $called;
            const SECTION: &'static Section = $section;
            const OBJECTS: &'static [DescribedObject] = $objects;
            fn read(values: &Values, report: &mut Report) -> Option<Self> {
                QuotaSettings::read(values, report).map(Self)
            }
        }
        impl FunctionSettings for $name {
            type Function = Quota;
            fn function(&self, objects: &[ObjectChoice]) -> Result<Quota, FunctionError> {
                self.0.function(objects)
            }
            fn words(&self) -> String {
                self.0.words()
            }
        }
    };
}

static NAT: Section = Section {
    path: "function.nat",
    ..*SETTINGS.section()
};
static NO_GOOD: Section = Section {
    path: "function.bad-default",
    meaning: "A default that is out of bounds.",
    fields: &[Field {
        default: Default::Is("0"),
        ..SETTINGS.section().fields[0]
    }],
};
static BARE: Section = Section {
    path: "function.bare",
    ..*SETTINGS.section()
};
misdescribed!(Taken, "nat", &NAT, &[]);
misdescribed!(Elsewhere, "elsewhere", SETTINGS.section(), &[]);
misdescribed!(Bare, "bare", &BARE, &[]);
misdescribed!(BadDefault, "bad-default", &NO_GOOD, QuotaSettings::OBJECTS);
misdescribed!(BadName, "Bad", SETTINGS.section(), &[]);

/// A quota that holds for no number of packets: it is read, and not made.
#[derive(Clone, Debug, PartialEq)]
struct Never(QuotaSettings);

#[derive(Debug, thiserror::Error)]
#[error("no source may send {0} packets")]
struct NeverError(u64);

static NEVER: Section = Section {
    path: "function.never",
    ..*SETTINGS.section()
};
static NEVER_PACKETS: Section = Section {
    path: "function.never.state.packets",
    ..PACKETS
};

impl OutsideFunction for Never {
    const NAME: &'static str = "never";
    const SECTION: &'static Section = &NEVER;
    const OBJECTS: &'static [DescribedObject] =
        &[described("packets", ObjectKind::Counter, &NEVER_PACKETS)];
    fn read(values: &Values, report: &mut Report) -> Option<Self> {
        QuotaSettings::read(values, report).map(Self)
    }
}

impl FunctionSettings for Never {
    type Function = Quota;
    fn function(&self, _: &[ObjectChoice]) -> Result<Quota, FunctionError> {
        let error = NeverError(self.0.packets_max);
        Err(FunctionError::Outside(Box::new(error)))
    }
    fn words(&self) -> String {
        self.0.words()
    }
}

#[test]
fn the_reason_why_it_is_not_made_is_shown_at_its_table() {
    let folder = tempfile::tempdir().unwrap();
    for (text, line) in [
        ("[function.never]\npackets_max = 7\n", 1),
        (
            "chain = [\"port-scan\", \"never\"]\n[function.never]\npackets_max = 7\n",
            2,
        ),
    ] {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let arguments = ["never", "check", &written(&folder, text)].map(Into::into);
        let program = Program::new("never").with::<Never>();
        let end = program.run_with(arguments, &mut stdout, &mut stderr, false);
        assert_eq!(end, End::Configuration, "{text}");
        let stderr = String::from_utf8(stderr).unwrap();
        let shown = "error: no source may send 7 packets\n";
        let place = format!("quota.toml:{line}:");
        assert!(
            stderr.contains(shown) && stderr.contains(&place),
            "{text}: {stderr}"
        );
    }
}

#[test]
fn a_function_that_is_described_wrongly_is_refused_at_the_start() {
    assert_eq!(program().check(), Ok(()));
    let new = || Program::new("x");
    for (program, said) in [
        (new().with::<Taken>(), "two functions are called \"nat\""),
        (
            program().with::<QuotaSettings>(),
            "two functions are called \"quota\"",
        ),
        (new().with::<Elsewhere>(), "not \"function.elsewhere\""),
        (new().with::<Bare>(), "its state has [\"packets\"]"),
        (new().with::<BadDefault>(), "an object's section"),
        (new().with::<BadName>(), "words of a-z"),
    ] {
        let error = program.check().unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let end = program.run_with(
            ["x".into(), "--help".into()],
            &mut stdout,
            &mut stderr,
            false,
        );
        assert_eq!(end, End::CommandLine);
    }
}

#[test]
fn captures_go_through_it_alone_and_as_a_stage() {
    let folder = tempfile::tempdir().unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rehearsal/data/trex-http_get_0.pcap");
    let capture = data.to_str().unwrap();
    let cluster = "[cluster]\nmembers = [\"a\", \"b\", \"c\"]\n";
    for (text, label) in [
        (format!("{cluster}[function.quota]\n"), "share-used-up"),
        (
            format!("chain = [\"pass-through\", \"quota\"]\n{cluster}"),
            "quota.share-used-up",
        ),
    ] {
        let config = written(&folder, &text);
        let all = ["replay", &config, "--in", capture, "--format", "json"];
        let (end, stdout, stderr) = run(&all);
        assert_eq!(end, End::Done, "{stderr}");
        let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        let hosts = report["hosts"].as_array().unwrap();
        assert_eq!(hosts.len(), 3);
        assert!(
            hosts
                .iter()
                .all(|host| host["digest"] == hosts[0]["digest"])
        );
        let sum =
            |field: &str| -> u64 { hosts.iter().map(|host| host[field].as_u64().unwrap()).sum() };
        let dropped: u64 = hosts
            .iter()
            .filter_map(|host| host["dropped"][label].as_u64())
            .sum();
        assert_eq!(sum("received"), 44);
        // Two sources with ten packets each; those on their way to another host are let through there.
        assert!(dropped > 0 && dropped <= 44 - 2 * 10, "{stdout}");
        assert_eq!(sum("forwarded") + dropped, 44);
    }
}

fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let clock = MonotonicClock::new();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            clock.now() < Time::ZERO + PATIENCE,
            "waited for {what} in vain"
        );
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Stops the host if the test fails: its thread would be waited for without end.
struct StopsIfFailed<'a>(&'a str);

impl Drop for StopsIfFailed<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = run(&["stop", "--socket", self.0]);
        }
    }
}

/// Sends packets of a source to a host's port.
struct Sender {
    port: SharedMemoryPort,
    pool: FramePool,
    clock: MonotonicClock,
}

impl Sender {
    fn open(path: &Path) -> Sender {
        wait("the port", || path.exists().then_some(()));
        let config = SharedMemoryConfig::new("test", path, SharedMemoryRole::Connect);
        let mut sender = Sender {
            port: SharedMemoryPort::open(&config).unwrap(),
            pool: FramePool::new(512).unwrap(),
            clock: MonotonicClock::new(),
        };
        wait("the link", || {
            sender.port.advance(sender.clock.now());
            (sender.port.link() == LinkState::Up).then_some(())
        });
        sender
    }

    fn send(&mut self, count: usize) {
        let flow = Flow4 {
            source: [10, 0, 0, 1].into(),
            destination: [192, 0, 2, 1].into(),
            source_port: 5_000,
            destination_port: 53,
            protocol: 17,
        };
        let mut bytes = [0; 256];
        let length = build::flow4(&flow, b"hello", &mut bytes).unwrap();
        for _ in 0..count {
            let mut burst = Burst::default();
            burst
                .push(self.pool.allocate_copy(&bytes[..length]).unwrap())
                .unwrap();
            self.port.advance(self.clock.now());
            assert_eq!(self.port.send(&mut self.pool, &mut burst), 1);
            let _ = self.port.flush(&mut self.pool);
        }
    }
}

fn fetch(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// A host of the program in this process, between ports that the test is at the other ends of.
#[test]
fn a_host_runs_it_and_shows_its_reasons_and_metrics() {
    for (first, stage) in [
        ("", ""),
        ("chain = [\"quota\", \"pass-through\"]\n", "quota."),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let metrics = crate::run::host::own_loopback_socket().to_string();
        let config = |most: u64| {
            format!(
                "{first}[host]\ncontrol = \"quota.sock\"\nmetrics = \"{metrics}\"\n[port]\n\
                 inside = {{ kind = \"shared_memory\", role = \"listen\", path = \"inside\" }}\n\
                 outside = {{ kind = \"shared_memory\", role = \"listen\", path = \"outside\" }}\n\
                 [function.quota]\npackets_max = {most}\n"
            )
        };
        let file = written(&folder, &config(3));
        let path = |name: &str| folder.path().join(name);
        let socket = path("quota.sock");
        let socket = socket.to_str().unwrap();
        std::thread::scope(|scope| {
            let host = scope.spawn(|| run(&["run", &file]));
            let _stops = StopsIfFailed(socket);
            let _outside = Sender::open(&path("outside"));
            let mut inside = Sender::open(&path("inside"));
            inside.send(5);
            let dropped = |count: u64| {
                wait("the drops", || {
                    let (end, stdout, _) = run(&["status", "--socket", socket, "--format", "json"]);
                    let status: serde_json::Value = serde_json::from_str(&stdout).ok()?;
                    crate::validator::validate(&status);
                    let instance = &status["instances"][0];
                    let label = format!("{stage}share-used-up");
                    let is_so = instance["dropped"][label] == count;
                    (end == End::Done && is_so).then(|| status.clone())
                })
            };
            let status = dropped(2);
            let shown = &status["instances"][0]["own"][format!("{stage}share_packets")];
            assert_eq!(shown, 3);
            let text = run(&["status", "--socket", socket]).1;
            assert!(
                text.contains(&format!("dropped 2 {stage}share-used-up")),
                "{text}"
            );
            let page = wait("metrics", || fetch(&metrics));
            let reason = format!(
                "asterism_packets_dropped_total{{instance=\"0\",reason=\"{stage}share-used-up\"}} 2"
            );
            let labels = match stage {
                "" => "instance=\"0\"",
                _ => "instance=\"0\",stage=\"quota\"",
            };
            let metric = format!("asterism_function_share_packets{{{labels}}} 3");
            assert!(page.contains(&reason) && page.contains(&metric), "{page}");
            assert!(page.contains("# TYPE asterism_function_share_packets gauge"));
            assert!(!page.contains("own-"), "nothing unnamed is shown");
            // A trace tells the reason by its name.
            let trace =
                scope.spawn(move || run(&["trace", "--socket", socket, "--packets", "1"]).1);
            wait("a traced packet", || {
                inside.send(1);
                trace.is_finished().then_some(())
            });
            let text = trace.join().unwrap();
            assert!(text.contains(&format!("{stage}share-used-up")), "{text}");
            if stage.is_empty() {
                std::fs::write(&file, config(1_000)).unwrap();
                let (end, stdout, stderr) = run(&["reload", "--socket", socket]);
                assert_eq!(end, End::Done, "{stderr}");
                assert!(stdout.contains("[function.quota] packets_max"), "{stdout}");
                wait("the new share", || {
                    let text = run(&["status", "--socket", socket]).1;
                    text.contains("share_packets 1000").then_some(())
                });
            }
            assert_eq!(run(&["drain", "--socket", socket]).0, End::Done);
            assert_eq!(run(&["stop", "--socket", socket]).0, End::Done);
            let (end, _, stderr) = host.join().unwrap();
            assert_eq!(end, End::Done, "{stderr}");
        });
    }
}
