//! Tables whose row events are decoded as parts of whole transactions.

use std::collections::HashMap;

use pyo3::prelude::*;

use crate::row_context::ContextTemplate;
use crate::row_kernel::RowKernel;

/// The texts before and after the row number.
pub type RowContext = (ContextTemplate, ContextTemplate);

/// How the rows of a table version are decoded; without a decoder they are skipped.
pub struct KnownTable {
    pub route: Py<PyAny>,
    pub decoder: Option<Py<RowKernel>>,
    /// By operation: insert, update, delete; none for one that is left to Python.
    pub contexts: [Option<RowContext>; 3],
    /// Bytes between flags and rows in the events of each operation.
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
    /// Add a table; `map` is the body of its TABLE_MAP after the table's number.
    pub fn add(&mut self, map: Vec<u8>, table: KnownTable) {
        self.by_map.insert(map, self.list.len());
        self.list.push(table);
    }

    /// Forget all tables.
    pub fn clear(&mut self) {
        self.by_map.clear();
        self.list.clear();
    }

    /// Return the index of the table with this body of a TABLE_MAP after the table's number.
    pub fn find(&self, map: &[u8]) -> Option<usize> {
        self.by_map.get(map).copied()
    }

    /// Return the table at an index.
    pub fn at(&self, index: usize) -> &KnownTable {
        &self.list[index]
    }
}
