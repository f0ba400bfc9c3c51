//! What the comparison of replicas found.

use asterism_engine::transport::ChannelSnapshot;

use asterism_host_view::Names;
use asterism_host_view::audit::AuditDocument;
use asterism_output::page::{Kind, Metric, Page, Value, counter};

const MESSAGES: [Metric<AuditDocument>; 2] = [
    counter(
        "asterism_audit_rounds_void_total",
        "Comparisons that came to nothing because a message was lost or late.",
        |one| one.rounds_void.into(),
    ),
    counter(
        "asterism_audit_refused_total",
        "Messages of an auditor that were none, or not from the reference.",
        |one| one.refused.into(),
    ),
];

pub(super) fn audit(page: &mut Page, names: &Names, snapshot: &ChannelSnapshot) {
    let audit = AuditDocument::new(snapshot, names);
    objects(page, &audit);
    comparisons(page, &audit);
    streams(page, &audit);
    page.table(&MESSAGES, &audit);
}

fn objects(page: &mut Page, audit: &AuditDocument) {
    let name = "asterism_audit_parts_differing";
    let help = "Parts of an object that differ from the reference's, of 256; anything but zero is an alarm.";
    page.family(name, Kind::Gauge, help);
    for object in &audit.objects {
        for difference in &object.differs {
            let instance = difference.instance.to_string();
            let labels = [("object", object.object.as_str()), ("instance", &instance)];
            page.sample(name, &labels, difference.parts.len());
        }
        if object.differs.is_empty() {
            page.sample(name, &[("object", object.object.as_str())], 0u64);
        }
    }
    let name = "asterism_audit_age_seconds";
    let help = "How long ago all of an object had been found equal to the reference's.";
    page.family(name, Kind::Gauge, help);
    for object in &audit.objects {
        if let Some(ago) = object.equal_us_ago {
            let labels = [("object", object.object.as_str())];
            page.sample(name, &labels, Value::Seconds(ago));
        }
    }
}

fn comparisons(page: &mut Page, audit: &AuditDocument) {
    let name = "asterism_audit_parts_compared_total";
    let help = "Comparisons of parts with the reference's, by what was found; those that changed meanwhile say nothing.";
    page.family(name, Kind::Counter, help);
    for (finding, count) in [
        ("equal", audit.parts_equal),
        ("different", audit.parts_different),
        ("changing", audit.parts_changing),
    ] {
        page.sample(name, &[("finding", finding)], count);
    }
}

fn streams(page: &mut Page, audit: &AuditDocument) {
    let name = "asterism_audit_stream_ranges_differing_total";
    let help = "Ranges of a host's groups that were delivered here otherwise than sent; anything but zero is an alarm.";
    page.family(name, Kind::Counter, help);
    for stream in &audit.streams {
        let labels = [("member", stream.member.as_str())];
        page.sample(name, &labels, stream.ranges_different);
    }
    let name = "asterism_audit_stream_age_seconds";
    let help = "How long ago a host's groups were found to be delivered here as they were sent.";
    page.family(name, Kind::Gauge, help);
    for stream in &audit.streams {
        if let Some(ago) = stream.equal_us_ago {
            let labels = [("member", stream.member.as_str())];
            page.sample(name, &labels, Value::Seconds(ago));
        }
    }
}
