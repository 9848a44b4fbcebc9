//! What Python sees of the rows of a SELECT.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::around::{Around, Moment};
use crate::kernel::Declined;
use crate::select::{self, Member, TextColumn, TextKernel};
use crate::{bytes_of, guarded, Tally, SCRATCH};

/// A column of a SELECT: whether it may be NULL, the text of NULL, and its operation: name, numbers, texts.
type GivenText = (bool, Vec<u8>, String, Vec<i64>, Vec<Vec<u8>>);
/// A member of a value or a key: its label, and the place of its column or what stands there for it.
type GivenMember = (Vec<u8>, Option<usize>, Vec<u8>);

/// A row of NULLs has a byte a column, and a record of it the names and the schema of all.
const MOST_BYTES: usize = 1 << 20;

/// The decoder of the rows of one table in the text protocol.
#[pyclass(frozen)]
pub struct TextRows {
    kernel: TextKernel,
    tally: Py<Tally>,
}

/// Return the decoder of rows of a SELECT, or None for one with something that is not known here.
///
/// `around` is that of `TextKernel::of`.
#[pyfunction]
pub fn text_plan(
    columns: Vec<GivenText>,
    value: Vec<GivenMember>,
    key: Vec<GivenMember>,
    around: Vec<Vec<u8>>,
    tally: Py<Tally>,
) -> Option<TextRows> {
    let made = columns.into_iter().map(|(nullable, null, name, numbers, texts)| {
        select::text_op_of(&name, &numbers, texts).map(|op| TextColumn { nullable, null, op })
    });
    let columns: Vec<TextColumn> = made.collect::<Option<_>>()?;
    let count = columns.len();
    let members = |given: Vec<GivenMember>| -> Option<Vec<Member>> {
        let known = given.iter().all(|(_, column, _)| column.is_none_or(|place| place < count));
        let member = |(label, column, constant)| Member { label, column, constant };
        known.then(|| given.into_iter().map(member).collect())
    };
    let kernel = TextKernel::of(columns, members(value)?, members(key)?, around)?;
    Some(TextRows { kernel, tally })
}

#[pymethods]
impl TextRows {
    /// Append the record of a row; return 1, or a number below zero when it is left to Python.
    ///
    /// `before` and `behind` are the texts around the row number, one character a byte.
    #[pyo3(signature = (packet, pos, before, behind, row, out, /))]
    fn row(
        &self,
        packet: &Bound<'_, PyAny>,
        pos: usize,
        before: &str,
        behind: &str,
        row: i64,
        out: &Bound<'_, PyList>,
    ) -> i64 {
        let result = guarded(|| {
            let data = packet.cast::<PyBytes>().map_err(|_| Declined::Given)?.as_bytes();
            let (before, behind) = (bytes_of(before)?, bytes_of(behind)?);
            let mut scratch = SCRATCH.take();
            let made = self.kernel.run(data, pos, (&before, &behind), &mut scratch, row).and_then(|()| {
                let py = out.py();
                let key = (!self.kernel.key.is_empty()).then(|| PyBytes::new(py, &scratch.key));
                let value = PyBytes::new(py, &scratch.value);
                out.append((key, value, row, 0, py.None())).map_err(|_| Declined::Given)
            });
            scratch.shrink();
            SCRATCH.set(scratch);
            made.map(|()| 1)
        });
        self.tally.get().count(result);
        result.unwrap_or_else(|why| why as i64)
    }

    /// Append the records of rows, each behind the header of its packet, up to the first one that is left to Python, or
    /// until they have `MOST_BYTES`.
    ///
    /// `before` stands before the row number, with one character a byte, and `behind` behind it: pieces with the name of
    /// the place behind each. Returns the number of rows, or one below zero, and the offset behind them.
    #[pyo3(signature = (data, pos, most, before, behind, row, now_ns, out, /))]
    #[allow(clippy::too_many_arguments)]
    fn rows(
        &self,
        data: &Bound<'_, PyBytes>,
        pos: usize,
        most: usize,
        before: &str,
        behind: Vec<(Vec<u8>, String)>,
        row: i64,
        now_ns: u64,
        out: &Bound<'_, PyList>,
    ) -> (i64, usize) {
        let (py, made) = (out.py(), out.len());
        let result = guarded(|| {
            let before = bytes_of(before)?;
            let behind = Around::of(behind, self.kernel.binary).ok_or(Declined::Given)?;
            let (mut scratch, mut text) = (SCRATCH.take(), Vec::new());
            let (mut at, mut rows, mut bytes) = (pos, 0, 0);
            while rows < most && bytes < MOST_BYTES {
                let Some((packet, stop)) = select::packet(data.as_bytes(), at) else { break };
                let moment = Moment::now(now_ns);
                behind.write(&mut text, &moment).ok_or(Declined::Given)?;
                if self.kernel.run(packet, 0, (&before, &text), &mut scratch, row).is_err() {
                    break;
                }
                let key = (!self.kernel.key.is_empty()).then(|| PyBytes::new(py, &scratch.key));
                let record = (key, PyBytes::new(py, &scratch.value), row, 0, py.None());
                out.append(record).map_err(|_| Declined::Given)?;
                (at, rows, bytes) = (stop, rows + 1, bytes + scratch.key.len() + scratch.value.len());
            }
            scratch.shrink();
            SCRATCH.set(scratch);
            Ok((rows as i64, at))
        });
        self.tally.get().count(result.map(|(rows, _)| rows));
        result.unwrap_or_else(|why| match out.del_slice(made, out.len()) {
            Ok(()) => (why as i64, pos),
            Err(_) => (Declined::Panic as i64, pos),
        })
    }
}

/// Return how many rows of one packet stand in the bytes as a whole, the offset behind them and the next packet's number.
///
/// `number` is what the first packet's has to be; a payload of `largest` bytes goes on in the next packet.
#[pyfunction]
#[pyo3(signature = (chunk, pos, number, largest, /))]
pub fn frames(chunk: &Bound<'_, PyBytes>, pos: usize, number: u8, largest: usize) -> (u64, usize, u8) {
    // None means that Python looks at the packet.
    guarded(|| Ok(select::frames(chunk.as_bytes(), pos, number, largest))).unwrap_or((0, pos, number))
}
