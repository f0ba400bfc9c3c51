//! What is wrong with a cluster, as its orchestrator sees it: items with stable codes.

use asterism_api::data::{HealthItem, Severity};
use asterism_orchestrator::controller::Stage;
use asterism_orchestrator::run::{ClusterView, HostView};

/// The page about the codes.
const PAGE: &str = "orchestrator.md#health";
/// A host whose heartbeats are older than this is silent, though it takes no packets.
const SILENT_MS: u64 = 2_000;

/// A code, how grave it is, and what to do.
#[derive(Debug)]
pub struct Kind(&'static str, Severity, &'static str);

/// All that can be wrong, the gravest first. A test compares the list with the alert rules and with the pages.
pub const KINDS: [&Kind; 10] = [
    &NOBODY_TAKES,
    &STEERING_FAILED,
    &HOST_DIFFERS,
    &STORE_FAILED,
    &NO_LEADER,
    &USAGE_NOT_KEPT,
    &HOST_SILENT,
    &HOST_ISOLATED,
    &HOST_WAITS,
    &HOST_ABSENT,
];

const NO_LEADER: Kind = Kind(
    "NO-LEADER",
    Severity::Warning,
    "See that the truth store answers, and that an orchestrator runs; packets go on meanwhile.",
);
const STORE_FAILED: Kind = Kind(
    "STORE-FAILED",
    Severity::Warning,
    "See that etcd runs, or that the orchestrator's disk has room; hosts and routes stay as they are meanwhile.",
);
const STEERING_FAILED: Kind = Kind(
    "STEERING-FAILED",
    Severity::Critical,
    "See that the orchestrator may write the routes and reaches the switch or a director, and that their interfaces are there; it tries again by itself.",
);
const NOBODY_TAKES: Kind = Kind(
    "NOBODY-TAKES",
    Severity::Critical,
    "Start the hosts, and see in their logs what they wait for.",
);
/// The code of a place without a process.
pub(super) const ABSENT: &str = "HOST-ABSENT";
const HOST_ABSENT: Kind = Kind(
    ABSENT,
    Severity::Notice,
    "Start the host, or take it out of [cluster] members.",
);
const HOST_SILENT: Kind = Kind(
    "HOST-SILENT",
    Severity::Warning,
    "See whether its process runs, and whether the network carries UDP from it to the orchestrator.",
);
const HOST_ISOLATED: Kind = Kind(
    "HOST-ISOLATED",
    Severity::Warning,
    "See whether the network carries UDP between its address and the other members' addresses.",
);
const HOST_DIFFERS: Kind = Kind(
    "HOST-DIFFERS",
    Severity::Critical,
    "See `asterism audit` on the host, and repair the object from a host that is right.",
);
const HOST_WAITS: Kind = Kind(
    "HOST-WAITS",
    Severity::Warning,
    "See the orchestrator's events: if it awaits evidence, make sure that the former process has ended, and fence it.",
);

const USAGE_NOT_KEPT: Kind = Kind(
    "USAGE-NOT-KEPT",
    Severity::Warning,
    "See the reason; hosts go on counting, and what they count is metered once the store has it.",
);

impl Kind {
    /// Its code, which is stable.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.0
    }

    /// How grave it is.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.1
    }

    fn of(&self, subject: &str, detail: String, cause: Option<&Kind>) -> HealthItem {
        HealthItem {
            code: self.0.to_owned(),
            severity: self.1,
            subject: subject.to_owned(),
            tenant: None,
            cause: cause.map(|cause| cause.0.to_owned()),
            detail,
            remedy: self.2.to_owned(),
            page: PAGE.to_owned(),
        }
    }
}

/// What is wrong, the gravest first, causes before their symptoms.
#[must_use]
pub fn items(view: &ClusterView) -> Vec<HealthItem> {
    let mut items = Vec::new();
    let cluster = "cluster";
    let store = view.store.error.as_ref().map(|error| {
        items.push(STORE_FAILED.of(cluster, error.clone(), None));
        &STORE_FAILED
    });
    let is_led = view.term.is_some() || view.store.led_by.is_some();
    if !is_led {
        let detail = "No orchestrator is known to lead.".to_owned();
        items.push(NO_LEADER.of(cluster, detail, store));
    }
    if follows(view) {
        // It steers nothing and does not follow the record: the leader knows how the hosts are.
        return items;
    }
    let undecided = if is_led { store } else { Some(&NO_LEADER) };
    if let Some(error) = view
        .steering
        .as_ref()
        .and_then(|steering| steering.error.as_ref())
    {
        items.push(STEERING_FAILED.of(cluster, error.clone(), None));
    }
    let silent: Vec<&HostView> = view.hosts.iter().filter(|host| is_silent(host)).collect();
    if is_led && !view.hosts.iter().any(|host| host.takes) {
        let detail = format!("None of {} hosts takes packets.", view.hosts.len());
        let cause = (silent.len() == view.hosts.len()).then_some(&HOST_SILENT);
        items.push(NOBODY_TAKES.of(cluster, detail, cause));
    }
    if let Some(error) = &view.usage.error {
        items.push(USAGE_NOT_KEPT.of(cluster, error.clone(), None));
    }
    for host in &view.hosts {
        items.extend(of_host(host, view, undecided));
    }
    // Stable: what was found first of one severity stays first.
    items.sort_by_key(|item| std::cmp::Reverse(item.severity));
    items
}

/// Whether another orchestrator leads. Then this one does not know who takes part and who takes packets.
#[must_use]
pub fn follows(view: &ClusterView) -> bool {
    view.term.is_none() && view.store.led_by.is_some()
}

fn is_silent(host: &HostView) -> bool {
    let has_ended = matches!(host.stage, Some(Stage::Ended(_)));
    let is_expected = host.incarnation.is_some() && !has_ended;
    is_expected && (host.suspected || host.silent_ms > SILENT_MS || host.stage.is_none())
}

/// Whether no epoch names the host and nothing is heard of it: it was never started, was stopped, or was left out since it was silent.
fn is_absent(host: &HostView) -> Option<String> {
    if host.incarnation.is_some() {
        return None;
    }
    match host.stage {
        None => Some("No heartbeat was received, and no epoch names it.".to_owned()),
        Some(_) if host.silent_ms > SILENT_MS => Some(format!(
            "No epoch names it, and its last heartbeat was received {} ms ago.",
            host.silent_ms
        )),
        Some(_) => None,
    }
}

fn of_host(host: &HostView, view: &ClusterView, undecided: Option<&Kind>) -> Option<HealthItem> {
    let name = &host.name;
    if let Some(detail) = is_absent(host) {
        return Some(HOST_ABSENT.of(name, detail, None));
    }
    if is_silent(host) {
        let detail = match host.stage {
            Some(_) => format!("Its last heartbeat was received {} ms ago.", host.silent_ms),
            None => "It is a member, and no heartbeat was received.".to_owned(),
        };
        return Some(HOST_SILENT.of(name, detail, None));
    }
    if is_isolated(host, view) {
        let detail = "Most other hosts do not receive it.".to_owned();
        return Some(HOST_ISOLATED.of(name, detail, None));
    }
    match host.stage {
        Some(Stage::Serving(_)) if !host.digests_agree && host.takes => {
            let detail = "Its auditor finds a difference to another member.".to_owned();
            Some(HOST_DIFFERS.of(name, detail, None))
        }
        Some(Stage::Awaiting) => {
            let detail = "It waits until an epoch admits it.".to_owned();
            Some(HOST_WAITS.of(name, detail, undecided))
        }
        _ => None,
    }
}

/// Whether most others that are heard do not receive the host.
#[must_use]
pub fn is_isolated(host: &HostView, view: &ClusterView) -> bool {
    let others = view.hosts.iter().filter(|other| {
        let serves = matches!(other.stage, Some(Stage::Serving(_)));
        other.name != host.name && serves && !is_silent(other)
    });
    let (all, miss) = others.fold((0, 0), |(all, miss), other| {
        (
            all + 1,
            miss + usize::from(other.misses.contains(&host.name)),
        )
    });
    host.incarnation.is_some() && all >= 2 && 2 * miss > all
}

#[cfg(test)]
mod tests {
    use asterism_orchestrator::run::{SteeringView, StoreView};

    use super::*;

    fn host(name: &str) -> HostView {
        HostView {
            name: name.to_owned(),
            stage: Some(Stage::Serving(1)),
            incarnation: Some(1),
            takes: true,
            digests_agree: true,
            silent_ms: 20,
            ..HostView::default()
        }
    }

    fn view(hosts: Vec<HostView>) -> ClusterView {
        ClusterView {
            term: Some(1),
            hosts,
            ..ClusterView::default()
        }
    }

    fn codes(view: &ClusterView) -> Vec<String> {
        let item = |item: HealthItem| {
            let cause = item
                .cause
                .map_or_else(String::new, |cause| format!(" by {cause}"));
            format!("{} {}{cause}", item.code, item.subject)
        };
        items(view).into_iter().map(item).collect()
    }

    #[test]
    fn nothing_is_wrong_with_a_cluster_that_is_well() {
        assert_eq!(items(&view(vec![host("a"), host("b"), host("c")])), []);
    }

    #[test]
    fn one_that_follows_says_nothing_of_hosts() {
        let mut view = view(vec![host("a"), host("b")]);
        view.term = None;
        view.store.led_by = Some("orchestrator-2".to_owned());
        // It has no record: nobody is a member, and nobody takes packets, as far as it knows.
        for host in &mut view.hosts {
            (host.incarnation, host.takes) = (None, false);
        }
        assert_eq!(codes(&view), [""; 0]);
        view.store.error = Some("it is away".to_owned());
        assert_eq!(codes(&view), ["STORE-FAILED cluster"]);
    }

    #[test]
    fn each_kind_is_found_with_its_cause() {
        let well = || vec![host("a"), host("b"), host("c")];
        let mut silent = view(well());
        (silent.hosts[0].suspected, silent.hosts[0].takes) = (true, false);
        assert_eq!(codes(&silent), ["HOST-SILENT a"]);
        let mut isolated = view(well());
        for other in [1, 2] {
            isolated.hosts[other].misses = vec!["a".to_owned()];
        }
        assert_eq!(codes(&isolated), ["HOST-ISOLATED a"]);
        let mut differs = view(well());
        differs.hosts[1].digests_agree = false;
        assert_eq!(codes(&differs), ["HOST-DIFFERS b"]);
        let mut absent = view(well());
        absent.hosts[2] = HostView {
            name: "c".to_owned(),
            ..HostView::default()
        };
        assert_eq!(codes(&absent), ["HOST-ABSENT c"]);
        // One that an epoch left out, and that does not come back.
        let mut left_out = view(well());
        let host = &mut left_out.hosts[2];
        (host.incarnation, host.takes, host.silent_ms) = (None, false, 60_000);
        assert_eq!(codes(&left_out), ["HOST-ABSENT c"]);

        let mut unmetered = view(well());
        unmetered.usage.error = Some("it is too long".to_owned());
        assert_eq!(codes(&unmetered), ["USAGE-NOT-KEPT cluster"]);

        let mut no_store = view(well());
        no_store.term = None;
        no_store.store = StoreView {
            error: Some("it is away".to_owned()),
            ..StoreView::default()
        };
        no_store.hosts[0].stage = Some(Stage::Awaiting);
        (no_store.hosts[0].incarnation, no_store.hosts[0].takes) = (None, false);
        let found = [
            "STORE-FAILED cluster",
            "NO-LEADER cluster by STORE-FAILED",
            "HOST-WAITS a by NO-LEADER",
        ];
        assert_eq!(codes(&no_store), found);

        let mut gone = view(well());
        for host in &mut gone.hosts {
            (host.silent_ms, host.takes) = (9_000, false);
        }
        gone.steering = Some(SteeringView {
            error: Some("no route".to_owned()),
            ..SteeringView::default()
        });
        let all = [
            "STEERING-FAILED cluster",
            "NOBODY-TAKES cluster by HOST-SILENT",
            "HOST-SILENT a",
            "HOST-SILENT b",
            "HOST-SILENT c",
        ];
        assert_eq!(codes(&gone), all);
    }
}
