//! How often each rule decided, and the sources that rules block: parts of the firewall's `report`. For the control plane.

use std::collections::BTreeMap;

use asterism_function::notice::{self, End, read_text, write_text};
use asterism_function::{BadBytes, Reader, Wire, Writer};

use super::rules::{Action, Rule};
use super::{BY_HAND, Firewall, FirewallState};
use asterism_blocking::blocked::{self, BlockedRecord};
use asterism_blocking::manual;
use asterism_function::records::Record;

/// The question of a `report` that [`RuleHits`] answer: one for each rule in order, then one for the default.
pub const HITS_QUESTION: u32 = notice::QUESTION - 1;

/// How often a rule decided on a new flow, over all hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleHits {
    /// The rule's line in the file; 0: the default.
    pub line: u32,
    /// New flows that it decided on since the start. Rules that say the same are counted together.
    pub hits: u64,
    /// What it says.
    pub text: String,
}

impl Record for RuleHits {}

impl Wire for RuleHits {
    fn encode(&self, out: &mut Writer<'_>) {
        out.u32(self.line);
        out.u64(self.hits);
        write_text(&self.text, out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, BadBytes> {
        Ok(Self {
            line: input.u32()?,
            hits: input.u64()?,
            text: read_text(input)?,
        })
    }
}

impl Firewall {
    /// A part of the answer to [`HITS_QUESTION`]. Where to go on.
    pub(super) fn report_hits(
        &self,
        state: &FirewallState,
        (cursor, count): (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        let rules = &self.config().rules;
        let all = rules.rules();
        let end = cursor.saturating_add(count).min(all.len() as u32);
        let mut out = Writer::new(out, &[]);
        let hits = |number: u32| state.hits.total(&number);
        for rule in &all[cursor.min(end) as usize..end as usize] {
            let reported = RuleHits {
                line: rule.line,
                hits: hits(rule.number),
                text: rule.text.clone(),
            };
            reported.encode(&mut out);
        }
        if (end as usize) < all.len() {
            return Some(end);
        }
        let action = match rules.default_action() {
            Action::Allow => "allow",
            Action::Reject => "reject",
            Action::Drop | Action::Block(_) => "drop",
        };
        let default = RuleHits {
            line: 0,
            hits: hits(0),
            text: format!("default {action}"),
        };
        default.encode(&mut out);
        None
    }

    /// A part of the answer to [`BLOCKED_QUESTION`](asterism_blocking::blocked::BLOCKED_QUESTION). Where to go on.
    pub(super) fn report_blocked(
        &self,
        state: &FirewallState,
        range: (u32, u32),
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        let blocks = |rule: &&Rule| matches!(rule.action, Action::Block(_));
        // Of rules that say the same the first is the one that decides.
        let rules = self.config().rules.rules().iter().rev().filter(blocks);
        let by_number: BTreeMap<u32, &Rule> = rules.map(|rule| (rule.number, rule)).collect();
        state.blocked.for_each_from(range, |row, block, _| {
            let by = match by_number.get(&block.rule) {
                Some(rule) => format!("line {}: {}", rule.line, rule.text),
                None if block.rule == BY_HAND => manual::BY_HAND.to_owned(),
                None => "a rule that this host does not have now".to_owned(),
            };
            let record = BlockedRecord {
                source: End::host(row.0),
                destination: End::default(),
                until: block.until,
                by,
            };
            blocked::write(&record, out);
        })
    }
}
