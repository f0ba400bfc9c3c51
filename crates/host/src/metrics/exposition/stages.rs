//! What the stages of a chain counted. Families without a sample where no chain runs, so that nothing is missing.

use super::Page;
use crate::run::statistics::{InstanceSnapshot, StageSnapshot};
use crate::view::Names;

type Read = fn(&StageSnapshot) -> u64;

const COUNTERS: [(&str, &str, Read); 6] = [
    (
        "asterism_stage_asked_total",
        "Calls of a chain's stage: those that ended with a verdict, and those that were late.",
        StageSnapshot::asked,
    ),
    (
        "asterism_stage_acted_total",
        "Calls of a chain's stage that ended with a verdict.",
        |one| one.acted,
    ),
    (
        "asterism_stage_late_total",
        "Calls of a chain's stage that were late; the stage is called again alone.",
        |one| one.late,
    ),
    (
        "asterism_stage_bypassed_total",
        "Packets that went on although a chain's stage had failed for them.",
        |one| one.bypassed,
    ),
    (
        "asterism_stage_mirrored_total",
        "Copies that a chain's stage got.",
        |one| one.mirrored,
    ),
    (
        "asterism_stage_mirror_lost_total",
        "Copies for a chain's stage for which there was no room.",
        |one| one.mirror_lost,
    ),
];

pub(super) fn stages(page: &mut Page, names: &Names, instances: &[(String, InstanceSnapshot)]) {
    let each = |visit: &mut dyn FnMut(&str, &str, &StageSnapshot)| {
        for (instance, snapshot) in instances {
            for (stage, name) in snapshot.stages.iter().zip(&names.stages) {
                visit(instance, name, stage);
            }
        }
    };
    for (name, help, read) in COUNTERS {
        page.family(name, "counter", help);
        each(&mut |instance, stage, snapshot| {
            let labels = [("instance", instance), ("stage", stage)];
            page.sample(name, &labels, read(snapshot));
        });
    }
    let name = "asterism_stage_dropped_total";
    page.family(
        name,
        "counter",
        "Packets that a chain's stage said to drop, by reason; bypassed ones went on all the same.",
    );
    each(&mut |instance, stage, snapshot| {
        for (reason, value) in names.own.labelled(&snapshot.dropped) {
            let labels = [("instance", instance), ("stage", stage), ("reason", reason)];
            page.sample(name, &labels, value);
        }
    });
}
