//! Names of a chain's objects, made with the chain and needed as long as the process lives. A host that reloads its
//! configuration makes its chain again, so each name is kept once per thread.

use core::cell::RefCell;
use std::collections::BTreeSet;

type List = &'static [&'static str];

std::thread_local! {
    static NAMES: RefCell<BTreeSet<&'static str>> = const { RefCell::new(BTreeSet::new()) };
    static LISTS: RefCell<BTreeSet<List>> = const { RefCell::new(BTreeSet::new()) };
}

/// The name, as it was kept the first time.
pub(super) fn kept(name: String) -> &'static str {
    NAMES.with_borrow_mut(|names| match names.get(name.as_str()) {
        Some(known) => known,
        None => {
            let kept = &*name.leak();
            names.insert(kept);
            kept
        }
    })
}

/// The same of a list of names.
pub(super) fn kept_list(list: Vec<&'static str>) -> List {
    LISTS.with_borrow_mut(|lists| match lists.get(list.as_slice()) {
        Some(known) => known,
        None => {
            let kept = &*list.leak();
            lists.insert(kept);
            kept
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_is_kept_once() {
        let [first, second] = [(); 2].map(|()| kept("a.sessions".to_owned()));
        assert!(core::ptr::eq(first, second));
        let other = kept("b.sessions".to_owned());
        let lists = [vec![first, other], vec![second, other], vec![other]].map(kept_list);
        assert!(core::ptr::eq(lists[0], lists[1]));
        assert_eq!(lists[2], ["b.sessions"]);
    }
}
