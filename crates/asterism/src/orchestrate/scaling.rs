//! Orders about the number of hosts and about buckets, and the plan, as the HTTP API has them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use asterism_api::OrderError;
use asterism_api::data::{
    BucketRange, Move, MoveWhat, Plan, PlannedAction, Scale, Threshold, Wait,
};
use asterism_elasticity::{Action, Decision, Explanation, Watch};
use asterism_orchestrator::run::{MoveError, Moving, ScaleError, Scaling};
use asterism_orchestrator::steering::director::SteeredFlow;

use super::api::RETRY_AFTER;

/// Without a launcher.
const NO_LAUNCHER: &str = "this orchestrator launches no hosts: add [orchestrator.launch], or start and stop hosts by their service manager";

/// Orders so many hosts. Whether it changed anything, and what follows.
pub(super) fn scale(scaling: Option<&Scaling>, order: Scale) -> Result<(bool, String), OrderError> {
    let scaling = scaling.ok_or_else(|| OrderError::Refused {
        why: NO_LAUNCHER.to_owned(),
    })?;
    let to = order.to;
    let changed = scaling.scale(to, order.reason).map_err(refused)?;
    Ok((changed, format!("{to} hosts are ordered")))
}

/// Moves a bucket or a flow. What follows.
pub(super) fn move_to(moving: &Moving, order: &Move) -> Result<String, OrderError> {
    let to = &order.to;
    match &order.what {
        MoveWhat::Bucket(bucket) => {
            moving.move_buckets(&[*bucket], to).map_err(not_moved)?;
            Ok(format!("new flows of bucket {bucket} go to {to}"))
        }
        MoveWhat::Buckets(BucketRange { first, last }) => {
            if first > last || last - first >= BUCKETS_MAX {
                return Err(OrderError::Refused {
                    why: format!(
                        "{first} to {last} are no buckets: the first one is named first, and there are {BUCKETS_MAX} at most"
                    ),
                });
            }
            let buckets: Vec<u32> = (*first..=*last).collect();
            moving.move_buckets(&buckets, to).map_err(not_moved)?;
            Ok(format!("new flows of buckets {first} to {last} go to {to}"))
        }
        MoveWhat::Flow(text) => {
            let flow = flow(text).ok_or_else(|| OrderError::Refused {
                why: format!("{text:?} is no flow: write one such as \"tcp 192.0.2.1:40000 198.51.100.7:443\""),
            })?;
            moving.move_flow(flow, to).map_err(not_moved)?;
            Ok(format!(
                "the flow goes to {to} until it idles for ten minutes"
            ))
        }
    }
}

/// Buckets that one order moves at most: all that a director can have.
const BUCKETS_MAX: u32 = asterism_director::table::BUCKETS_MAX;

/// A flow, as orders name it.
fn flow(text: &str) -> Option<SteeredFlow> {
    let mut words = text.split_whitespace();
    let protocol = match words.next()? {
        "tcp" => 6,
        "udp" => 17,
        _ => return None,
    };
    let one: SocketAddr = words.next()?.parse().ok()?;
    let other: SocketAddr = words.next()?.parse().ok()?;
    let is_whole = words.next().is_none() && one.is_ipv4() == other.is_ipv4();
    is_whole.then_some(SteeredFlow {
        one,
        other,
        protocol,
    })
}

fn refused(error: ScaleError) -> OrderError {
    let why = error.to_string();
    match error {
        ScaleError::Bounds { .. } | ScaleError::Manual => OrderError::Refused { why },
        ScaleError::DoesNotLead => OrderError::NotLeader { leader: None },
        ScaleError::NotRead
        | ScaleError::NotStored
        | ScaleError::Busy
        | ScaleError::Late
        | ScaleError::Ended => OrderError::Unavailable {
            why,
            retry_after: RETRY_AFTER,
        },
    }
}

fn not_moved(error: MoveError) -> OrderError {
    let why = error.to_string();
    match error {
        MoveError::NoBuckets | MoveError::NoBucket { .. } | MoveError::Refused(_) => {
            OrderError::Refused { why }
        }
        MoveError::Steering(_) | MoveError::Busy | MoveError::Late | MoveError::Ended => {
            OrderError::Unavailable {
                why,
                retry_after: RETRY_AFTER,
            }
        }
    }
}

/// What the policy would do now.
pub(super) fn plan(scaling: Option<&Scaling>) -> Result<Plan, OrderError> {
    let scaling = scaling.ok_or_else(|| OrderError::Refused {
        why: NO_LAUNCHER.to_owned(),
    })?;
    let (explained, is_carried_out) = scaling.plan().map_err(refused)?;
    Ok(of(&explained, is_carried_out))
}

fn of(explained: &Explanation, is_carried_out: bool) -> Plan {
    let threshold = |(place, watch): (usize, &Watch)| {
        let nearest = match explained.nearest == Some(place) {
            true => ", the nearest",
            false => "",
        };
        Threshold {
            sentence: format!("{watch}{nearest}"),
            nearness_permille: watch.nearness_permille(),
        }
    };
    Plan {
        at_ms: explained.now.0,
        is_carried_out,
        hosts: explained.hosts.present(),
        minimum: explained.minimum,
        maximum: explained.maximum,
        actions: explained.decisions.iter().map(action).collect(),
        waits: explained
            .waits
            .iter()
            .map(|wait| Wait {
                sentence: wait.sentence(),
                remaining_ms: wait.remaining_ms,
            })
            .collect(),
        thresholds: explained
            .watches
            .iter()
            .enumerate()
            .map(threshold)
            .collect(),
    }
}

fn action(decision: &Decision) -> PlannedAction {
    let kind = match &decision.action {
        Action::ScaleOut { .. } => "scale-out",
        Action::ScaleIn { .. } => "scale-in",
        Action::MoveBuckets { .. } => "move-buckets",
        Action::Hold => "hold",
    };
    PlannedAction {
        action: kind.to_owned(),
        sentence: decision.action.to_string(),
        reason: decision.reason.to_string(),
        figures: figures(decision),
    }
}

/// The numbers of a reason, by the names that they have in its JSON.
fn figures(decision: &Decision) -> BTreeMap<String, i64> {
    let mut figures = BTreeMap::new();
    // A reason is plain data: it has a JSON form.
    let value = serde_json::to_value(&decision.reason).unwrap_or_default();
    collect("", &value, &mut figures);
    figures
}

fn collect(name: &str, value: &serde_json::Value, figures: &mut BTreeMap<String, i64>) {
    match value {
        serde_json::Value::Number(number) => {
            if let Some(number) = number.as_i64() {
                figures.insert(name.to_owned(), number);
            }
        }
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                collect(name, value, figures);
            }
        }
        serde_json::Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                // One metric's figures beside another's: each under its name.
                let metric = item.get("metric").and_then(serde_json::Value::as_str);
                let prefix = metric.map_or_else(|| place.to_string(), str::to_owned);
                let mut own = BTreeMap::new();
                collect(name, item, &mut own);
                figures.extend(
                    own.into_iter()
                        .map(|(name, value)| (format!("{prefix}_{name}"), value)),
                );
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_read_as_they_are_named() {
        let found = flow("tcp 192.0.2.1:40000 198.51.100.7:443").unwrap();
        assert_eq!(
            (found.protocol, found.one.port(), found.other.port()),
            (6, 40_000, 443)
        );
        assert!(flow("udp [2001:db8::1]:53 [2001:db8::2]:4000").is_some());
        for wrong in [
            "",
            "tcp",
            "tcp 192.0.2.1:1",
            "icmp 192.0.2.1:1 192.0.2.2:2",
            "tcp 192.0.2.1:1 [2001:db8::2]:2",
            "tcp 192.0.2.1 192.0.2.2",
            "tcp 192.0.2.1:1 192.0.2.2:2 more",
        ] {
            assert_eq!(flow(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_explanation_becomes_a_plan_with_its_figures() {
        use asterism_elasticity::{Elasticity, HostSample, Policies, Standing, UnixMs};
        let text = "[policy.edge]\nhosts = { min = 2, max = 4 }\nflows = { out = 100, in = 50 }";
        let rules = Policies::read(text).unwrap().rules("edge").unwrap().clone();
        let elasticity = Elasticity::new(rules);
        let sample = HostSample {
            age_ms: Some(10),
            flows: Some(80),
            ..HostSample::unknown("a", Standing::Serving, UnixMs(1))
        };
        let plan = of(&elasticity.explain(UnixMs(9_000), &[sample]), true);
        assert_eq!((plan.hosts, plan.minimum, plan.maximum), (1, 2, 4));
        let action = &plan.actions[0];
        assert_eq!(
            (&*action.action, &*action.sentence),
            ("scale-out", "add 1 host")
        );
        assert_eq!(
            action.figures,
            [("hosts".to_owned(), 1), ("minimum".to_owned(), 2)].into()
        );
        assert_eq!(plan.thresholds[0].nearness_permille, Some(800));
        let limits = scale(None, Scale::default()).unwrap_err();
        assert!(
            limits.to_string().contains("[orchestrator.launch]"),
            "{limits}"
        );
    }
}
