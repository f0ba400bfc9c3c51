//! What a host does for its tenants: counts of the packet loops, and the time in which instances run.
//!
//! Each loop counts at its port `inside` (`asterism_io`'s `MeteringPort`, which stands there only if there are tenants). The main
//! thread sums up the loops and shares out the instances' time (`time.rs`); heartbeats carry both to the orchestrators.

mod time;

use std::sync::Arc;

use asterism_config::{Config, PORT_NAMES, Tenant};
use asterism_heartbeat::TenantUsage;
use asterism_io::port::{MeteringPort, Port, TenantCounters, TenantCounts, TenantMap};

pub(super) use time::UsageMeter;

/// The counts of all loops of a host with tenants.
#[derive(Debug)]
pub struct Metering {
    /// The tenants' names, and whether this host serves the tenant alone.
    tenants: Vec<(String, bool)>,
    map: Arc<TenantMap>,
    /// By instance, then by tenant.
    loops: Vec<Arc<[TenantCounters]>>,
    seed: u64,
}

impl Metering {
    /// For the tenants of a configuration; `None` without any. `seed` is random.
    #[must_use]
    pub fn of(config: &Config, seed: u64) -> Option<Arc<Metering>> {
        let tenants = &config.tenants;
        if tenants.is_empty() {
            return None;
        }
        let networks = tenants.iter().zip(0..).flat_map(|(tenant, number)| {
            let networks = tenant.networks.iter();
            networks.map(move |network| (network.address(), network.length(), number))
        });
        let counters = |_| tenants.iter().map(|_| TenantCounters::default()).collect();
        let is_own = |tenant: &Tenant| tenant.hosts.contains(&config.host.name);
        Some(Arc::new(Metering {
            tenants: tenants
                .iter()
                .map(|tenant| (tenant.name.clone(), is_own(tenant)))
                .collect(),
            map: Arc::new(TenantMap::new(networks)),
            loops: (0..config.host.instances).map(counters).collect(),
            seed,
        }))
    }

    /// Has the port `inside` of an instance counted.
    #[must_use]
    pub(super) fn wrap(&self, instance: usize, ports: Vec<Box<dyn Port>>) -> Vec<Box<dyn Port>> {
        let Some(counters) = self.loops.get(instance) else {
            return ports;
        };
        let wrap = |port: Box<dyn Port>| -> Box<dyn Port> {
            match port.name() == PORT_NAMES[0] {
                true => {
                    let (map, counters) = (self.map.clone(), counters.clone());
                    Box::new(MeteringPort::new(port, map, counters, self.seed))
                }
                false => port,
            }
        };
        ports.into_iter().map(wrap).collect()
    }

    /// What all loops counted, by tenant.
    fn counts(&self) -> Vec<TenantCounts> {
        let mut sums = vec![TenantCounts::default(); self.tenants.len()];
        for counters in &self.loops {
            for (sum, counters) in sums.iter_mut().zip(counters.iter()) {
                let counts = counters.read();
                sum.packets += counts.packets;
                sum.bytes += counts.bytes;
                sum.flows += counts.flows;
            }
        }
        sums
    }

    /// What heartbeats carry, with the time in microseconds that instances ran for each.
    fn usage(&self, counts: &[TenantCounts], instance_us: &[u64]) -> Arc<[TenantUsage]> {
        let all = self.tenants.iter().zip(counts).zip(instance_us);
        all.map(|(((tenant, _), counts), us)| TenantUsage {
            tenant: tenant.clone(),
            packets: counts.packets,
            bytes: counts.bytes,
            flows: counts.flows,
            instance_ms: us / 1_000,
        })
        .collect()
    }
}
