//! Records as Python gets them: key, value, row number, number of the record, header or None, partition or None.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::row_record::RowRecord;

/// Return a record with neither header nor partition.
pub fn record<'py>(
    py: Python<'py>,
    key: Option<Bound<'py, PyBytes>>,
    value: &[u8],
    row: i64,
) -> Option<Bound<'py, PyAny>> {
    Some((key, PyBytes::new(py, value), row, 0, py.None(), py.None()).into_pyobject(py).ok()?.into_any())
}

/// Makes records of row events; a tombstone shares the key of the record before it.
pub struct RecordMaker<'py> {
    py: Python<'py>,
    key: Option<Bound<'py, PyBytes>>,
}

impl<'py> RecordMaker<'py> {
    /// Return one that has made no record yet.
    pub fn new(py: Python<'py>) -> RecordMaker<'py> {
        RecordMaker { py, key: None }
    }

    /// Return a record.
    pub fn make(&mut self, record: &RowRecord) -> Option<Bound<'py, PyAny>> {
        let bytes = |data: Option<&[u8]>| data.map(|data| PyBytes::new(self.py, data));
        let value = bytes(record.value);
        let header = record.header.map(|(name, text)| (name, PyBytes::new(self.py, text)));
        if !record.follows() {
            self.key = bytes(record.key);
        }
        let parts = (self.key.clone(), value, record.row, record.number, header, record.partition);
        Some(parts.into_pyobject(self.py).ok()?.into_any())
    }
}
