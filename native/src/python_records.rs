//! Records as Python gets them: key, value, row number, 0 or 1 for a tombstone, header or None, partition or None.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Return a record with neither header nor partition.
pub fn record<'py>(
    py: Python<'py>,
    key: Option<Bound<'py, PyBytes>>,
    value: &[u8],
    row: i64,
) -> Option<Bound<'py, PyAny>> {
    Some((key, PyBytes::new(py, value), row, 0, py.None(), py.None()).into_pyobject(py).ok()?.into_any())
}

/// Return the tombstone that follows the record of a delete.
pub fn tombstone<'py>(py: Python<'py>, key: Option<Bound<'py, PyBytes>>, row: i64) -> Option<Bound<'py, PyAny>> {
    Some((key, py.None(), row, 1, py.None(), py.None()).into_pyobject(py).ok()?.into_any())
}

/// Return a record in TiCDC's protocol, with its partition.
pub fn partitioned_record<'py>(
    py: Python<'py>,
    (key, value): (Option<&[u8]>, Option<&[u8]>),
    row: i64,
    partition: u32,
) -> Option<Bound<'py, PyAny>> {
    let bytes = |data: Option<&[u8]>| data.map(|data| PyBytes::new(py, data));
    Some((bytes(key), bytes(value), row, 0, py.None(), partition).into_pyobject(py).ok()?.into_any())
}
