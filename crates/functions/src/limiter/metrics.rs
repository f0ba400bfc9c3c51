//! What a limiter measures, for programs that collect metrics.

use asterism_function::OwnMetric;

use super::LimiterState;

pub(super) const METRICS: [OwnMetric; 5] = [
    OwnMetric::gauge(
        "source_buckets",
        "Sources that have a bucket: those of which something is missing, and full ones that are not forgotten yet.",
    ),
    OwnMetric::gauge(
        "destination_buckets",
        "Destinations that have a bucket, as sources do.",
    ),
    OwnMetric::gauge(
        "service_buckets",
        "Services that have a bucket, as sources do.",
    ),
    OwnMetric::gauge(
        "tenant_buckets",
        "Tenants that have a bucket, as sources do.",
    ),
    OwnMetric::counter(
        "without_room_packets_total",
        "Packets of all hosts that were dropped because there was no room for a bucket, as this one knows.",
    ),
];

impl LimiterState {
    /// Appends a value for each of [`METRICS`].
    pub(super) fn measure(&self, values: &mut Vec<u64>) {
        let in_use = [
            self.sources.in_use(),
            self.destinations.in_use(),
            self.services.in_use(),
            self.tenants.in_use(),
        ];
        values.extend(in_use.map(u64::from));
        values.push(self.without_room.total());
    }
}
