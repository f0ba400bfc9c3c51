//! All tables of a file, for suggestions.

use super::section::Section;

/// What a file may have, so that a field in the wrong place is reported with the right one. An empty schema suggests nothing.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// The tables that a misplaced field may belong in.
    pub sections: Vec<&'static Section>,
    /// Fields that stand at the top of the file, before all tables.
    pub top_fields: &'static [&'static str],
}

impl Schema {
    /// The table with a field of this name whose path shares the longest beginning with `near`. Reads all fields of all tables.
    #[must_use]
    pub fn section_with(&self, field: &str, near: &str) -> Option<&'static Section> {
        let alike = |section: &&&Section| {
            let both = section.path.bytes().zip(near.bytes());
            both.take_while(|(one, other)| one == other).count()
        };
        let sections = self.sections.iter();
        sections
            .filter(|section| section.fields.iter().any(|one| one.name == field))
            .min_by_key(|section| core::cmp::Reverse(alike(section)))
            .copied()
    }
}
