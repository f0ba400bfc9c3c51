//! Tables whose fields are declared once: [`section!`] makes of one list the table that the reader, the reference and the messages
//! use, and a [`Key`] for each field, by which the code reads it.
//!
//! A key is a field of a struct. So code that reads a field that is not declared does not compile, a field that is declared and never
//! read is dead code to the compiler, and a key whose type is not the one of the field's kind fails at compile time.
//!
//! ```
//! use asterism_toml_schema::kind::Kind;
//! use asterism_toml_schema::section::{Default, Setting, Values, section};
//!
//! section! {
//!     static SETTINGS: SettingsKeys = {
//!         path: "function.quota",
//!         meaning: "Lets each source send so many packets.",
//!         fields: {
//!             packets_max: u64 = Setting {
//!                 kind: Kind::Count { least: 1, most: 1_000 },
//!                 default: Default::Is("10"),
//!                 meaning: "Packets that each source may send.",
//!             },
//!         },
//!     };
//! }
//!
//! fn packets_max(values: &Values) -> Option<u64> {
//!     values.get(SETTINGS.packets_max)
//! }
//! assert_eq!(SETTINGS.section().fields[0].name, "packets_max");
//! ```

use core::marker::PhantomData;
use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use core::ops::{Deref, Range};
use core::time::Duration;

use asterism_function::IpPrefix;

use super::kind::{Absent, Kind, NamedValues, Value};
use super::section::{Field, Section, Setting, Values};
use asterism_notation::network::{Ports, Prefix};

/// A field as code names it: what it is called, and the type of its values.
pub struct Key<T> {
    name: &'static str,
    held: PhantomData<fn() -> T>,
}

impl<T> Clone for Key<T> {
    fn clone(&self) -> Key<T> {
        *self
    }
}

impl<T> Copy for Key<T> {}

impl<T> Key<T> {
    /// The name as operators write it, for messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// The name, for reading where a field is written.
    #[must_use]
    pub const fn field_name(self) -> FieldName {
        FieldName(self.name)
    }
}

impl<T: Held> Key<T> {
    /// The key of a field of this name; made by [`section!`] and [`keys!`].
    #[doc(hidden)]
    #[must_use]
    pub const fn new(name: &'static str) -> Key<T> {
        Key {
            name,
            held: PhantomData,
        }
    }

    /// The field of a table that has this key.
    ///
    /// # Panics
    /// The setting's kind holds values of another type; in a `static` this is an error of the compiler.
    #[must_use]
    pub const fn field(self, setting: Setting) -> Field {
        assert!(
            setting.kind.holds(&T::SHAPE),
            "the key's type is not that of the field's kind"
        );
        Field {
            name: self.name,
            kind: setting.kind,
            default: setting.default,
            meaning: setting.meaning,
        }
    }
}

/// A field's name that comes from its declaration, whatever its type: of a [`Key`] or a [`Field`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldName(&'static str);

impl FieldName {
    /// The name as operators write it.
    #[must_use]
    pub const fn text(self) -> &'static str {
        self.0
    }
}

impl core::fmt::Display for FieldName {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.0)
    }
}

impl<T> core::fmt::Display for Key<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name)
    }
}

impl<T> From<Key<T>> for FieldName {
    fn from(key: Key<T>) -> FieldName {
        FieldName(key.name)
    }
}

impl From<&Field> for FieldName {
    fn from(field: &Field) -> FieldName {
        FieldName(field.name)
    }
}

/// A table with the keys of its fields, as [`section!`] declares one.
#[derive(Debug)]
pub struct Declared<K: 'static> {
    section: Section,
    keys: K,
}

impl<K> Declared<K> {
    #[doc(hidden)]
    #[must_use]
    pub const fn new(section: Section, keys: K) -> Declared<K> {
        Declared { section, keys }
    }

    /// The keys, for constants; elsewhere the table stands for them.
    #[must_use]
    pub const fn keys(&'static self) -> &'static K {
        &self.keys
    }

    /// The table.
    #[must_use]
    pub const fn section(&'static self) -> &'static Section {
        &self.section
    }
}

/// The keys: `HOST.name` is the key of the field `name` of the table `HOST`.
impl<K> Deref for Declared<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.keys
    }
}

/// Declares keys that several tables share, whose fields are made by [`Key::field`].
#[doc(hidden)]
#[macro_export]
macro_rules! declare_keys {
    (
        $(#[$meta:meta])*
        $vis:vis const $name:ident: $keys:ident {
            $($(#[$field_meta:meta])* $field:ident: $held:ty),* $(,)?
        }
    ) => {
        #[doc = concat!("The keys of [`", stringify!($name), "`].")]
        $vis struct $keys {
            $(
                #[doc = concat!("The key of the field `", stringify!($field), "`.")]
                $(#[$field_meta])*
                $vis $field: $crate::section::Key<$held>,
            )*
        }
        $(#[$meta])*
        $vis const $name: $keys = $keys {
            $($field: $crate::section::Key::new(stringify!($field)),)*
        };
    };
}
pub use declare_keys as keys;

/// Declares a table: each field's name, the type of its values, and its [`Setting`].
#[doc(hidden)]
#[macro_export]
macro_rules! declare_section {
    (
        $(#[$meta:meta])*
        $vis:vis static $name:ident: $keys:ident = {
            path: $path:expr,
            meaning: $meaning:expr,
            fields: {
                $($(#[$field_meta:meta])* $field:ident: $held:ty = $setting:expr),* $(,)?
            } $(,)?
        };
    ) => {
        #[doc = concat!("The keys of [`", stringify!($name), "`].")]
        $vis struct $keys {
            $(
                #[doc = concat!("The key of the field `", stringify!($field), "`.")]
                $(#[$field_meta])*
                $vis $field: $crate::section::Key<$held>,
            )*
        }
        $(#[$meta])*
        $vis static $name: $crate::section::Declared<$keys> = $crate::section::Declared::new(
            $crate::section::Section {
                path: $path,
                meaning: $meaning,
                fields: &[$($crate::section::Key::<$held>::new(stringify!($field)).field($setting)),*],
            },
            $keys {
                $($field: $crate::section::Key::new(stringify!($field)),)*
            },
        );
    };
}
pub use declare_section as section;

/// Declares the words of a field that holds one of them: an enum, whose variants are read as the words, with `WORDS` for the field's
/// kind.
#[doc(hidden)]
#[macro_export]
macro_rules! declare_choices {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $($variant:ident = $word:literal, $meaning:literal;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $(#[doc = $meaning] $variant,)*
        }
        impl $name {
            /// The words, each with its meaning.
            pub const WORDS: &'static [$crate::kind::Word] = &[
                $($crate::kind::Word { word: $word, meaning: $meaning },)*
            ];
            /// Its word in the file.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }
        impl $crate::section::Held for $name {
            const SHAPE: $crate::section::Shape = $crate::section::Shape::Choice;
            fn of(value: &$crate::kind::Value) -> Option<$name> {
                match value {
                    $($crate::kind::Value::Choice($word) => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}
pub use declare_choices as choices;

/// A list, each item with its place.
pub type List<T> = Vec<(T, Range<usize>)>;

/// The word of a field that holds one of some words.
pub type ChosenWord = &'static str;

/// A type that fields' values are read as.
pub trait Held: Sized {
    /// Its shape, which that of the field's kind must be.
    const SHAPE: Shape;
    /// Takes it out of a value; `None` if the value has another shape.
    fn of(value: &Value) -> Option<Self>;
}

/// The shape of a value: what [`Held`] types and kinds of fields are compared by.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "named as the values are")]
pub enum Shape {
    Text,
    Flag,
    Number,
    Duration,
    Address,
    Endpoint,
    Socket,
    Prefix,
    IpPrefix,
    Mac,
    Ports,
    Bytes,
    Choice,
    Absent,
    List(&'static Shape),
    Table,
    Named,
}

impl Kind {
    /// Whether its values have this shape.
    #[must_use]
    pub const fn holds(&self, shape: &Shape) -> bool {
        match (self, shape) {
            (Kind::List { of, .. } | Kind::Several { of, .. }, Shape::List(item)) => of.holds(item),
            (Kind::Name | Kind::File | Kind::Device, Shape::Text)
            | (Kind::Flag, Shape::Flag)
            | (Kind::Count { .. } | Kind::Size { .. } | Kind::Rate { .. }, Shape::Number)
            | (Kind::Duration { .. }, Shape::Duration)
            | (Kind::Address, Shape::Address)
            | (Kind::Endpoint, Shape::Endpoint)
            | (Kind::Socket, Shape::Socket)
            | (Kind::Prefix | Kind::Interface, Shape::Prefix)
            | (Kind::IpPrefix, Shape::IpPrefix)
            | (Kind::Mac, Shape::Mac)
            | (Kind::Ports, Shape::Ports)
            | (Kind::Bytes { .. }, Shape::Bytes)
            | (Kind::Choice { .. }, Shape::Choice)
            | (Kind::Absent { .. }, Shape::Absent)
            | (Kind::Table(_), Shape::Table)
            | (Kind::Named { .. }, Shape::Named) => true,
            _ => false,
        }
    }
}

macro_rules! held {
    ($($type:ty: $shape:ident = $($variant:ident)|+;)*) => {$(
        impl Held for $type {
            const SHAPE: Shape = Shape::$shape;
            fn of(value: &Value) -> Option<$type> {
                match value {
                    $(Value::$variant(value) => Some(value.clone()),)+
                    _ => None,
                }
            }
        }
    )*};
}

held! {
    String: Text = Text;
    bool: Flag = Flag;
    u64: Number = Count | Size | Rate;
    Duration: Duration = Duration;
    Ipv4Addr: Address = Address;
    SocketAddrV4: Endpoint = Endpoint;
    SocketAddr: Socket = Socket;
    Prefix: Prefix = Prefix | Interface;
    IpPrefix: IpPrefix = IpPrefix;
    [u8; 6]: Mac = Mac;
    Ports: Ports = Ports;
    Vec<u8>: Bytes = Bytes;
    ChosenWord: Choice = Choice;
    Absent: Absent = Absent;
    Values: Table = Table;
    Vec<NamedValues>: Named = Named;
}

impl<T: Held> Held for List<T> {
    const SHAPE: Shape = Shape::List(&T::SHAPE);
    fn of(value: &Value) -> Option<List<T>> {
        let Value::List(items) = value else {
            return None;
        };
        let held = |(item, place): &(Value, Range<usize>)| Some((T::of(item)?, place.clone()));
        items.iter().map(held).collect()
    }
}
