//! The outside ports of the simulator's function: what its pool gives out.

use asterism_function::Space;

/// Outside ports: two shelves of equal length.
#[derive(Debug)]
pub struct Ports {
    /// Ports on each shelf.
    pub items: u32,
}

/// Shelves of [`Ports`].
pub const SHELVES: u32 = 2;

impl Space for Ports {
    type Item = u16;
    fn shelves(&self) -> u32 {
        SHELVES
    }
    fn items(&self) -> u32 {
        self.items
    }
    fn item(&self, shelf: u32, place: u32) -> u16 {
        (shelf * self.items + place) as u16
    }
    fn place(&self, item: &u16) -> Option<(u32, u32)> {
        let number = u32::from(*item);
        (number < SHELVES * self.items).then(|| (number / self.items, number % self.items))
    }
}
