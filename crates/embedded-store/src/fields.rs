//! The fields of a hash.

use std::collections::BTreeMap;

/// Fields with their values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
}

impl Fields {
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
    /// Bytes of fields and values.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
    pub(crate) fn get(&self, field: &[u8]) -> Option<&[u8]> {
        self.values.get(field).map(Vec::as_slice)
    }
    /// All of them, in the order of their names.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let each = self.values.iter();
        each.map(|(field, value)| (field.as_slice(), value.as_slice()))
    }

    /// Gives a field this value. Whether there was none of this name.
    pub(crate) fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        self.bytes += value.len();
        match self.values.insert(field.to_vec(), value.to_vec()) {
            Some(before) => {
                self.bytes -= before.len();
                false
            }
            None => {
                self.bytes += field.len();
                true
            }
        }
    }

    /// Takes a field away. Whether there was one.
    pub(crate) fn remove(&mut self, field: &[u8]) -> bool {
        let Some(value) = self.values.remove(field) else {
            return false;
        };
        self.bytes -= field.len() + value.len();
        true
    }
}
