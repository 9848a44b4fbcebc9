//! What Python sees of the decoder of a SELECT's rows.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::declined::Declined;
use crate::python_calls::{byte_text, guarded};
use crate::python_records::record;
use crate::row_context::{ContextTemplate, EventFacts};
use crate::scratch::{with_scratch, Scratch};
use crate::tally::Tally;
use crate::text_column_renderer::TextColumnRenderer;
use crate::text_packets::{packet, whole_rows};
use crate::text_row_decoder::{Member, TextColumn, TextRowDecoder};

/// A column of a SELECT: whether it may be NULL, the text of NULL, and its renderer: name, numbers, texts.
type TextColumnPlan = (bool, Vec<u8>, String, Vec<i64>, Vec<Vec<u8>>);
/// A member of a value or a key: its label, and the index of its column or a constant.
type MemberPlan = (Vec<u8>, Option<usize>, Vec<u8>);

/// Bytes of records after which a call ends: a row of NULLs has a byte a column, and a record of it the names and the schema
/// of all.
const MOST_BYTES: usize = 1 << 20;

/// The decoder of the rows of one table in the text protocol.
#[pyclass(frozen)]
pub struct TextRows {
    decoder: TextRowDecoder,
    tally: Py<Tally>,
}

/// Return the decoder of rows of a SELECT, or None for one with something that is not supported.
///
/// `around` is the envelope of `TextRowDecoder::of`; `numbers` says whether row numbers are written as in Avro, and whether
/// there are any.
#[pyfunction]
pub fn text_plan(
    columns: Vec<TextColumnPlan>,
    value: Vec<MemberPlan>,
    key: Vec<MemberPlan>,
    around: Vec<Vec<u8>>,
    numbers: (bool, bool),
    tally: Py<Tally>,
) -> Option<TextRows> {
    let column = |(nullable, null, name, numbers, texts): TextColumnPlan| {
        TextColumnRenderer::of(&name, &numbers, texts).map(|renderer| TextColumn { nullable, null, renderer })
    };
    let columns: Vec<TextColumn> = columns.into_iter().map(column).collect::<Option<_>>()?;
    let count = columns.len();
    let members = |plans: Vec<MemberPlan>| -> Option<Vec<Member>> {
        let known = plans.iter().all(|(_, column, _)| column.is_none_or(|index| index < count));
        let member = |(label, column, constant)| Member { label, column, constant };
        known.then(|| plans.into_iter().map(member).collect())
    };
    let decoder = TextRowDecoder::of(columns, members(value)?, members(key)?, around, numbers)?;
    Some(TextRows { decoder, tally })
}

#[pymethods]
impl TextRows {
    /// Append the record of a row; return 1, or a number below zero when it is left to Python.
    ///
    /// `before` and `after` are the texts around the row number, one character a byte.
    #[pyo3(signature = (packet, pos, before, after, row, out, /))]
    fn row(
        &self,
        packet: &Bound<'_, PyAny>,
        pos: usize,
        before: &str,
        after: &str,
        row: i64,
        out: &Bound<'_, PyList>,
    ) -> i64 {
        let result = guarded(|| {
            let data = packet.cast::<PyBytes>().map_err(|_| Declined::Call)?.as_bytes();
            let (before, after) = (byte_text(before)?, byte_text(after)?);
            with_scratch(|scratch| {
                self.decoder.decode(data, pos, (&before, &after), scratch, row)?;
                self.append(scratch, row, out)
            })
        });
        let result = result.map(|()| 1);
        self.tally.get().count(result);
        result.unwrap_or_else(|why| why as i64)
    }

    /// Append the records of rows, each after the header of its packet, up to the first one that is left to Python, or
    /// until they have `MOST_BYTES`.
    ///
    /// `before` is the text before the row number, with one character a byte, and `after` the template of the one after it:
    /// pieces with the name of the placeholder after each. Returns the number of rows, or one below zero, and the offset
    /// after them.
    #[pyo3(signature = (data, pos, most, before, after, row, now_ns, out, /))]
    #[allow(clippy::too_many_arguments)]
    fn rows(
        &self,
        data: &Bound<'_, PyBytes>,
        pos: usize,
        most: usize,
        before: &str,
        after: Vec<(Vec<u8>, String)>,
        row: i64,
        now_ns: u64,
        out: &Bound<'_, PyList>,
    ) -> (i64, usize) {
        let length = out.len();
        let result = guarded(|| {
            let before = byte_text(before)?;
            let after = ContextTemplate::of(after, self.decoder.binary).ok_or(Declined::Call)?;
            let mut text = Vec::new();
            let (mut at, mut rows, mut bytes) = (pos, 0, 0);
            with_scratch(|scratch| {
                while rows < most && bytes < MOST_BYTES {
                    let Some((payload, stop)) = packet(data.as_bytes(), at) else { break };
                    after.write(&mut text, &EventFacts::now(now_ns)).ok_or(Declined::Call)?;
                    if self.decoder.decode(payload, 0, (&before, &text), scratch, row).is_err() {
                        break;
                    }
                    self.append(scratch, row, out)?;
                    (at, rows, bytes) = (stop, rows + 1, bytes + scratch.key.len() + scratch.value.len());
                }
                Ok((rows as i64, at))
            })
        });
        self.tally.get().count(result.map(|(rows, _)| rows));
        result.unwrap_or_else(|why| match out.del_slice(length, out.len()) {
            Ok(()) => (why as i64, pos),
            Err(_) => (Declined::Defect as i64, pos),
        })
    }
}

impl TextRows {
    /// Append the record in the scratch.
    fn append(&self, scratch: &Scratch, row: i64, out: &Bound<'_, PyList>) -> Result<(), Declined> {
        let py = out.py();
        let key = self.decoder.has_key().then(|| PyBytes::new(py, &scratch.key));
        let record = record(py, key, &scratch.value, row).ok_or(Declined::Call)?;
        out.append(record).map_err(|_| Declined::Call)
    }
}

/// Return how many rows of one packet are in the bytes as a whole, the offset after them and the next packet's number.
///
/// `number` is what the first packet's has to be; a payload of `largest` bytes goes on in the next packet.
#[pyfunction]
#[pyo3(signature = (chunk, pos, number, largest, /))]
pub fn frames(chunk: &Bound<'_, PyBytes>, pos: usize, number: u8, largest: usize) -> (u64, usize, u8) {
    // No row means that Python looks at the packet.
    guarded(|| Ok(whole_rows(chunk.as_bytes(), pos, number, largest))).unwrap_or((0, pos, number))
}
