//! The rows of row events of one table version, decoded into keys and values.

use crate::avro_binary;
use crate::column_renderer::ColumnRenderer;
use crate::declined::Declined;
use crate::json_text;
use crate::kafka_partitions::AssignedPartitions;
use crate::key_header::{KeyHeader, NEW_KEY_HEADER, OLD_KEY_HEADER};
use crate::row_record::{Change, RowRecord, Take, CHANGE, NEW_KEY, TOMBSTONE};
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
    /// Returns the texts around the row number of an event with another operation.
    pub texts_of: &'a dyn Fn(Operation) -> Option<NumberTexts>,
}

/// The texts before and after a row number.
pub type NumberTexts = (Vec<u8>, Vec<u8>);

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

    /// Return its letter in records.
    pub fn letter(self) -> &'static str {
        match self {
            Operation::Insert => "c",
            Operation::Update => "u",
            Operation::Delete => "d",
        }
    }

    /// Return what the records of its rows say.
    pub fn change(self) -> Change {
        match self {
            Operation::Insert => Change::Created,
            Operation::Update => Change::Updated,
            Operation::Delete => Change::Deleted,
        }
    }
}

/// Where an update's images lie: the second one in the data, the end of both there, and the end of the first in the value.
struct Images {
    second: usize,
    stop: usize,
    first_end: usize,
}

/// The decoder of one table version.
pub struct RowDecoder {
    pub columns: Vec<Column>,
    pub key_columns: usize,
    pub envelope: EnvelopeTexts,
    /// Partitions of the rows to produce; none for all.
    pub assigned: Option<AssignedPartitions>,
    /// Whether a deleted row has a record, and whether it has a tombstone after that.
    pub deletes: (bool, bool),
    /// Values are rows alone, without numbers, and an update has only the row after it: whether deletes have theirs.
    pub unwrapped: Option<bool>,
    /// Writes the other key of an update that changes the key; without it such an update is left to Python.
    pub key_header: Option<KeyHeader>,
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
        let texts = (rows.before_number, rows.after_number);
        let (mut at, mut number, mut produced, mut split) = (0, rows.first, 0, None);
        while at < rows.data.len() {
            if let Some(stop) = self.unassigned(operation, at, rows.data, scratch)? {
                (at, number) = (stop, number + 1);
                continue;
            }
            let row_at = at;
            (number, produced) = (number + 1, produced + 1);
            match (operation, self.unwrapped) {
                (Operation::Insert, _) => at = self.first_image(&envelope.insert, at, rows, scratch)?,
                (Operation::Delete, Some(false)) => at = self.no_image(at, rows, scratch)?,
                (Operation::Delete, _) => at = self.first_image(&envelope.before, at, rows, scratch)?,
                (Operation::Update, Some(_)) => at = self.last_image(at, rows, scratch)?,
                (Operation::Update, None) => {
                    let images = self.both_images(at, rows, scratch)?;
                    at = images.stop;
                    if scratch.key != scratch.other_key {
                        self.changed_key((row_at, images), number - 1, rows, &mut split, scratch, take)?;
                        continue;
                    }
                }
            }
            self.end_value(&mut scratch.value, texts, number - 1);
            let key = (self.key_columns > 0).then_some(scratch.key.as_slice());
            let mut record = RowRecord {
                key,
                value: Some(&scratch.value),
                row: number - 1,
                number: CHANGE,
                header: None,
                partition: None,
                change: operation.change(),
            };
            let (with_record, with_tombstone) =
                if operation == Operation::Delete { self.deletes } else { (true, false) };
            if with_record {
                take(&record).ok_or(Declined::Call)?;
                record.change = Change::None;
            }
            if with_tombstone {
                (record.value, record.number) = (None, TOMBSTONE);
                take(&record).ok_or(Declined::Call)?;
            }
        }
        Ok((number - rows.first, produced))
    }

    /// Hand over the records of an update that changes the key: of the deleted row, a tombstone, and of the created row.
    ///
    /// Both images are in the scratch; `split` keeps the texts around row numbers from one such row of an event to the
    /// next.
    fn changed_key(
        &self,
        (row_at, images): (usize, Images),
        row: i64,
        rows: &Rows,
        split: &mut Option<[NumberTexts; 2]>,
        scratch: &mut Scratch,
        take: &mut Take,
    ) -> Result<(), Declined> {
        let key_header = self.key_header.as_ref().ok_or(Declined::KeyChange)?;
        if split.is_none() {
            let texts = |operation| (rows.texts_of)(operation).ok_or(Declined::KeyChange);
            *split = Some([texts(Operation::Delete)?, texts(Operation::Insert)?]);
        }
        let [deleted, created] = split.as_ref().ok_or(Declined::Defect)?;
        let Scratch { value, split_value, key, other_key, header, .. } = scratch;
        let write = |at, out: &mut Vec<u8>| key_header.write(&self.values(rows.data, at)?, out);
        write(images.second, header).ok_or(Declined::Value)?;
        split_value.clear();
        split_value.extend_from_slice(&value[..images.first_end]);
        self.end_value(split_value, (&deleted.0, &deleted.1), row);
        let mut record = RowRecord {
            key: Some(other_key),
            value: Some(split_value),
            row,
            number: CHANGE,
            header: Some((NEW_KEY_HEADER, header)),
            partition: None,
            change: Change::Deleted,
        };
        take(&record).ok_or(Declined::Call)?;
        if self.deletes.1 {
            (record.value, record.number, record.change) = (None, TOMBSTONE, Change::None);
            take(&record).ok_or(Declined::Call)?;
        }
        write(row_at, header).ok_or(Declined::Value)?;
        split_value.clear();
        split_value.extend_from_slice(&self.envelope.value_head);
        split_value.extend_from_slice(&self.envelope.insert);
        split_value.extend_from_slice(&value[images.first_end + self.envelope.between.len()..]);
        self.end_value(split_value, (&created.0, &created.1), row);
        take(&RowRecord {
            key: Some(key),
            value: Some(split_value),
            row,
            number: NEW_KEY,
            header: Some((OLD_KEY_HEADER, header)),
            partition: None,
            change: Change::Created,
        })
        .ok_or(Declined::Call)
    }

    /// Return the values of an image, none for NULL.
    fn values<'a>(&self, data: &'a [u8], at: usize) -> Option<Vec<Option<&'a [u8]>>> {
        let nulls = data.get(at..at + self.bitmap_bytes())?;
        let mut at = at + self.bitmap_bytes();
        let value = |(index, column): (usize, &Column)| match has_bit(nulls, index) {
            true => Some(None),
            false => take_value(data, &mut at, column.layout).map(Some),
        };
        self.columns.iter().enumerate().map(value).collect()
    }

    /// Add what follows the images to a value.
    fn end_value(&self, value: &mut Vec<u8>, (before, after): (&[u8], &[u8]), row: i64) {
        value.extend_from_slice(before);
        if self.envelope.binary {
            avro_binary::long(value, row);
        } else if self.unwrapped.is_none() {
            json_text::signed(value, row);
        }
        value.extend_from_slice(after);
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
                // It has records for several writers.
                return Ok(None);
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

    /// Begin a value with the second of two images; return the offset after it.
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

    /// Begin a value with both images of an update; their keys are in the scratch afterwards.
    fn both_images(&self, at: usize, rows: &Rows, scratch: &mut Scratch) -> Result<Images, Declined> {
        let second = self.first_image(&self.envelope.before, at, rows, scratch)?;
        let first_end = scratch.value.len();
        std::mem::swap(&mut scratch.key, &mut scratch.other_key);
        scratch.value.extend_from_slice(&self.envelope.between);
        let stop = self.image(rows.data, second, scratch).ok_or(Declined::Value)?;
        Ok(Images { second, stop, first_end })
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
