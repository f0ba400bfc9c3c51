//! Kinds of fields, and their parsers.

use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use core::ops::Range;
use core::time::Duration;

use asterism_function::IpPrefix;
use toml::Spanned;
use toml::de::{DeInteger, DeValue};

use super::diagnostic::{Diagnostic, Report};
use super::section::{Section, Values};
use asterism_notation::network::{self, Ports, Prefix};
use asterism_notation::suggestion;
use asterism_notation::value::{self, Mistake};

/// What a field may hold.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A name of a host or a cluster: 1 to 63 of a-z, 0-9 and hyphens.
    Name,
    /// A path, from the folder of the file unless it is absolute.
    File,
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Count {
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// A duration with its unit.
    Duration {
        /// The least.
        least: Duration,
        /// The most.
        most: Duration,
    },
    /// A size in bytes with its unit.
    Size {
        /// The least, in bytes.
        least: u64,
        /// The most, in bytes.
        most: u64,
    },
    /// How many a second.
    Rate {
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// An IPv4 address.
    Address,
    /// An IPv4 address with a port.
    Endpoint,
    /// An IPv4 or IPv6 address with a port.
    Socket,
    /// A network interface of the operating system.
    Device,
    /// An IPv4 network.
    Prefix,
    /// A network of either IP version, or an address of one.
    IpPrefix,
    /// An interface's address with the length of its link's prefix.
    Interface,
    /// An Ethernet address.
    Mac,
    /// A range of ports.
    Ports,
    /// Bytes as text, with hexadecimal numbers between bars.
    Bytes {
        /// The fewest.
        least: usize,
        /// The most.
        most: usize,
    },
    /// One of some words.
    Choice {
        /// The words, each with what it means.
        allowed: &'static [Word],
        /// Words that are known and refused, each with what to choose instead.
        refused: &'static [Word],
    },
    /// What an absent entry means: `drop`, or `wait` with a duration.
    Absent {
        /// The longest wait.
        most: Duration,
    },
    /// A list.
    List {
        /// What it lists.
        of: &'static Kind,
        /// The most items.
        most: usize,
    },
    /// One, or a list.
    Several {
        /// What it lists.
        of: &'static Kind,
        /// The most items.
        most: usize,
    },
    /// A table of its own.
    Table(&'static Section),
    /// Tables by name: a table of the section for each.
    Named {
        /// What each of them holds.
        section: &'static Section,
        /// The most tables.
        most: usize,
    },
}

/// A word that a field may hold.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// The word.
    pub word: &'static str,
    /// What it means, or what to choose instead.
    pub meaning: &'static str,
}

/// What an absent entry means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// It is absent.
    Drop,
    /// It may be on its way: a packet waits so long for it.
    Wait(Duration),
}

impl core::fmt::Display for Absent {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Absent::Drop => f.write_str("drop"),
            Absent::Wait(longest) => write!(f, "wait {}", value::show_duration(*longest)),
        }
    }
}

/// A value that was read.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "named as the kinds are")]
pub enum Value {
    Text(String),
    Flag(bool),
    Count(u64),
    Duration(Duration),
    Size(u64),
    Rate(u64),
    Address(Ipv4Addr),
    Endpoint(SocketAddrV4),
    Socket(SocketAddr),
    Prefix(Prefix),
    IpPrefix(IpPrefix),
    Interface(Prefix),
    Mac([u8; 6]),
    Ports(Ports),
    Bytes(Vec<u8>),
    Choice(&'static str),
    Absent(Absent),
    List(Vec<(Value, Range<usize>)>),
    Table(Values),
    Named(Vec<NamedValues>),
}

/// One of several tables by name.
#[derive(Clone, Debug)]
pub struct NamedValues {
    /// Its name.
    pub name: String,
    /// Where the name is.
    pub place: Range<usize>,
    /// What it holds.
    pub values: Values,
}

impl Kind {
    /// Reads a value, and says all that is wrong with it. `field` is what to call it.
    pub fn read(
        &self,
        field: &str,
        value: &Spanned<DeValue<'_>>,
        report: &mut Report,
    ) -> Option<Value> {
        let span = value.span();
        let read = match (self, value.get_ref()) {
            (Kind::List { of, most } | Kind::Several { of, most }, DeValue::Array(items)) => {
                return read_list(field, (of, *most), items, span, report);
            }
            (Kind::List { of, .. }, one)
                if !matches!(of, Kind::Table(_)) && !matches!(one, DeValue::Table(_)) =>
            {
                Err(Mistake::new(
                    format!("this is {}, not a list", found(one)),
                    format!(
                        "write it in brackets: {field} = [{}]",
                        &report.text[span.clone()]
                    ),
                ))
            }
            (Kind::Several { of, .. }, _) => {
                return Some(Value::List(vec![(of.read(field, value, report)?, span)]));
            }
            (Kind::Table(section), DeValue::Table(table)) => {
                return Some(Value::Table(section.read(field, table, span, report)));
            }
            (Kind::Named { section, most }, DeValue::Table(table)) => {
                return read_named(field, (section, *most), table, span, report);
            }
            (Kind::Flag, DeValue::Boolean(flag)) => Ok(Value::Flag(*flag)),
            (Kind::Flag, DeValue::String(text)) if matches!(text.as_ref(), "true" | "false") => {
                Err(Mistake::new(
                    "this is text",
                    format!("write {text} without quotes"),
                ))
            }
            (Kind::Count { least, most }, DeValue::Integer(number)) => {
                let number = integer(number);
                match number.and_then(|number| u64::try_from(number).ok()) {
                    Some(count) => {
                        within(count, *least, *most, value::show_count).map(Value::Count)
                    }
                    None => Err(out_of_bounds(*least, *most, value::show_count)),
                }
            }
            (Kind::Count { .. }, DeValue::String(text)) if text.parse::<u64>().is_ok() => Err(
                Mistake::new("this is text", format!("write {text} without quotes")),
            ),
            (kind, DeValue::String(text)) => kind.read_text(text),
            (Kind::Duration { .. }, DeValue::Integer(number)) => Err(Mistake::new(
                "a duration needs a unit",
                format!("write \"{0}ms\" or \"{0}s\"", number.as_str()),
            )),
            (Kind::Size { .. }, DeValue::Integer(number)) => Err(Mistake::new(
                "a size needs a unit",
                format!("write \"{0}B\" or \"{0}MiB\"", number.as_str()),
            )),
            (Kind::Rate { .. }, DeValue::Integer(number)) => Err(Mistake::new(
                "a rate needs a time unit",
                format!("write \"{}/s\"", number.as_str()),
            )),
            (kind, other) => Err(kind.other_type(other)),
        };
        match read {
            Ok(value) => Some(value),
            Err(mistake) => {
                report.add(Diagnostic::mistake(field, mistake, span));
                None
            }
        }
    }

    fn read_text(&self, text: &str) -> Result<Value, Mistake> {
        match self {
            Kind::Name => value::name(text).map(Value::Text),
            Kind::File if text.is_empty() || text.contains('\0') => Err(Mistake::new(
                "this is not a path",
                "write the file's name, such as \"cluster.key\"",
            )),
            Kind::File => Ok(Value::Text(text.to_owned())),
            Kind::Duration { least, most } => value::duration(text)
                .and_then(|read| within(read, *least, *most, value::show_duration))
                .map(Value::Duration),
            Kind::Size { least, most } => value::size(text)
                .and_then(|read| within(read, *least, *most, value::show_size))
                .map(Value::Size),
            Kind::Rate { least, most } => value::rate(text)
                .and_then(|read| within(read, *least, *most, show_rate))
                .map(Value::Rate),
            Kind::Address => network::address(text).map(Value::Address),
            Kind::Endpoint => network::endpoint(text).map(Value::Endpoint),
            Kind::Socket => network::socket(text).map(Value::Socket),
            Kind::Device => network::device(text).map(Value::Text),
            Kind::Prefix => network::prefix(text).map(Value::Prefix),
            Kind::IpPrefix => network::ip_prefix(text).map(Value::IpPrefix),
            Kind::Interface => network::interface(text).map(Value::Interface),
            Kind::Mac => network::mac(text).map(Value::Mac),
            Kind::Ports => network::ports(text).map(Value::Ports),
            Kind::Bytes { least, most } => value::bytes(text, (*least, *most)).map(Value::Bytes),
            Kind::Choice { allowed, refused } => read_choice(text, allowed, refused),
            Kind::Absent { most } => read_absent(text, *most).map(Value::Absent),
            Kind::Flag
            | Kind::Count { .. }
            | Kind::List { .. }
            | Kind::Several { .. }
            | Kind::Table(_)
            | Kind::Named { .. } => Err(self.other_type(&DeValue::String(text.into()))),
        }
    }

    fn other_type(&self, found_value: &DeValue<'_>) -> Mistake {
        Mistake::new(
            format!("this is {}", found(found_value)),
            format!("write {}", self.example()),
        )
    }

    /// What the kind is called in the reference.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Kind::Name => "name".into(),
            Kind::File => "file".into(),
            Kind::Flag => "true or false".into(),
            Kind::Count { .. } => "whole number".into(),
            Kind::Duration { .. } => "duration".into(),
            Kind::Size { .. } => "size".into(),
            Kind::Rate { .. } => "rate".into(),
            Kind::Address => "IPv4 address".into(),
            Kind::Endpoint => "IPv4 address and port".into(),
            Kind::Socket => "IP address and port".into(),
            Kind::Device => "network interface".into(),
            Kind::Prefix => "IPv4 prefix".into(),
            Kind::IpPrefix => "IPv4 or IPv6 prefix, or address".into(),
            Kind::Interface => "IPv4 address and prefix length".into(),
            Kind::Mac => "Ethernet address".into(),
            Kind::Ports => "port range".into(),
            Kind::Bytes { .. } => "bytes as text, or as hexadecimal numbers between bars".into(),
            Kind::Choice { .. } => "one of the words".into(),
            Kind::Absent { .. } => "\"drop\" or \"wait\" and a duration".into(),
            Kind::List { of, .. } => format!("list of: {}", of.words()),
            Kind::Several { of, .. } => format!("{}, or a list", of.words()),
            Kind::Table(_) => "table".into(),
            Kind::Named { .. } => "tables by name".into(),
        }
    }

    /// The bounds in words; empty if there are none.
    #[must_use]
    pub fn bounds(&self) -> String {
        fn range<T: Copy>(least: &T, most: &T, show: impl Fn(T) -> String) -> String {
            format!("{} to {}", show(*least), show(*most))
        }
        match self {
            Kind::Count { least, most } => range(least, most, value::show_count),
            Kind::Duration { least, most } => range(least, most, value::show_duration),
            Kind::Size { least, most } => range(least, most, value::show_size),
            Kind::Rate { least, most } => range(least, most, show_rate),
            Kind::Absent { most } => format!("a wait of at most {}", value::show_duration(*most)),
            Kind::List { of, most } | Kind::Several { of, most } => match of.bounds() {
                bounds if bounds.is_empty() => {
                    format!("at most {} items", value::show_count(*most as u64))
                }
                bounds => format!(
                    "at most {} items, each {bounds}",
                    value::show_count(*most as u64)
                ),
            },
            Kind::Name => "1 to 63 of a-z, 0-9 and hyphens".into(),
            Kind::Ports => "1 to 65535".into(),
            Kind::Device => "1 to 15 bytes".into(),
            Kind::Bytes { least, most } => format!("{least} to {most} bytes"),
            Kind::Named { most, .. } => {
                format!("at most {} tables", value::show_count(*most as u64))
            }
            Kind::File
            | Kind::Flag
            | Kind::Address
            | Kind::Endpoint
            | Kind::Socket
            | Kind::Prefix
            | Kind::IpPrefix
            | Kind::Interface
            | Kind::Mac
            | Kind::Choice { .. }
            | Kind::Table(_) => String::new(),
        }
    }

    /// The words that the field may hold; empty for other kinds.
    #[must_use]
    pub fn choices(&self) -> &'static [Word] {
        match self {
            Kind::Choice { allowed, .. } => allowed,
            _ => &[],
        }
    }

    fn example(&self) -> String {
        match self {
            Kind::Name => "a name in quotes, such as \"site-a\"".into(),
            Kind::File => "a file's name in quotes, such as \"cluster.key\"".into(),
            Kind::Flag => "true or false".into(),
            Kind::Count { least, most } => {
                format!("a whole number from {} to {}", value::show_count(*least), value::show_count(*most))
            }
            Kind::Duration { .. } => "a duration in quotes, such as \"20ms\"".into(),
            Kind::Size { .. } => "a size in quotes, such as \"8MiB\"".into(),
            Kind::Rate { .. } => "a rate in quotes, such as \"100/s\"".into(),
            Kind::Address => "an address in quotes, such as \"203.0.113.1\"".into(),
            Kind::Endpoint => "an address and a port in quotes, such as \"203.0.113.1:80\"".into(),
            Kind::Socket => "an address and a port in quotes, such as \"192.0.2.1:7400\" or \"[2001:db8::1]:7400\"".into(),
            Kind::Device => "an interface's name in quotes, such as \"eth1\"".into(),
            Kind::Prefix => "a network in quotes, such as \"10.0.0.0/8\"".into(),
            Kind::IpPrefix => "a network or an address in quotes, such as \"10.0.0.0/8\", \"2001:db8::/32\" or \"192.0.2.7\"".into(),
            Kind::Interface => "an address with the length of its link's prefix in quotes, such as \"192.0.2.1/30\"".into(),
            Kind::Mac => "an Ethernet address in quotes, such as \"02:00:00:00:00:01\"".into(),
            Kind::Ports => "the first and the last port in quotes, such as \"1024-65535\"".into(),
            Kind::Bytes { .. } => "bytes in quotes, such as \"GET /evil|0d 0a|\"".into(),
            Kind::Choice { allowed, .. } => format!("one of {}", suggestion::quoted(allowed.iter().map(|word| word.word))),
            Kind::Absent { .. } => "\"drop\" or a wait such as \"wait 20ms\"".into(),
            Kind::List { of, .. } => format!("a list in brackets, of {}", of.example()),
            Kind::Several { of, .. } => of.example(),
            Kind::Table(section) => match section.fields.first() {
                Some(field) => format!("a table in braces, such as {{ {} = ... }}", field.name),
                None => "a table".into(),
            },
            Kind::Named { section, .. } => format!("tables such as [{}]", section.path),
        }
    }
}

fn read_named(
    field: &str,
    (section, most): (&'static Section, usize),
    table: &toml::de::DeTable<'_>,
    span: Range<usize>,
    report: &mut Report,
) -> Option<Value> {
    if table.len() > most {
        report.add(
            Diagnostic::error(format!("too many tables in `{field}`"), span)
                .label(format!("{} tables", table.len()))
                .help(format!("write at most {most}")),
        );
        return None;
    }
    let base = section.path.rsplit_once('.').map_or("", |(base, _)| base);
    let read = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let name: &std::borrow::Cow<'_, str> = key.get_ref();
        let DeValue::Table(inner) = value.get_ref() else {
            report.add(
                Diagnostic::error(format!("`{name}` is a table"), key.span())
                    .label(format!("this is {}", found(value.get_ref())))
                    .help(format!("write [{base}.{name}] on a line of its own")),
            );
            return None;
        };
        // A table that is only there because of a table inside it has no place of its own.
        let span = if value.span().is_empty() {
            key.span()
        } else {
            value.span()
        };
        Some(NamedValues {
            name: name.to_string(),
            place: key.span(),
            values: section.read(&format!("{base}.{name}"), inner, span, report),
        })
    };
    Some(Value::Named(table.iter().filter_map(read).collect()))
}

fn read_list(
    field: &str,
    (of, most): (&Kind, usize),
    items: &[Spanned<DeValue<'_>>],
    span: Range<usize>,
    report: &mut Report,
) -> Option<Value> {
    if items.len() > most {
        report.add(
            Diagnostic::error(format!("too many items in `{field}`"), span)
                .label(format!("{} items", items.len()))
                .help(format!("list at most {most}")),
        );
        return None;
    }
    // What is good of it is still compared with the rest of the file.
    let read: Vec<_> = items
        .iter()
        .filter_map(|item| Some((of.read(field, item, report)?, item.span())))
        .collect();
    (items.is_empty() || !read.is_empty()).then_some(Value::List(read))
}

fn read_choice(
    text: &str,
    allowed: &'static [Word],
    refused: &'static [Word],
) -> Result<Value, Mistake> {
    if let Some(word) = allowed.iter().find(|word| word.word == text) {
        return Ok(Value::Choice(word.word));
    }
    if let Some(word) = refused.iter().find(|word| word.word == text) {
        return Err(Mistake::new(
            format!("`{text}` cannot be chosen here"),
            word.meaning,
        ));
    }
    let all = format!(
        "allowed are {}",
        suggestion::quoted(allowed.iter().map(|word| word.word)).replace(" or ", " and ")
    );
    let known = allowed.iter().chain(refused).map(|word| word.word);
    Err(match suggestion::nearest(text, known) {
        Some(near) if allowed.iter().any(|word| word.word == near) => Mistake::new(
            format!("`{text}` is not a choice"),
            format!("did you mean \"{near}\"? ({all})"),
        ),
        _ => Mistake::new(format!("`{text}` is not a choice"), all),
    })
}

fn read_absent(text: &str, most: Duration) -> Result<Absent, Mistake> {
    let instead = "write \"drop\", or a wait such as \"wait 20ms\"";
    if text == "drop" {
        return Ok(Absent::Drop);
    }
    let Some(wait) = text.strip_prefix("wait") else {
        return Err(match value::duration(text) {
            Ok(_) => Mistake::new("this names no action", format!("write \"wait {text}\"")),
            Err(_) => Mistake::new(format!("`{text}` is not a choice"), instead),
        });
    };
    if wait.trim().is_empty() {
        return Err(Mistake::new("the wait has no duration", instead));
    }
    let wait = value::duration(wait)?;
    within(wait, Duration::from_micros(1), most, value::show_duration).map(Absent::Wait)
}

/// The value of an integer; `None` beyond 128 bits.
fn integer(number: &DeInteger<'_>) -> Option<i128> {
    i128::from_str_radix(number.as_str(), number.radix()).ok()
}

fn within<T: Copy + PartialOrd>(
    value: T,
    least: T,
    most: T,
    show: impl Fn(T) -> String,
) -> Result<T, Mistake> {
    if value < least || value > most {
        return Err(out_of_bounds(least, most, show));
    }
    Ok(value)
}

fn out_of_bounds<T: Copy>(least: T, most: T, show: impl Fn(T) -> String) -> Mistake {
    Mistake::new(
        "out of bounds",
        format!("the bounds are {} to {}", show(least), show(most)),
    )
}

fn show_rate(rate: u64) -> String {
    format!("{rate}/s")
}

fn found(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
