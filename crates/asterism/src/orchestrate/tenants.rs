//! Whose hosts are, and what tenants used, as the HTTP API shows both.

use std::sync::Arc;

use asterism_api::data::TenantUsage;
use asterism_config::Tenant;
use asterism_elasticity::usage::{Usage, prometheus};
use asterism_orchestrator::run::ClusterView;

/// The tenants of a configuration. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Tenants {
    all: Arc<[Tenant]>,
}

impl Tenants {
    /// Those of a configuration.
    #[must_use]
    pub fn new(tenants: &[Tenant]) -> Tenants {
        Tenants {
            all: tenants.into(),
        }
    }

    /// The tenant that a host serves alone; `None` if it serves all.
    #[must_use]
    pub fn of_host(&self, host: &str) -> Option<String> {
        let mut all = self.all.iter();
        let tenant = all.find(|tenant| tenant.hosts.iter().any(|own| own == host))?;
        Some(tenant.name.clone())
    }

    /// What each tenant used, in the order of their names: those that are configured, and those of former configurations.
    #[must_use]
    pub fn usage(&self, view: &ClusterView) -> Vec<TenantUsage> {
        let mut totals = view.usage.totals.clone();
        for tenant in self.all.iter() {
            totals.entry(tenant.name.clone()).or_default();
        }
        let count = |sum: u128| u64::try_from(sum).unwrap_or(u64::MAX);
        let usage = |(tenant, usage): (String, Usage)| TenantUsage {
            tenant,
            packets: count(usage.packets),
            bytes: count(usage.bytes),
            flows: count(usage.flows),
            instance_ms: count(usage.instance_ms),
        };
        totals.into_iter().map(usage).collect()
    }

    /// The counters of all tenants in Prometheus' text format; none without tenants.
    #[must_use]
    pub fn metrics(&self, view: &ClusterView) -> String {
        let usage = &view.usage;
        if self.all.is_empty() && usage.totals.is_empty() {
            return String::new();
        }
        let mut totals = usage.totals.clone();
        for tenant in self.all.iter() {
            totals.entry(tenant.name.clone()).or_default();
        }
        format!(
            "{}# HELP asterism_usage_reports_refused_total Reports of usage that were refused: of incarnations without an account, or with \
             absurd counts.\n# TYPE asterism_usage_reports_refused_total counter\nasterism_usage_reports_refused_total {}\n",
            prometheus(&totals, &view.cluster),
            usage.refused
        )
    }
}

#[cfg(test)]
mod tests {
    use asterism_orchestrator::usage::UsageView;

    use super::*;

    fn tenants() -> Tenants {
        let tenant = |name: &str, hosts: &[&str]| Tenant {
            name: name.to_owned(),
            networks: Vec::new(),
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        };
        Tenants::new(&[tenant("green", &["c"]), tenant("blue", &[])])
    }

    fn view() -> ClusterView {
        let used = |packets| Usage {
            packets,
            bytes: u128::MAX,
            flows: 2,
            instance_ms: 1_500,
        };
        ClusterView {
            cluster: "edge".to_owned(),
            usage: UsageView {
                totals: [("blue".to_owned(), used(7)), ("gone".to_owned(), used(5))].into(),
                refused: 3,
                error: None,
            },
            ..ClusterView::default()
        }
    }

    #[test]
    fn tenants_of_now_and_of_before_are_shown() {
        let usage = tenants().usage(&view());
        let shown: Vec<_> = usage
            .iter()
            .map(|usage| (&*usage.tenant, usage.packets, usage.bytes))
            .collect();
        assert_eq!(
            shown,
            [
                ("blue", 7, u64::MAX),
                ("gone", 5, u64::MAX),
                ("green", 0, 0)
            ]
        );
        assert_eq!(tenants().of_host("c").as_deref(), Some("green"));
        assert_eq!(tenants().of_host("a"), None);
    }

    #[test]
    fn metrics_are_those_of_tenants() {
        let text = tenants().metrics(&view());
        for line in [
            "asterism_tenant_packets_total{cluster=\"edge\",tenant=\"blue\"} 7",
            "asterism_tenant_packets_total{cluster=\"edge\",tenant=\"green\"} 0",
            "asterism_tenant_instance_seconds_total{cluster=\"edge\",tenant=\"gone\"} 1.500",
            "asterism_usage_reports_refused_total 3",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        assert_eq!(Tenants::default().metrics(&ClusterView::default()), "");
    }
}
