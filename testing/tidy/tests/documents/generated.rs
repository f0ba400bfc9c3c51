//! Parts of pages that are written from the code: they stand between `<!-- generated: NAME -->` and `<!-- end -->`.
//! `ASTERISM_BLESS=1 cargo test -p asterism-tidy` writes them; without it the test compares.

use std::fmt::Write;

use asterism_engine::transport::{
    DATAGRAM_BYTES_MIN, DATES_APART, EVENTS_MAX, SEND_QUEUE_DATAGRAMS_MAX, STRANGERS_MAX,
};
use asterism_engine::{
    APPLY_GROUPS_PER_TURN, BACKLOG_BYTES_MAX, PARKED_ABSENT_MAX, PARKED_BEHIND_MAX,
    PARKED_FLOW_MAX, PARKED_MAX, PARKED_US_MAX, SNAPSHOT_PARTS_PER_TURN, SNAPSHOT_PLACES_PER_TURN,
};
use asterism_function::Reason;
use asterism_functions::nat::clauses::{CLAUSES, Status};
use asterism_io::port::PortDrop;
use asterism_placement::envelope::Refused;
use asterism_placement::membership::MEMBERS_MAX;
use asterism_placement::replicated::{CLUSTER_TIME_APART_MAX, Config, GROUP_BYTES_MAX};
use asterism_placement::{ClusterId, Epoch, Incarnation, MemberId};
use asterism_secure_channel::{
    KEYS_MAX, OVERHEAD_BYTES, Refusal, UNKNOWN_KEY_REPORT_INTERVAL_MS, WINDOW_COUNTERS,
};
use asterism_state::{
    ANSWER_BYTES_MAX, AWAITED_READS_MAX, BLOCK_ITEMS, GRANTS_PER_PACKET_MAX,
    GROUP_BYTES_MAX as WRITE_SET_BYTES_MAX, LANES_MAX, MISSES_PER_PACKET_MAX, OBJECTS_MAX,
    OPERATION_BYTES_MAX, ObjectCount, REQUESTS_PER_PACKET_MAX, WRITES_PER_PACKET,
};
use asterism_tidy::{must_be_empty, read, root};

use crate::documented::{Documented, items, words};

fn table(heads: [&str; 2], rows: impl IntoIterator<Item = (String, String)>) -> String {
    let mut out = format!("| {} | {} |\n|---|---|\n", heads[0], heads[1]);
    for (name, meaning) in rows {
        writeln!(out, "| {name} | {meaning} |").unwrap();
    }
    out
}

fn named(items: Vec<Documented>) -> Vec<(String, String)> {
    items
        .into_iter()
        .map(|item| (format!("`{}`", item.name), item.meaning))
        .collect()
}

fn reasons() -> String {
    let shared = Reason::ALL
        .iter()
        .filter(|reason| reason.own_number().is_none());
    let rows = shared.map(|reason| (format!("`{}`", reason.label()), reason.meaning().to_owned()));
    table(["reason", "meaning"], rows)
}

fn port_drops() -> String {
    let documented = items("crates/io/src/port/statistics.rs", "pub enum PortDrop", "}");
    let rows = PortDrop::ALL.iter().zip(documented);
    table(
        ["reason", "meaning"],
        rows.map(|(reason, item)| (format!("`{}`", reason.label()), item.meaning)),
    )
}

fn sealed_refusals() -> String {
    let documented = items("crates/secure-channel/src/refusal.rs", "refusals! {", "}");
    assert_eq!(documented.len(), Refusal::ALL.len());
    let rows = Refusal::ALL.iter().zip(documented);
    table(
        ["reason", "meaning"],
        rows.map(|(reason, item)| (format!("`{}`", reason.label()), item.meaning)),
    )
}

fn digest_refusals() -> String {
    let rows = asterism_functions::cache_digests::Refusal::ALL
        .iter()
        .map(|refusal| {
            (
                format!("`{}`", refusal.label()),
                refusal.meaning().to_owned(),
            )
        });
    table(["reason", "meaning"], rows)
}

fn state_refusals() -> String {
    let documented = items(
        "crates/placement/src/envelope/refused.rs",
        "pub enum Refused",
        "}",
    );
    assert_eq!(documented.len(), Refused::ALL.len());
    let rows = Refused::ALL.iter().zip(documented);
    table(
        ["reason", "meaning"],
        rows.map(|(reason, item)| (format!("`{}`", reason.label()), item.meaning)),
    )
}

fn instance_counters() -> String {
    let rows = items("crates/engine/src/tally.rs", "pub struct Tally", "}");
    table(
        ["counter", "meaning"],
        named(rows)
            .into_iter()
            .filter(|(name, _)| name != "`dropped`"),
    )
}

fn port_counters() -> String {
    let path = "crates/io/src/port/statistics.rs";
    let rows = items(path, "pub struct PortStatistics", "}");
    table(
        ["counter", "meaning"],
        named(rows)
            .into_iter()
            .filter(|(name, _)| name != "`dropped`"),
    )
}

fn channel_counters() -> String {
    table(
        ["counter", "meaning"],
        named(items(
            "crates/engine/src/channel.rs",
            "pub struct ChannelTally",
            "}",
        )),
    )
}

fn transport_counters() -> String {
    table(
        ["counter", "meaning"],
        named(items(
            "crates/engine/src/transport/statistics.rs",
            "counters! {",
            "}",
        )),
    )
}

fn relay_counters() -> String {
    table(
        ["counter", "meaning"],
        named(items(
            "crates/placement/src/replicated/sites/relay.rs",
            "tally! {",
            "}",
        )),
    )
}

fn replication_counters() -> String {
    table(
        ["counter", "meaning"],
        named(items(
            "crates/placement/src/replicated/counters.rs",
            "counters! {",
            "}",
        )),
    )
}

fn object_counters() -> String {
    let rows = ObjectCount::ALL
        .iter()
        .map(|count| (format!("`{}`", count.label()), count.meaning().to_owned()));
    table(["counter", "meaning"], rows)
}

fn mutants(path: &str) -> String {
    let rows = items(path, "asterism_mutant::planted! {", "}");
    table(
        ["planted bug", "effect, and where it occurred"],
        rows.into_iter()
            .map(|item| (words(&item.name), item.meaning)),
    )
}

fn steps() -> String {
    let mut out = String::from("| step | effect or expectation |\n|---|---|\n");
    for (form, meaning) in asterism_rehearsal::scenario::STEPS {
        let form = form.replace('|', "\\|");
        writeln!(out, "| `{form}` | {meaning} |").unwrap();
    }
    out
}

fn bounds() -> String {
    let one = MemberId(1);
    let replica = Config::new(ClusterId(1), Epoch(1), one, Incarnation(1), vec![one]);
    let rows = [
        (
            "objects of one state",
            OBJECTS_MAX.to_string(),
            "refused when the program is built",
        ),
        (
            "keys of one row",
            LANES_MAX.to_string(),
            "refused by the tests of state laws",
        ),
        (
            "grants that one packet holds",
            GRANTS_PER_PACKET_MAX.to_string(),
            "no further grant; the function decides",
        ),
        (
            "late reads of one packet",
            MISSES_PER_PACKET_MAX.to_string(),
            "further reads are answered at once",
        ),
        (
            "requests of one packet to a store",
            REQUESTS_PER_PACKET_MAX.to_string(),
            "the packet is dropped: `store-too-much`",
        ),
        (
            "bytes of a store's answers to one packet",
            ANSWER_BYTES_MAX.to_string(),
            "the packet is dropped: `store-too-much`",
        ),
        (
            "bytes of one operation",
            OPERATION_BYTES_MAX.to_string(),
            "an assertion in tests: keys and values are small",
        ),
        (
            "bytes of one operation group",
            GROUP_BYTES_MAX.to_string(),
            "refused by the replicator; a packet's writes are smaller",
        ),
        (
            "bytes that one packet writes to shared entries",
            WRITE_SET_BYTES_MAX.to_string(),
            "a function that may write more is refused when it is built",
        ),
        (
            "entries that one packet writes, unless its function declares another bound",
            WRITES_PER_PACKET.to_string(),
            "an assertion in tests of the function",
        ),
        (
            "reads that a late packet awaits individually",
            AWAITED_READS_MAX.to_string(),
            "the packet is called again after every change",
        ),
        ("items of a leased block", BLOCK_ITEMS.to_string(), ""),
        (
            "packets parked in total",
            PARKED_MAX.to_string(),
            "no port is read; counted as `held_by_parking`",
        ),
        (
            "packets parked for absent entries, or for entries that wait for a store's decision",
            PARKED_ABSENT_MAX.to_string(),
            "the oldest is dropped: `parked-overflow`",
        ),
        (
            "packets parked behind others of their flows",
            PARKED_BEHIND_MAX.to_string(),
            "the newest is dropped: `parked-overflow`",
        ),
        (
            "packets of one flow parked",
            PARKED_FLOW_MAX.to_string(),
            "the newest is dropped: `parked-flow`",
        ),
        (
            "microseconds that a packet is parked",
            PARKED_US_MAX.to_string(),
            "the packet is dropped: `parked-too-long`",
        ),
        (
            "groups applied in one turn",
            APPLY_GROUPS_PER_TURN.to_string(),
            "the rest counts as lag, and is applied in the next turns",
        ),
        (
            "parts of snapshots written in one turn",
            SNAPSHOT_PARTS_PER_TURN.to_string(),
            "the scan goes on in the next turns",
        ),
        (
            "places of tables scanned for snapshots in one turn",
            SNAPSHOT_PLACES_PER_TURN.to_string(),
            "the scan goes on in the next turns",
        ),
        (
            "bytes that wait for slow instances",
            BACKLOG_BYTES_MAX.to_string(),
            "datagrams are refused, and sent again; the host's own groups and its ports wait (`held_by_log`)",
        ),
        (
            "datagrams that wait for the kernel",
            SEND_QUEUE_DATAGRAMS_MAX.to_string(),
            "the state channel writes no further datagrams; their content waits in the log",
        ),
        (
            "addresses of unknown senders kept for an answer",
            STRANGERS_MAX.to_string(),
            "the oldest is forgotten: `unaddressed`",
        ),
        (
            "least bound of a datagram, in bytes",
            DATAGRAM_BYTES_MIN.to_string(),
            "on a narrower path datagrams are fragmented: `fragmented_sent`",
        ),
        (
            "events of the state channel's thread that wait for a reader",
            EVENTS_MAX.to_string(),
            "counted as lost",
        ),
        (
            "seconds between the cluster times of two members that began to serve separately",
            CLUSTER_TIME_APART_MAX.as_secs().to_string(),
            "each refuses the other: `time_apart`",
        ),
        (
            "seconds between the dates of two members",
            DATES_APART.as_secs().to_string(),
            "`dates-apart` in `status` and the log; nothing else depends on dates",
        ),
        (
            "members of a cluster",
            MEMBERS_MAX.to_string(),
            "refused when the configuration is checked",
        ),
        (
            "bytes of the log",
            replica.log_bytes_max.to_string(),
            "ports wait; a member that pins the log is served a snapshot",
        ),
        (
            "groups of the log",
            replica.log_groups_max.to_string(),
            "the same",
        ),
        (
            "groups kept above a gap",
            replica.reorder_groups_max.to_string(),
            "dropped and repaired: `groups_beyond_reorder`",
        ),
        (
            "groups of one member not yet applied",
            replica.unapplied_groups_max.to_string(),
            "dropped and repaired: `groups_beyond_unapplied`",
        ),
        (
            "counters of the replay window",
            WINDOW_COUNTERS.to_string(),
            "refused: `too_old`",
        ),
        (
            "cluster keys of a host",
            KEYS_MAX.to_string(),
            "a key file with more is refused",
        ),
        (
            "milliseconds between two reports that a member's key is missing",
            UNKNOWN_KEY_REPORT_INTERVAL_MS.to_string(),
            "only counted",
        ),
        ("bytes that sealing adds", OVERHEAD_BYTES.to_string(), ""),
        (
            "lines of alerts that wait to be written",
            asterism_lines::QUEUE_LINES_MAX.to_string(),
            "lost: `lines_lost` of `status`",
        ),
        (
            "seconds in which a stopping host writes and exports its last records",
            asterism_host::run::jobs::TELL_LAST.as_secs().to_string(),
            "the rest is lost, and reported: `port-log-lost`, `alerts-not-written`, `flows-not-exported`",
        ),
        (
            "requests for stations of a balancer's backends in transit to an instance",
            asterism_host::run::jobs::STATIONS_AT_ONCE.to_string(),
            "further requests wait for these, and 10 ms",
        ),
        (
            "scenario files of one call",
            asterism_rehearsal::scenario::FILES_MAX.to_string(),
            "none is run",
        ),
        (
            "steps of a scenario",
            asterism_rehearsal::scenario::STEPS_MAX.to_string(),
            "the scenario is refused",
        ),
        (
            "packets that a scenario sends",
            asterism_rehearsal::scenario::PACKETS_MAX.to_string(),
            "the scenario is refused",
        ),
        (
            "packets that left a scenario and were not expected yet",
            asterism_rehearsal::scenario::UNEXPECTED_MAX.to_string(),
            "the scenario fails",
        ),
    ];
    let mut out = String::from("| what | bound | beyond it |\n|---|---|---|\n");
    for (what, bound, beyond) in rows {
        writeln!(out, "| {what} | {bound} | {beyond} |").unwrap();
    }
    out
}

fn clauses() -> String {
    let mut out =
        String::from("| RFC | clause | asks for | | how, or why not |\n|---|---|---|---|---|\n");
    for clause in CLAUSES {
        let status = match clause.status {
            Status::Met => "met",
            Status::Configured => "configured",
            Status::Partly => "in part",
            Status::NotMet => "not met",
        };
        let (rfc, number, subject) = (clause.rfc, clause.number, clause.subject);
        writeln!(
            out,
            "| {rfc} | {number} | {subject} | {status} | {} |",
            clause.note
        )
        .unwrap();
    }
    out
}

fn oracle_rules() -> String {
    let mut out =
        String::from("| rule | clause | difference, and when it applies |\n|---|---|---|\n");
    for rule in asterism_oracle::Rule::ALL {
        let (name, clause, meaning) = (rule.name(), rule.clause(), rule.meaning());
        writeln!(out, "| `{name}` | {clause} | {meaning} |").unwrap();
    }
    out
}

fn oracle_scenarios() -> String {
    let rows = asterism_oracle::live::SCENARIOS
        .iter()
        .map(|scenario| (format!("`{}`", scenario.name), scenario.about.to_owned()));
    table(["recording", "content"], rows)
}

/// A page, the name of a part of it, and what makes the part.
type Part = (&'static str, &'static str, fn() -> String);

const PARTS: &[Part] = &[
    ("docs/src/reasons.md", "reasons", reasons),
    ("docs/src/reasons.md", "port drops", port_drops),
    ("docs/src/reasons.md", "sealed refusals", sealed_refusals),
    ("docs/src/reasons.md", "digest refusals", digest_refusals),
    ("docs/src/reasons.md", "state refusals", state_refusals),
    (
        "docs/src/counters.md",
        "instance counters",
        instance_counters,
    ),
    ("docs/src/counters.md", "port counters", port_counters),
    ("docs/src/counters.md", "channel counters", channel_counters),
    (
        "docs/src/counters.md",
        "transport counters",
        transport_counters,
    ),
    (
        "docs/src/counters.md",
        "replication counters",
        replication_counters,
    ),
    ("docs/src/counters.md", "relay counters", relay_counters),
    ("docs/src/counters.md", "object counters", object_counters),
    ("docs/src/bounds.md", "bounds", bounds),
    (
        "docs/src/simulator.md",
        "mutants of the secure channel",
        || mutants("crates/secure-channel/src/mutant.rs"),
    ),
    ("docs/src/simulator.md", "mutants of the placement", || {
        mutants("crates/placement/src/mutant.rs")
    }),
    (
        "docs/src/simulator.md",
        "mutants of block assignment",
        || mutants("crates/block-assignment/src/mutant.rs"),
    ),
    ("docs/src/simulator.md", "mutants of the state", || {
        mutants("crates/state-mutants/src/mutant.rs")
    }),
    ("docs/src/simulator.md", "mutants of the engine", || {
        mutants("crates/engine/src/mutant.rs")
    }),
    ("docs/src/simulator.md", "mutants of tracking", || {
        mutants("crates/tracking/src/mutant.rs")
    }),
    ("docs/src/simulator.md", "mutants of translation", || {
        mutants("crates/translation/src/mutant.rs")
    }),
    ("docs/src/simulator.md", "mutants of balancing", || {
        mutants("crates/balancing/src/mutant.rs")
    }),
    ("docs/src/simulator.md", "mutants of detection", || {
        mutants("crates/detection/src/mutant.rs")
    }),
    ("docs/src/simulator.md", "mutants of the functions", || {
        mutants("crates/functions/src/mutant.rs")
    }),
    ("docs/src/simulator.md", "mutants of the controller", || {
        mutants("crates/orchestrator/src/controller/mutant.rs")
    }),
    ("docs/src/simulator.md", "mutants of elasticity", || {
        mutants("crates/elasticity/src/mutant.rs")
    }),
    ("docs/src/simulator.md", "mutants of metering", || {
        mutants("crates/elasticity/src/usage/mutant.rs")
    }),
    ("docs/src/simulator.md", "mutants of the steering", || {
        mutants("crates/steering/src/mutant.rs")
    }),
    (
        "docs/src/simulator.md",
        "mutants of the truth store",
        || mutants("crates/truth-store/src/mutant.rs"),
    ),
    ("docs/src/functions.md", "clauses", clauses),
    ("docs/src/scenarios.md", "steps", steps),
    ("docs/src/nat-oracle.md", "oracle rules", oracle_rules),
    (
        "docs/src/nat-oracle.md",
        "oracle scenarios",
        oracle_scenarios,
    ),
];

/// The page with the part replaced. `None` when it has no place for it.
fn with_part(page: &str, name: &str, part: &str) -> Option<String> {
    let mark = format!("<!-- generated: {name} -->\n");
    let (before, rest) = page.split_once(&mark)?;
    let (_, after) = rest.split_once("<!-- end -->")?;
    Some(format!("{before}{mark}{part}<!-- end -->{after}"))
}

#[test]
fn generated_parts_are_what_the_code_says() {
    let bless = std::env::var_os("ASTERISM_BLESS").is_some();
    let mut faults = Vec::new();
    for (path, name, make) in PARTS {
        let page = read(path);
        match with_part(&page, name, &make()) {
            None => faults.push(format!("{path}: has no place for `{name}`")),
            Some(wanted) if wanted == page => {}
            Some(wanted) if bless => std::fs::write(root().join(path), wanted).unwrap(),
            Some(_) => faults.push(format!(
                "{path}: `{name}` is out of date: ASTERISM_BLESS=1 cargo test -p asterism-tidy"
            )),
        }
    }
    must_be_empty(&faults);
}

#[test]
fn a_part_is_replaced_where_it_stands() {
    let page = "a\n<!-- generated: x -->\nold\n<!-- end -->\nb\n";
    assert_eq!(
        with_part(page, "x", "new\n").unwrap(),
        "a\n<!-- generated: x -->\nnew\n<!-- end -->\nb\n"
    );
    assert_eq!(with_part(page, "y", "new\n"), None);
}
