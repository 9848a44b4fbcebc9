//! TiCDC's flat rows: keys, values without what was before, and the partition that the table's dispatcher gives them.

use crc32fast::Hasher;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::json;
use crate::kernel::{field, Declined, Kernel, Kind, Rows, Scratch};
use crate::op::{op_of, Op};
use crate::text;
use crate::{plan, GivenColumn, RowKernel, Tally};

/// Takes the key, the value, the row number and the partition of a record; says whether it took it.
pub type TakeFlat<'a> = dyn FnMut(Option<&[u8]>, Option<&[u8]>, i64, u32) -> Option<()> + 'a;

/// A column that decides where rows go: its place, the checksum of its name, and its operation: name, numbers, texts.
type GivenDeciding = (usize, u32, String, Vec<i64>, Vec<Vec<u8>>);
/// Partitions, what the checksums of values are joined with, and the columns that they are of.
type GivenSpread = (u32, u32, Vec<GivenDeciding>);

struct Deciding {
    index: usize,
    head: u32,
    op: Op,
}

/// How flat rows are spread over the partitions of their topic.
pub struct Flat {
    count: u32,
    sum: u32,
    columns: Vec<Deciding>,
}

/// Return the decoder of a table version's flat rows, or None for one with something that is not known here.
///
/// `heads` are what keys and values begin with; the other arguments are those of `plan`.
#[pyfunction]
pub fn flat_plan(
    columns: Vec<GivenColumn>,
    keys: Vec<usize>,
    heads: (Vec<u8>, Vec<u8>),
    spread: GivenSpread,
    tally: Py<Tally>,
) -> Option<RowKernel> {
    let (count, sum, given) = spread;
    let width = columns.len();
    let deciding = given.into_iter().map(|(index, head, name, numbers, texts)| {
        let (_, op) = op_of(&name, &numbers, texts)?;
        (index < width && tells(&op)).then_some(Deciding { index, head, op })
    });
    let flat = Flat { count, sum, columns: deciding.collect::<Option<_>>()? };
    let mut around = vec![Vec::new(); 9];
    (around[0], around[2]) = heads;
    let made = plan(columns, keys, around, true, false, tally, None)?;
    (count > 0).then_some(RowKernel { flat: Some(flat), ..made })
}

/// Return what Python gets of a record: its partition stands where others have a header.
pub fn record<'py>(
    py: Python<'py>,
    (key, value): (Option<&[u8]>, Option<&[u8]>),
    row: i64,
    partition: u32,
) -> Option<Bound<'py, PyAny>> {
    let bytes = |data: Option<&[u8]>| data.map(|data| PyBytes::new(py, data));
    Some((bytes(key), bytes(value), row, 0, partition).into_pyobject(py).ok()?.into_any())
}

impl Flat {
    /// Hand the records of an event to `take`, and return the number of rows.
    ///
    /// What stands around the row number in other records stands behind the columns.
    pub fn run(
        &self,
        kernel: &Kernel,
        kind: Kind,
        rows: &Rows,
        scratch: &mut Scratch,
        take: &mut TakeFlat,
    ) -> Result<i64, Declined> {
        kernel.whole(kind, rows)?;
        let (mut at, mut number) = (0, rows.first);
        let mut text = Vec::new();
        while at < rows.data.len() {
            if kind == Kind::Update {
                scratch.value.clear();
                at = kernel.image(rows.data, at, scratch).ok_or(Declined::Data)?;
                std::mem::swap(&mut scratch.key, &mut scratch.other_key);
            }
            let from = at;
            scratch.value.clear();
            scratch.value.extend_from_slice(&kernel.around.value_head);
            at = kernel.image(rows.data, at, scratch).ok_or(Declined::Data)?;
            if kind == Kind::Update && scratch.key != scratch.other_key {
                return Err(Declined::KeyChange);
            }
            let partition = self.partition(kernel, rows.data, from, &mut text).ok_or(Declined::Data)?;
            scratch.value.extend_from_slice(rows.before_number);
            scratch.value.extend_from_slice(rows.behind_number);
            let key = (kernel.keys > 0).then_some(scratch.key.as_slice());
            let value = (kind != Kind::Delete).then_some(scratch.value.as_slice());
            take(key, value, number, partition).ok_or(Declined::Given)?;
            number += 1;
        }
        Ok(number - rows.first)
    }

    /// Return the partition of the row with the image that begins at an offset.
    fn partition(&self, kernel: &Kernel, data: &[u8], at: usize, text: &mut Vec<u8>) -> Option<u32> {
        let mut sum = self.sum;
        if self.columns.is_empty() {
            return Some(sum % self.count);
        }
        let mut at = at;
        let nulls = data.get(at..at + kernel.size())?;
        at += kernel.size();
        for (index, column) in kernel.columns.iter().enumerate() {
            let null = nulls[index >> 3] >> (index & 7) & 1 == 1;
            let raw = if null { &[] } else { field(data, &mut at, column.layout)? };
            for deciding in self.columns.iter().filter(|deciding| deciding.index == index) {
                text.clear();
                if null {
                    text.extend_from_slice(b"null");
                } else {
                    tell(&deciding.op, text, raw)?;
                }
                let mut hasher = Hasher::new_with_initial(deciding.head);
                hasher.update(text);
                sum ^= hasher.finalize();
            }
        }
        Some(sum % self.count)
    }
}

/// Return whether the text of an operation's values, as checksums are made of it, is known here.
fn tells(op: &Op) -> bool {
    !matches!(
        op,
        Op::Boolean { .. }
            | Op::Float
            | Op::FloatAsDouble
            | Op::Double
            | Op::DoubleAsFloat
            | Op::Geometry
            | Op::Point
            | Op::Vector
            | Op::Clock(..)
            | Op::Avro(_)
    )
}

/// Add the text of a value as checksums are made of it: what JSON shows of it, without quotes and escapes.
fn tell(op: &Op, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
    match op {
        Op::Text(charset) => return charset.write_plain(out, data),
        Op::WideChar(charset) => return charset.write_plain_fixed(out, data),
        Op::Json => return json::document(out, data),
        Op::Bit => text::unsigned(out, u64::from(data[0])),
        Op::Enum(texts) => out.extend_from_slice(texts.get(crate::events::little(data) as usize)?),
        _ => {
            op.write(out, data)?;
            if out.first() == Some(&b'"') {
                out.pop();
                out.remove(0);
            }
        }
    }
    Some(())
}
