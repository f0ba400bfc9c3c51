//! The state objects of the configured function: where each lives.

use core::ops::Range;
use core::time::Duration;

use asterism_state::{Absence, Home, ObjectSettings};
use toml::de::{DeTable, DeValue};

use super::diagnostic::{Diagnostic, Report};
use super::functions::{CHOICE, DescribedObject, Description, ObjectKind};
use super::kind::Absent;
use super::release::{ACKED, AT_ONCE};
use super::section::Values;
use super::{promises, suggestion};

/// What was chosen for one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectChoice {
    /// The object's name.
    pub name: &'static str,
    /// What kind of object it is.
    pub kind: ObjectKind,
    /// Where it lives.
    pub placement: Placement,
    /// What an absent entry means.
    pub absent: Absent,
    /// Entries at most over the whole cluster; 0: what the function suggests.
    pub capacity: u32,
    /// Packets that depend on a change of it are held back until other hosts have it.
    pub holds_output: bool,
}

/// Where an object lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// This instance only.
    Local,
    /// A replica in every instance.
    Replicated,
    /// As `Local`, with reads late by so much.
    Late(Duration),
}

impl Placement {
    /// Its word in the configuration.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Placement::Local => "local",
            Placement::Replicated => "replicated",
            Placement::Late(_) => "late",
        }
    }
}

impl ObjectChoice {
    /// The choice in the words of the state library.
    #[must_use]
    pub fn settings(&self) -> ObjectSettings {
        let microseconds =
            |duration: Duration| u32::try_from(duration.as_micros()).unwrap_or(u32::MAX);
        ObjectSettings {
            home: match self.placement {
                Placement::Local | Placement::Late(_) => Home::Local,
                Placement::Replicated => Home::Replicated,
            },
            late_us: match self.placement {
                Placement::Late(delay) => microseconds(delay),
                _ => 0,
            },
            absence: match self.absent {
                Absent::Drop => Absence::Answer,
                Absent::Wait(longest) => Absence::Wait {
                    us: microseconds(longest),
                },
            },
            capacity: self.capacity,
            audited: self.placement == Placement::Replicated,
            holds_output: self.holds_output,
        }
    }
}

/// What was chosen as the capacity of the object of a name; 0: what the function suggests.
pub(super) fn capacity(objects: &[ObjectChoice], name: &str) -> u32 {
    let choice = objects.iter().find(|object| object.name == name);
    choice.map_or(0, |object| object.capacity)
}

/// An object as it was read: what is known of it, and where it was written.
pub(super) struct Chosen<'a> {
    pub(super) object: &'a DescribedObject,
    pub(super) values: Values,
    pub(super) placement: Option<Placement>,
}

/// How many instances share the state.
#[derive(Clone, Copy, Debug)]
pub struct Sharing {
    /// Hosts.
    pub members: usize,
    /// Instances of each.
    pub instances: usize,
    /// Packets leave when other hosts have what they depend on, unless an object says otherwise.
    pub is_acked: bool,
}

impl Sharing {
    /// Whether more than one instance has the state: otherwise no other instance can have written to it.
    #[must_use]
    pub fn is_shared(self) -> bool {
        self.members > 1 || self.instances > 1
    }
}

/// Reads the table `state` of a function. `None` if anything in it is wrong.
pub(super) fn read<S>(
    function: &Description<S>,
    table: &DeTable<'_>,
    span: Range<usize>,
    sharing: Sharing,
    report: &mut Report,
) -> Option<Vec<ObjectChoice>> {
    let before = report.errors();
    for (key, _) in table {
        let names = || function.objects.iter().map(|object| object.name);
        if !names().any(|name| name == key.get_ref().as_ref()) {
            let mut unknown = Diagnostic::error(
                format!(
                    "`{}` has no state object `{}`",
                    function.name,
                    key.get_ref()
                ),
                key.span(),
            )
            .label("not known here");
            if let Some(near) = suggestion::nearest(key.get_ref(), names()) {
                unknown = unknown.help(format!("did you mean `{near}`?"));
            }
            report.add(unknown.help(format!(
                "its objects are {}",
                suggestion::ticked(names()).replace(" or ", " and ")
            )));
        }
    }
    let chosen: Vec<_> = function
        .objects
        .iter()
        .filter_map(|object| read_object(object, table, &span, sharing, report))
        .collect();
    promises::check(function, &chosen, sharing, report);
    if report.errors() > before {
        return None;
    }
    chosen
        .iter()
        .map(|one| {
            let values = &one.values;
            Some(ObjectChoice {
                name: one.object.name,
                kind: one.object.kind,
                placement: one.placement?,
                absent: effective_absent(one),
                holds_output: holds_output(one, sharing),
                capacity: if values.has(CHOICE.capacity) {
                    values.get(CHOICE.capacity)? as u32
                } else {
                    0
                },
            })
        })
        .collect()
}

fn read_object<'a>(
    object: &'a DescribedObject,
    table: &DeTable<'_>,
    span: &Range<usize>,
    sharing: Sharing,
    report: &mut Report,
) -> Option<Chosen<'a>> {
    let empty = DeTable::new();
    let (settings, span) = match table
        .iter()
        .find(|(key, _)| key.get_ref().as_ref() == object.name)
    {
        None => (&empty, span.clone()),
        Some((_, value)) => match value.get_ref() {
            DeValue::Table(settings) => (settings, value.span()),
            DeValue::String(word) => {
                report.add(
                    Diagnostic::error(format!("`{}` is not a table", object.name), value.span())
                        .help(format!(
                            "write {} = {{ placement = \"{word}\" }}",
                            object.name
                        )),
                );
                return None;
            }
            _ => {
                report.add(
                    Diagnostic::error(format!("`{}` is not a table", object.name), value.span())
                        .help(format!(
                            "write {} = {{ placement = \"replicated\" }}",
                            object.name
                        )),
                );
                return None;
            }
        },
    };
    let values = object.section.read(object.name, settings, span, report);
    let placement = read_placement(object, &values, report);
    check_absent(object, &values, placement, sharing, report);
    check_release(object, &values, placement, sharing, report);
    Some(Chosen {
        object,
        values,
        placement,
    })
}

fn read_placement(
    object: &DescribedObject,
    values: &Values,
    report: &mut Report,
) -> Option<Placement> {
    let delay = values.get(CHOICE.delay);
    let delay_written = values.place(CHOICE.delay).map(|place| place.key.clone());
    match (values.get(CHOICE.placement)?, delay_written) {
        ("late", None) => {
            report.add(
                Diagnostic::error(
                    format!("`{}` has no delay", object.name),
                    values.span_of(CHOICE.placement),
                )
                .help("add the delay of each read: placement = \"late\", delay = \"5ms\""),
            );
            None
        }
        ("late", Some(_)) => delay.map(Placement::Late),
        (other, Some(span)) => {
            report.add(
                Diagnostic::error(
                    format!("`delay` has no meaning with the placement \"{other}\""),
                    span,
                )
                .help("leave `delay` out, or choose placement = \"late\""),
            );
            None
        }
        ("local", None) => Some(Placement::Local),
        (_, None) => Some(Placement::Replicated),
    }
}

/// No update is in transit to an object that no other instance writes.
fn check_absent(
    object: &DescribedObject,
    values: &Values,
    placement: Option<Placement>,
    sharing: Sharing,
    report: &mut Report,
) {
    if !values.has(CHOICE.absent) {
        return;
    }
    let (Some(place), Some(Absent::Wait(_)), Some(placement)) = (
        values.place(CHOICE.absent),
        values.get(CHOICE.absent),
        placement,
    ) else {
        return;
    };
    if placement != Placement::Replicated {
        report.add(
            Diagnostic::error(
                format!(
                    "packets would wait in vain for an absent entry of `{}`",
                    object.name
                ),
                place.value.clone(),
            )
            .label(format!(
                "with the placement \"{}\" nobody else makes entries",
                placement.word()
            ))
            .help("choose absent = \"drop\", or placement = \"replicated\""),
        );
    } else if sharing.members * sharing.instances == 1 {
        report.add(
            Diagnostic::warning(
                format!(
                    "packets would wait in vain for an absent entry of `{}`",
                    object.name
                ),
                place.value.clone(),
            )
            .label("with a single instance nobody else makes entries")
            .help("choose absent = \"drop\", or add hosts to `members`"),
        );
    }
}

/// Packets are held back for objects that are shared, where the cluster holds any back.
fn check_release(
    object: &DescribedObject,
    values: &Values,
    placement: Option<Placement>,
    sharing: Sharing,
    report: &mut Report,
) {
    if !values.has(CHOICE.release) || values.get(CHOICE.release) != Some(ACKED.word) {
        return;
    }
    let (Some(place), Some(placement)) = (values.place(CHOICE.release), placement) else {
        return;
    };
    let why = format!("no packet would wait for `{}`", object.name);
    if placement != Placement::Replicated {
        report.add(
            Diagnostic::error(why, place.value.clone())
                .label(format!(
                    "with the placement \"{}\" no other host has it",
                    placement.word()
                ))
                .help("choose placement = \"replicated\", or leave `release` out"),
        );
    } else if !sharing.is_acked {
        report.add(
            Diagnostic::error(why, place.value.clone())
                .label("packets of this cluster leave at once")
                .help("add release = \"acked\" to [cluster]; objects for which packets need not wait say release = \"at-once\""),
        );
    }
}

/// Whether packets wait for other hosts to have the object's changes.
fn holds_output(one: &Chosen<'_>, sharing: Sharing) -> bool {
    sharing.is_acked
        && one.placement == Some(Placement::Replicated)
        && one.values.has(CHOICE.release)
        && one.values.get(CHOICE.release) != Some(AT_ONCE.word)
}

/// A default wait is no wait where no other instance writes.
fn effective_absent(one: &Chosen<'_>) -> Absent {
    match one.placement {
        Some(Placement::Replicated) if one.values.has(CHOICE.absent) => {
            one.values.get(CHOICE.absent).unwrap_or(Absent::Drop)
        }
        _ => Absent::Drop,
    }
}
