//! The names of members as a running host shows them: those of the list, or of the hosts that epochs give places.

use std::sync::Arc;

use arc_swap::ArcSwap;
use asterism_placement::MemberId;

/// The names of all members, by their numbers.
#[derive(Clone, Debug)]
pub struct MemberNames {
    names: Arc<ArcSwap<Vec<String>>>,
    /// Where hosts register, the names of the places: a place without a host has this name.
    places: Arc<[String]>,
}

impl MemberNames {
    /// Names that stay.
    #[must_use]
    pub fn listed(names: Vec<String>) -> MemberNames {
        MemberNames {
            names: Arc::new(ArcSwap::from_pointee(names)),
            places: Arc::new([]),
        }
    }

    /// Names of places, until epochs say which hosts have them.
    #[must_use]
    pub fn of_places(places: Vec<String>) -> MemberNames {
        MemberNames {
            places: places.clone().into(),
            ..MemberNames::listed(places)
        }
    }

    /// Other names, in the same order.
    pub fn set(&self, names: Vec<String>) {
        if **self.names.load() != names {
            self.names.store(Arc::new(names));
        }
    }

    /// The name of a member; `None` for one that is not in the list.
    #[must_use]
    pub fn get(&self, member: MemberId) -> Option<String> {
        let place = usize::from(member.0).wrapping_sub(1);
        self.names.load().get(place).cloned()
    }

    /// Whether a place has no host.
    #[must_use]
    pub fn is_vacant(&self, member: MemberId) -> bool {
        let place = usize::from(member.0).wrapping_sub(1);
        let name = self.places.get(place);
        name.is_some() && self.names.load().get(place) == name
    }
}
