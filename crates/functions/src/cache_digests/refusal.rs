//! Why a fetched digest is refused: one list for the log, metrics and documentation.

macro_rules! refusals {
    ($($name:ident $label:literal $meaning:literal;)*) => {
        /// Why a fetched digest was refused. The one that was fetched before stays until its time is over.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Refusal {
            $(#[doc = $meaning] $name,)*
        }

        impl Refusal {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Refusal] = &[$(Refusal::$name,)*];

            /// The name in metrics and in the log.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(Refusal::$name => $label,)* }
            }

            /// What it means, in a sentence.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Refusal::$name => $meaning,)* }
            }
        }
    };
}

refusals! {
    Unreachable "unreachable" "The cache took no connection, or did not answer in time.";
    NotHttp "not-http" "The answer is not HTTP as a digest is reported in: no status line, a head without end, an encoding.";
    Status "status" "The cache answers with another status than 200: it makes no digest, or does not let this host have it.";
    Truncated "truncated" "The digest ends before what its header says.";
    Trailing "trailing" "More follows than the digest's header says.";
    Version "version" "The digest is of a version that cannot be read.";
    Sizes "sizes" "Capacity, bits per entry and size of the digest contradict each other.";
    HashFunctions "hash-functions" "The digest does not have four hash functions.";
    TooLarge "too-large" "The digest is larger than `digest_max`.";
    Overfull "overfull" "More than 65 % of the bits are set: it would claim nearly everything.";
    Count "count" "More bits are set than the objects that it says it has can set, or none.";
    NotKept "not-kept" "The digest could not be written into the state: the table `masks` has no room.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_unique_and_numbers_are_places() {
        for (place, refusal) in Refusal::ALL.iter().enumerate() {
            assert_eq!(*refusal as usize, place);
            let same = Refusal::ALL
                .iter()
                .filter(|other| other.label() == refusal.label());
            assert_eq!(same.count(), 1);
            assert!(refusal.meaning().ends_with('.'));
        }
    }
}
