//! Who takes part in a cluster: the names that every frame carries.

use core::fmt;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

name! {
    /// A host in the cluster: one replication stream, one incarnation, one acknowledgement entry.
    MemberId(u16), "m"
}
name! {
    /// One incarnation of a member, drawn again at each start (never from a clock): what it said before a restart is not mistaken
    /// for what it says now.
    Incarnation(u64), "i"
}
name! {
    /// A cluster. Frames of another cluster are refused.
    ClusterId(u32), "c"
}
name! {
    /// A version of the member list. Frames of another epoch are refused.
    Epoch(u32), "e"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_show_what_they_name() {
        assert_eq!(
            format!(
                "{} {} {} {}",
                MemberId(3),
                Incarnation(7),
                ClusterId(1),
                Epoch(2)
            ),
            "m3 i7 c1 e2"
        );
    }
}
