//! A cluster behind two directors on interfaces of their own, commanded by its orchestrator: while downloads run, the active director is
//! killed, and a host. Moved buckets stay moved when either director dies. Needs root and `ip`; says `SKIPPED` without.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use asterism_lab::http::{DocumentServer, Downloads, Progress, document};
use asterism_lab::nat::{HostOptions, Middle, NatLab, NatLabConfig, SERVER};
use asterism_lab::{Probe, Program, pause, wait_until};

const ASTERISM: &str = env!("CARGO_BIN_EXE_asterism");
const MS: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(30);
const DOWNLOADS: usize = 24;
const DOCUMENT_BYTES: usize = 1_200_000;
/// Eight seconds for a document.
const BYTES_PER_SECOND: u64 = 150_000;
/// The host that is killed.
const KILLED: usize = 1;

fn wait_for(program: &Program, line: &str, times: usize) {
    let count = || program.stderr().matches(line).count();
    if let Err(error) = wait_until(line, PATIENCE, || count() >= times) {
        panic!("{error}; it had logged: {}", program.stderr());
    }
}

/// The last change of who takes packets is in force.
fn wait_until_steered(orchestrator: &Program) {
    let steered = wait_until("the steering", PATIENCE, || {
        let log = orchestrator.stderr();
        let last = |event: &str| log.rfind(event).unwrap_or(0);
        last("event=steered") > last("takes packets").max(last("packets leave it"))
    });
    assert!(steered.is_ok(), "{}", orchestrator.stderr());
}

fn laboratory() -> Option<NatLab> {
    if let Err(why) = asterism_lab::needs(&["ip"]) {
        println!("SKIPPED a cluster behind directors: {why}");
        return None;
    }
    let config = NatLabConfig::new(3, MS * 2)
        .middle(Middle::Directors(2))
        .orchestrators(1);
    let lab = NatLab::new(&config).unwrap();
    asterism_config::key_file::write_new(&lab.key_file(), 1).unwrap();
    Some(lab)
}

/// All programs of a laboratory. A director or a host that is killed is `None`.
struct Running<'l> {
    lab: &'l NatLab,
    configuration: PathBuf,
    directors: [Option<Program>; 2],
    orchestrator: Program,
    hosts: Vec<Option<Program>>,
}

impl Running<'_> {
    /// Starts them, and returns once every host takes packets.
    fn start(lab: &NatLab) -> Running<'_> {
        let options = HostOptions {
            orchestrator_lines: format!("api = {{ listen = \"{API}\" }}\n"),
            ..HostOptions::default().absent("wait 20ms")
        };
        let configuration = lab.write_configuration(&options).unwrap();
        let asterism = Path::new(ASTERISM);
        let director = |place| lab.start_director(asterism, &configuration, place).unwrap();
        let directors = [Some(director(0)), Some(director(1))];
        wait_until("an active director", PATIENCE, || {
            directors.iter().any(is_active)
        })
        .unwrap();
        let orchestrator = lab.start_orchestrator(asterism, &configuration, 0).unwrap();
        let started = lab.start_hosts(asterism, &configuration).unwrap();
        for host in &lab.hosts {
            wait_for(&orchestrator, &format!("{} takes packets", host.name()), 1);
        }
        wait_until_steered(&orchestrator);
        Running {
            lab,
            configuration,
            directors,
            orchestrator,
            hosts: started.into_iter().map(Some).collect(),
        }
    }

    fn start_director(&mut self, place: usize) {
        let asterism = Path::new(ASTERISM);
        let started = self
            .lab
            .start_director(asterism, &self.configuration, place);
        self.directors[place] = Some(started.unwrap());
    }

    /// Kills a director, whose shared addresses the other one has afterwards.
    fn kill_director(&mut self, place: usize) {
        let heard = self.orchestrator.stderr();
        let name = self.lab.directors[place].name();
        let silent = format!("the director {name} does not answer");
        let times = heard.matches(&silent).count() + 1;
        self.directors[place].take().unwrap().kill();
        let other = self.directors[1 - place].as_ref().unwrap();
        wait_until("the other director", PATIENCE, || {
            let log = other.stderr();
            let last = |event: &str| log.rfind(event).map_or(0, |at| at + 1);
            last("event=director-active") > last("event=director-standby")
        })
        .unwrap();
        wait_for(&self.orchestrator, &silent, times);
    }

    fn start_host(&mut self, place: usize) {
        let asterism = Path::new(ASTERISM);
        let started = self.lab.start_host(asterism, &self.configuration, place);
        self.hosts[place] = Some(started.unwrap());
    }

    fn log(&self) -> String {
        let directors = self.directors.iter().flatten().map(Program::stderr);
        directors.chain([self.orchestrator.stderr()]).collect()
    }

    fn end(self) {
        let programs = self.hosts.into_iter().chain(self.directors).flatten();
        for program in programs.chain([self.orchestrator]) {
            program.terminate(PATIENCE).unwrap().successful().unwrap();
        }
    }
}

fn is_active(director: &Option<Program>) -> bool {
    let log = director.as_ref().map(Program::stderr).unwrap_or_default();
    log.contains("event=director-active")
}

#[test]
fn downloads_go_on_when_a_director_dies_and_when_a_host_does() {
    let Some(lab) = laboratory() else {
        return;
    };
    let mut running = Running::start(&lab);
    let active = running.directors.iter().position(is_active).unwrap();
    let _server =
        DocumentServer::start(&lab.server, (SERVER, 80).into(), BYTES_PER_SECOND).unwrap();
    let right = document(DOCUMENT_BYTES);
    let downloads = Downloads {
        server: (SERVER, 80).into(),
        path: format!("/{DOCUMENT_BYTES}"),
        document: &right,
        count: 2 * DOWNLOADS,
        at_once: DOWNLOADS,
        patience: PATIENCE,
    };
    let progress = Progress::default();
    let report = std::thread::scope(|scope| {
        let downloading = scope.spawn(|| downloads.run_watched(&lab.client, &progress).unwrap());
        wait_until("the middle of the downloads", PATIENCE, || {
            let three_quarters = 3 * DOWNLOADS * DOCUMENT_BYTES / 4;
            progress.under_way() == DOWNLOADS && progress.bytes_left() < three_quarters
        })
        .unwrap();
        let inside = lab.counts("in").unwrap();
        let has_share = inside.iter().all(|host| host.received > 50);
        assert!(
            has_share,
            "{:?}",
            inside.iter().map(|one| one.received).collect::<Vec<_>>()
        );

        // The other director has the table already, and takes over the addresses.
        let killed = Probe::now();
        running.kill_director(active);
        println!(
            "the other director is active after {:?}",
            Probe::now() - killed
        );
        pause(MS * 500);

        // With one director left, a host dies.
        let name = lab.hosts[KILLED].name();
        let killed = Probe::now();
        running.hosts[KILLED].take().unwrap().kill();
        wait_for(&running.orchestrator, &format!("{name} was silent for"), 1);
        wait_until_steered(&running.orchestrator);
        println!(
            "the dead host is steered around after {:?}",
            Probe::now() - killed
        );
        running.start_host(KILLED);
        wait_for(&running.orchestrator, &format!("{name} takes packets"), 2);

        // The director that died returns, is handed the state in force, and moves nothing.
        running.start_director(active);
        let returned = running.directors[active].as_ref().unwrap();
        wait_for(returned, "event=steered", 1);
        wait_for(returned, "event=director-standby", 1);
        let name = lab.directors[active].name();
        wait_for(
            &running.orchestrator,
            &format!("the director {name} answers"),
            2,
        );
        downloading.join().unwrap()
    });
    let stall = report.downloads.iter().map(|one| one.stall.lasted).max();
    println!("the longest time without news of a download: {stall:?}");
    assert_eq!(
        report.complete(),
        2 * DOWNLOADS,
        "{}\n{}",
        report.faults(),
        running.log()
    );
    running.end();
}

/// The API of the orchestrator, on the loopback interface of its node.
const API: &str = "127.0.0.1:7580";

impl Running<'_> {
    fn move_buckets(&self, buckets: &str, to: &str) {
        let node = &self.lab.orchestrators[0];
        let api = format!("http://{API}");
        wait_until("the order to be taken", PATIENCE, || {
            let order = node.program(ASTERISM).args(["move", "--bucket", buckets]);
            let done = order.args(["--to", to, "--api", &api]).run().unwrap();
            // A director on a busy machine may be slow: the order is given again then, as the error says.
            let is_slow = String::from_utf8_lossy(&done.stderr).contains("apply it again");
            if !is_slow {
                done.successful().unwrap();
            }
            !is_slow
        })
        .unwrap();
    }

    /// A metric of the orchestrator; 0 where there is none.
    fn metric(&self, sample: &str) -> f64 {
        let page = self.lab.orchestrators[0].enter(|| {
            let mut stream = TcpStream::connect(API)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let request =
                format!("GET /metrics HTTP/1.1\r\nHost: {API}\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes())?;
            let mut page = String::new();
            stream.read_to_string(&mut page)?;
            std::io::Result::Ok(page)
        });
        let page = page.unwrap().unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(sample));
        line.map_or(0.0, |value| value.trim().parse().unwrap())
    }

    /// The part of the flow space that goes to a host at a director.
    fn share(&self, place: usize, host: &str) -> f64 {
        let director = self.lab.directors[place].name();
        self.metric(&format!(
            "asterism_director_host_share_ratio{{director=\"{director}\",host=\"{host}\"}}"
        ))
    }

    /// Frames that each host received while a client downloaded so many documents.
    fn download(&self) -> Vec<u64> {
        let right = document(400_000);
        let downloads = Downloads {
            server: (SERVER, 80).into(),
            path: "/400000".to_owned(),
            document: &right,
            count: DOWNLOADS,
            at_once: DOWNLOADS / 2,
            patience: PATIENCE,
        };
        let received = || {
            let counts = self.lab.counts("in").unwrap();
            counts.iter().map(|host| host.received).collect::<Vec<_>>()
        };
        let before = received();
        let report = downloads.run(&self.lab.client).unwrap();
        assert_eq!(report.complete(), DOWNLOADS, "{}", report.faults());
        let pairs = received().into_iter().zip(before);
        pairs.map(|(after, before)| after - before).collect()
    }

    /// What each host receives of downloads is as it should be, unless one is suspected on a busy machine: then once more.
    fn receive(&self, is_right: impl Fn(&[u64]) -> bool) {
        let suspicions = || self.orchestrator.stderr().matches("was silent for").count();
        for _ in 0..5 {
            wait_until_steered(&self.orchestrator);
            let before = suspicions();
            let received = self.download();
            if is_right(&received) {
                return;
            }
            assert!(suspicions() > before, "{received:?}: {}", self.log());
        }
        panic!("a host was suspected each time: {}", self.log());
    }

    /// One host gets the packets. Others get what every station of a segment gets.
    fn all_go_to_the_first(&self) {
        self.receive(|received| {
            let others = received[1] + received[2];
            received[0] > 1_000 && others < received[0] / 10
        });
    }
}

#[test]
fn moved_buckets_stay_moved_when_either_director_dies() {
    let Some(lab) = laboratory() else {
        return;
    };
    let mut running = Running::start(&lab);
    let names: Vec<&str> = lab.hosts.iter().map(|host| host.name()).collect();
    let _server = DocumentServer::start(&lab.server, (SERVER, 80).into(), 0).unwrap();
    running.receive(|received| received.iter().all(|frames| *frames > 20));
    running.move_buckets("0..16383", names[0]);
    running.all_go_to_the_first();

    let active = running.directors.iter().position(is_active).unwrap();
    running.kill_director(active);
    running.all_go_to_the_first();
    // The one that died is handed the moves, as the orchestrator's metrics show, and does as well alone.
    running.start_director(active);
    let returned = running.directors[active].as_ref().unwrap();
    wait_for(returned, "event=steered", 1);
    let name = lab.directors[active].name();
    let answers = format!("asterism_director_answers{{director=\"{name}\"}}");
    let has_all = || running.metric(&answers) == 1.0 && running.share(active, names[0]) == 1.0;
    wait_until("the moves at the director that returned", PATIENCE, has_all).unwrap();
    running.kill_director(1 - active);
    running.all_go_to_the_first();

    // With one director: half of the buckets, and none to the third host.
    running.move_buckets("0..8191", names[1]);
    running.receive(|received| received[1] > 200 && received[2] < received[1] / 5);
    let shares = || [0, 1, 2].map(|host| running.share(active, names[host]));
    let has_half = || shares() == [0.5, 0.5, 0.0];
    wait_until("the shares", PATIENCE, has_half).unwrap();
    running.end();
}
