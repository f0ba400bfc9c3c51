//! A function's own reasons and metrics, as `status`, traces and metrics name them.

use std::collections::BTreeMap;

use asterism_function::{NetworkFunction, OwnMetric, OwnReason, Reason, metrics_of, reasons_of};

/// The names that a function defines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Its reasons, by their numbers.
    pub reasons: Vec<OwnReason>,
    /// Its metrics, in order.
    pub metrics: Vec<OwnMetric>,
}

impl Own {
    /// The names of a function.
    #[must_use]
    pub fn of<F: NetworkFunction>(function: &F) -> Own {
        Own {
            reasons: reasons_of(function).to_vec(),
            metrics: metrics_of(function).to_vec(),
        }
    }

    /// The name of a reason.
    #[must_use]
    pub fn label(&self, reason: Reason) -> &'static str {
        reason
            .label_among(&self.reasons)
            .unwrap_or_else(|| reason.label())
    }

    /// Counts in the order of [`Reason::ALL`] with their names, without places for reasons that the function does not have.
    pub fn labelled<'a>(
        &'a self,
        counts: &'a [u64],
    ) -> impl Iterator<Item = (&'static str, u64)> + 'a {
        let all = Reason::ALL.iter().zip(counts);
        all.filter_map(|(reason, count)| {
            // A count is shown even if the function does not name its reason.
            let unnamed = (*count > 0).then(|| reason.label());
            Some((reason.label_among(&self.reasons).or(unnamed)?, *count))
        })
    }

    /// Values with the names of their metrics.
    #[must_use]
    pub fn measured(&self, values: &[u64]) -> BTreeMap<String, u64> {
        let metrics = self.metrics.iter().zip(values);
        metrics
            .map(|(metric, value)| (metric.name.to_owned(), *value))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_reasons_are_named_and_others_are_not_shown_until_they_count() {
        let own = Own {
            reasons: vec![OwnReason {
                label: "share-used-up",
                meaning: "It is.",
            }],
            metrics: Vec::new(),
        };
        let mut counts = vec![0; Reason::ALL.len()];
        let labels = |counts: &[u64]| own.labelled(counts).map(|one| one.0).collect::<Vec<_>>();
        let quiet = labels(&counts);
        assert!(quiet.contains(&"share-used-up") && quiet.contains(&"table-full"));
        assert!(!quiet.contains(&"own-1"));
        counts[Reason::own(1) as usize] = 3;
        assert!(labels(&counts).contains(&"own-1"));
        assert_eq!(own.label(Reason::own(0)), "share-used-up");
    }
}
