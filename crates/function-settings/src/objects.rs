//! The state objects of the configured function: where each lives.

use core::ops::Range;
use core::time::Duration;

use asterism_state::{Absence, Home, ObjectSettings};
use toml::de::{DeTable, DeValue};

use super::described::{ACKED, AT_ONCE};
use super::promises;
use super::{CHOICE, DescribedObject, Description, ObjectKind};
use asterism_notation::suggestion;
use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::kind::Absent;
use asterism_toml_schema::section::Values;

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
    /// What holds while it is replicated, if it may be changed between local and replicated while the host runs.
    pub movable: Option<Replicated>,
    /// It may be chosen to live in a store.
    pub can_be_remote: bool,
}

/// What holds of an object while it is replicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicated {
    /// What an absent entry means.
    pub absent: Absent,
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
    /// In the store of the table `store`.
    Remote,
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
            Placement::Remote => "remote",
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
                Placement::Remote => Home::Remote,
            },
            late_us: match self.placement {
                Placement::Late(delay) => microseconds(delay),
                _ => 0,
            },
            movable: self.movable.is_some(),
            absence: match self
                .movable
                .map_or(self.absent, |replicated| replicated.absent)
            {
                Absent::Drop => Absence::Answer,
                Absent::Wait(longest) => Absence::Wait {
                    us: microseconds(longest),
                },
            },
            capacity: self.capacity,
            audited: self.placement == Placement::Replicated || self.movable.is_some(),
            holds_output: self
                .movable
                .map_or(self.holds_output, |replicated| replicated.holds_output),
        }
    }

    /// Whether a running host can go over to what is wanted of the object: only its placement differs, if anything, and that between
    /// local and replicated.
    #[must_use]
    pub fn changes_to(&self, wanted: &ObjectChoice) -> bool {
        let is_movable = self.movable.is_some() && wanted.movable.is_some();
        self == wanted || is_movable && self.is_same_elsewhere(wanted)
    }

    /// Whether all but its placement, and what follows from that, is the same.
    #[must_use]
    pub fn is_same_elsewhere(&self, wanted: &ObjectChoice) -> bool {
        let ObjectChoice {
            name,
            kind,
            placement: _,
            absent: _,
            capacity,
            holds_output: _,
            movable,
            can_be_remote: _,
        } = self;
        (*name, *kind, *capacity) == (wanted.name, wanted.kind, wanted.capacity)
            && (movable.is_none() || wanted.movable.is_none() || *movable == wanted.movable)
    }

    /// Why a running host cannot go over to another placement, and what to do instead.
    #[must_use]
    pub fn stays_because(&self, wanted: &ObjectChoice) -> &'static str {
        if [self.placement, wanted.placement]
            .iter()
            .any(|placement| matches!(placement, Placement::Late(_)))
        {
            return "the placement `late` is for tests; stop all hosts, then start them with it";
        }
        if [self.placement, wanted.placement].contains(&Placement::Remote) {
            return "its entries would stay behind, in the store or in the instances; leave it as it is, or stop all hosts, then start them with it: known flows end";
        }
        match self.kind {
            ObjectKind::Pool => {
                "its items are leased to hosts, and one would be given to two flows; leave it as it is, or stop all hosts, then start them with it"
            }
            ObjectKind::TokenBucket => {
                "hosts would spend the tokens of one bucket twice; leave it as it is, or stop all hosts, then start them with it"
            }
            ObjectKind::Derived => "it follows from other objects; leave it as it is",
            ObjectKind::Table | ObjectKind::Conversations | ObjectKind::Counter
                if self.movable.is_some() =>
            {
                STAYS_BY_KIND
            }
            ObjectKind::Table | ObjectKind::Conversations | ObjectKind::Counter => {
                "one instance alone has the state, so it makes no difference; leave it as it is, or stop the host, then start it with it"
            }
        }
    }
}

/// Why an object stays where it is that is built as one that cannot be changed.
pub const STAYS_BY_KIND: &str = "graphs, sketches, filters, sums over a window of time, and entries of more than 236 bytes stay where they are; leave it as it is, or stop all hosts, then start them with it";

/// Whether a running host can go over from some objects to others: only placements differ, if anything, of objects that may be changed
/// between local and replicated.
#[must_use]
pub fn change_to(now: &[ObjectChoice], wanted: &[ObjectChoice]) -> bool {
    let mut pairs = now.iter().zip(wanted);
    now.len() == wanted.len() && pairs.all(|(now, wanted)| now.changes_to(wanted))
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
                holds_output: one.placement == Some(Placement::Replicated)
                    && holds_output(one, sharing),
                movable: replicated(one, sharing),
                can_be_remote: one.object.can_be_remote(),
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
        ("remote", None) => Some(Placement::Remote),
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
    if placement == Placement::Remote {
        report.add(
            Diagnostic::error(
                format!("an absent entry of `{}` is in no transit", object.name),
                place.value.clone(),
            )
            .label("the store says what there is")
            .help("leave `absent` out, or choose placement = \"replicated\""),
        );
    } else if placement != Placement::Replicated {
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
    if placement == Placement::Remote {
        report.add(
            Diagnostic::error(why, place.value.clone())
                .label("packets leave when the store has what they wrote, with the placement \"remote\" always")
                .help("leave `release` out"),
        );
    } else if placement != Placement::Replicated {
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

/// Whether packets wait for other hosts to have the object's changes, where it is replicated.
fn holds_output(one: &Chosen<'_>, sharing: Sharing) -> bool {
    sharing.is_acked
        && one.values.has(CHOICE.release)
        && one.values.get(CHOICE.release) != Some(AT_ONCE.word)
}

/// A default wait is no wait where no other instance writes.
fn effective_absent(one: &Chosen<'_>) -> Absent {
    match one.placement {
        Some(Placement::Replicated) => chosen_absent(one),
        _ => Absent::Drop,
    }
}

fn chosen_absent(one: &Chosen<'_>) -> Absent {
    match one.values.has(CHOICE.absent) {
        true => one.values.get(CHOICE.absent).unwrap_or(Absent::Drop),
        false => Absent::Drop,
    }
}

/// What holds of an object while it is replicated, if it may be changed while the host runs.
fn replicated(one: &Chosen<'_>, sharing: Sharing) -> Option<Replicated> {
    let is_movable = sharing.is_shared()
        && matches!(
            one.object.kind,
            ObjectKind::Table | ObjectKind::Conversations | ObjectKind::Counter
        )
        && matches!(
            one.placement,
            Some(Placement::Local | Placement::Replicated)
        );
    is_movable.then(|| Replicated {
        absent: chosen_absent(one),
        holds_output: holds_output(one, sharing),
    })
}
