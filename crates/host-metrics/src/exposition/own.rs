//! What the function measures of its state. No family where it has none.

use asterism_function::{MetricKind, OwnMetric};

use asterism_host_view::statistics::InstanceSnapshot;
use asterism_output::page::{Kind, Page};

/// In front of the names that functions give.
const PREFIX: &str = "asterism_function_";

pub(super) fn own(
    page: &mut Page,
    metrics: &[OwnMetric],
    instances: &[(String, InstanceSnapshot)],
) {
    let mut shown: Vec<&str> = Vec::new();
    for metric in metrics {
        let (_, name) = of_stage(metric.name);
        // Stages of one kind share a family.
        if shown.contains(&name) {
            continue;
        }
        shown.push(name);
        let family = format!("{PREFIX}{name}");
        page.family(&family, kind_of(metric.kind), metric.meaning);
        for (instance, snapshot) in instances {
            for (one, value) in metrics.iter().zip(&snapshot.own) {
                let (stage, other) = of_stage(one.name);
                if other != name {
                    continue;
                }
                let instance = ("instance", instance.as_str());
                match stage {
                    Some(stage) => page.sample(&family, &[instance, ("stage", stage)], *value),
                    None => page.sample(&family, &[instance], *value),
                }
            }
        }
    }
}

fn kind_of(kind: MetricKind) -> Kind {
    match kind {
        MetricKind::Counter => Kind::Counter,
        MetricKind::Gauge => Kind::Gauge,
    }
}

/// A metric's stage, of a chain, and its name there.
fn of_stage(name: &str) -> (Option<&str>, &str) {
    match name.rsplit_once('.') {
        Some((stage, name)) => (Some(stage), name),
        None => (None, name),
    }
}
