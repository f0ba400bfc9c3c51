//! What an orchestrator shows to Prometheus: the cluster as it sees it, its own decisions, the store and the steering.
//!
//! Names are as in a host's exposition (`asterism_SUBJECT_UNIT`, times in seconds), written by the same page. An orchestrator that
//! follows another one has no samples of what the leader alone knows.

use std::collections::BTreeMap;

use asterism_api::data::{HealthItem, Severity};
use asterism_orchestrator::controller::Stage;
use asterism_orchestrator::run::{ClusterView, HostView, SteeringView};
use asterism_orchestrator::steering::DirectorReport;
use asterism_output::page::{Kind, Labels, Metric, Page, Value, counter, gauge};

use super::health;

const CLUSTER: [Metric<ClusterView>; 4] = [
    gauge(
        "asterism_orchestrator_leads",
        "Whether this orchestrator leads.",
        |view| view.term.is_some().into(),
    ),
    gauge(
        "asterism_orchestrator_epoch",
        "The epoch of the record as this orchestrator knows it: it grows by one with each epoch that is made.",
        |view| view.epoch.into(),
    ),
    gauge(
        "asterism_orchestrator_store_reachable",
        "Whether the truth store answered last time.",
        |view| view.store.error.is_none().into(),
    ),
    gauge(
        "asterism_orchestrator_store_seconds",
        "How long the truth store took to answer last time.",
        |view| Value::Seconds(view.store.took_us),
    ),
];

/// Of a leader that has commanded the steering.
const STEERING: [Metric<SteeringView>; 5] = [
    gauge(
        "asterism_orchestrator_steering_applied",
        "Whether the last desired state is in force.",
        |steering| steering.applied.into(),
    ),
    gauge(
        "asterism_orchestrator_steering_generation",
        "The number of the last desired state.",
        |steering| steering.generation.into(),
    ),
    gauge(
        "asterism_orchestrator_steering_generation_in_force",
        "The number of the last desired state that all drivers had in force; 0: none.",
        |steering| steering.in_force.into(),
    ),
    gauge(
        "asterism_orchestrator_steering_changes",
        "Routes or rules that the last desired state changed.",
        |steering| steering.changed.into(),
    ),
    gauge(
        "asterism_orchestrator_steering_seconds",
        "How long the slowest driver took for the last desired state.",
        |steering| Value::Seconds(steering.took_us),
    ),
];

/// Of a director that has answered; one that does not any more has its last figures.
const DIRECTOR: [Metric<DirectorReport>; 6] = [
    gauge(
        "asterism_director_active",
        "Whether the director has the shared addresses.",
        |director| director.is_active.into(),
    ),
    gauge(
        "asterism_director_hears_other",
        "Whether the director receives the heartbeats of the other one of its pair.",
        |director| director.hears_other.into(),
    ),
    gauge(
        "asterism_director_generation",
        "The number of the desired state that the director has in force; 0: none.",
        |director| director.generation.unwrap_or(0).into(),
    ),
    gauge(
        "asterism_director_no_target_ratio",
        "How much of the flow space goes to no host.",
        |director| Value::Thousandths(director.elsewhere_permille.into()),
    ),
    counter(
        "asterism_director_forwarded_total",
        "Packets that the director handed to hosts.",
        |director| director.forwarded.into(),
    ),
    counter(
        "asterism_director_dropped_total",
        "Frames that the director dropped.",
        |director| director.dropped.into(),
    ),
];

/// What the leader alone knows of a host.
const DECIDED: [Metric<HostView>; 4] = [
    gauge(
        "asterism_host_takes",
        "Whether packets are sent to the host.",
        |host| host.takes.into(),
    ),
    gauge(
        "asterism_host_member",
        "Whether the epoch names the host.",
        |host| host.incarnation.is_some().into(),
    ),
    gauge(
        "asterism_host_suspected",
        "Whether packets are kept from the host since it is silent.",
        |host| host.suspected.into(),
    ),
    gauge(
        "asterism_host_drained",
        "Whether the operator drains the host.",
        |host| host.drained.into(),
    ),
];

/// What the heartbeats of a host report; a host that was never heard has no samples.
const REPORTED: [Metric<HostView>; 11] = [
    gauge(
        "asterism_host_silent_seconds",
        "Time since the host's last heartbeat.",
        |host| Value::Seconds(host.silent_ms * 1_000),
    ),
    gauge(
        "asterism_host_epoch",
        "The epoch that the host has in force.",
        |host| host.epoch.into(),
    ),
    gauge(
        "asterism_host_digests_agree",
        "Whether the host's auditor finds no difference.",
        |host| host.digests_agree.into(),
    ),
    gauge(
        "asterism_host_misses",
        "Members that the host does not receive.",
        |host| host.misses.len().into(),
    ),
    gauge(
        "asterism_host_lag_seconds",
        "How long the oldest update of the host has waited for an acknowledgement.",
        |host| Value::Seconds(host.load.lag_us.into()),
    ),
    gauge(
        "asterism_host_busy_ratio",
        "Processor time of the host over the time of its packet loops.",
        |host| Value::Thousandths(host.load.busy_permille.into()),
    ),
    gauge(
        "asterism_host_flows",
        "Flows that the host's function knows of.",
        |host| host.load.flows.into(),
    ),
    gauge(
        "asterism_host_parked",
        "Packets parked at the host.",
        |host| host.load.parked.into(),
    ),
    counter(
        "asterism_host_packets_total",
        "Packets that the host received.",
        |host| host.load.packets.into(),
    ),
    counter(
        "asterism_host_bytes_total",
        "Bytes of these packets.",
        |host| host.load.bytes.into(),
    ),
    counter(
        "asterism_host_dropped_total",
        "Packets that the host dropped.",
        |host| host.load.dropped.into(),
    ),
];

/// The exposition: the cluster as it is seen, and how often each kind of event was logged.
#[must_use]
pub fn text(view: &ClusterView, events: &BTreeMap<&'static str, u64>) -> String {
    let mut page = Page::default();
    let name = "asterism_orchestrator_info";
    let help = "The program, the cluster and this orchestrator; always 1.";
    page.family(name, Kind::Gauge, help);
    let labels = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("cluster", &view.cluster),
        ("orchestrator", &view.orchestrator),
    ];
    page.sample(name, &labels, 1u64);
    page.table(&CLUSTER, view);
    page.table_of(&STEERING, |visit| {
        if let Some(steering) = view.steering.as_ref().filter(|_| !health::follows(view)) {
            visit(&[], steering);
        }
    });
    directors(&mut page, &view.directors);
    hosts(&mut page, view);
    health(&mut page, &health::items(view));
    let name = "asterism_orchestrator_events_total";
    let help = "Events of this orchestrator, by kind: suspicions, hosts left out and the like.";
    page.family(name, Kind::Counter, help);
    for (event, count) in events {
        page.sample(name, &[("event", event)], *count);
    }
    traffic(&mut page, view);
    page.into_text()
}

/// Each orchestrator asks the directors itself, also while it follows.
fn directors(page: &mut Page, directors: &[DirectorReport]) {
    let name = "asterism_director_answers";
    let help = "Whether the director answers this orchestrator.";
    page.family(name, Kind::Gauge, help);
    for one in directors {
        page.sample(name, &[("director", &one.name)], one.answers);
    }
    // One that never answered has no figures.
    let known = || directors.iter().filter(|one| !one.targets.is_empty());
    page.table_of(&DIRECTOR, |visit| {
        for one in known() {
            visit(&[("director", &one.name)], one);
        }
    });
    let name = "asterism_director_host_share_ratio";
    let help = "How much of the flow space goes to the host at the director.";
    page.family(name, Kind::Gauge, help);
    let targets = || known().flat_map(|one| one.targets.iter().map(move |target| (one, target)));
    for (one, target) in targets() {
        let labels = [("director", &*one.name), ("host", &*target.name)];
        let share = Value::Thousandths(target.share_permille.into());
        page.sample(name, &labels, share);
    }
    let name = "asterism_director_host_reachable";
    let help = "Whether the director knows the host's Ethernet address.";
    page.family(name, Kind::Gauge, help);
    for (one, target) in targets() {
        let labels = [("director", &*one.name), ("host", &*target.name)];
        page.sample(name, &labels, !target.link_down);
    }
    let name = "asterism_director_datagrams_refused_total";
    let help = "Commands that the director did not take, by the reason.";
    page.family(name, Kind::Counter, help);
    for one in known() {
        for (reason, count) in &one.refused {
            page.sample(
                name,
                &[("director", &*one.name), ("reason", reason)],
                *count,
            );
        }
    }
}

fn hosts(page: &mut Page, view: &ClusterView) {
    let name = "asterism_hosts";
    let help = "Hosts by the stage that their last heartbeat reported; unknown: none was received.";
    page.family(name, Kind::Gauge, help);
    for stage in STAGES {
        let hosts = view.hosts.iter();
        let count = hosts.filter(|host| stage_word(host) == stage).count();
        page.sample(name, &[("stage", stage)], count);
    }
    page.table_of(&DECIDED, |visit| {
        if !health::follows(view) {
            each(&view.hosts, visit);
        }
    });
    page.table_of(&REPORTED, |visit| {
        for host in view.hosts.iter().filter(|host| host.stage.is_some()) {
            visit(&[("host", &host.name)], host);
        }
    });
}

fn each(hosts: &[HostView], visit: &mut dyn FnMut(&Labels<'_>, &HostView)) {
    for host in hosts {
        visit(&[("host", &host.name)], host);
    }
}

const STAGES: [&str; 6] = [
    "unknown", "awaiting", "joining", "serving", "leaving", "ended",
];

fn stage_word(host: &HostView) -> &'static str {
    match host.stage {
        None => STAGES[0],
        Some(Stage::Awaiting) => STAGES[1],
        Some(Stage::Joining(_)) => STAGES[2],
        Some(Stage::Serving(_)) => STAGES[3],
        Some(Stage::Leaving(_)) => STAGES[4],
        Some(Stage::Ended(_)) => STAGES[5],
    }
}

fn health(page: &mut Page, items: &[HealthItem]) {
    let name = "asterism_health_items";
    let help = "What is wrong with the cluster: items by code, symptoms included.";
    page.family(name, Kind::Gauge, help);
    for kind in health::KINDS {
        let count = items.iter().filter(|item| item.code == kind.code()).count();
        let labels = [
            ("code", kind.code()),
            ("severity", severity_word(kind.severity())),
        ];
        page.sample(name, &labels, count);
    }
    let name = "asterism_health_item_active";
    let help = "An item, and the code of the item whose symptom it is; 1 as long as it lasts.";
    page.family(name, Kind::Gauge, help);
    for item in items {
        let labels = [
            ("code", &*item.code),
            ("severity", severity_word(item.severity)),
            ("subject", &item.subject),
            ("cause", item.cause.as_deref().unwrap_or_default()),
        ];
        page.sample(name, &labels, 1u64);
    }
}

/// The severity as labels have it.
#[must_use]
pub fn severity_word(severity: Severity) -> &'static str {
    match severity {
        Severity::Notice => "notice",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}

fn traffic(page: &mut Page, view: &ClusterView) {
    let traffic = &view.traffic;
    let name = "asterism_orchestrator_heartbeats_total";
    page.one(
        name,
        Kind::Counter,
        "Heartbeats that were believed.",
        traffic.heartbeats,
    );
    let name = "asterism_orchestrator_questions_total";
    page.one(
        name,
        Kind::Counter,
        "Questions to hosts, repetitions included.",
        traffic.questions,
    );
    let name = "asterism_orchestrator_datagrams_refused_total";
    let help = "Datagrams of hosts that were not believed.";
    page.family(name, Kind::Counter, help);
    let refused = &traffic.refused;
    for (reason, count) in [
        ("not-sealed", refused.not_sealed),
        ("malformed", refused.malformed),
        ("stale", refused.stale),
        ("repeated", refused.repeated),
        ("ended", refused.ended),
        ("not-asked", refused.not_asked),
    ] {
        page.sample(name, &[("reason", reason)], count);
    }
}

#[cfg(test)]
mod tests {
    use asterism_orchestrator::run::StoreView;
    use asterism_orchestrator::steering::ObservedTarget;

    use super::*;

    fn view() -> ClusterView {
        let host = |name: &str| HostView {
            name: name.to_owned(),
            stage: Some(Stage::Serving(1)),
            incarnation: Some(1),
            takes: true,
            digests_agree: true,
            ..HostView::default()
        };
        let mut hosts = vec![host("a"), host("b"), host("c")];
        (hosts[1].suspected, hosts[1].takes, hosts[1].silent_ms) = (true, false, 4_250);
        hosts[2] = HostView {
            name: "c".to_owned(),
            ..HostView::default()
        };
        hosts[0].load.busy_permille = 125;
        ClusterView {
            cluster: "edge \"1\"".to_owned(),
            orchestrator: "orchestrator-1".to_owned(),
            term: Some(3),
            epoch: 7,
            store: StoreView {
                took_us: 1_500,
                ..StoreView::default()
            },
            hosts,
            ..ClusterView::default()
        }
    }

    #[test]
    fn a_leader_shows_hosts_health_and_events() {
        let text = text(&view(), &BTreeMap::from([("host-left-out", 4)]));
        for line in [
            "asterism_orchestrator_leads 1",
            "asterism_orchestrator_store_seconds 0.001500",
            "asterism_hosts{stage=\"serving\"} 2",
            "asterism_hosts{stage=\"unknown\"} 1",
            "asterism_host_takes{host=\"c\"} 0",
            "asterism_host_silent_seconds{host=\"b\"} 4.250000",
            "asterism_host_busy_ratio{host=\"a\"} 0.125",
            "asterism_health_items{code=\"HOST-SILENT\",severity=\"warning\"} 1",
            "asterism_health_items{code=\"NOBODY-TAKES\",severity=\"critical\"} 0",
            "asterism_health_item_active{code=\"HOST-SILENT\",severity=\"warning\",subject=\"b\",cause=\"\"} 1",
            "asterism_orchestrator_events_total{event=\"host-left-out\"} 4",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        assert!(text.contains("cluster=\"edge \\\"1\\\"\""), "{text}");
        // Nothing is made up about a host that was never heard, nor about a steering that was never commanded.
        assert!(!text.contains("asterism_host_silent_seconds{host=\"c\"}"));
        assert!(!text.contains("asterism_orchestrator_steering_seconds 0"));
    }

    #[test]
    fn directors_are_shown_as_they_answered_last() {
        let target = |name: &str, share_permille, link_down| ObservedTarget {
            name: name.to_owned(),
            share_permille,
            link_down,
        };
        let one = DirectorReport {
            name: "one".to_owned(),
            answers: true,
            is_active: true,
            generation: Some(7),
            elsewhere_permille: 250,
            forwarded: 1_000,
            dropped: 3,
            refused: vec![("malformed", 2)],
            targets: vec![target("a", 750, false), target("b", 0, true)],
            ..DirectorReport::default()
        };
        let two = DirectorReport {
            name: "two".to_owned(),
            ..DirectorReport::default()
        };
        let view = ClusterView {
            directors: vec![one, two],
            ..view()
        };
        let text = text(&view, &BTreeMap::new());
        for line in [
            "asterism_director_answers{director=\"one\"} 1",
            "asterism_director_answers{director=\"two\"} 0",
            "asterism_director_active{director=\"one\"} 1",
            "asterism_director_hears_other{director=\"one\"} 0",
            "asterism_director_generation{director=\"one\"} 7",
            "asterism_director_no_target_ratio{director=\"one\"} 0.250",
            "asterism_director_forwarded_total{director=\"one\"} 1000",
            "asterism_director_dropped_total{director=\"one\"} 3",
            "asterism_director_host_share_ratio{director=\"one\",host=\"a\"} 0.750",
            "asterism_director_host_reachable{director=\"one\",host=\"b\"} 0",
            "asterism_director_datagrams_refused_total{director=\"one\",reason=\"malformed\"} 2",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        // Nothing is made up about one that never answered.
        assert!(!text.contains("asterism_director_active{director=\"two\"}"));
    }

    #[test]
    fn a_follower_shows_no_decisions_that_are_not_its_own() {
        let mut view = view();
        view.term = None;
        view.store.led_by = Some("orchestrator-2".to_owned());
        view.steering = Some(SteeringView::default());
        let text = text(&view, &BTreeMap::new());
        assert!(!text.contains("asterism_host_takes{"), "{text}");
        assert!(!text.contains("\nasterism_orchestrator_steering_applied "));
        assert!(!text.contains("asterism_health_item_active{"), "{text}");
        assert!(text.contains("asterism_host_packets_total{host=\"a\"} 0"));
    }
}
