//! The rows of row events of one table version, decoded into keys and values.

use crate::avro_binary;
use crate::column_renderer::ColumnRenderer;
use crate::declined::Declined;
use crate::json_text;
use crate::kafka_partitions::AssignedPartitions;
use crate::scratch::{Scratch, Span};
use crate::value_layout::{has_bit, take_value, Layout};

/// One column.
pub struct Column {
    /// `"name":`
    pub label: Vec<u8>,
    /// Text before its value in an image, or in place of it: a comma, the label, and its constant if it has one.
    pub lead: Vec<u8>,
    /// Text for NULL; none where there is no NULL.
    pub null: Option<Vec<u8>>,
    /// Whether its value is in images: not one that is left out, nor one with a constant.
    pub in_value: bool,
    /// Its index among the columns of the key.
    pub in_key: Option<usize>,
    pub layout: Layout,
    pub renderer: ColumnRenderer,
}

/// The texts around the images and the key of every record.
pub struct EnvelopeTexts {
    pub key_head: Vec<u8>,
    pub key_tail: Vec<u8>,
    /// What every value begins with.
    pub value_head: Vec<u8>,
    /// Then text before the image of an insert, before another first image, and between two.
    pub insert: Vec<u8>,
    pub before: Vec<u8>,
    pub between: Vec<u8>,
    /// Text before, between and after the members of an image; between those of a key as well.
    pub open: Vec<u8>,
    pub comma: Vec<u8>,
    pub close: Vec<u8>,
    /// Whether row numbers are written as Avro writes them.
    pub binary: bool,
}

/// A row event: its rows with the bitmaps of present columns before them, and the texts around the row number.
pub struct Rows<'a> {
    pub bitmaps: &'a [u8],
    pub data: &'a [u8],
    pub before_number: &'a [u8],
    pub after_number: &'a [u8],
    /// The first row's number.
    pub first: i64,
}

/// What a row event does.
#[derive(Clone, Copy, PartialEq)]
pub enum Operation {
    Insert,
    Update,
    Delete,
}

impl Operation {
    /// Return how many images a row has.
    pub fn images(self) -> usize {
        if self == Operation::Update {
            2
        } else {
            1
        }
    }
}

/// Receives the key, the value and the row number of a record; None when it cannot.
pub type Take<'a> = dyn FnMut(Option<&[u8]>, &[u8], i64) -> Option<()> + 'a;

/// The decoder of one table version.
pub struct RowDecoder {
    pub columns: Vec<Column>,
    pub key_columns: usize,
    pub envelope: EnvelopeTexts,
    /// Partitions of the rows to produce; none for all.
    pub assigned: Option<AssignedPartitions>,
    /// Values are rows alone, without numbers, and an update has only the row after it: whether deletes have theirs.
    pub unwrapped: Option<bool>,
}

impl RowDecoder {
    /// Return the bytes of a bitmap of all columns.
    pub fn bitmap_bytes(&self) -> usize {
        self.columns.len().div_ceil(8)
    }

    fn is_complete(&self, bitmap: &[u8]) -> bool {
        (0..self.columns.len()).all(|index| has_bit(bitmap, index))
    }

    /// Decline an event whose images leave columns out.
    pub fn check_images(&self, operation: Operation, rows: &Rows) -> Result<(), Declined> {
        if rows.bitmaps.len() != operation.images() * self.bitmap_bytes() {
            return Err(Declined::Call);
        }
        if !rows.bitmaps.chunks(self.bitmap_bytes()).all(|bitmap| self.is_complete(bitmap)) {
            return Err(Declined::IncompleteImage);
        }
        Ok(())
    }

    /// Hand the records of an event to `take`, and return the number of rows, and of those to produce.
    pub fn decode(
        &self,
        operation: Operation,
        rows: &Rows,
        scratch: &mut Scratch,
        take: &mut Take,
    ) -> Result<(i64, i64), Declined> {
        self.check_images(operation, rows)?;
        let envelope = &self.envelope;
        let (mut at, mut number, mut produced) = (0, rows.first, 0);
        while at < rows.data.len() {
            if let Some(stop) = self.unassigned(operation, at, rows.data, scratch)? {
                (at, number) = (stop, number + 1);
                continue;
            }
            at = match (operation, self.unwrapped) {
                (Operation::Insert, _) => self.first_image(&envelope.insert, at, rows, scratch)?,
                (Operation::Delete, Some(false)) => self.no_image(at, rows, scratch)?,
                (Operation::Delete, _) => self.first_image(&envelope.before, at, rows, scratch)?,
                (Operation::Update, Some(_)) => self.last_image(at, rows, scratch)?,
                (Operation::Update, None) => self.both_images(at, rows, scratch)?,
            };
            let value = &mut scratch.value;
            value.extend_from_slice(rows.before_number);
            if envelope.binary {
                avro_binary::long(value, number);
            } else if self.unwrapped.is_none() {
                json_text::signed(value, number);
            }
            value.extend_from_slice(rows.after_number);
            take((self.key_columns > 0).then_some(&scratch.key), value, number).ok_or(Declined::Call)?;
            (number, produced) = (number + 1, produced + 1);
        }
        Ok((number - rows.first, produced))
    }

    /// Return the offset after a row of a partition that is assigned to another writer; none for a row to produce.
    fn unassigned(
        &self,
        operation: Operation,
        at: usize,
        data: &[u8],
        scratch: &mut Scratch,
    ) -> Result<Option<usize>, Declined> {
        let Some(assigned) = &self.assigned else { return Ok(None) };
        let mut stop = self.key(data, at, scratch).ok_or(Declined::Value)?;
        if operation == Operation::Update {
            std::mem::swap(&mut scratch.key, &mut scratch.other_key);
            stop = self.key(data, stop, scratch).ok_or(Declined::Value)?;
            if scratch.key != scratch.other_key {
                return Err(Declined::KeyChange);
            }
        }
        let owned = assigned.has((self.key_columns > 0).then_some(&scratch.key));
        Ok((!owned).then_some(stop))
    }

    /// Write the key of an image to the scratch and decode nothing else of it; return the offset after it.
    fn key(&self, data: &[u8], at: usize, scratch: &mut Scratch) -> Option<usize> {
        let Scratch { key, apart, spans, .. } = scratch;
        apart.clear();
        spans.clear();
        spans.resize(self.key_columns, Span::default());
        let nulls = data.get(at..at + self.bitmap_bytes())?;
        let mut at = at + self.bitmap_bytes();
        for (index, column) in self.columns.iter().enumerate() {
            let null = has_bit(nulls, index);
            let raw = if null { &[] } else { take_value(data, &mut at, column.layout)? };
            let Some(place) = column.in_key else { continue };
            let start = apart.len();
            if null {
                apart.extend_from_slice(column.null.as_deref()?);
            } else {
                column.renderer.write(apart, raw)?;
            }
            spans[place] = Span { in_value: false, start, end: apart.len() };
        }
        key.clear();
        if self.key_columns > 0 {
            self.join_key(&[], apart, spans, key);
        }
        Some(at)
    }

    /// Begin a value with `lead` and its first image; return the offset after the image.
    fn first_image(&self, lead: &[u8], at: usize, rows: &Rows, scratch: &mut Scratch) -> Result<usize, Declined> {
        scratch.value.clear();
        scratch.value.extend_from_slice(&self.envelope.value_head);
        scratch.value.extend_from_slice(lead);
        self.image(rows.data, at, scratch).ok_or(Declined::Value)
    }

    /// Begin an empty value, and write the key; return the offset after the image.
    fn no_image(&self, at: usize, rows: &Rows, scratch: &mut Scratch) -> Result<usize, Declined> {
        scratch.value.clear();
        self.key(rows.data, at, scratch).ok_or(Declined::Value)
    }

    /// Begin a value with the second of two images.
    fn last_image(&self, at: usize, rows: &Rows, scratch: &mut Scratch) -> Result<usize, Declined> {
        let at = self.key(rows.data, at, scratch).ok_or(Declined::Value)?;
        std::mem::swap(&mut scratch.key, &mut scratch.other_key);
        let at = self.first_image(&self.envelope.insert, at, rows, scratch)?;
        if scratch.key == scratch.other_key {
            Ok(at)
        } else {
            Err(Declined::KeyChange)
        }
    }

    fn both_images(&self, at: usize, rows: &Rows, scratch: &mut Scratch) -> Result<usize, Declined> {
        let at = self.first_image(&self.envelope.before, at, rows, scratch)?;
        std::mem::swap(&mut scratch.key, &mut scratch.other_key);
        scratch.value.extend_from_slice(&self.envelope.between);
        let at = self.image(rows.data, at, scratch).ok_or(Declined::Value)?;
        if scratch.key == scratch.other_key {
            Ok(at)
        } else {
            Err(Declined::KeyChange)
        }
    }

    /// Add an image to the value and write its key to the scratch; return the offset after it.
    pub fn image(&self, data: &[u8], at: usize, scratch: &mut Scratch) -> Option<usize> {
        let Scratch { value, key, apart, spans, .. } = scratch;
        apart.clear();
        spans.clear();
        spans.resize(self.key_columns, Span::default());
        let mut at = at;
        let nulls = data.get(at..at + self.bitmap_bytes())?;
        at += self.bitmap_bytes();
        value.extend_from_slice(&self.envelope.open);
        for (index, column) in self.columns.iter().enumerate() {
            let null = has_bit(nulls, index);
            let raw = if null { &[] } else { take_value(data, &mut at, column.layout)? };
            value.extend_from_slice(&column.lead);
            let in_value = column.in_value;
            if !in_value && column.in_key.is_none() {
                continue;
            }
            let out = if in_value { &mut *value } else { &mut *apart };
            let start = out.len();
            if null {
                out.extend_from_slice(column.null.as_deref()?);
            } else {
                column.renderer.write(out, raw)?;
            }
            if let Some(place) = column.in_key {
                spans[place] = Span { in_value, start, end: out.len() };
            }
        }
        value.extend_from_slice(&self.envelope.close);
        key.clear();
        if self.key_columns > 0 {
            self.join_key(value, apart, spans, key);
        }
        Some(at)
    }

    fn join_key(&self, value: &[u8], apart: &[u8], spans: &[Span], key: &mut Vec<u8>) {
        key.extend_from_slice(&self.envelope.key_head);
        for (place, span) in spans.iter().enumerate() {
            if place > 0 {
                key.extend_from_slice(&self.envelope.comma);
            }
            if let Some(column) = self.columns.iter().find(|column| column.in_key == Some(place)) {
                key.extend_from_slice(&column.label);
            }
            let from = if span.in_value { value } else { apart };
            key.extend_from_slice(&from[span.start..span.end]);
        }
        key.extend_from_slice(&self.envelope.key_tail);
    }
}
