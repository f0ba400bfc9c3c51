//! The registry: one row for every measure that the project has promised, built or not.
//!
//! A row says what is measured, in which unit, what the bar is and what others reach. How a measure is made lives in
//! `measures`; a row without one there is listed as "not yet". Read [`Row`] first, then the tables under `registry/`.

mod constellation;
mod floor;
mod foundation;
mod held;
mod middleboxes;
mod orchestrator;
mod paper;
mod remote;
mod tree;

use std::fmt;

/// One promised measure.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The name it is asked for by, as `nat.10k`.
    pub name: &'static str,
    /// The table it stands in.
    pub group: Group,
    /// The unit of its one value.
    pub unit: &'static str,
    /// What the value is, in a sentence.
    pub value: &'static str,
    /// What the value must reach.
    pub bar: Bar,
    /// What single variants must reach beside the value; the measure must report each by this name.
    pub also: &'static [(&'static str, Bar)],
    /// What the paper or others reach.
    pub anchors: &'static [Anchor],
    /// What a later table asks of the same measure, if one does.
    pub later: Option<(Group, &'static str)>,
}

/// The tables of the measures, in the order in which they are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// The yardsticks that the products are held against; not of the project's tables.
    Floor,
    /// One NAT source, a cluster in one process.
    Foundation,
    /// The same on real networks.
    Networks,
    /// Constellation, whole.
    Constellation,
    /// The library of functions.
    Middleboxes,
    /// Membership, elasticity and steering.
    Orchestrator,
    /// Objects in a store.
    Remote,
    /// What the papers and other programs show that no table asks for; not of the project's tables.
    Beside,
}

/// What a figure must reach. A floor to stand on, not the goal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bar {
    /// Smaller is better.
    AtMost(f64),
    /// Larger is better.
    AtLeast(f64),
    /// Only this figure will do.
    Exactly(f64),
    /// Reported, not judged.
    Reported,
}

/// What somebody else reaches, and where that is from.
#[derive(Debug, Clone, Copy)]
pub struct Anchor {
    /// Whose figure.
    pub whose: &'static str,
    /// The figure with its unit.
    pub figure: &'static str,
    /// Where the figure is from.
    pub from: &'static str,
}

/// Every row, table by table.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    [
        floor::ROWS,
        foundation::CORE,
        foundation::NETWORKS,
        constellation::ROWS,
        held::ROWS,
        middleboxes::ROWS,
        orchestrator::ROWS,
        remote::ROWS,
        paper::ROWS,
        tree::ROWS,
    ]
    .into_iter()
    .flatten()
}

/// The row of this name.
pub fn find(name: &str) -> Option<&'static Row> {
    rows().find(|row| row.name == name)
}

impl Row {
    /// Seconds within which the short form ends: 55 for those in the laboratory, 45 for all others.
    pub fn limit_seconds(&self) -> u32 {
        let in_laboratory = ["remote.elastic", "remote.failure", "remote.store-death"];
        if self.name.starts_with("lab.") || in_laboratory.contains(&self.name) {
            55
        } else {
            45
        }
    }

    /// The bar in words, those of the variants included.
    pub fn bar_in_words(&self) -> String {
        let mut words = self.bar.to_string();
        for (variant, bar) in self.also {
            words.push_str(&format!("; {variant} {bar}"));
        }
        words
    }
}

impl Bar {
    /// Whether `figure` meets the bar; none where nothing is judged.
    pub fn met_by(self, figure: f64) -> Option<bool> {
        match self {
            Self::AtMost(most) => Some(figure <= most),
            Self::AtLeast(least) => Some(figure >= least),
            Self::Exactly(only) => Some(figure == only),
            Self::Reported => None,
        }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(out, "≤ {}", short(*most)),
            Self::AtLeast(least) => write!(out, "≥ {}", short(*least)),
            Self::Exactly(only) => write!(out, "= {}", short(*only)),
            Self::Reported => write!(out, "reported"),
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Floor => "floor",
            Self::Foundation => "foundation (core)",
            Self::Networks => "foundation (real networks)",
            Self::Constellation => "constellation, whole",
            Self::Middleboxes => "middleboxes",
            Self::Orchestrator => "orchestrator",
            Self::Remote => "remote state",
            Self::Beside => "beside the papers",
        })
    }
}

/// A figure as people write it: `10,000`, `0.95`, `4·10⁹` as `4,000,000,000`.
fn short(figure: f64) -> String {
    if figure.fract() != 0.0 || figure.abs() < 1_000.0 {
        return figure.to_string();
    }
    let digits = format!("{figure:.0}");
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A row with only the parts that each has; the tables add the rest.
const fn row(
    group: Group,
    name: &'static str,
    unit: &'static str,
    bar: Bar,
    value: &'static str,
) -> Row {
    Row {
        name,
        group,
        unit,
        value,
        bar,
        also: &[],
        anchors: &[],
        later: None,
    }
}

impl Row {
    const fn also(mut self, also: &'static [(&'static str, Bar)]) -> Self {
        self.also = also;
        self
    }

    const fn anchors(mut self, anchors: &'static [Anchor]) -> Self {
        self.anchors = anchors;
        self
    }

    const fn later(mut self, group: Group, what: &'static str) -> Self {
        self.later = Some((group, what));
        self
    }
}

/// Figures of programs measured by us, on a machine like the one that tests run on.
const fn measured(whose: &'static str, figure: &'static str) -> Anchor {
    Anchor {
        whose,
        figure,
        from: "measured by us beside the design: one core of a 2-core 3.0 GHz virtual machine, packets per on-CPU second",
    }
}

/// Figures that a paper or a project's own documents state.
const fn published(whose: &'static str, figure: &'static str, from: &'static str) -> Anchor {
    Anchor {
        whose,
        figure,
        from,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the tables, copied manually from the page that promises them.
    const PROMISED: &str = "
        pass-through.noop pass-through.read-write nat.instructions nat.replicated-instructions
        nat.10k nat.100k nat.1m nat.over-floor nat.churn nat.allocations
        replication.bytes-per-binding replication.new-flow-sender replication.new-flow-receiver
        replication.inserts counters.both-sides counters.lag parking.cost parking.update sim.seeds sim.mutants
        lab.asymmetric-tcp lab.throughput nat.oracle ports.conformance replication.multicast-cost
        soak.operations join.pause paper.figure-7 join.cold-100k join.cold-1m replication.straggler
        replication.coalescing replication.repair peers.haproxy peers.conntrackd nat.latency-added
        idps.leaked audit.alarm lab.kill
        hold.kill hold.throughput hold.latency placement.instructions placement.hostile
        functions.lines functions.cost functions.chain firewall.agreement balancer.disruption
        idps.scans monitor.error limiter.exact limiter.approximate digests.squid chain.order
        lab.up lab.failover lab.false-alarm lab.scale lab.launch lab.hotspot lab.headless steering.conformance
        director.cost sim.orchestrator api.intruder
        remote.batching remote.ceiling remote.elastic remote.failure remote.functions remote.latency
        remote.new-flow remote.store-death remote.timers sim.remote";

    #[test]
    fn every_promised_measure_has_one_row() {
        let mut promised: Vec<&str> = PROMISED.split_whitespace().collect();
        let mut listed: Vec<&str> = rows()
            .filter(|row| !matches!(row.group, Group::Floor | Group::Beside))
            .map(|row| row.name)
            .collect();
        promised.sort_unstable();
        listed.sort_unstable();
        assert_eq!(promised, listed);
    }

    #[test]
    fn the_names_agree_with_the_design_where_it_is_at_hand() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../shared/design/MEASURES.md"
        );
        let Ok(page) = std::fs::read_to_string(path) else {
            eprintln!(
                "SKIPPED (shared data absent): the_names_agree_with_the_design_where_it_is_at_hand"
            );
            return;
        };
        let mut seen = 0;
        for line in page.lines().filter(|line| line.starts_with("| `")) {
            let mut last = String::new();
            for name in line
                .split('|')
                .nth(1)
                .unwrap_or_default()
                .split('`')
                .skip(1)
                .step_by(2)
            {
                // `-receiver` beside `replication.new-flow-sender` shortens the same name.
                let full = match name.strip_prefix('-') {
                    Some(end) => format!(
                        "{}-{end}",
                        last.rsplit_once('-').map_or("", |parts| parts.0)
                    ),
                    None => name.to_owned(),
                };
                assert!(find(&full).is_some(), "{full} is promised and has no row");
                last = full;
                seen += 1;
            }
        }
        assert!(seen > 40, "only {seen} names were read");
    }

    #[test]
    fn rows_say_what_they_are() {
        for row in rows() {
            assert!(!row.unit.is_empty() && row.value.len() > 10, "{}", row.name);
            assert!(
                row.anchors
                    .iter()
                    .all(|anchor| !anchor.figure.is_empty() && !anchor.from.is_empty())
            );
        }
    }

    #[test]
    fn bars_judge_in_their_direction() {
        assert_eq!(Bar::AtMost(41.0).met_by(41.0), Some(true));
        assert_eq!(Bar::AtMost(41.0).met_by(41.1), Some(false));
        assert_eq!(Bar::AtLeast(0.95).met_by(0.94), Some(false));
        assert_eq!(Bar::Exactly(0.0).met_by(1.0), Some(false));
        assert_eq!(Bar::Reported.met_by(1.0), None);
        assert_eq!(Bar::AtLeast(3_000_000.0).to_string(), "≥ 3,000,000");
    }
}
