//! The HTTP API of a running orchestrator: what it asks, and how the answers look.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use asterism_api::data::{
    ClusterSnapshot, ClusterSummary, EventPage, FlowFound, FlowQuery, Host, Leadership, Loads,
    Order, OrderAccepted, Plan, Stage, Steering,
};
use asterism_api::server::{ServerConfig, TlsFiles};
use asterism_api::{Caller, ClusterApi, OrderError};
use asterism_config::{Api, files};
use asterism_io::clock::MonotonicClock;
use asterism_orchestrator::controller;
use asterism_orchestrator::run::{Asking, AskingError, ClusterView, HostView};

use super::events::EventRing;
use super::health;

/// After how long an order that was not answered is sensibly repeated.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Clone, Debug)]
pub struct OrchestratorApi {
    asking: Asking,
    events: EventRing,
    clock: MonotonicClock,
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
    pub fn new(asking: Asking, events: EventRing, clock: MonotonicClock) -> OrchestratorApi {
        OrchestratorApi {
            asking,
            events,
            clock,
        }
    }

    fn view(&self) -> ClusterView {
        // An orchestrator that does not answer shows a cluster without hosts, which is wrong at a glance.
        self.asking.view().unwrap_or_default()
    }
}

impl ClusterApi for OrchestratorApi {
    fn snapshot(&self) -> Arc<ClusterSnapshot> {
        let view = self.view();
        let hosts: Vec<Host> = view.hosts.iter().map(|one| host(one, &view)).collect();
        Arc::new(ClusterSnapshot {
            cluster: summary(&view, self.clock.wall() * 1_000),
            health: health::items(&view),
            hosts,
            usage: Vec::new(),
        })
    }

    fn events(&self, after: u64, max: usize) -> EventPage {
        self.events.page(after, max)
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
            Order::Scale(_) => {
                return Err(OrderError::Refused {
                    why: "this orchestrator launches no hosts: start or stop them by their service manager".to_owned(),
                });
            }
            Order::Move(_) => {
                return Err(OrderError::Refused {
                    why: "this orchestrator steers by routes, which know no flows and no buckets"
                        .to_owned(),
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

    fn find_flow(&self, _: &FlowQuery, _: usize) -> Result<Vec<FlowFound>, OrderError> {
        Err(OrderError::Refused {
            why: "routes know no flows: ask any host, by `asterism state get`".to_owned(),
        })
    }

    fn plan(&self) -> Result<Plan, OrderError> {
        Err(OrderError::Refused {
            why: "no elasticity policy is in force".to_owned(),
        })
    }

    fn metrics(&self) -> String {
        metrics(&self.view())
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
        }),
        hosts: view.hosts.len() as u32,
        hosts_taking: view.hosts.iter().filter(|host| host.takes).count() as u32,
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

/// The metrics in Prometheus' text format.
fn metrics(view: &ClusterView) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, values: &[(String, u64)]| {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "# HELP asterism_{name} {help}\n# TYPE asterism_{name} {kind}"
        );
        for (labels, value) in values {
            let _ = writeln!(text, "asterism_{name}{labels} {value}");
        }
    };
    let one = |value: u64| [(String::new(), value)];
    let hosts = |of: &dyn Fn(&HostView) -> u64| -> Vec<(String, u64)> {
        let hosts = view.hosts.iter();
        hosts
            .map(|host| (format!("{{host=\"{}\"}}", host.name), of(host)))
            .collect()
    };
    let is_reachable = view.store.error.is_none();
    let steering = view.steering.as_ref();
    for (name, help, value) in [
        (
            "orchestrator_leads",
            "1 while this orchestrator leads.",
            view.term.is_some().into(),
        ),
        (
            "orchestrator_epoch",
            "The epoch of the record.",
            view.epoch.into(),
        ),
        (
            "orchestrator_store_reachable",
            "1 if the truth store answered last time.",
            is_reachable.into(),
        ),
        (
            "orchestrator_steering_applied",
            "1 if the last desired state is in force.",
            steering.is_none_or(|steering| steering.applied).into(),
        ),
    ] {
        family(name, "gauge", help, &one(value));
    }
    type OfHost = fn(&HostView) -> u64;
    let of_host: [(&str, &str, OfHost); 7] = [
        (
            "host_takes",
            "1 while packets are sent to the host.",
            |host| host.takes.into(),
        ),
        ("host_member", "1 while the epoch names the host.", |host| {
            host.incarnation.is_some().into()
        }),
        (
            "host_suspected",
            "1 while packets are kept from the host since it is silent.",
            |host| host.suspected.into(),
        ),
        (
            "host_digests_agree",
            "1 if the host's auditor finds no difference.",
            |host| host.digests_agree.into(),
        ),
        (
            "host_silent_milliseconds",
            "Time since the host's last heartbeat.",
            |host| host.silent_ms,
        ),
        (
            "host_lag_microseconds",
            "How long the oldest update of the host has waited for an acknowledgement.",
            |host| host.load.lag_us.into(),
        ),
        (
            "host_busy_permille",
            "Processor time of the host over the time of its packet loops, in thousandths.",
            |host| host.load.busy_permille.into(),
        ),
    ];
    for (name, help, of) in of_host {
        family(name, "gauge", help, &hosts(&of));
    }
    let totals: [(&str, &str, OfHost); 3] = [
        (
            "host_packets_total",
            "Packets that the host received.",
            |host| host.load.packets,
        ),
        ("host_bytes_total", "Bytes of these packets.", |host| {
            host.load.bytes
        }),
        (
            "host_dropped_total",
            "Packets that the host dropped.",
            |host| host.load.dropped,
        ),
    ];
    for (name, help, of) in totals {
        family(name, "counter", help, &hosts(&of));
    }
    let traffic = &view.traffic;
    let refused = &traffic.refused;
    family(
        "orchestrator_heartbeats_total",
        "counter",
        "Heartbeats that were believed.",
        &one(traffic.heartbeats),
    );
    let reasons = [
        ("not-sealed", refused.not_sealed),
        ("malformed", refused.malformed),
        ("stale", refused.stale),
        ("repeated", refused.repeated),
        ("ended", refused.ended),
    ];
    let reasons = reasons.map(|(reason, count)| (format!("{{reason=\"{reason}\"}}"), count));
    family(
        "orchestrator_datagrams_refused_total",
        "counter",
        "Datagrams of hosts that were not believed.",
        &reasons,
    );
    text
}
