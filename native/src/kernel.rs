//! Rows of one table version.

use crate::avro;
use crate::events::little;
use crate::op::{Layout, Op};
use crate::partition::Owned;
use crate::text;

/// One column.
pub struct Column {
    /// `"name":`
    pub label: Vec<u8>,
    /// What stands in an image before its value, or for it: a comma, the label, and its constant if it has one.
    pub lead: Vec<u8>,
    /// What stands for NULL; none where it cannot stand.
    pub null: Option<Vec<u8>>,
    /// Whether its value is in images: not one that is left out, nor one with a constant.
    pub shown: bool,
    /// Its place among the columns of the key.
    pub in_key: Option<usize>,
    pub layout: Layout,
    pub op: Op,
}

/// What stands around the images and the key of every record.
pub struct Around {
    pub key_head: Vec<u8>,
    pub key_tail: Vec<u8>,
    /// What every value begins with.
    pub value_head: Vec<u8>,
    /// What stands then before the image of an insert, before another first image, and between two.
    pub insert: Vec<u8>,
    pub before: Vec<u8>,
    pub between: Vec<u8>,
    /// What stands before, between and behind the members of an image; between those of a key as well.
    pub open: Vec<u8>,
    pub comma: Vec<u8>,
    pub close: Vec<u8>,
    /// Whether row numbers are written as Avro writes them.
    pub binary: bool,
}

/// A row event: its rows with the bitmaps of present columns before them, and what stands around the row number.
pub struct Rows<'a> {
    pub bitmaps: &'a [u8],
    pub data: &'a [u8],
    pub before_number: &'a [u8],
    pub behind_number: &'a [u8],
    pub first: i64,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Insert,
    Update,
    Delete,
}

/// Why the rows of an event are left to Python.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Declined {
    /// A value is not what its column says, or the rows do not end where the event ends.
    Data = -1,
    /// An UPDATE changes a key: it becomes several records.
    KeyChange = -2,
    /// Images leave columns out.
    Incomplete = -3,
    /// What was given is not what this code knows.
    Given = -4,
    /// This code has a defect.
    Panic = -5,
}

impl Declined {
    /// Return its place among the reasons, 0 for -1.
    pub fn index(self) -> usize {
        (-(self as i64) - 1) as usize
    }
}

/// Takes the key, the value and the row number of a record; says whether it took it.
pub type Take<'a> = dyn FnMut(Option<&[u8]>, &[u8], i64) -> Option<()> + 'a;

pub struct Kernel {
    pub columns: Vec<Column>,
    pub keys: usize,
    pub around: Around,
    /// Partitions of the rows that are wanted; none for all.
    pub owned: Option<Owned>,
}

/// Buffers that one event after the other uses.
#[derive(Default)]
pub struct Scratch {
    pub value: Vec<u8>,
    pub key: Vec<u8>,
    pub other_key: Vec<u8>,
    /// Key columns that are not shown in the value as they are.
    pub side: Vec<u8>,
    pub spans: Vec<(bool, usize, usize)>,
}

const KEPT: usize = 1 << 20;

impl Scratch {
    /// Give back memory that one large row took.
    pub fn shrink(&mut self) {
        for buffer in [&mut self.value, &mut self.key, &mut self.other_key, &mut self.side] {
            if buffer.capacity() > KEPT {
                *buffer = Vec::new();
            }
        }
    }
}

impl Kernel {
    pub fn size(&self) -> usize {
        self.columns.len().div_ceil(8)
    }

    fn complete(&self, bitmap: &[u8]) -> bool {
        (0..self.columns.len()).all(|index| bitmap[index >> 3] >> (index & 7) & 1 == 1)
    }

    /// Decline an event whose images leave columns out.
    pub fn whole(&self, kind: Kind, rows: &Rows) -> Result<(), Declined> {
        let images = if kind == Kind::Update { 2 } else { 1 };
        if rows.bitmaps.len() != images * self.size() {
            return Err(Declined::Given);
        }
        if !rows.bitmaps.chunks(self.size()).all(|bitmap| self.complete(bitmap)) {
            return Err(Declined::Incomplete);
        }
        Ok(())
    }

    /// Hand the records of an event to `take`, and return the number of rows, and of those that are wanted.
    pub fn run(&self, kind: Kind, rows: &Rows, scratch: &mut Scratch, take: &mut Take) -> Result<(i64, i64), Declined> {
        self.whole(kind, rows)?;
        let (mut at, mut number, mut wanted) = (0, rows.first, 0);
        while at < rows.data.len() {
            if let Some(stop) = self.foreign(kind, at, rows.data, scratch)? {
                (at, number) = (stop, number + 1);
                continue;
            }
            at = match kind {
                Kind::Insert => self.single(&self.around.insert, at, rows, scratch).ok_or(Declined::Data)?,
                Kind::Delete => self.single(&self.around.before, at, rows, scratch).ok_or(Declined::Data)?,
                Kind::Update => self.update(at, rows, scratch)?,
            };
            let value = &mut scratch.value;
            value.extend_from_slice(rows.before_number);
            if self.around.binary {
                avro::varint(value, number);
            } else {
                text::signed(value, number);
            }
            value.extend_from_slice(rows.behind_number);
            take((self.keys > 0).then_some(&scratch.key), value, number).ok_or(Declined::Given)?;
            (number, wanted) = (number + 1, wanted + 1);
        }
        Ok((number - rows.first, wanted))
    }

    /// Return the offset behind a row that another writer has; none for one that is to be read.
    fn foreign(&self, kind: Kind, at: usize, data: &[u8], scratch: &mut Scratch) -> Result<Option<usize>, Declined> {
        let Some(owned) = &self.owned else { return Ok(None) };
        let mut stop = self.key(data, at, scratch).ok_or(Declined::Data)?;
        if kind == Kind::Update {
            std::mem::swap(&mut scratch.key, &mut scratch.other_key);
            stop = self.key(data, stop, scratch).ok_or(Declined::Data)?;
            if scratch.key != scratch.other_key {
                return Err(Declined::KeyChange);
            }
        }
        let mine = owned.owns((self.keys > 0).then_some(&scratch.key));
        Ok((!mine).then_some(stop))
    }

    /// Put the key of an image in place and make nothing else of it; return the offset behind it.
    fn key(&self, data: &[u8], at: usize, scratch: &mut Scratch) -> Option<usize> {
        let Scratch { key, side, spans, .. } = scratch;
        side.clear();
        spans.clear();
        spans.resize(self.keys, (false, 0, 0));
        let nulls = data.get(at..at + self.size())?;
        let mut at = at + self.size();
        for (index, column) in self.columns.iter().enumerate() {
            let null = nulls[index >> 3] >> (index & 7) & 1 == 1;
            let raw = if null { &[] } else { field(data, &mut at, column.layout)? };
            let Some(place) = column.in_key else { continue };
            let from = side.len();
            if null {
                side.extend_from_slice(column.null.as_deref()?);
            } else {
                column.op.write(side, raw)?;
            }
            spans[place] = (false, from, side.len());
        }
        key.clear();
        if self.keys > 0 {
            self.join_key(&[], side, spans, key);
        }
        Some(at)
    }

    fn single(&self, head: &[u8], at: usize, rows: &Rows, scratch: &mut Scratch) -> Option<usize> {
        scratch.value.clear();
        scratch.value.extend_from_slice(&self.around.value_head);
        scratch.value.extend_from_slice(head);
        self.image(rows.data, at, scratch)
    }

    fn update(&self, at: usize, rows: &Rows, scratch: &mut Scratch) -> Result<usize, Declined> {
        let at = self.single(&self.around.before, at, rows, scratch).ok_or(Declined::Data)?;
        std::mem::swap(&mut scratch.key, &mut scratch.other_key);
        scratch.value.extend_from_slice(&self.around.between);
        let at = self.image(rows.data, at, scratch).ok_or(Declined::Data)?;
        if scratch.key == scratch.other_key {
            Ok(at)
        } else {
            Err(Declined::KeyChange)
        }
    }

    /// Add an image to the value and put its key in place; return the offset behind it.
    pub fn image(&self, data: &[u8], at: usize, scratch: &mut Scratch) -> Option<usize> {
        let Scratch { value, key, side, spans, .. } = scratch;
        side.clear();
        spans.clear();
        spans.resize(self.keys, (false, 0, 0));
        let mut at = at;
        let nulls = data.get(at..at + self.size())?;
        at += self.size();
        value.extend_from_slice(&self.around.open);
        for (index, column) in self.columns.iter().enumerate() {
            let null = nulls[index >> 3] >> (index & 7) & 1 == 1;
            let raw = if null { &[] } else { field(data, &mut at, column.layout)? };
            value.extend_from_slice(&column.lead);
            let shown = column.shown;
            if !shown && column.in_key.is_none() {
                continue;
            }
            let out = if shown { &mut *value } else { &mut *side };
            let from = out.len();
            if null {
                out.extend_from_slice(column.null.as_deref()?);
            } else {
                column.op.write(out, raw)?;
            }
            if let Some(place) = column.in_key {
                spans[place] = (shown, from, out.len());
            }
        }
        value.extend_from_slice(&self.around.close);
        key.clear();
        if self.keys > 0 {
            self.join_key(value, side, spans, key);
        }
        Some(at)
    }

    fn join_key(&self, value: &[u8], side: &[u8], spans: &[(bool, usize, usize)], key: &mut Vec<u8>) {
        key.extend_from_slice(&self.around.key_head);
        for (place, &(shown, from, to)) in spans.iter().enumerate() {
            if place > 0 {
                key.extend_from_slice(&self.around.comma);
            }
            if let Some(column) = self.columns.iter().find(|column| column.in_key == Some(place)) {
                key.extend_from_slice(&column.label);
            }
            key.extend_from_slice(if shown { &value[from..to] } else { &side[from..to] });
        }
        key.extend_from_slice(&self.around.key_tail);
    }
}

/// Return a value's bytes and move behind them; None when the event ends before.
pub fn field<'a>(data: &'a [u8], at: &mut usize, layout: Layout) -> Option<&'a [u8]> {
    let size = match layout {
        Layout::Fixed(size) => size,
        Layout::Prefixed(bytes) => {
            let length = data.get(*at..*at + bytes)?;
            *at += bytes;
            little(length) as usize
        }
    };
    let found = data.get(*at..*at + size)?;
    *at += size;
    Some(found)
}
