//! What Maelstrom may ask of a node.

/// A workload, as Maelstrom's `workloads.md` describes it. Nothing in the first message names it, and a `read` is answered
/// differently in each: so it is an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// A set that grows: `add` with an `element`, `read`.
    GSet,
    /// A sum that grows: `add` with a `delta` that is not negative, `read`.
    GCounter,
    /// A sum: `add` with a `delta`, `read`.
    PnCounter,
    /// Messages that all nodes are to know: `broadcast`, `read`.
    Broadcast,
}

impl Workload {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::GSet, Self::GCounter, Self::PnCounter, Self::Broadcast];

    /// Its name, as Maelstrom's option `-w` has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::GSet => "g-set",
            Self::GCounter => "g-counter",
            Self::PnCounter => "pn-counter",
            Self::Broadcast => "broadcast",
        }
    }

    /// The workload of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|workload| workload.name() == name)
    }
}
