//! What two hosts must have alike for one to read what the other writes, as numbers. `asterism-wire` has the layouts of types;
//! `shape.rs` adds up what a whole state is made of.

pub use asterism_wire::layout::{
    bytes_of_cases, bytes_of_parts, bytes_of_size, manual, of_parts, of_size,
};

pub use crate::shape::Shape;

#[cfg(test)]
mod tests {
    use crate::wire::Wire;
    use crate::{Pair, Single};

    #[test]
    fn rows_that_are_written_otherwise_have_another_layout() {
        let layouts = [
            u16::LAYOUT,
            <[u8; 3]>::LAYOUT,
            Option::<u16>::LAYOUT,
            <(u8, u16)>::LAYOUT,
            Single::<u16>::LAYOUT,
            Single::<u8>::LAYOUT,
            Pair::<u8, u16>::LAYOUT,
            Pair::<u16, u8>::LAYOUT,
        ];
        let mut apart = layouts.to_vec();
        apart.sort_unstable();
        apart.dedup();
        assert_eq!(apart.len(), layouts.len());
    }
}
