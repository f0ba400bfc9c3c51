//! A run as a number, and as lines that people read.

use asterism_engine::Cluster;

use crate::exercise::Exercise;
use crate::moved::Moved;

/// What happened, folded into one number; in words too, where asked for.
#[derive(Debug, Default)]
pub struct Trace {
    hash: u64,
    lines: bool,
    last: Vec<u64>,
}

impl Trace {
    /// A trace that is only a number.
    pub fn new() -> Self {
        Self::default()
    }
    /// A trace that is also printed to standard output, line by line.
    pub fn printed() -> Self {
        Self {
            lines: true,
            ..Self::default()
        }
    }

    /// The number: equal for two runs exactly if (but for chance) the same happened in both.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Folds numbers in.
    pub fn note(&mut self, numbers: &[u64]) {
        for &number in numbers {
            let mixed = (self.hash ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            self.hash = mixed ^ (mixed >> 29);
        }
    }

    /// A line in words, if they are asked for.
    pub fn line(&mut self, line: impl FnOnce() -> String) {
        if self.lines {
            println!("{}", line());
        }
    }

    /// What a step left behind: time, and the counts of members in which something moved.
    pub(crate) fn step(&mut self, cluster: &Cluster<Exercise>, moved: Moved) {
        self.note(&[cluster.now().as_micros()]);
        self.last.resize(cluster.members().len() * 3, 0);
        for (place, member) in moved.members(cluster) {
            let tally = member.channel.tally();
            let applied: u64 = member
                .instances
                .iter()
                .map(|instance| instance.tally().groups_applied)
                .sum();
            let counts = [tally.bytes_sent, tally.bytes_received, applied];
            let before = &mut self.last[place * 3..place * 3 + 3];
            if before == counts {
                continue;
            }
            if self.lines {
                let what: Vec<String> = ["sent", "received", "applied"]
                    .iter()
                    .zip(counts.iter().zip(before.iter()))
                    .filter(|(_, (now, before))| now != before)
                    .map(|(what, (now, before))| format!("{what} {}", now - before))
                    .collect();
                println!("{} m{place} {}", cluster.now(), what.join(", "));
            }
            before.copy_from_slice(&counts);
            self.note(&counts);
        }
    }

    /// What the run ended with.
    pub fn digest(&mut self, cluster: &Cluster<Exercise>) {
        for member in cluster.members() {
            for instance in &member.instances {
                self.note(&instance.digests());
            }
        }
    }
}
