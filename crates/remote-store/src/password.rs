//! What is shown to a store, which may change while instances use it.

#![expect(
    clippy::disallowed_types,
    reason = "the threads that make connections read it, and nothing on the packet path"
)]

use std::sync::{Arc, Mutex, PoisonError};

/// A password that may become another one. Clones share it: each connection shows the one that is in force when it is made.
#[derive(Clone)]
pub struct Password(Arc<Mutex<String>>);

impl core::fmt::Debug for Password {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("Password(hidden)")
    }
}

impl Password {
    /// This one.
    #[must_use]
    pub fn new(password: String) -> Self {
        Self(Arc::new(Mutex::new(password)))
    }

    /// From now on this one. Connections that are open stay so, as far as the store has them stay.
    pub fn set(&self, password: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = password;
    }

    pub(crate) fn in_force(&self) -> String {
        let password = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        password.clone()
    }
}
