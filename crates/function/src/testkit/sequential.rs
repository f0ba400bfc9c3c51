//! One sequential box: a copy of a function with local objects, called packet by packet. Whatever placement a cluster's objects have, its
//! output and its state are compared with those of this box.

use asterism_state::{Object, ObjectSettings, State, Tick, Transaction};

use super::{Outcome, Testkit};
use crate::function::{NetworkFunction, PortNumber};
use crate::stages::objects_of;

/// What is pinned to a packet over all calls that handle it: the function sees the same time and draws the same numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pinned {
    /// The packet's number at its instance: random numbers depend on it.
    pub serial: u64,
    /// When it arrived, in microseconds of the instance's clock.
    pub arrived_us: u64,
    /// The same in seconds of the cluster's time base.
    pub tick: Tick,
}

/// One box that handles one packet after another. A cluster is right if its output and its objects are those of this box, called
/// with the same packets in the order in which they took effect, each with what was pinned to it.
pub struct SequentialBox<F: NetworkFunction>(Testkit<F>);

impl<F: NetworkFunction> core::fmt::Debug for SequentialBox<F> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            formatter,
            "SequentialBox of {:?}",
            objects_of(self.0.function())
        )
    }
}

impl<F: NetworkFunction> SequentialBox<F> {
    /// The function with empty objects. `seed` is the cluster's secret.
    pub fn new(function: F, seed: u64) -> Self {
        Self(Testkit::made(function, seed, |_| ObjectSettings::LOCAL))
    }

    /// The objects.
    pub fn state(&self) -> &F::State {
        self.0.state()
    }

    /// Sets the clock that writes are dated by. What packets see is pinned to them.
    pub fn set_now(&mut self, now_us: u64, tick: Tick) {
        self.0.set_clock(now_us, tick);
    }

    /// Moves the clock, and lets entries idle out.
    pub fn advance(&mut self, seconds: u32) {
        self.0.advance(seconds);
    }

    /// Handles one packet that came in by `port`.
    pub fn packet(&mut self, port: PortNumber, bytes: &[u8], pinned: Pinned) -> Outcome {
        self.0.packet_pinned(port, bytes, pinned)
    }

    /// Makes the writes of a packet that another box handled, to the objects that both have in common, by number.
    ///
    /// # Panics
    /// If they are no writes of this function.
    pub fn adopt(&mut self, transaction: &Transaction, is_common: impl Fn(u8) -> bool) {
        self.0.adopt(transaction, is_common);
    }

    /// The first object that differs from the box's, in words. `home` gives the state that an object lives in, by number; `None`
    /// leaves the object out.
    pub fn difference<'s>(&self, home: impl Fn(u8) -> Option<&'s F::State>) -> Option<String> {
        let names = objects_of(self.0.function());
        let mut objects = names.iter().zip(0..);
        objects.find_map(|(name, number)| {
            let there = home(number)?;
            let [expected, found] = [self.state(), there].map(|state| {
                let object = state.object(number)?;
                // Digests leave out items of pools, and entries that ended.
                Some((object.digest(), object.entries(), object.entries_held()))
            });
            (expected != found).then(|| {
                format!(
                    "`{name}` has (digest, entries, held) {found:x?} and in one box {expected:x?}"
                )
            })
        })
    }

    /// The first object whose keys and values are not the box's, in words: [`SequentialBox::difference`] without what depends on the order
    /// in which entries of different keys were written.
    pub fn difference_in_content<'s>(
        &self,
        home: impl Fn(u8) -> Option<&'s F::State>,
    ) -> Option<String> {
        let names = objects_of(self.0.function());
        let mut objects = names.iter().zip(0..);
        objects.find_map(|(name, number)| {
            let there = home(number)?;
            let [expected, found] =
                [self.state(), there].map(|state| state.object(number).map(content));
            (expected != found)
                .then(|| format!("`{name}` holds {found:?} and in one box {expected:?}"))
        })
    }
}

/// What people see of an object, and how much it is; of sums the digest, which is of nothing else.
fn content(object: &dyn Object) -> (Vec<String>, usize, Option<u64>) {
    let (mut entries, mut is_dated) = (Vec::new(), false);
    object.show(0, u32::MAX, &mut |shown| {
        is_dated |= shown.provenance.is_some();
        entries.push(format!("{:?}: {:?}", shown.key, shown.value));
    });
    entries.sort_unstable();
    let is_table = is_dated || object.entries() == 0;
    let digest = (!is_table).then(|| object.digest());
    (entries, object.entries(), digest)
}
