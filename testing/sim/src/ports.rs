//! The outside ports of the simulator's function: what its pool gives out.

use asterism_function::Space;

/// Outside ports: two ranges of equal length.
#[derive(Debug)]
pub struct Ports {
    /// Ports on each range.
    pub items: u32,
}

/// BlockAllocator of [`Ports`].
pub const SHELVES: u32 = 2;

impl Space for Ports {
    type Item = u16;
    fn ranges(&self) -> u32 {
        SHELVES
    }
    fn items(&self) -> u32 {
        self.items
    }
    fn item(&self, range: u32, place: u32) -> u16 {
        (range * self.items + place) as u16
    }
    fn place(&self, item: &u16) -> Option<(u32, u32)> {
        let number = u32::from(*item);
        (number < SHELVES * self.items).then(|| (number / self.items, number % self.items))
    }
}
