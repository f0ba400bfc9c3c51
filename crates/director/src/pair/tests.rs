//! Two directors in memory with a virtual clock: loss, a broken link, deaths, pauses, and recorded heartbeats.

use super::*;

/// Time between two steps.
const STEP: Duration = Duration::from_millis(1);

/// A director and what is on its way to it.
struct End {
    pair: Option<Pair>,
    inbox: Vec<(Time, Vec<u8>)>,
    announced: u32,
}

/// Two directors and the link between them.
struct Link {
    now: Time,
    ends: [End; 2],
    delay: Duration,
    /// Heartbeats of a hundred that are lost; 100 is a broken link.
    lost_percent: u64,
    random: u64,
    /// Everything that was ever sent.
    recorded: Vec<Vec<u8>>,
    /// Whole steps in which both were active.
    both_active: u32,
    none_active: u32,
    incarnations: u64,
}

fn config(incarnation: u64, priority: u8) -> PairConfig {
    PairConfig::new(7, [1; 32], incarnation, priority)
}

impl Link {
    fn new(seed: u64, lost_percent: u64) -> Link {
        let end = |number: u8| End {
            pair: Some(Pair::new(config(u64::from(number) + 1, 10 - number), Time::ZERO).unwrap()),
            inbox: Vec::new(),
            announced: 0,
        };
        Link {
            now: Time::ZERO,
            ends: [end(0), end(1)],
            delay: Duration::from_millis(2),
            lost_percent,
            random: seed,
            recorded: Vec::new(),
            both_active: 0,
            none_active: 0,
            incarnations: 2,
        }
    }

    fn draw(&mut self) -> u64 {
        self.random = asterism_memory::hash::word(self.random, 11);
        self.random % 100
    }

    fn step(&mut self) {
        self.now = self.now.saturating_add(STEP);
        for number in 0..2 {
            let now = self.now;
            let inbox = std::mem::take(&mut self.ends[number].inbox);
            let (due, later): (Vec<_>, Vec<_>) = inbox.into_iter().partition(|(at, _)| *at <= now);
            self.ends[number].inbox = later;
            let end = &mut self.ends[number];
            let Some(pair) = &mut end.pair else {
                continue;
            };
            for (_, bytes) in due {
                // What is lost, late or of the past changes nothing.
                let _ = pair.handle(now, &bytes);
            }
            pair.handle_timeout(now);
            let mut out = [0; HEARTBEAT_BYTES];
            let sent = pair.poll_transmit(now, &mut out);
            if pair.poll_event() == Some(PairEvent::Announce) {
                end.announced += 1;
            }
            if sent.is_some() {
                self.recorded.push(out.to_vec());
                if self.draw() >= self.lost_percent {
                    let at = now.saturating_add(self.delay);
                    self.ends[1 - number].inbox.push((at, out.to_vec()));
                }
            }
        }
        let active = self.active();
        self.both_active += u32::from(active == [true, true]);
        self.none_active += u32::from(active == [false, false]);
    }

    fn run(&mut self, time: Duration) {
        for _ in 0..time.as_millis() {
            self.step();
        }
    }

    fn active(&self) -> [bool; 2] {
        [0, 1].map(|number| {
            let pair = self.ends[number].pair.as_ref();
            pair.is_some_and(|pair| pair.role() == Role::Active)
        })
    }

    fn kill(&mut self, number: usize) {
        self.ends[number].pair = None;
        self.ends[number].inbox.clear();
    }

    fn restart(&mut self, number: usize) {
        self.incarnations += 1;
        let config = config(self.incarnations, 10 - number as u8);
        self.ends[number].pair = Some(Pair::new(config, self.now).unwrap());
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn one_of_two_is_active_and_either_may_die() {
    for dies in [0, 1] {
        let mut link = Link::new(1, 0);
        link.run(SECOND);
        assert_eq!(link.active(), [true, false]);
        assert_eq!((link.both_active, link.ends[0].announced), (0, 1));
        link.kill(dies);
        link.none_active = 0;
        link.run(SECOND);
        assert!(link.active()[1 - dies] && !link.active()[dies]);
        // Takeover after the silence, and nothing else.
        assert!(link.none_active <= 352, "{} ms", link.none_active);
        link.restart(dies);
        link.run(2 * SECOND);
        let expected = [dies == 1, dies == 0];
        assert_eq!(link.active(), expected, "a return changes nothing");
        assert_eq!(link.both_active, 0);
    }
}

#[test]
fn alone_it_becomes_active() {
    let mut link = Link::new(1, 0);
    link.kill(0);
    link.run(Duration::from_millis(360));
    assert_eq!(link.active(), [false, true]);
    assert_eq!(link.ends[1].announced, 1);
}

#[test]
fn loss_alone_never_makes_two_for_longer_than_the_bound() {
    let mut takeovers = 0;
    for seed in 0..60 {
        let mut link = Link::new(seed, 30);
        let mut longest = 0;
        let mut run = 0;
        for _ in 0..20_000 {
            link.step();
            run = if link.active() == [true, true] {
                run + 1
            } else {
                0
            };
            longest = longest.max(run);
        }
        takeovers += link.ends[1].announced;
        // Thirty in a hundred lost: eight in a row are one in 15,000.
        let bound = config(1, 1).conflict_max(Duration::from_millis(4), 8);
        assert!(
            longest <= bound.as_millis() as u32,
            "seed {seed}: {longest} ms"
        );
    }
    assert!(takeovers > 0, "loss was to cause takeovers");
}

#[test]
fn a_broken_link_makes_two_and_its_return_one() {
    for seed in 0..100 {
        let mut link = Link::new(seed, 0);
        link.run(SECOND);
        link.lost_percent = 100;
        link.run(SECOND + seed as u32 * STEP);
        assert_eq!(link.active(), [true, true], "nobody can know better");
        link.lost_percent = 0;
        link.both_active = 0;
        let announced = link.ends[0].announced;
        link.run(SECOND);
        assert_eq!(link.active(), [true, false]);
        let bound = config(1, 1).conflict_max(2 * link.delay, 0);
        assert!(
            u128::from(link.both_active) <= bound.as_millis(),
            "seed {seed}: {} ms",
            link.both_active
        );
        assert!(link.ends[0].announced > announced, "tables are put right");
    }
}

#[test]
fn one_that_was_paused_does_not_go_on_as_active() {
    let mut link = Link::new(1, 0);
    link.run(SECOND);
    let paused = link.ends[0].pair.take();
    link.run(SECOND);
    assert_eq!(link.active(), [false, true]);
    link.ends[0].inbox.clear();
    link.ends[0].pair = paused;
    link.run(2 * SECOND);
    assert_eq!(link.active(), [false, true]);
    assert_eq!(link.both_active, 0, "not for a step");
}

#[test]
fn recorded_heartbeats_change_nothing() {
    let mut link = Link::new(1, 0);
    link.run(SECOND);
    let old = link.recorded.clone();
    link.kill(0);
    link.run(SECOND);
    link.restart(0);
    link.run(SECOND);
    assert_eq!(link.active(), [false, true]);
    // Those of the incarnation that was active, and its peer's, over and over.
    for bytes in old.iter().cycle().take(2_000) {
        let at = link.now;
        link.ends[0].inbox.push((at, bytes.clone()));
        link.ends[1].inbox.push((at, bytes.clone()));
        link.step();
        assert_eq!(link.active(), [false, true]);
    }
    // Nor do they keep a standby from taking over.
    link.kill(1);
    for bytes in old.iter().cycle().take(400) {
        let at = link.now;
        link.ends[0].inbox.push((at, bytes.clone()));
        link.step();
    }
    assert_eq!(link.active(), [true, false]);
}

#[test]
fn settings_have_bounds() {
    let refused = |change: fn(&mut PairConfig)| {
        let mut config = config(1, 1);
        change(&mut config);
        Pair::new(config, Time::ZERO).unwrap_err()
    };
    assert!(matches!(
        refused(|config| config.interval = Duration::from_millis(1)),
        PairConfigError::Interval(_)
    ));
    assert!(matches!(
        refused(|config| config.takeover_after = Duration::from_millis(199)),
        PairConfigError::TakeoverAfter(_)
    ));
    assert!(matches!(
        refused(|config| config.takeover_after = Duration::from_millis(1_601)),
        PairConfigError::TakeoverAfter(_)
    ));
    assert_eq!(
        refused(|config| config.incarnation = 0),
        PairConfigError::Incarnation
    );
    assert!(!format!("{:?}", config(1, 1)).contains("key"));
}

/// Heartbeats are at most four in an interval, whatever arrives.
#[test]
fn an_answer_does_not_cause_another_without_end() {
    let mut link = Link::new(1, 0);
    link.run(10 * SECOND);
    assert!(link.recorded.len() <= 2 * 110, "{}", link.recorded.len());
}
