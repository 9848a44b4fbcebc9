//! Tables whose row events are decoded as parts of whole transactions.

use std::collections::HashMap;

use pyo3::prelude::*;

use crate::row_context::ContextTemplate;
use crate::row_kernel::RowKernel;

/// What stands before the row number and behind it.
pub type RowContext = (ContextTemplate, ContextTemplate);

/// What the rows of a table version become; without a decoder they are passed over.
pub struct KnownTable {
    pub route: Py<PyAny>,
    pub decoder: Option<Py<RowKernel>>,
    /// By operation: insert, update, delete; none for one that is left to Python.
    pub contexts: [Option<RowContext>; 3],
    /// What stands between flags and rows in the events of each operation.
    pub heads: [Vec<u8>; 3],
    /// Partitions of its topic.
    pub partitions: u32,
}

/// Tables by their TABLE_MAP events.
#[derive(Default)]
pub struct KnownTables {
    by_map: HashMap<Vec<u8>, usize>,
    list: Vec<KnownTable>,
}

impl KnownTables {
    /// Add a table; `map` is the body of its TABLE_MAP behind the table's number.
    pub fn add(&mut self, map: Vec<u8>, table: KnownTable) {
        self.by_map.insert(map, self.list.len());
        self.list.push(table);
    }

    /// Forget all tables.
    pub fn clear(&mut self) {
        self.by_map.clear();
        self.list.clear();
    }

    /// Return the place of the table with the body of a TABLE_MAP behind the table's number.
    pub fn find(&self, map: &[u8]) -> Option<usize> {
        self.by_map.get(map).copied()
    }

    /// Return the table at a place.
    pub fn at(&self, place: usize) -> &KnownTable {
        &self.list[place]
    }
}
