//! A cluster that is not there: a snapshot, a log of events and a list of orders, in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Shared;
use crate::cluster_api::{Caller, ClusterApi, OrderError};
use crate::data::{
    ClusterSnapshot, ClusterSummary, Director, Event, EventPage, FlowFound, FlowQuery, HealthItem,
    Host, Leadership, Loads, Order, OrderAccepted, Plan, PlannedAction, Severity, Stage,
    StateEntries, StateEntry, StateHolder, StateObject, StateObjects, StateQuery, Steering,
    TenantUsage, Unanswered,
};

/// A text that stands in everything that no tenant may see.
pub(super) const OPERATORS_ALONE: &str = "operators-alone";
/// Events that are kept.
const EVENTS_KEPT: usize = 1_000;
/// Time between two looks of a call that waits.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A cluster of two tenants, `blue` and `green`, whose answers a test may change.
pub struct FakeCluster {
    inner: Shared<Inner>,
}

struct Inner {
    snapshot: Arc<ClusterSnapshot>,
    log: u64,
    newest: u64,
    events: Vec<Event>,
    orders: Vec<(Caller, Order)>,
    refuses: Option<OrderError>,
    is_held: bool,
    held: usize,
    panics: bool,
}

impl Default for FakeCluster {
    fn default() -> FakeCluster {
        FakeCluster::new()
    }
}

impl FakeCluster {
    /// The cluster of [`FakeCluster::two_tenants`], with one event of each tenant and one of neither.
    #[must_use]
    pub fn new() -> FakeCluster {
        let fake = FakeCluster {
            inner: Shared::new(Inner {
                snapshot: Arc::new(FakeCluster::two_tenants()),
                log: 7,
                newest: 0,
                events: Vec::new(),
                orders: Vec::new(),
                refuses: None,
                is_held: false,
                held: 0,
                panics: false,
            }),
        };
        fake.event(Some("blue"), "blue-1 takes packets");
        fake.event(Some("green"), "green-1 takes packets");
        fake.event(None, OPERATORS_ALONE);
        fake
    }

    /// Two hosts of `blue`, of which one takes packets, two of `green`, and one that serves both.
    #[must_use]
    pub fn two_tenants() -> ClusterSnapshot {
        let host = |name: &str, tenant: Option<&str>, takes: bool| Host {
            name: name.to_owned(),
            tenant: tenant.map(str::to_owned),
            stage: if takes {
                Stage::Serving
            } else {
                Stage::Joining
            },
            incarnation: 1,
            epoch: 3,
            silent_for_ms: Some(40),
            takes,
            weight: 1,
            digests_agree: takes,
            loads: Some(Loads {
                packets_per_second: 1_000,
                flows: 10,
                drops: BTreeMap::from([("parked-overflow".to_owned(), 2)]),
                ..Loads::default()
            }),
            ..Host::default()
        };
        let item = |subject: &str, tenant: Option<&str>, detail: &str| HealthItem {
            code: "HOST-JOINING".to_owned(),
            severity: Severity::Notice,
            subject: subject.to_owned(),
            tenant: tenant.map(str::to_owned),
            cause: None,
            detail: detail.to_owned(),
            remedy: "wait".to_owned(),
            page: "health.md#host-joining".to_owned(),
        };
        let usage = |tenant: &str| TenantUsage {
            tenant: tenant.to_owned(),
            packets: 5,
            ..TenantUsage::default()
        };
        ClusterSnapshot {
            cluster: ClusterSummary {
                name: "edge".to_owned(),
                at_ms: 1_800_000_000_000,
                epoch: 3,
                leadership: Some(Leadership {
                    leader: Some(OPERATORS_ALONE.to_owned()),
                    leader_address: None,
                    term: 2,
                    is_leading: true,
                }),
                is_store_reachable: true,
                steering: Some(Steering {
                    directors: vec![Director {
                        name: OPERATORS_ALONE.to_owned(),
                        ..Director::default()
                    }],
                    generation: 9,
                    in_force: 9,
                    last_error: Some(OPERATORS_ALONE.to_owned()),
                }),
                hosts: 5,
                hosts_taking: 3,
            },
            hosts: vec![
                host("blue-1", Some("blue"), true),
                host("blue-2", Some("blue"), false),
                host("green-1", Some("green"), true),
                host("green-2", Some("green"), false),
                host("shared-1", None, true),
            ],
            health: vec![
                item("blue-2", Some("blue"), "blue-2 has joined for 3 s"),
                item("green-2", Some("green"), "green-2 has joined for 3 s"),
                item("cluster", None, OPERATORS_ALONE),
            ],
            usage: vec![usage("blue"), usage("green")],
        }
    }

    /// Logs an event.
    pub fn event(&self, tenant: Option<&str>, reason: &str) {
        let mut inner = self.inner.lock();
        inner.newest += 1;
        let event = Event {
            sequence: inner.newest,
            at_ms: 1_800_000_000_000 + inner.newest,
            kind: "host-takes".to_owned(),
            subject: tenant.map_or("cluster".to_owned(), |tenant| format!("{tenant}-1")),
            tenant: tenant.map(str::to_owned),
            reason: reason.to_owned(),
            figures: BTreeMap::from([("silence_ms".to_owned(), 40)]),
        };
        inner.events.push(event);
        if inner.events.len() > EVENTS_KEPT {
            inner.events.remove(0);
        }
    }

    /// Begins another log, as a new leader does.
    pub fn another_log(&self) {
        let mut inner = self.inner.lock();
        inner.log += 1;
        inner.newest = 0;
        inner.events.clear();
    }

    /// Changes the snapshot.
    pub fn change(&self, change: impl FnOnce(&mut ClusterSnapshot)) {
        change(Arc::make_mut(&mut self.inner.lock().snapshot));
    }

    /// From now on orders and questions are refused so; `None`: they are taken again.
    pub fn refuse(&self, error: Option<OrderError>) {
        self.inner.lock().refuses = error;
    }

    /// From now on every call waits until it is let go.
    pub fn hold(&self) {
        self.inner.lock().is_held = true;
    }

    /// Lets all calls go, and from now on none waits.
    pub fn let_go(&self) {
        self.inner.lock().is_held = false;
    }

    /// Calls that wait now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.inner.lock().held
    }

    /// From now on a dry run panics, or no longer.
    pub fn panic(&self, panics: bool) {
        self.inner.lock().panics = panics;
    }

    /// The orders that were taken.
    #[must_use]
    pub fn orders(&self) -> Vec<(Caller, Order)> {
        self.inner.lock().orders.clone()
    }

    fn wait(&self) {
        if !self.inner.lock().is_held {
            return;
        }
        self.inner.lock().held += 1;
        while self.inner.lock().is_held {
            crate::clock::pause(LOOK_AGAIN);
        }
        self.inner.lock().held -= 1;
    }
}

impl ClusterApi for FakeCluster {
    fn snapshot(&self) -> Arc<ClusterSnapshot> {
        self.wait();
        Arc::clone(&self.inner.lock().snapshot)
    }

    fn events(&self, after: u64, max: usize) -> EventPage {
        self.wait();
        let inner = self.inner.lock();
        let later = inner.events.iter().filter(|event| event.sequence > after);
        EventPage {
            log: inner.log,
            oldest: inner
                .events
                .first()
                .map_or(inner.newest + 1, |event| event.sequence),
            newest: inner.newest,
            events: later.take(max).cloned().collect(),
        }
    }

    fn order(&self, caller: &Caller, order: Order) -> Result<OrderAccepted, OrderError> {
        self.wait();
        let mut inner = self.inner.lock();
        if let Some(error) = &inner.refuses {
            return Err(error.clone());
        }
        if let Some(host) = order.host()
            && !inner.snapshot.hosts.iter().any(|known| known.name == host)
        {
            let host = host.to_owned();
            return Err(OrderError::UnknownHost { host });
        }
        inner.orders.push((caller.clone(), order));
        Ok(OrderAccepted {
            changed: true,
            detail: "the order is in the record".to_owned(),
            events_after: inner.newest,
        })
    }

    fn find_flow(&self, query: &FlowQuery, max: usize) -> Result<Vec<FlowFound>, OrderError> {
        self.wait();
        let inner = self.inner.lock();
        if let Some(error) = &inner.refuses {
            return Err(error.clone());
        }
        let hosts = inner.snapshot.hosts.iter();
        let asked =
            hosts.filter(|host| query.host.as_ref().is_none_or(|asked| *asked == host.name));
        let flows = asked.map(|host| FlowFound {
            flow: format!("tcp 192.0.2.1:40000 198.51.100.7:443 of {}", host.name),
            host: host.name.clone(),
            held_by: vec![host.name.clone()],
            bucket: Some(17),
            ..FlowFound::default()
        });
        Ok(flows.take(max).collect())
    }

    fn host_status(&self, host: &str) -> Result<serde_json::Value, OrderError> {
        self.wait();
        let inner = self.inner.lock();
        if let Some(error) = &inner.refuses {
            return Err(error.clone());
        }
        match inner.snapshot.hosts.iter().any(|known| known.name == host) {
            true => Ok(serde_json::json!({"host": host, "cluster": OPERATORS_ALONE})),
            false => Err(OrderError::UnknownHost {
                host: host.to_owned(),
            }),
        }
    }

    fn state(&self) -> Result<StateObjects, OrderError> {
        self.wait();
        let inner = self.inner.lock();
        match &inner.refuses {
            Some(error) => Err(error.clone()),
            None => Ok(StateObjects {
                objects: vec![StateObject {
                    name: OPERATORS_ALONE.to_owned(),
                    held: Vec::new(),
                    in_store: None,
                }],
                unanswered: Vec::new(),
            }),
        }
    }

    fn entries(
        &self,
        object: &str,
        query: &StateQuery,
        max: usize,
    ) -> Result<StateEntries, OrderError> {
        self.wait();
        let inner = self.inner.lock();
        if let Some(error) = &inner.refuses {
            return Err(error.clone());
        }
        let holder = |host: &Host| StateHolder {
            host: host.name.clone(),
            value: OPERATORS_ALONE.to_owned(),
            ..StateHolder::default()
        };
        let entry = StateEntry {
            key: query.key.clone().unwrap_or_default(),
            agree: true,
            holders: inner.snapshot.hosts.iter().map(holder).collect(),
            lacking: Vec::new(),
        };
        Ok(StateEntries {
            object: object.to_owned(),
            entries: vec![entry; max.min(1)],
            is_cut: false,
            unanswered: vec![Unanswered::default()],
        })
    }

    fn plan(&self) -> Result<Plan, OrderError> {
        self.wait();
        let inner = self.inner.lock();
        assert!(!inner.panics, "a panic that a test asked for");
        match &inner.refuses {
            Some(error) => Err(error.clone()),
            None => Ok(Plan {
                hosts: 5,
                minimum: 1,
                maximum: 8,
                actions: vec![PlannedAction {
                    action: "hold".to_owned(),
                    sentence: "nothing is done".to_owned(),
                    reason: OPERATORS_ALONE.to_owned(),
                    figures: BTreeMap::new(),
                }],
                ..Plan::default()
            }),
        }
    }

    fn metrics(&self) -> String {
        self.wait();
        format!("# operators see it: {OPERATORS_ALONE}\nasterism_hosts 5\n")
    }
}
