//! How a function is described: its fields, its state objects, and the choices for each object.

use core::time::Duration;

use asterism_toml_schema::diagnostic::{Diagnostic, Report};
use asterism_toml_schema::kind::Absent;
use asterism_toml_schema::kind::{Kind, Word};
use asterism_toml_schema::section::{
    ChosenWord, Default, Field, Key, Section, Setting, Values, keys,
};

/// A network function that a configuration can name, and whose settings are `S`.
#[derive(Debug)]
pub struct Description<S: 'static> {
    /// The name, as in `[function.nat]`.
    pub name: &'static str,
    /// Its settings.
    pub settings: &'static Section,
    /// Its state objects, by the names that the function gives them.
    pub objects: &'static [DescribedObject],
    /// Objects that keep a promise together and so must be placed alike.
    pub together: &'static [Together],
    /// Builds the settings from what was read, and says what contradicts. `None` if anything is wrong.
    pub build: fn(&Values, &mut Report) -> Option<S>,
}

impl<S> Clone for Description<S> {
    fn clone(&self) -> Description<S> {
        *self
    }
}

impl<S> Copy for Description<S> {}

/// A state object of a function.
#[derive(Clone, Copy, Debug)]
pub struct DescribedObject {
    /// Its name.
    pub name: &'static str,
    /// What kind of object it is.
    pub kind: ObjectKind,
    /// What can be chosen for it.
    pub section: &'static Section,
}

impl DescribedObject {
    /// Whether it may be chosen to live in a store.
    #[must_use]
    pub fn can_be_remote(&self) -> bool {
        let mut fields = self.section.fields.iter();
        let placement = fields.find(|field| field.name == CHOICE.placement.name());
        placement.is_some_and(|placement| {
            let mut words = placement.kind.choices().iter();
            words.any(|word| word.word == REMOTE_WORD.word)
        })
    }
}

/// What kind of object it is, as far as placements care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// A map, a set or a two-way map.
    Table,
    /// One by keys each of which is of one conversation, of all that two addresses say to each other: a store of several shards can have it.
    Conversations,
    /// Limited items, assigned to hosts in blocks.
    Pool,
    /// A counter, or one for each key.
    Counter,
    /// A token bucket.
    TokenBucket,
    /// What each instance makes of its other objects for itself.
    Derived,
}

/// Objects that keep a promise together.
#[derive(Clone, Copy, Debug)]
pub struct Together {
    /// Their names.
    pub objects: &'static [&'static str],
    /// What happens if they are placed apart, or each host keeps its own.
    pub otherwise: &'static str,
}

/// The words for protocols with ports, where a setting chooses between them.
pub(crate) const TCP: Word = Word {
    word: "tcp",
    meaning: "TCP.",
};
/// See [`TCP`].
pub(crate) const UDP: Word = Word {
    word: "udp",
    meaning: "UDP.",
};

/// The word of `release` by which packets leave when other hosts have what they depend on.
pub const ACKED: Word = Word {
    word: "acked",
    meaning: "Packets that changed or read state which too few other hosts have leave when enough hosts have it.",
};
/// The word of `release` by which packets leave at once.
pub const AT_ONCE: Word = Word {
    word: "at-once",
    meaning: "Packets leave at once; the newest connections are lost with a host that dies.",
};

keys! {
    /// The fields that sections of objects have.
    pub(crate) const CHOICE: ChoiceKeys {
        placement: ChosenWord,
        delay: Duration,
        absent: Absent,
        capacity: u64,
        release: ChosenWord,
        #[allow(dead_code, reason = "there is one word to choose")]
        allocation: ChosenWord,
        accuracy: ChosenWord,
    }
}

const LOCAL_WORD: Word = Word {
    word: "local",
    meaning: "Each instance has its own object, unseen by others. Costs a memory access.",
};
const REPLICATED_WORD: Word = Word {
    word: "replicated",
    meaning: "Every instance has a replica; replicas converge. Costs a memory access; updates travel behind the packets.",
};
const REMOTE_WORD: Word = Word {
    word: "remote",
    meaning: "The object is kept in the store of [store]; instances keep nothing of it. Costs a round trip, in which many packets share.",
};
const LATE_WORD: Word = Word {
    word: "late",
    meaning: "For tests: as `local`, but each read is late by `delay`, so that packets park.",
};
const OWNED_WORD: Word = Word {
    word: "owned",
    meaning: "choose \"replicated\" when several hosts need the object, \"local\" when each host's own will do; nothing has one owner yet",
};
const PARTITIONED_WORD: Word = Word {
    word: "partitioned",
    meaning: "choose \"local\" when all packets of a flow reach one instance, else \"replicated\"; nothing moves with its flows yet",
};

/// Why an object is kept by the instances and cannot be in a store; what to choose instead.
#[derive(Clone, Copy, Debug)]
pub struct KeptHere(&'static [Word]);

macro_rules! kept_here {
    ($($(#[$meaning:meta])* $name:ident = $why:literal;)*) => {$(
        $(#[$meaning])*
        pub const $name: KeptHere = KeptHere(&[
            OWNED_WORD,
            Word {
                word: "remote",
                meaning: concat!("choose \"replicated\" when several hosts need the object, \"local\" when each host's own will do: it cannot live in a store, since ", $why),
            },
            PARTITIONED_WORD,
        ]);
    )*};
}

kept_here! {
    /// Bloom filters, counting ones too.
    FILTER = "a read names a place of each of its rows, where a set answers by one key and without mistakes";
    /// Graphs.
    GRAPH = "its degrees follow the arrival and the end of its edges, and a store counts entries by fixed places alone";
    /// The heaviest keys.
    HEAVIEST = "a new key takes the place of the lightest one, so that each addition would depend on all places";
    /// Sums over a window of time that the function lists.
    LISTED = "the function lists its sums, and a store is asked for those of single keys";
    /// Vectors of many places.
    LARGE = "it has more than 1,024 places";
    /// Tables by whose entries other objects go.
    FOLLOWED = "other objects follow the end and the arrival of its entries";
    /// Pools, unless the function confirms each grant by a read of a table.
    LEASED = "no table that lives there shows which of its items are in use";
}

/// Where an object lives that can live anywhere: a field of its section. `default` is TOML: [`LOCAL`] or [`REPLICATED`].
#[must_use]
pub const fn placement(default: &'static str) -> Field {
    const ALLOWED: &[Word] = &[LOCAL_WORD, REPLICATED_WORD, REMOTE_WORD, LATE_WORD];
    placed(default, ALLOWED, &[OWNED_WORD, PARTITIONED_WORD])
}

/// The same of an object that cannot live in a store.
#[must_use]
pub const fn kept_here(default: &'static str, why: KeptHere) -> Field {
    placed(default, &[LOCAL_WORD, REPLICATED_WORD, LATE_WORD], why.0)
}

const fn placed(
    default: &'static str,
    allowed: &'static [Word],
    refused: &'static [Word],
) -> Field {
    CHOICE.placement.field(Setting {
        kind: Kind::Choice { allowed, refused },
        default: Default::Is(default),
        meaning: "Where the object is kept.",
    })
}

/// How late reads are with the placement `late`: a field of an object's section.
#[must_use]
pub const fn delay() -> Field {
    CHOICE.delay.field(Setting {
        kind: Kind::Duration {
            least: Duration::from_micros(1),
            most: Duration::from_secs(1),
        },
        default: Default::Unset("needed with the placement `late`, and refused with others"),
        meaning: "The delay of each read, with the placement `late`.",
    })
}

/// What an absent entry means: a field of the section of a table or pool. `default` is TOML: [`DROP`] or [`WAIT`].
#[must_use]
pub const fn absent(default: &'static str) -> Field {
    CHOICE.absent.field(Setting {
        kind: Kind::Absent {
            most: Duration::from_secs(1),
        },
        default: Default::Is(default),
        meaning: "What an absent entry means: `drop` takes it for absent; `wait` lets a packet wait this long for an entry that another host may have made.",
    })
}

/// When packets leave that depend on the newest changes of a table: a field of its section.
#[must_use]
pub const fn release() -> Field {
    CHOICE.release.field(Setting {
        kind: Kind::Choice {
            allowed: &[ACKED, AT_ONCE],
            refused: &[],
        },
        default: Default::Unset("as `release` in [cluster]"),
        meaning: "When packets leave that changed the object, or read a change that too few other hosts have.",
    })
}

/// The most entries: a field of an object's section. `default` is TOML, such as `"65_536"`.
#[must_use]
pub const fn capacity(default: &'static str) -> Field {
    CHOICE.capacity.field(Setting {
        kind: Kind::Count {
            least: 64,
            most: 1 << 22,
        },
        default: Default::Is(default),
        meaning: "The most entries over the whole cluster, shared out to hosts before they insert. Every instance reserves memory for all.",
    })
}

/// The same of a table of flows, which may have far more.
#[must_use]
pub const fn flow_capacity(default: &'static str) -> Field {
    CHOICE.capacity.field(Setting {
        kind: Kind::Count {
            least: 64,
            most: FLOWS_MAX,
        },
        default: Default::Is(default),
        meaning: "The most entries over the whole cluster, shared out to hosts before they insert. Every instance uses 150 to 250 bytes of memory for each existing entry, and reserves addresses for three times as many: some 10 GiB for the most.",
    })
}

/// Entries of a table of flows at most. Three times as many, and three more for each instance, have numbers below 2³¹, which an
/// index and the links between entries hold.
pub const FLOWS_MAX: u64 = 1 << 24;

pub(super) const fn allocation() -> Field {
    CHOICE.allocation.field(Setting {
        kind: Kind::Choice {
            allowed: &[Word {
                word: "leased",
                meaning: "Items are leased to hosts in blocks of 64, so that no two hosts give out the same item.",
            }],
            refused: &[Word {
                word: "collide",
                meaning: "choose \"leased\"",
            }],
        },
        default: Default::Is("\"leased\""),
        meaning: "How hosts share a limited resource.",
    })
}

/// An object of a function, whose section lists the choices.
#[must_use]
pub const fn described(
    name: &'static str,
    kind: ObjectKind,
    section: &'static Section,
) -> DescribedObject {
    DescribedObject {
        name,
        kind,
        section,
    }
}

/// A time in whole seconds, a week at most; who takes it calls [`check_whole_seconds`].
#[must_use]
pub const fn seconds(least: u64, default: &'static str, meaning: &'static str) -> Setting {
    Setting {
        kind: Kind::Duration {
            least: Duration::from_secs(least),
            most: Duration::from_secs(7 * 24 * 3600),
        },
        default: Default::Is(default),
        meaning,
    }
}

/// A whole number.
#[must_use]
pub const fn count((least, most): (u64, u64), default: Default, meaning: &'static str) -> Setting {
    Setting {
        kind: Kind::Count { least, most },
        default,
        meaning,
    }
}

/// Refuses a time with parts of a second, where times are ticks.
pub fn check_whole_seconds(values: &Values, field: Key<Duration>, report: &mut Report) {
    if values
        .get(field)
        .is_some_and(|time| time.subsec_nanos() != 0)
    {
        let title = format!("`{}` is not in whole seconds", field.name());
        report.add(
            Diagnostic::error(title, values.span_of(field))
                .help("write whole seconds, such as \"60s\""),
        );
    }
}

/// The placement `local`.
pub const LOCAL: &str = "\"local\"";
/// The placement `replicated`.
pub const REPLICATED: &str = "\"replicated\"";
/// An absent entry is absent.
pub const DROP: &str = "\"drop\"";
/// An absent entry is waited for, 20 ms at most.
pub const WAIT: &str = "\"wait 20ms\"";

/// Declares a table of times in whole seconds, each by its least number of seconds, its default and its meaning: the struct that holds
/// them, and the reader of the struct.
macro_rules! times {
    (
        $(#[$meta:meta])*
        pub struct $times:ident;
        static $name:ident: $keys:ident = {
            path: $path:expr,
            meaning: $about:expr,
            fields: {
                $($field:ident = ($least:expr, $default:expr, $meaning:expr)),* $(,)?
            } $(,)?
        };
    ) => {
        ::asterism_toml_schema::section::section! {
            pub(super) static $name: $keys = {
                path: $path,
                meaning: $about,
                fields: {
                    $($field: ::core::time::Duration =
                        $crate::seconds($least, $default, $meaning)),*
                },
            };
        }
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $times {
            $(#[doc = $meaning] pub $field: ::core::time::Duration,)*
        }
        impl $times {
            /// The keys of all times.
            pub(super) const KEYS: &[::asterism_toml_schema::section::Key<::core::time::Duration>] =
                &[$(::asterism_toml_schema::section::Key::new(stringify!($field))),*];
            /// The times that `values` hold; `None` if any is wrong.
            pub(super) fn read(values: &::asterism_toml_schema::section::Values) -> Option<$times> {
                Some($times {
                    $($field: values.get($name.$field)?,)*
                })
            }
        }
    };
}
pub(super) use times;

/// Declares the state objects of a function, each once: `OBJECTS` describes them for placements and the reference, and `OBJECT` has the
/// name of each for the code that reads its capacity. After `@router` the list goes on with the objects of a router between two links.
macro_rules! objects {
    (@router $function:literal: $($own:tt)*) => {
        $crate::described::objects! {
            $function:
            $($own)*
            fragments: Table = "Fragmented datagrams in transit: later fragments carry no ports.",
                [placement(REPLICATED), delay(), absent(WAIT), release(), capacity("65_536")];
            neighbours: Table = "Ethernet addresses learnt by ARP.",
                [placement(REPLICATED), delay(), absent(DROP), release(), capacity("4_096")];
            errors: Table = "ICMP errors sent in this second; best `local`, because no other instance needs the count.",
                [placement(LOCAL), delay(), absent(DROP), release()];
        }
    };
    ($function:literal: $($name:ident: $kind:ident = $meaning:expr, [$($field:expr),*];)*) => {
        /// The state objects, by the names that the function gives them.
        const OBJECTS: &[$crate::DescribedObject] = &[$(
            $crate::DescribedObject {
                name: OBJECT.$name,
                kind: $crate::ObjectKind::$kind,
                section: &::asterism_toml_schema::section::Section {
                    path: concat!("function.", $function, ".state.", stringify!($name)),
                    meaning: $meaning,
                    fields: &[$($field),*],
                },
            },
        )*];
        /// The names of the state objects.
        #[allow(dead_code, reason = "names are read of objects alone that have a capacity")]
        pub(super) struct ObjectNames {
            $(pub(super) $name: &'static str,)*
        }
        /// The name of each state object.
        pub(super) const OBJECT: ObjectNames = ObjectNames {
            $($name: stringify!($name),)*
        };
    };
}
pub(super) use objects;
