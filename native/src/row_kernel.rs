//! What Python sees of the decoder of a table version's row events.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::declined::Declined;
use crate::python_calls::{byte_text, guarded};
use crate::python_records::RecordMaker;
use crate::row_decoder::{NumberTexts, Operation, RowDecoder, Rows};
use crate::row_record::{RowRecord, Take};
use crate::scratch::{with_scratch, Scratch};
use crate::tally::Tally;
use crate::ticdc_dispatcher::Dispatcher;
use crate::ticdc_rows;

/// The decoder of one table version.
#[pyclass(frozen)]
pub struct RowKernel {
    pub decoder: RowDecoder,
    pub tally: Py<Tally>,
    /// Of a table whose rows are written in TiCDC's protocol.
    pub dispatcher: Option<Dispatcher>,
    /// Returns the texts around the row number, of an event's context and the letter of an operation.
    pub row_texts: Py<PyAny>,
}

#[pymethods]
impl RowKernel {
    /// Append the records of inserts; return the number of rows, or a number below zero when they are left to Python.
    ///
    /// `before` and `after` are the texts around the row number, one character a byte; `context` is what they were made of.
    #[pyo3(signature = (buf, pos, end, before, after, first, context, out, /))]
    #[allow(clippy::too_many_arguments)]
    fn write(
        &self,
        buf: &Bound<'_, PyAny>,
        pos: usize,
        end: usize,
        before: &str,
        after: &str,
        first: i64,
        context: &Bound<'_, PyAny>,
        out: &Bound<'_, PyList>,
    ) -> i64 {
        self.append(Operation::Insert, buf, (pos, end), (before, after), first, context, out)
    }

    /// Append the records of updates; see `write`.
    #[pyo3(signature = (buf, pos, end, before, after, first, context, out, /))]
    #[allow(clippy::too_many_arguments)]
    fn update(
        &self,
        buf: &Bound<'_, PyAny>,
        pos: usize,
        end: usize,
        before: &str,
        after: &str,
        first: i64,
        context: &Bound<'_, PyAny>,
        out: &Bound<'_, PyList>,
    ) -> i64 {
        self.append(Operation::Update, buf, (pos, end), (before, after), first, context, out)
    }

    /// Append the records of deletes; see `write`.
    #[pyo3(signature = (buf, pos, end, before, after, first, context, out, /))]
    #[allow(clippy::too_many_arguments)]
    fn delete(
        &self,
        buf: &Bound<'_, PyAny>,
        pos: usize,
        end: usize,
        before: &str,
        after: &str,
        first: i64,
        context: &Bound<'_, PyAny>,
        out: &Bound<'_, PyList>,
    ) -> i64 {
        self.append(Operation::Delete, buf, (pos, end), (before, after), first, context, out)
    }
}

impl RowKernel {
    /// Append the records of an event, or nothing; return and count as `write` does.
    #[allow(clippy::too_many_arguments)]
    fn append(
        &self,
        operation: Operation,
        buf: &Bound<'_, PyAny>,
        (pos, end): (usize, usize),
        (before, after): (&str, &str),
        first: i64,
        context: &Bound<'_, PyAny>,
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
                texts_of: &|operation| self.texts_of(context, operation),
            };
            let mut maker = RecordMaker::new(out.py());
            let mut take = |record: &RowRecord| out.append(maker.make(record)?).ok();
            with_scratch(|scratch| self.decode(operation, &rows, scratch, &mut take))
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

    /// Hand the records of an event to `take`, and return the number of rows, and of those to produce.
    pub fn decode(
        &self,
        operation: Operation,
        rows: &Rows,
        scratch: &mut Scratch,
        take: &mut Take,
    ) -> Result<(i64, i64), Declined> {
        let Some(dispatcher) = &self.dispatcher else { return self.decoder.decode(operation, rows, scratch, take) };
        let rows = ticdc_rows::decode(&self.decoder, dispatcher, operation, rows, scratch, take)?;
        Ok((rows, rows))
    }

    /// Return the texts around the row numbers of an event with another operation.
    fn texts_of(&self, context: &Bound<'_, PyAny>, operation: Operation) -> Option<NumberTexts> {
        let texts = self.row_texts.bind(context.py()).call1((context, operation.letter())).ok()?;
        let (before, after): (String, String) = texts.extract().ok()?;
        Some((byte_text(&before).ok()?.into_owned(), byte_text(&after).ok()?.into_owned()))
    }
}
