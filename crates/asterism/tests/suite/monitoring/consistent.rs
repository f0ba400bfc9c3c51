//! Rules, page, inhibitions, dashboard and code say the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use asterism::orchestrate::{events, health, metrics};
use asterism_api::data::Severity;
use asterism_engine::transport::PeerFault;
use asterism_function::Reason;
use asterism_io::port::PortDrop;

use super::files::{self, FOLDER, Rule, dashboard, inhibitions, rules};

/// Names of the groups on the page.
const GROUPS: [(&str, &str); 7] = [
    ("asterism-cluster", "What the orchestrator finds wrong"),
    ("asterism-orchestrators", "Orchestrators"),
    ("asterism-hosts", "Hosts and their place in the cluster"),
    ("asterism-state", "State: equal, and with room"),
    ("asterism-packets", "Packets"),
    ("asterism-channel", "The state channel"),
    ("asterism-records", "Records"),
];
const PAGE: &str = "docs/src/alerts.md";

fn by_code() -> BTreeMap<String, Rule> {
    let rules = rules();
    let count = rules.len();
    let by_code: BTreeMap<_, _> = rules
        .into_iter()
        .map(|rule| (rule.code.clone(), rule))
        .collect();
    assert_eq!(by_code.len(), count, "a code is of one rule");
    by_code
}

#[test]
fn every_health_item_that_is_no_notice_is_an_alert() {
    let rules = by_code();
    for kind in health::KINDS {
        let rule = rules.get(kind.code());
        if kind.severity() == Severity::Notice {
            assert!(rule.is_none(), "{} is a notice", kind.code());
            continue;
        }
        let rule = rule.unwrap_or_else(|| {
            panic!(
                "{0}: write an alert with this code, its test and its inhibitions in {FOLDER}",
                kind.code()
            )
        });
        assert_eq!(
            rule.severity,
            metrics::severity_word(kind.severity()),
            "{}",
            kind.code()
        );
        assert_eq!(files::values(&rule.expr, "code"), [kind.code()]);
    }
    let codes: BTreeSet<&str> = health::KINDS.iter().map(|kind| kind.code()).collect();
    for rule in rules.values() {
        for code in files::values(&rule.expr, "code") {
            assert!(codes.contains(&*code), "{}: there is no {code}", rule.code);
        }
    }
}

#[test]
fn every_alert_has_its_name_its_help_and_its_test() {
    let tests = files::text(&format!("{FOLDER}/alerts-test.yml"));
    for rule in rules() {
        let words = rule.code.split('-').map(|word| {
            let (first, rest) = word.split_at(1);
            format!("{first}{}", rest.to_lowercase())
        });
        let name = format!("Asterism{}", words.collect::<String>());
        assert_eq!(rule.alert, name);
        assert!(
            matches!(&*rule.severity, "warning" | "critical"),
            "{rule:?}"
        );
        assert!(
            rule.summary.ends_with('.') && rule.description.ends_with(['.', ')']),
            "{rule:?}"
        );
        let anchor = format!("/docs/src/alerts.md#{}", rule.code.to_lowercase());
        assert!(rule.runbook_url.ends_with(&anchor), "{rule:?}");
        let of = |what: &str| tests.matches(&format!("{what}{name}\"")).count();
        let (asked, fired) = (
            of("alertname=\""),
            of("exp_samples:\n          - labels: 'ALERTS{alertname=\""),
        );
        assert_eq!(
            (asked, fired),
            (5, 1),
            "{name}: it is asked for four times, and fires once"
        );
    }
}

#[test]
fn an_alert_is_inhibited_by_one_as_grave_that_fires_before() {
    let rules = by_code();
    let rule = |code: &String| {
        rules
            .get(code)
            .unwrap_or_else(|| panic!("there is no {code}"))
    };
    let inhibitions = inhibitions();
    assert!(inhibitions.len() >= 10, "{inhibitions:?}");
    for inhibition in &inhibitions {
        for cause in &inhibition.causes {
            for symptom in &inhibition.symptoms {
                assert_ne!(cause, symptom);
                let (cause, symptom) = (rule(cause), rule(symptom));
                let is_grave = cause.severity == "critical" || symptom.severity == "warning";
                assert!(is_grave, "{} would hide {}", cause.code, symptom.code);
                let margin = symptom.wait_s.checked_sub(cause.wait_s);
                assert!(
                    margin >= Some(15),
                    "{} is sent before its cause {} is known",
                    symptom.code,
                    cause.code
                );
            }
        }
    }
}

#[test]
fn labels_in_rules_are_the_codes_own() {
    let reasons: BTreeSet<&str> = Reason::ALL
        .iter()
        .map(|reason| reason.label())
        .chain(PortDrop::ALL.iter().map(|drop| drop.label()))
        .chain(["not-sealed", "malformed", "forged"])
        .collect();
    let mut faults = BTreeSet::from(["left".to_owned()]);
    for rule in rules() {
        for reason in files::values(&rule.expr, "reason") {
            assert!(
                reasons.contains(&*reason),
                "{}: there is no {reason}",
                rule.code
            );
        }
        for event in files::values(&rule.expr, "event") {
            assert!(events::COUNTED.contains(&&*event), "{}: {event}", rule.code);
        }
        faults.extend(files::values(&rule.expr, "fault"));
    }
    // `left` is what an operator does; each other fault is an alert.
    let known: BTreeSet<String> = PeerFault::LABELS.map(str::to_owned).into();
    assert_eq!(faults, known);
}

#[test]
fn the_dashboard_can_be_imported() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    let mut cells = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}");
        let place = |side: &str| panel["gridPos"][side].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24, "{title} is too wide");
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(cells.insert((x, y)), "{title} lies over another panel");
            }
        }
        if panel["type"] == "row" {
            continue;
        }
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        assert!(
            !panel["description"].as_str().unwrap().is_empty(),
            "{title}"
        );
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let names: Vec<_> = variables.map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["datasource", "cluster", "host"]);
    for (title, query) in files::panel_queries(&dashboard) {
        for word in query.split('$').skip(1) {
            let known = ["cluster\"", "host\"", "__rate_interval]"];
            assert!(
                known.iter().any(|known| word.starts_with(known)),
                "{title}: ${word}"
            );
        }
    }
}

/// The sections of the page that are written from the rules.
fn sections() -> String {
    let rules = rules();
    let mut text = String::new();
    for (group, title) in GROUPS {
        write!(text, "\n## {title}\n").unwrap();
        for rule in rules.iter().filter(|rule| rule.group == group) {
            let Rule {
                code,
                severity,
                wait_s,
                ..
            } = rule;
            let wait = match wait_s {
                0 => String::new(),
                seconds if seconds % 60 == 0 => format!(", after {} min", seconds / 60),
                seconds => format!(", after {seconds} s"),
            };
            let plain = |text: &str| {
                text.replace("{{ $labels.", "<")
                    .replace("{{ $value", "<value")
                    .replace(" }}", ">")
            };
            let plain = |text: &str| {
                plain(text)
                    .replace(" | humanizePercentage>", ">")
                    .replace(" | humanizeDuration>", ">")
                    .replace(" | humanize>", ">")
                    .replace(['<', '>'], "*")
            };
            write!(
                text,
                "\n### {code}\n\n**{severity}**{wait}. {} {}\n\n```text\n{}\n```\n",
                plain(&rule.summary),
                plain(&rule.description),
                rule.expr
            )
            .unwrap();
        }
    }
    assert_eq!(
        text.matches("\n### ").count(),
        rules.len(),
        "each group is on the page"
    );
    text + "\n"
}

/// `ASTERISM_BLESS=1 cargo test -p asterism --test suite -- monitoring::` writes the sections.
#[test]
fn the_page_has_every_alert_as_the_rules_have_it() {
    let page = files::text(PAGE);
    let (begin, end) = (
        "<!-- written from packaging/prometheus/alerts.yml -->\n",
        "<!-- end -->",
    );
    let (head, rest) = page
        .split_once(begin)
        .expect("the page has the sections' begin");
    let (shown, tail) = rest
        .split_once(end)
        .expect("the page has the sections' end");
    let sections = sections();
    if std::env::var_os("ASTERISM_BLESS").is_some() {
        std::fs::write(
            files::path(PAGE),
            format!("{head}{begin}{sections}{end}{tail}"),
        )
        .unwrap();
        return;
    }
    assert_eq!(shown, sections, "ASTERISM_BLESS=1 writes {PAGE}");
}
