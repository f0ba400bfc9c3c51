//! What each scope sees of a snapshot and of events. Pure: this file is the separation of tenants in reading.
//!
//! Operators and read-only callers see everything. A tenant sees hosts, items, events and usage that name it, and of the cluster what
//! is no other's business: its name, the epoch, and whether the store answers.

use crate::cluster_api::Scope;
use crate::data::{
    ClusterSnapshot, ClusterSummary, Event, Health, HealthItem, Host, Hosts, UsageTotals,
};

fn sees(scope: &Scope, tenant: Option<&str>) -> bool {
    match scope {
        Scope::Operator | Scope::ReadOnly => true,
        Scope::Tenant(own) => tenant == Some(own.as_str()),
    }
}

pub(super) fn event(scope: &Scope, event: &Event) -> bool {
    sees(scope, event.tenant.as_deref())
}

fn all_hosts<'a>(scope: &Scope, snapshot: &'a ClusterSnapshot) -> impl Iterator<Item = &'a Host> {
    let hosts = snapshot.hosts.iter();
    hosts.filter(move |host| sees(scope, host.tenant.as_deref()))
}

pub(super) fn host<'a>(
    scope: &Scope,
    snapshot: &'a ClusterSnapshot,
    name: &str,
) -> Option<&'a Host> {
    all_hosts(scope, snapshot).find(|host| host.name == name)
}

pub(super) fn hosts(scope: &Scope, snapshot: &ClusterSnapshot) -> Hosts {
    Hosts {
        at_ms: snapshot.cluster.at_ms,
        hosts: all_hosts(scope, snapshot).cloned().collect(),
    }
}

pub(super) fn cluster(scope: &Scope, snapshot: &ClusterSnapshot) -> ClusterSummary {
    let count = |hosts: usize| u32::try_from(hosts).unwrap_or(u32::MAX);
    let summary = &snapshot.cluster;
    let is_tenant = matches!(scope, Scope::Tenant(_));
    ClusterSummary {
        name: summary.name.clone(),
        at_ms: summary.at_ms,
        epoch: summary.epoch,
        leadership: summary.leadership.clone().filter(|_| !is_tenant),
        is_store_reachable: summary.is_store_reachable,
        steering: summary.steering.clone().filter(|_| !is_tenant),
        hosts: count(all_hosts(scope, snapshot).count()),
        hosts_taking: count(all_hosts(scope, snapshot).filter(|host| host.takes).count()),
    }
}

pub(super) fn health(scope: &Scope, snapshot: &ClusterSnapshot) -> Health {
    let all = snapshot.health.iter();
    let visible: Vec<&HealthItem> = all
        .filter(|item| sees(scope, item.tenant.as_deref()))
        .collect();
    let mut items: Vec<HealthItem> = visible.iter().copied().cloned().collect();
    for item in &mut items {
        // A cause that the caller cannot see suppresses nothing: the symptom is all that it has.
        let is_visible = |code: &String| visible.iter().any(|other| other.code == *code);
        item.cause = item.cause.take().filter(is_visible);
    }
    let without_cause = items.iter().filter(|item| item.cause.is_none());
    Health {
        at_ms: snapshot.cluster.at_ms,
        worst: without_cause.map(|item| item.severity).max(),
        items,
    }
}

pub(super) fn usage(scope: &Scope, snapshot: &ClusterSnapshot) -> UsageTotals {
    let all = snapshot.usage.iter();
    let visible = all.filter(|usage| sees(scope, Some(&usage.tenant)));
    UsageTotals {
        at_ms: snapshot.cluster.at_ms,
        tenants: visible.cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Severity, TenantUsage};
    use crate::testing::FakeCluster;

    fn blue() -> Scope {
        Scope::Tenant("blue".to_owned())
    }

    #[test]
    fn a_tenant_sees_what_names_it_and_nothing_else() {
        let snapshot = FakeCluster::two_tenants();
        let names: Vec<String> = hosts(&blue(), &snapshot)
            .hosts
            .into_iter()
            .map(|host| host.name)
            .collect();
        assert_eq!(names, ["blue-1", "blue-2"]);
        assert!(host(&blue(), &snapshot, "blue-1").is_some());
        for other in ["green-1", "shared-1", "no-such"] {
            assert!(host(&blue(), &snapshot, other).is_none(), "{other}");
        }
        let summary = cluster(&blue(), &snapshot);
        assert_eq!((summary.hosts, summary.hosts_taking), (2, 1));
        assert_eq!((summary.leadership, summary.steering), (None, None));
        let usage: Vec<TenantUsage> = usage(&blue(), &snapshot).tenants;
        assert_eq!(usage.len(), 1);
        assert_eq!(usage[0].tenant, "blue");
    }

    #[test]
    fn operators_and_readers_see_everything() {
        let snapshot = FakeCluster::two_tenants();
        for scope in [Scope::Operator, Scope::ReadOnly] {
            assert_eq!(hosts(&scope, &snapshot).hosts, snapshot.hosts);
            assert_eq!(health(&scope, &snapshot).items, snapshot.health);
            assert_eq!(usage(&scope, &snapshot).tenants, snapshot.usage);
            assert!(cluster(&scope, &snapshot).leadership.is_some());
        }
    }

    #[test]
    fn a_cause_suppresses_those_who_see_it_alone() {
        let mut snapshot = FakeCluster::two_tenants();
        let item = |code: &str, tenant: Option<&str>, cause: Option<&str>, severity| HealthItem {
            code: code.to_owned(),
            severity,
            subject: "blue-1".to_owned(),
            tenant: tenant.map(str::to_owned),
            cause: cause.map(str::to_owned),
            detail: String::new(),
            remedy: String::new(),
            page: String::new(),
        };
        snapshot.health = vec![
            item("STORE-DOWN", None, None, Severity::Warning),
            item(
                "HOST-SILENT",
                Some("blue"),
                Some("STORE-DOWN"),
                Severity::Critical,
            ),
        ];
        let operator = health(&Scope::Operator, &snapshot);
        assert_eq!(operator.worst, Some(Severity::Warning));
        let tenant = health(&blue(), &snapshot);
        assert_eq!(tenant.worst, Some(Severity::Critical));
        assert_eq!((tenant.items.len(), &tenant.items[0].cause), (1, &None));
    }

    #[test]
    fn events_without_a_tenant_are_not_a_tenants() {
        let of = |tenant: Option<&str>| Event {
            tenant: tenant.map(str::to_owned),
            ..Event::default()
        };
        assert!(event(&blue(), &of(Some("blue"))));
        assert!(!event(&blue(), &of(Some("green"))) && !event(&blue(), &of(None)));
        assert!(event(&Scope::ReadOnly, &of(None)));
    }
}
