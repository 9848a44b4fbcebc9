//! Counters of what was decoded, and of what was left to Python.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;

use crate::declined::Declined;

/// What the decoders of a writer have done: rows decoded, and events declined by reason.
#[pyclass(frozen)]
#[derive(Default)]
pub struct Tally {
    rows: AtomicU64,
    declined: [AtomicU64; Declined::COUNT],
}

#[pymethods]
impl Tally {
    #[new]
    fn new() -> Tally {
        Tally::default()
    }

    #[getter]
    fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Events by reason, that of -1 first.
    #[getter]
    fn declined(&self) -> Vec<u64> {
        self.declined.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

impl Tally {
    /// Count the rows of a call, or why there are none.
    pub fn count(&self, result: Result<i64, Declined>) {
        let (counter, more) = match result {
            Ok(rows) => (&self.rows, rows as u64),
            Err(why) => (&self.declined[why.index()], 1),
        };
        counter.fetch_add(more, Ordering::Relaxed);
    }
}
