//! The mistakes of a set-up, listed all at once.

use core::fmt;

/// One thing that is wrong with a configuration. Nothing was built.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigFault {
    /// The field.
    pub field: &'static str,
    /// What is wrong with it.
    pub sentence: String,
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.sentence)
    }
}

impl core::error::Error for ConfigFault {}

/// Faults as they are found.
#[derive(Debug, Default)]
pub struct Faults(Vec<ConfigFault>);

impl Faults {
    /// One more.
    pub fn add(&mut self, field: &'static str, sentence: String) {
        self.0.push(ConfigFault { field, sentence });
    }

    /// All of them, if there is one.
    pub fn all(self) -> Result<(), Vec<ConfigFault>> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(self.0)
        }
    }
}
