//! The functions of a host that an operator means: all of a kind, or the one that is named.

use asterism_config::suggestion::{nearest, quoted};
use thiserror::Error;

use asterism_host_view::Asked;

/// No function of the kind has the name that was given: none got the order.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ChoiceError {
    /// One of a similar name is there.
    #[error("\"{wanted}\" {is_not}: is \"{meant}\" meant?")]
    Misspelt {
        /// The name that was given.
        wanted: String,
        /// What a function of this name is not, such as `is no firewall here`.
        is_not: &'static str,
        /// The one that it may stand for.
        meant: String,
    },
    /// None of a similar name is there.
    #[error("\"{wanted}\" {is_not}: name {names}")]
    NoSuchFunction {
        /// The name that was given.
        wanted: String,
        /// As above.
        is_not: &'static str,
        /// All functions of the kind.
        names: String,
    },
}

/// Of the functions of a kind the one with this name, or all.
pub(super) fn chosen<'v>(
    functions: &'v [(String, Asked)],
    wanted: Option<&str>,
    is_not: &'static str,
) -> Result<Vec<&'v (String, Asked)>, ChoiceError> {
    let Some(wanted) = wanted else {
        return Ok(functions.iter().collect());
    };
    if let Some(found) = functions.iter().find(|(name, _)| name == wanted) {
        return Ok(vec![found]);
    }
    let names = || functions.iter().map(|(name, _)| name.as_str());
    let (meant, names) = (nearest(wanted, names()), quoted(names()));
    let wanted = wanted.to_owned();
    Err(match meant.map(str::to_owned) {
        Some(meant) => ChoiceError::Misspelt {
            wanted,
            is_not,
            meant,
        },
        None => ChoiceError::NoSuchFunction {
            wanted,
            is_not,
            names,
        },
    })
}
