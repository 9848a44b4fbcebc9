//! Decodes row events, and rows of snapshots, into the records that airflow-provider-mysql-cdc writes, byte for byte as its Python decoder does.
//!
//! The kernel *declines* what it does not do, and whatever is not as it should be: then it has added nothing, and the
//! Python decoder reads the event, and raises its errors. It raises nothing about data itself.

#![forbid(unsafe_code)]

mod around;
mod avro;
mod avro_text;
mod calendar;
mod charset;
mod events;
mod flat;
mod flat_op;
mod json;
mod kernel;
mod number;
mod op;
mod partition;
mod select;
mod spatial;
mod temporal;
mod text;
mod text_rows;
mod walk;
mod walker;

use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};

use kernel::{Around, Column, Declined, Kernel, Kind, Rows, Scratch};
use partition::Owned;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

/// Changes with what `plan` takes and with what records look like; the loader wants the one that it was written for.
const FORM: i64 = 7;

/// A column's label, what stands for NULL if anything can, whether it is in the value, its constant, and its operation: name, numbers, texts.
type GivenColumn = (Vec<u8>, Option<Vec<u8>>, bool, Option<Vec<u8>>, String, Vec<i64>, Vec<Vec<u8>>);

thread_local! {
    /// Buffers for all tables; while they are in use, and behind a panic, empty ones stand here.
    static SCRATCH: Cell<Scratch> = Cell::default();
}

/// What the decoders of a writer have done: rows decoded, and events declined by reason.
#[pyclass(frozen)]
#[derive(Default)]
struct Tally {
    rows: AtomicU64,
    declined: [AtomicU64; 5],
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
    fn count(&self, result: Result<i64, Declined>) {
        let (counter, more) = match result {
            Ok(rows) => (&self.rows, rows as u64),
            Err(why) => (&self.declined[why.index()], 1),
        };
        counter.fetch_add(more, Ordering::Relaxed);
    }
}

/// The decoder of one table version.
#[pyclass(frozen)]
struct RowKernel {
    kernel: Kernel,
    tombstones: bool,
    tally: Py<Tally>,
    /// Of flat rows.
    flat: Option<flat::Flat>,
}

/// Return the decoder of a table version, or None for one with something that is not known here.
///
/// `around` has what stands before and behind keys, what values begin with, and what stands then before the image of an
/// insert, before another first image, and between two; then what stands before, between and behind the members of images.
/// `binary` says that row numbers are written as Avro writes them; `owned` has the number of the topic's partitions and those
/// whose rows are wanted.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn plan(
    columns: Vec<GivenColumn>,
    keys: Vec<usize>,
    around: Vec<Vec<u8>>,
    binary: bool,
    tombstones: bool,
    tally: Py<Tally>,
    owned: Option<(u32, Vec<u32>)>,
) -> Option<RowKernel> {
    let [key_head, key_tail, value_head, insert, before, between, open, comma, close]: [Vec<u8>; 9] =
        around.try_into().ok()?;
    let mut separator: &[u8] = &[];
    let made = columns.into_iter().enumerate().map(|(index, column)| {
        let (label, null, in_value, constant, name, numbers, texts) = column;
        let (layout, op) = op::op_of(&name, &numbers, texts)?;
        let in_key = keys.iter().position(|&key| key == index);
        let mut lead = Vec::new();
        if in_value {
            lead = [separator, &label, constant.as_deref().unwrap_or_default()].concat();
            separator = &comma;
        }
        Some(Column { label, lead, null, shown: in_value && constant.is_none(), in_key, layout, op })
    });
    let columns: Vec<Column> = made.collect::<Option<_>>()?;
    if columns.is_empty() || keys.iter().any(|&key| key >= columns.len()) {
        return None;
    }
    let around = Around { key_head, key_tail, value_head, insert, before, between, open, comma, close, binary };
    let owned = owned.map(|(count, mine)| Owned::new(count, &mine));
    Some(RowKernel { kernel: Kernel { columns, keys: keys.len(), around, owned }, tombstones, tally, flat: None })
}

#[pymethods]
impl RowKernel {
    /// Append the records of inserts; return the number of rows, or a number below zero when they are left to Python.
    ///
    /// `before` and `behind` are the texts around the row number, one character a byte.
    #[pyo3(signature = (buf, pos, end, before, behind, first, out, /))]
    #[allow(clippy::too_many_arguments)]
    fn write(
        &self,
        buf: &Bound<'_, PyAny>,
        pos: usize,
        end: usize,
        before: &str,
        behind: &str,
        first: i64,
        out: &Bound<'_, PyList>,
    ) -> i64 {
        self.rows(Kind::Insert, buf, (pos, end), (before, behind), first, out)
    }

    /// Append the records of updates; see `write`.
    #[pyo3(signature = (buf, pos, end, before, behind, first, out, /))]
    #[allow(clippy::too_many_arguments)]
    fn update(
        &self,
        buf: &Bound<'_, PyAny>,
        pos: usize,
        end: usize,
        before: &str,
        behind: &str,
        first: i64,
        out: &Bound<'_, PyList>,
    ) -> i64 {
        self.rows(Kind::Update, buf, (pos, end), (before, behind), first, out)
    }

    /// Append the records of deletes; see `write`.
    #[pyo3(signature = (buf, pos, end, before, behind, first, out, /))]
    #[allow(clippy::too_many_arguments)]
    fn delete(
        &self,
        buf: &Bound<'_, PyAny>,
        pos: usize,
        end: usize,
        before: &str,
        behind: &str,
        first: i64,
        out: &Bound<'_, PyList>,
    ) -> i64 {
        self.rows(Kind::Delete, buf, (pos, end), (before, behind), first, out)
    }
}

impl RowKernel {
    /// Return the bytes of the bitmaps of present columns.
    fn bitmaps(&self, kind: Kind) -> usize {
        self.kernel.columns.len().div_ceil(8) * if kind == Kind::Update { 2 } else { 1 }
    }

    fn rows(
        &self,
        kind: Kind,
        buf: &Bound<'_, PyAny>,
        (pos, end): (usize, usize),
        (before, behind): (&str, &str),
        first: i64,
        out: &Bound<'_, PyList>,
    ) -> i64 {
        let made = out.len();
        let result = guarded(|| self.decode(kind, buf, (pos, end), (before, behind), first, out));
        self.tally.get().count(result.map(|(_, wanted)| wanted));
        result.map(|(rows, _)| rows).unwrap_or_else(|why| match out.del_slice(made, out.len()) {
            Ok(()) => why as i64,
            Err(_) => Declined::Panic as i64,
        })
    }

    fn decode(
        &self,
        kind: Kind,
        buf: &Bound<'_, PyAny>,
        (pos, end): (usize, usize),
        (before, behind): (&str, &str),
        first: i64,
        out: &Bound<'_, PyList>,
    ) -> Result<(i64, i64), Declined> {
        let py = out.py();
        let buf = buf.cast::<PyBytes>().map_err(|_| Declined::Given)?.as_bytes();
        let from = pos.checked_sub(self.bitmaps(kind)).ok_or(Declined::Given)?;
        let (before, behind) = (bytes_of(before)?, bytes_of(behind)?);
        let rows = Rows {
            bitmaps: buf.get(from..pos).ok_or(Declined::Given)?,
            data: buf.get(pos..end).ok_or(Declined::Given)?,
            before_number: &before,
            behind_number: &behind,
            first,
        };
        if let Some(flat) = &self.flat {
            let mut take = |key: Option<&[u8]>, value: Option<&[u8]>, row: i64, partition: u32| {
                out.append(flat::record(py, (key, value), row, partition)?).ok()
            };
            let mut scratch = SCRATCH.take();
            let count = flat.run(&self.kernel, kind, &rows, &mut scratch, &mut take);
            scratch.shrink();
            SCRATCH.set(scratch);
            return count.map(|rows| (rows, rows));
        }
        let tombstone = self.tombstones && kind == Kind::Delete;
        let mut take = |key: Option<&[u8]>, value: &[u8], row: i64| -> Option<()> {
            let key = key.map(|key| PyBytes::new(py, key));
            if tombstone {
                let none = py.None();
                out.append((&key, PyBytes::new(py, value), row, 0, &none)).ok()?;
                return out.append((&key, &none, row, 1, &none)).ok();
            }
            out.append((key, PyBytes::new(py, value), row, 0, py.None())).ok()
        };
        let mut scratch = SCRATCH.take();
        let count = self.kernel.run(kind, &rows, &mut scratch, &mut take);
        scratch.shrink();
        SCRATCH.set(scratch);
        count
    }
}

/// Return the bytes of a text with one character a byte.
fn bytes_of(text: &str) -> Result<std::borrow::Cow<'_, [u8]>, Declined> {
    if text.is_ascii() {
        return Ok(text.as_bytes().into());
    }
    let bytes: Result<Vec<u8>, _> = text.chars().map(|c| u8::try_from(u32::from(c))).collect();
    bytes.map(Into::into).map_err(|_| Declined::Given)
}

fn guarded<T>(work: impl FnOnce() -> Result<T, Declined>) -> Result<T, Declined> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Declined::Panic))
}

/// Panic, and return what a decoder would return.
#[pyfunction]
fn panic() -> i64 {
    guarded(|| panic!("asked for")).unwrap_or_else(|why| why as i64)
}

#[pymodule]
fn mysql_cdc_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // What a panic says goes into the log of the job, once, and not to stderr for each event.
    std::panic::set_hook(Box::new(|_| {}));
    module.add("FORM", FORM)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<RowKernel>()?;
    module.add_class::<Tally>()?;
    module.add_class::<text_rows::TextRows>()?;
    module.add_class::<walker::Walker>()?;
    module.add_function(wrap_pyfunction!(plan, module)?)?;
    module.add_function(wrap_pyfunction!(flat::flat_plan, module)?)?;
    module.add_function(wrap_pyfunction!(text_rows::text_plan, module)?)?;
    module.add_function(wrap_pyfunction!(text_rows::frames, module)?)?;
    module.add_function(wrap_pyfunction!(panic, module)?)?;
    Ok(())
}
