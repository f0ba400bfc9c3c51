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
    Unreachable "unreachable" "The cache accepted no connection, or did not answer in time.";
    NotHttp "not-http" "The answer is not HTTP as required for digests: no status line, a head without end, or an encoding.";
    Status "status" "The cache answers with a status other than 200: it makes no digest, or denies this host access.";
    Truncated "truncated" "The digest is shorter than its header says.";
    Trailing "trailing" "The digest is longer than its header says.";
    Version "version" "The digest's version cannot be read.";
    Sizes "sizes" "Capacity, bits per entry and size of the digest contradict each other.";
    HashFunctions "hash-functions" "The digest does not have four hash functions.";
    TooLarge "too-large" "The digest is larger than `digest_max`.";
    Overfull "overfull" "More than 65 % of the bits are set: the digest would match nearly every object.";
    Count "count" "No bit is set, or more bits are set than the stated number of objects can set.";
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
