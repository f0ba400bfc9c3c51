//! What the demo shows while it runs: a live view on a terminal, plain lines elsewhere.

use std::io::Write;
use std::time::Duration;

use super::report::Absent;

/// What is shown.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// What an absent binding means in this run.
    pub setting: Absent,
    /// How long the run has gone on.
    pub elapsed: Duration,
    /// Over how long conversations begin.
    pub span: Duration,
    /// Conversations.
    pub conversations: usize,
    /// Of those, at their end.
    pub completed: u64,
    /// Packets lost to lag so far.
    pub lost: u64,
    /// Late replies that waited so far.
    pub waited: u64,
    /// Whether a scanner is blocked.
    pub scanners_blocked: bool,
    /// Each host.
    pub hosts: Vec<HostView>,
}

/// What is shown of a host.
#[derive(Clone, Debug)]
pub struct HostView {
    /// Its name.
    pub name: String,
    /// Packets that it took.
    pub packets: u64,
    /// Flows that it opened.
    pub opened: u64,
    /// Sessions that it knows.
    pub known: u64,
    /// Packets that wait in it.
    pub parked: u64,
}

/// Somebody who is shown how a run goes, ten times a second of its clock.
pub trait View {
    /// Shows it.
    fn show(&mut self, snapshot: &Snapshot);
}

/// Shows nothing: for tests.
#[derive(Clone, Copy, Debug)]
pub struct NoView;

impl View for NoView {
    fn show(&mut self, _: &Snapshot) {}
}

/// One line for each two seconds of the run's clock.
#[derive(Debug)]
pub struct Lines<W: Write> {
    out: W,
    shown: Option<(String, u64)>,
}

impl<W: Write> Lines<W> {
    /// Lines to `out`.
    pub fn new(out: W) -> Lines<W> {
        Lines { out, shown: None }
    }
}

impl<W: Write> View for Lines<W> {
    fn show(&mut self, snapshot: &Snapshot) {
        let now = (snapshot.setting.words(), snapshot.elapsed.as_secs() / 2);
        if self.shown.as_ref() == Some(&now) {
            return;
        }
        self.shown = Some(now);
        // Progress that cannot be shown is no reason to stop.
        let _ = writeln!(
            self.out,
            "absent = \"{}\"  {:>4.1} s  {} of {} conversations at their end, {} late replies waited, {} packets lost to lag",
            snapshot.setting.words(),
            snapshot.elapsed.as_secs_f64(),
            snapshot.completed,
            snapshot.conversations,
            snapshot.waited,
            snapshot.lost,
        );
    }
}

/// A view that is drawn over and over at its place on a terminal, at the pace of the run's own clock or a multiple of it.
#[derive(Debug)]
pub struct Live<W: Write> {
    out: W,
    pace: f64,
    started: Option<(Absent, std::time::Instant)>,
    lines: usize,
}

impl<W: Write> Live<W> {
    /// A view on `out` at `pace` times the run's clock.
    pub fn new(out: W, pace: f64) -> Live<W> {
        Live {
            out,
            pace,
            started: None,
            lines: 0,
        }
    }

    /// Waits until a person's clock is where the run's clock is.
    #[allow(
        clippy::disallowed_methods,
        reason = "what a person watches goes by a person's clock; nothing else reads it"
    )]
    fn keep_pace(&mut self, snapshot: &Snapshot) {
        let started = match self.started {
            Some((setting, started)) if setting == snapshot.setting => started,
            _ => {
                let now = std::time::Instant::now();
                self.started = Some((snapshot.setting, now));
                now
            }
        };
        let due = started + snapshot.elapsed.div_f64(self.pace);
        let wait = due.saturating_duration_since(std::time::Instant::now());
        std::thread::sleep(wait.min(Duration::from_millis(200)));
    }
}

impl<W: Write> View for Live<W> {
    fn show(&mut self, snapshot: &Snapshot) {
        self.keep_pace(snapshot);
        let mut text = String::new();
        if self.lines > 0 {
            text.push_str(&format!("\x1b[{}A", self.lines));
        }
        let drawn = draw(snapshot);
        for line in &drawn {
            text.push_str(&format!("\x1b[2K{line}\n"));
        }
        self.lines = drawn.len();
        // Progress that cannot be shown is no reason to stop.
        let _ = self.out.write_all(text.as_bytes());
        let _ = self.out.flush();
    }
}

/// Width of the bars, in characters.
const BAR: usize = 16;
/// Lines are cut here: one that is wrapped by a narrow terminal would be two to redraw.
const COLUMNS: usize = 79;

fn draw(snapshot: &Snapshot) -> Vec<String> {
    let bar = |part: u64, whole: u64| {
        let filled = (part * BAR as u64 / whole.max(1)).min(BAR as u64) as usize;
        format!("{}{}", "#".repeat(filled), ".".repeat(BAR - filled))
    };
    let conversations = snapshot.conversations as u64;
    let mut lines = vec![
        format!(
            "NAT over a WAN; a reply that overtakes its binding: {:<10} {:>5.1} s",
            snapshot.setting.words(),
            snapshot.elapsed.as_secs_f64()
        ),
        format!(
            "conversations {} {} of {conversations}",
            bar(snapshot.completed, conversations),
            snapshot.completed
        ),
    ];
    for host in &snapshot.hosts {
        lines.push(format!(
            "{:<12} {} {:>6} known {:>5} opened {:>7} packets {:>3} wait",
            host.name,
            bar(host.known, conversations),
            host.known,
            host.opened,
            host.packets,
            host.parked
        ));
    }
    lines.push(format!(
        "late replies waited {}, packets lost to lag {}; IDPS: {}",
        snapshot.waited,
        snapshot.lost,
        if snapshot.scanners_blocked {
            "scanner blocked"
        } else {
            "no scan yet"
        }
    ));
    for line in &mut lines {
        *line = line.chars().take(COLUMNS).collect();
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(seconds: u64) -> Snapshot {
        Snapshot {
            setting: Absent::Drop,
            elapsed: Duration::from_secs(seconds),
            span: Duration::from_secs(8),
            conversations: 10,
            completed: 5,
            lost: 1,
            waited: 2,
            scanners_blocked: true,
            hosts: vec![HostView {
                name: "amsterdam".into(),
                packets: 100,
                opened: 3,
                known: 10,
                parked: 1,
            }],
        }
    }

    #[test]
    fn lines_are_few_and_plain() {
        let mut out = Vec::new();
        let mut lines = Lines::new(&mut out);
        for seconds in 0..6 {
            lines.show(&snapshot(seconds));
        }
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(!text.contains('\x1b'));
    }

    #[test]
    fn the_live_view_redraws_its_own_lines() {
        let mut out = Vec::new();
        let mut live = Live::new(&mut out, 1e9);
        live.show(&snapshot(1));
        live.show(&snapshot(2));
        let text = String::from_utf8(out).unwrap();
        assert!(draw(&snapshot(1)).iter().all(|line| line.len() <= COLUMNS));
        assert_eq!(text.matches("\x1b[4A").count(), 1, "{text}");
        assert!(text.contains("########........"), "{text}");
    }
}
