//! What the stages of a chain counted. Families without a sample where no chain runs, so that nothing is missing.

use asterism_host_view::Names;
use asterism_host_view::statistics::{InstanceSnapshot, StageSnapshot};
use asterism_output::page::{Kind, Labels, Metric, Page, counter};

const COUNTERS: [Metric<StageSnapshot>; 6] = [
    counter(
        "asterism_stage_asked_total",
        "Calls of a chain's stage: those that ended with a verdict, and those that were late.",
        |one| one.asked().into(),
    ),
    counter(
        "asterism_stage_acted_total",
        "Calls of a chain's stage that ended with a verdict.",
        |one| one.acted.into(),
    ),
    counter(
        "asterism_stage_late_total",
        "Calls of a chain's stage that were late; the stage is called again alone.",
        |one| one.late.into(),
    ),
    counter(
        "asterism_stage_bypassed_total",
        "Packets that went on although a chain's stage had failed for them.",
        |one| one.bypassed.into(),
    ),
    counter(
        "asterism_stage_mirrored_total",
        "Copies that a chain's stage got.",
        |one| one.mirrored.into(),
    ),
    counter(
        "asterism_stage_mirror_lost_total",
        "Copies for a chain's stage for which there was no room.",
        |one| one.mirror_lost.into(),
    ),
];

pub(super) fn stages(page: &mut Page, names: &Names, instances: &[(String, InstanceSnapshot)]) {
    let each = |visit: &mut dyn FnMut(&Labels<'_>, &StageSnapshot)| {
        for (instance, snapshot) in instances {
            for (stage, name) in snapshot.stages.iter().zip(&names.stages) {
                visit(&[("instance", instance), ("stage", name)], stage);
            }
        }
    };
    page.table_of(&COUNTERS, each);
    let name = "asterism_stage_dropped_total";
    let help =
        "Packets that a chain's stage said to drop, by reason; bypassed ones went on all the same.";
    page.family(name, Kind::Counter, help);
    each(&mut |labels, stage| {
        for (reason, value) in names.own.labelled(&stage.dropped) {
            page.sample(name, &[labels, &[("reason", reason)]].concat(), value);
        }
    });
}
