//! What Python sees of the decoder of a table version's row events.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::declined::Declined;
use crate::python_calls::{byte_text, guarded};
use crate::python_records::{partitioned_record, record, tombstone};
use crate::row_decoder::{Operation, RowDecoder, Rows};
use crate::scratch::{with_scratch, Scratch};
use crate::tally::Tally;
use crate::ticdc_dispatcher::Dispatcher;
use crate::ticdc_rows;

/// The decoder of one table version.
#[pyclass(frozen)]
pub struct RowKernel {
    pub decoder: RowDecoder,
    /// Whether a delete has a record, and whether it has a tombstone after that.
    pub deletes: (bool, bool),
    pub tally: Py<Tally>,
    /// Of a table whose rows are written in TiCDC's protocol.
    pub dispatcher: Option<Dispatcher>,
}

#[pymethods]
impl RowKernel {
    /// Append the records of inserts; return the number of rows, or a number below zero when they are left to Python.
    ///
    /// `before` and `after` are the texts around the row number, one character a byte.
    #[pyo3(signature = (buf, pos, end, before, after, first, out, /))]
    #[allow(clippy::too_many_arguments)]
    fn write(
        &self,
        buf: &Bound<'_, PyAny>,
        pos: usize,
        end: usize,
        before: &str,
        after: &str,
        first: i64,
        out: &Bound<'_, PyList>,
    ) -> i64 {
        self.append(Operation::Insert, buf, (pos, end), (before, after), first, out)
    }

    /// Append the records of updates; see `write`.
    #[pyo3(signature = (buf, pos, end, before, after, first, out, /))]
    #[allow(clippy::too_many_arguments)]
    fn update(
        &self,
        buf: &Bound<'_, PyAny>,
        pos: usize,
        end: usize,
        before: &str,
        after: &str,
        first: i64,
        out: &Bound<'_, PyList>,
    ) -> i64 {
        self.append(Operation::Update, buf, (pos, end), (before, after), first, out)
    }

    /// Append the records of deletes; see `write`.
    #[pyo3(signature = (buf, pos, end, before, after, first, out, /))]
    #[allow(clippy::too_many_arguments)]
    fn delete(
        &self,
        buf: &Bound<'_, PyAny>,
        pos: usize,
        end: usize,
        before: &str,
        after: &str,
        first: i64,
        out: &Bound<'_, PyList>,
    ) -> i64 {
        self.append(Operation::Delete, buf, (pos, end), (before, after), first, out)
    }
}

impl RowKernel {
    /// Append the records of an event, or nothing; return and count as `write` does.
    fn append(
        &self,
        operation: Operation,
        buf: &Bound<'_, PyAny>,
        (pos, end): (usize, usize),
        (before, after): (&str, &str),
        first: i64,
        out: &Bound<'_, PyList>,
    ) -> i64 {
        let length = out.len();
        let result = guarded(|| {
            let buf = buf.cast::<PyBytes>().map_err(|_| Declined::Call)?.as_bytes();
            let (before, after) = (byte_text(before)?, byte_text(after)?);
            let rows = Rows {
                bitmaps: self.bitmaps(operation, buf, pos).ok_or(Declined::Call)?,
                data: buf.get(pos..end).ok_or(Declined::Call)?,
                before_number: &before,
                after_number: &after,
                first,
            };
            with_scratch(|scratch| self.decode(operation, &rows, scratch, out))
        });
        self.tally.get().count(result.map(|(_, produced)| produced));
        result.map(|(rows, _)| rows).unwrap_or_else(|why| match out.del_slice(length, out.len()) {
            Ok(()) => why as i64,
            Err(_) => Declined::Defect as i64,
        })
    }

    /// Return the bitmaps of present columns before an event's rows.
    pub fn bitmaps<'a>(&self, operation: Operation, data: &'a [u8], rows_at: usize) -> Option<&'a [u8]> {
        let size = self.decoder.bitmap_bytes() * operation.images();
        data.get(rows_at.checked_sub(size)?..rows_at)
    }

    /// Return whether rows have a record, and whether they have a tombstone after that.
    pub fn records_of(&self, operation: Operation) -> (bool, bool) {
        if operation == Operation::Delete {
            self.deletes
        } else {
            (true, false)
        }
    }

    fn decode(
        &self,
        operation: Operation,
        rows: &Rows,
        scratch: &mut Scratch,
        out: &Bound<'_, PyList>,
    ) -> Result<(i64, i64), Declined> {
        let py = out.py();
        if let Some(dispatcher) = &self.dispatcher {
            let mut take = |key: Option<&[u8]>, value: Option<&[u8]>, row: i64, partition: u32| {
                out.append(partitioned_record(py, (key, value), row, partition)?).ok()
            };
            let rows = ticdc_rows::decode(&self.decoder, dispatcher, operation, rows, scratch, &mut take)?;
            return Ok((rows, rows));
        }
        let (with_record, with_tombstone) = self.records_of(operation);
        let mut take = |key: Option<&[u8]>, value: &[u8], row: i64| -> Option<()> {
            let key = key.map(|key| PyBytes::new(py, key));
            if with_record {
                out.append(record(py, key.clone(), value, row)?).ok()?;
            }
            if with_tombstone {
                out.append(tombstone(py, key, row)?).ok()?;
            }
            Some(())
        };
        self.decoder.decode(operation, rows, scratch, &mut take)
    }
}
