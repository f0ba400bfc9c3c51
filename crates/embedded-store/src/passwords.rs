//! What clients show to log in.

#![expect(
    clippy::disallowed_types,
    reason = "the one thread that serves takes what another one sets"
)]

use std::sync::{Arc, Mutex, PoisonError};

/// Passwords of which a client shows any one. Clones share them: a server that runs takes up others within 50 ms, and ends the connections of
/// clients that logged in by one that is not among them any more.
#[derive(Clone)]
pub struct Passwords(Arc<Mutex<Arc<[String]>>>);

impl core::fmt::Debug for Passwords {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "Passwords({})", self.in_force().len())
    }
}

impl Passwords {
    /// These. Without any, nobody can log in.
    pub fn new(passwords: impl IntoIterator<Item = String>) -> Self {
        let passwords: Vec<String> = passwords.into_iter().collect();
        Self(Arc::new(Mutex::new(passwords.into())))
    }

    /// From now on these, and no others.
    pub fn set(&self, passwords: impl IntoIterator<Item = String>) {
        let passwords: Vec<String> = passwords.into_iter().collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = passwords.into();
    }

    /// Those in force.
    #[must_use]
    pub fn in_force(&self) -> Arc<[String]> {
        let passwords = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        passwords.clone()
    }
}

/// The place of a password among those, in a time that does not tell how far it is from any of them.
pub(crate) fn place(passwords: &[String], shown: &[u8]) -> Option<usize> {
    let mut found = None;
    for (place, password) in passwords.iter().enumerate() {
        if is_same(password.as_bytes(), shown) {
            found = Some(place);
        }
    }
    found
}

fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
    differing == 0 && one.len() == other.len()
}
