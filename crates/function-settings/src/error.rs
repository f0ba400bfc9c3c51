//! Why a network function is not made of its settings.

use core::error::Error;
use core::fmt::Display;
use std::path::PathBuf;

use asterism_engine::MisplacedError;
use asterism_function::chain::ChainError;
use asterism_functions::nat::ConfigFault;
use asterism_functions::signature::SignatureFault;

/// Why a function was not made; nothing was.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    /// The NAT refuses its settings.
    #[error("the NAT cannot be made: {}", joined(.0))]
    Nat(Vec<ConfigFault>),
    /// The load balancer refuses its settings.
    #[error("the balancer cannot be made: {}", joined(.0))]
    Balancer(Vec<ConfigFault>),
    /// The signatures cannot be looked for.
    #[error("the signatures cannot be taken: {}", joined(.0))]
    Signatures(Vec<SignatureFault>),
    /// The limiter has more tenants than it can number.
    #[error("the limiter cannot be made: it has too many tenants")]
    TooManyTenants,
    /// The rule file of the firewall, at this path, was not read before.
    #[error("the firewall cannot be made: its rules are not read yet, {}", .0.display())]
    RulesNotRead(PathBuf),
    /// The function of a stage was not made.
    #[error("stage {stage}: {error}")]
    Stage {
        /// The stage's name.
        stage: &'static str,
        /// Why its function was not made.
        error: Box<FunctionError>,
    },
    /// The stages do not make a chain.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// An object cannot live in the store.
    #[error(transparent)]
    Misplaced(#[from] MisplacedError),
    /// A function of another crate refuses its settings, for a reason of its own.
    #[error(transparent)]
    Outside(Box<dyn Error + Send + Sync>),
}

fn joined(faults: &[impl Display]) -> String {
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    faults.join("; ")
}
