//! Planted bugs, which measure the tests: tests that find none of them prove nothing. A crate names its bugs once, by
//! [`planted!`], and asks [`active`](example::active) at the place of each. Only a build with `--cfg asterism_mutants` has
//! them; in every other build the answer is the constant `false`, and the branches vanish.
//!
//! The selection is per thread, so that a program tries several at a time.
//!
//! The same builds count the runs of branches that a crate names by [`branches!`]: no test finds a planted bug in a branch
//! that never runs.
#![forbid(unsafe_code)]

/// Names the planted bugs of a crate, each with its effect and its failure in the field: an enumeration `Mutant`, `Mutant::ALL`, and the
/// functions `active` and, where they are built in, `select`.
#[macro_export]
macro_rules! planted {
    ($($(#[$about:meta])* $name:ident,)+) => {
        /// One planted bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Mutant {
            $($(#[$about])* $name,)+
        }

        impl Mutant {
            /// All planted bugs.
            pub const ALL: [Self; [$(Self::$name),+].len()] = [$(Self::$name),+];
        }

        #[cfg(asterism_mutants)]
        ::std::thread_local! {
            static SELECTED: ::core::cell::Cell<Option<Mutant>> = const { ::core::cell::Cell::new(None) };
        }

        /// Plants one bug in this thread, or none.
        #[cfg(asterism_mutants)]
        pub fn select(mutant: Option<Mutant>) {
            SELECTED.set(mutant);
        }

        /// Whether this bug is planted in this thread. In a build without `--cfg asterism_mutants`: never.
        #[cfg(asterism_mutants)]
        #[must_use]
        pub fn active(mutant: Mutant) -> bool {
            SELECTED.get() == Some(mutant)
        }

        /// Whether this bug is planted in this thread. In a build without `--cfg asterism_mutants`: never.
        #[cfg(not(asterism_mutants))]
        #[inline(always)]
        #[must_use]
        pub const fn active(mutant: Mutant) -> bool {
            let _ = mutant;
            false
        }
    };
}

/// Names branches of a crate whose runs are counted, each with a comment that says when it is taken: an enumeration `Branch`,
/// `Branch::ALL`, `Branch::name`, and the functions `taken` and, where they are counted, `take_counts`. Counts are per thread.
#[macro_export]
macro_rules! branches {
    ($($(#[$about:meta])* $name:ident,)+) => {
        /// A branch whose runs are counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Branch {
            $($(#[$about])* $name,)+
        }

        impl Branch {
            /// All branches that are counted.
            pub const ALL: [Self; [$(Self::$name),+].len()] = [$(Self::$name),+];

            /// The branch's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }
        }

        #[cfg(asterism_mutants)]
        ::std::thread_local! {
            static TAKEN: [::core::cell::Cell<u64>; Branch::ALL.len()] =
                const { [const { ::core::cell::Cell::new(0) }; Branch::ALL.len()] };
        }

        /// Counts that this branch was taken. In a build without `--cfg asterism_mutants`: nothing.
        #[cfg(asterism_mutants)]
        pub fn taken(branch: Branch) {
            TAKEN.with(|counts| {
                let count = &counts[branch as usize];
                count.set(count.get() + 1);
            });
        }

        /// How often this thread took each branch since the last call, in the order of `Branch::ALL`.
        #[cfg(asterism_mutants)]
        #[must_use]
        pub fn take_counts() -> [u64; Branch::ALL.len()] {
            TAKEN.with(|counts| ::core::array::from_fn(|place| counts[place].take()))
        }

        /// Counts that this branch was taken. In a build without `--cfg asterism_mutants`: nothing.
        #[cfg(not(asterism_mutants))]
        #[inline(always)]
        pub const fn taken(branch: Branch) {
            let _ = branch;
        }
    };
}

/// What [`planted!`] makes, of two bugs. Of these pages and the tests alone.
#[cfg(any(test, doc))]
pub mod example {
    planted! {
        /// A sum begins at one (a count of nothing reports something).
        BeginsAtOne,
        /// The last item is left out.
        LastLeftOut,
    }
}

/// What [`branches!`] makes, of two branches. Of these pages and the tests alone.
#[cfg(any(test, doc))]
pub mod counted {
    branches! {
        /// There was nothing to count.
        Nothing,
        /// Something was counted.
        Something,
    }
}

#[cfg(test)]
mod tests {
    use super::counted::{Branch, taken};
    use super::example::{Mutant, active};

    #[test]
    fn branches_have_names_and_are_counted_where_bugs_are_planted() {
        assert_eq!(Branch::ALL.map(Branch::name), ["Nothing", "Something"]);
        taken(Branch::Something);
        taken(Branch::Something);
        #[cfg(asterism_mutants)]
        {
            assert_eq!(super::counted::take_counts(), [0, 2]);
            assert_eq!(super::counted::take_counts(), [0, 0]);
        }
    }

    #[test]
    fn all_are_named_in_order_and_none_is_active_unless_it_is_selected() {
        assert_eq!(Mutant::ALL, [Mutant::BeginsAtOne, Mutant::LastLeftOut]);
        assert!(!Mutant::ALL.into_iter().any(active));
    }

    #[test]
    #[cfg(asterism_mutants)]
    fn one_is_active_in_the_thread_that_selected_it() {
        super::example::select(Some(Mutant::LastLeftOut));
        let found: Vec<_> = Mutant::ALL
            .into_iter()
            .filter(|&mutant| active(mutant))
            .collect();
        assert_eq!(found, [Mutant::LastLeftOut]);
        let elsewhere = std::thread::spawn(|| Mutant::ALL.into_iter().any(active));
        assert!(!elsewhere.join().unwrap());
        super::example::select(None);
        assert!(!Mutant::ALL.into_iter().any(active));
    }
}
