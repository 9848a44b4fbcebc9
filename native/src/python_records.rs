//! Records as Python gets them: key, value, row number, 0 or 1 for a tombstone, and a header or a partition.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Return a record without a header.
pub fn record<'py>(
    py: Python<'py>,
    key: Option<Bound<'py, PyBytes>>,
    value: &[u8],
    row: i64,
) -> Option<Bound<'py, PyAny>> {
    Some((key, PyBytes::new(py, value), row, 0, py.None()).into_pyobject(py).ok()?.into_any())
}

/// Return the tombstone that follows the record of a delete.
pub fn tombstone<'py>(py: Python<'py>, key: Option<Bound<'py, PyBytes>>, row: i64) -> Option<Bound<'py, PyAny>> {
    Some((key, py.None(), row, 1, py.None()).into_pyobject(py).ok()?.into_any())
}

/// Return a record in TiCDC's protocol: its partition stands where others have a header.
pub fn partitioned_record<'py>(
    py: Python<'py>,
    (key, value): (Option<&[u8]>, Option<&[u8]>),
    row: i64,
    partition: u32,
) -> Option<Bound<'py, PyAny>> {
    let bytes = |data: Option<&[u8]>| data.map(|data| PyBytes::new(py, data));
    Some((bytes(key), bytes(value), row, 0, partition).into_pyobject(py).ok()?.into_any())
}
