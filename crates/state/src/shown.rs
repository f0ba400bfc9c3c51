//! Entries as people see them.

use core::fmt::{Debug, Formatter, Result};

use crate::context::Tick;
use crate::stamp::OriginName;

/// An entry as people see it.
#[derive(Clone, Copy)]
pub struct Shown<'a> {
    /// What it is found by.
    pub key: &'a dyn Debug,
    /// What it holds.
    pub value: &'a dyn Debug,
    /// Who wrote it and how long it lives; `None` of a sum, which all add to.
    pub provenance: Option<Provenance>,
}

/// What is known of an entry of a table besides its key and value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Provenance {
    /// Which of the object's idle times holds for it.
    pub idle_class: u8,
    /// That time in seconds; 0 is for ever.
    pub idle: Tick,
    /// Seconds since its last announced use.
    pub unused: Tick,
    /// How often it was rewritten or removed.
    pub generation: u64,
    /// Who wrote it last.
    pub origin: OriginName,
    /// Under which number.
    pub sequence: u64,
    /// Another entry with the same key is preferred.
    pub alias: bool,
    /// This instance says when it idles out.
    pub ends_here: bool,
}

impl Debug for Shown<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "{:?} = {:?}", self.key, self.value)
    }
}

/// What was added under a key within a window.
pub(crate) struct Recent {
    pub(crate) sum: u64,
    pub(crate) window_s: Tick,
}

impl Debug for Recent {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        write!(formatter, "{} in {} s", self.sum, self.window_s)
    }
}

/// How full a token bucket is for this instance. Of one that is more than half empty the text has the word `short`.
pub(crate) struct Filled {
    pub(crate) tokens: u64,
    pub(crate) tokens_max: u64,
    pub(crate) is_short: bool,
}

impl Debug for Filled {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        let short = if self.is_short { ", short" } else { "" };
        write!(
            formatter,
            "{} of {} tokens{short}",
            self.tokens, self.tokens_max
        )
    }
}
