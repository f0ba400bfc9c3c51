//! The HTTP API of a running orchestrator: what it asks, and how the answers look.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use asterism_api::data::{
    ClusterSnapshot, ClusterSummary, Director, EventPage, FlowFound, FlowQuery, HealthItem, Host,
    Leadership, Loads, Order, OrderAccepted, Plan, Stage, StateEntries, StateObjects, StateQuery,
    Steering,
};
use asterism_api::server::{ServerConfig, TlsFiles};
use asterism_api::{Caller, ClusterApi, OrderError};
use asterism_config::{Api, files};
use asterism_io::clock::MonotonicClock;
use asterism_orchestrator::controller;
use asterism_orchestrator::run::{
    Asking, AskingError, ClusterView, HostView, Moving, Running, Scaling,
};
use asterism_orchestrator::steering::DirectorReport;

use super::events::EventRing;
use super::tenants::Tenants;
use super::{health, metrics, questions, scaling};

/// After how long an order that was not answered is sensibly repeated.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Clone, Debug)]
pub struct OrchestratorApi {
    asking: Asking,
    moving: Moving,
    scaling: Option<Scaling>,
    events: EventRing,
    clock: MonotonicClock,
    tenants: Tenants,
}

/// The configuration of the server, with paths from the configuration's folder.
#[must_use]
pub fn server_config(file: &Path, api: &Api) -> ServerConfig {
    let path = |path: &Path| files::key_path(file, path);
    ServerConfig {
        listen: api.listen,
        tokens: api.tokens.as_deref().map(path),
        tls: api.certificate.as_ref().map(|(certificate, key)| TlsFiles {
            certificate: path(certificate),
            key: path(key),
        }),
        plain: api.plain,
        ..ServerConfig::loopback(0)
    }
}

impl OrchestratorApi {
    /// The API of this orchestrator.
    #[must_use]
    pub fn new(running: &Running, events: EventRing, clock: MonotonicClock) -> OrchestratorApi {
        OrchestratorApi {
            asking: running.asking().clone(),
            moving: running.moving().clone(),
            scaling: running.scaling().cloned(),
            events,
            clock,
            tenants: Tenants::default(),
        }
    }

    /// What is wrong. A place without a process is as it should be where the orchestrator decides how many there are.
    fn health(&self, view: &ClusterView) -> Vec<HealthItem> {
        let mut items = health::items(view);
        items.retain(|item| self.scaling.is_none() || item.code != health::ABSENT);
        items
    }

    /// The same of a cluster with tenants.
    #[must_use]
    pub fn with_tenants(self, tenants: Tenants) -> OrchestratorApi {
        OrchestratorApi { tenants, ..self }
    }

    fn view(&self) -> ClusterView {
        // An orchestrator that does not answer shows a cluster without hosts, which is wrong at a glance.
        self.asking.view().unwrap_or_default()
    }

    /// The names of the hosts.
    fn hosts(&self) -> Vec<String> {
        let hosts = self.view().hosts;
        hosts.into_iter().map(|host| host.name).collect()
    }
}

impl ClusterApi for OrchestratorApi {
    fn snapshot(&self) -> Arc<ClusterSnapshot> {
        let view = self.view();
        let of_tenant = |one: &HostView| Host {
            tenant: self.tenants.of_host(&one.name),
            ..host(one, &view)
        };
        let hosts: Vec<Host> = view.hosts.iter().map(of_tenant).collect();
        let mut health = self.health(&view);
        for item in &mut health {
            item.tenant = self.tenants.of_host(&item.subject);
        }
        Arc::new(ClusterSnapshot {
            cluster: summary(&view, self.clock.wall() * 1_000),
            health,
            hosts,
            usage: self.tenants.usage(&view),
        })
    }

    fn events(&self, after: u64, max: usize) -> EventPage {
        let mut page = self.events.page(after, max);
        for event in &mut page.events {
            event.tenant = self.tenants.of_host(&event.subject);
        }
        page
    }

    fn order(&self, _: &Caller, order: Order) -> Result<OrderAccepted, OrderError> {
        let events_after = self.events.newest();
        let before = self.view();
        let known = |name: &str| before.hosts.iter().find(|host| host.name == name);
        let unknown = |host: &str| OrderError::UnknownHost {
            host: host.to_owned(),
        };
        let (order, changed, detail) = match order {
            Order::Drain { host, .. } => {
                let is_drained = known(&host).ok_or_else(|| unknown(&host))?.drained;
                let detail = format!("{host} gets no new flows");
                (controller::Order::Drain(host), !is_drained, detail)
            }
            Order::Restore { host, .. } => {
                let is_drained = known(&host).ok_or_else(|| unknown(&host))?.drained;
                let detail = format!("{host} gets packets again");
                (controller::Order::Restore(host), is_drained, detail)
            }
            Order::Fence { host, body } => {
                known(&host).ok_or_else(|| unknown(&host))?;
                let detail = format!(
                    "incarnation {} of {host} and those before it count as ended, if they were named",
                    body.incarnation
                );
                (
                    controller::Order::Fence(host, body.incarnation),
                    true,
                    detail,
                )
            }
            Order::Forget { host, .. } => {
                known(&host).ok_or_else(|| unknown(&host))?;
                let detail = format!("{host} has no place any more");
                (controller::Order::Forget(host), true, detail)
            }
            Order::Scale(order) => {
                let (changed, detail) = scaling::scale(self.scaling.as_ref(), order)?;
                return Ok(OrderAccepted {
                    changed,
                    detail,
                    events_after,
                });
            }
            Order::Move(order) => {
                known(&order.to).ok_or_else(|| unknown(&order.to))?;
                if before.term.is_none() {
                    return Err(OrderError::NotLeader { leader: None });
                }
                return Ok(OrderAccepted {
                    changed: true,
                    detail: scaling::move_to(&self.moving, &order)?,
                    events_after,
                });
            }
        };
        self.asking.order(order).map_err(refused)?;
        Ok(OrderAccepted {
            changed,
            detail,
            events_after,
        })
    }

    fn find_flow(&self, query: &FlowQuery, max: usize) -> Result<Vec<FlowFound>, OrderError> {
        questions::flows(&self.asking, &self.hosts(), query, max)
    }

    fn host_status(&self, host: &str) -> Result<serde_json::Value, OrderError> {
        questions::status(&self.asking, &self.hosts(), host)
    }

    fn state(&self) -> Result<StateObjects, OrderError> {
        questions::state(&self.asking, &self.hosts())
    }

    fn entries(
        &self,
        object: &str,
        query: &StateQuery,
        max: usize,
    ) -> Result<StateEntries, OrderError> {
        questions::entries(&self.asking, &self.hosts(), object, query, max)
    }

    fn plan(&self) -> Result<Plan, OrderError> {
        scaling::plan(self.scaling.as_ref())
    }

    fn metrics(&self) -> String {
        let view = self.view();
        metrics::text(&view, &self.events.counts()) + &self.tenants.metrics(&view)
    }
}

fn refused(error: AskingError) -> OrderError {
    match error {
        AskingError::NoSuchHost(host) => OrderError::UnknownHost { host },
        // Addresses of other orchestrators' APIs are not known.
        AskingError::DoesNotLead(_) => OrderError::NotLeader { leader: None },
        AskingError::NotForgotten { .. } => OrderError::Conflict {
            why: error.to_string(),
        },
        AskingError::Busy | AskingError::Late | AskingError::Ended => OrderError::Unavailable {
            why: error.to_string(),
            retry_after: RETRY_AFTER,
        },
    }
}

fn summary(view: &ClusterView, at_ms: u64) -> ClusterSummary {
    let is_leading = view.term.is_some();
    ClusterSummary {
        name: view.cluster.clone(),
        at_ms,
        epoch: view.epoch.into(),
        leadership: Some(Leadership {
            leader: match is_leading {
                true => Some(view.orchestrator.clone()),
                false => view.store.led_by.clone(),
            },
            leader_address: None,
            term: view.term.unwrap_or(0),
            is_leading,
        }),
        is_store_reachable: view.store.error.is_none(),
        steering: view.steering.as_ref().map(|steering| Steering {
            generation: steering.generation,
            in_force: steering.in_force,
            last_error: steering.error.clone(),
            directors: view.directors.iter().map(director).collect(),
        }),
        hosts: view.hosts.len() as u32,
        hosts_taking: view.hosts.iter().filter(|host| host.takes).count() as u32,
    }
}

fn director(report: &DirectorReport) -> Director {
    Director {
        name: report.name.clone(),
        answers: report.answers,
        is_active: report.is_active,
        hears_other: report.hears_other,
        generation: report.generation,
        no_target_permille: report.elsewhere_permille,
        forwarded: report.forwarded,
        dropped: report.dropped,
    }
}

fn host(host: &HostView, view: &ClusterView) -> Host {
    let load = &host.load;
    let stage = match host.stage {
        None => Stage::Unknown,
        Some(controller::Stage::Awaiting) => Stage::Awaiting,
        Some(controller::Stage::Joining(_)) => Stage::Joining,
        Some(controller::Stage::Serving(_)) => Stage::Serving,
        Some(controller::Stage::Leaving(_)) => Stage::Leaving,
        Some(controller::Stage::Ended(_)) => Stage::Ended,
    };
    Host {
        name: host.name.clone(),
        tenant: None,
        stage,
        incarnation: host.incarnation.unwrap_or(0),
        epoch: host.epoch.into(),
        silent_for_ms: host.stage.map(|_| host.silent_ms),
        is_suspect: host.suspected,
        is_isolated: health::is_isolated(host, view),
        takes: host.takes,
        drains: host.drained,
        is_out: host.incarnation.is_none(),
        weight: 1,
        digests_agree: host.digests_agree,
        loads: host.stage.map(|_| Loads {
            packets_per_second: host.packets_per_s,
            bits_per_second: host.bytes_per_s * 8,
            cpu_permille: load.busy_permille.into(),
            flows: load.flows,
            lag_us: load.lag_us.into(),
            parked: load.parked.into(),
            drops: BTreeMap::from([("all".to_owned(), load.dropped)]),
        }),
    }
}
