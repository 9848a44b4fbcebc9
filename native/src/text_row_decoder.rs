//! The rows of a SELECT of one table in the text protocol, decoded into keys and values.

use crate::avro_binary;
use crate::byte_order::little_endian;
use crate::declined::Declined;
use crate::json_text;
use crate::scratch::{Scratch, Span};
use crate::text_column_renderer::TextColumnRenderer;

/// A column of the SELECT.
pub struct TextColumn {
    pub nullable: bool,
    /// Text for NULL.
    pub null: Vec<u8>,
    pub renderer: TextColumnRenderer,
}

/// A member of a value or a key: its label, and a column or a constant.
pub struct Member {
    pub label: Vec<u8>,
    pub column: Option<usize>,
    pub constant: Vec<u8>,
}

/// The decoder of one table's rows.
pub struct TextRowDecoder {
    columns: Vec<TextColumn>,
    value: Vec<Member>,
    key: Vec<Member>,
    key_head: Vec<u8>,
    key_tail: Vec<u8>,
    value_head: Vec<u8>,
    /// Text before, between and after the members of an image; between those of a key as well.
    image: [Vec<u8>; 3],
    /// Whether row numbers, and times after them, are written as Avro writes them.
    pub binary: bool,
    /// Whether values have row numbers.
    numbered: bool,
}

impl TextRowDecoder {
    /// Return the decoder of a table's rows.
    ///
    /// `envelope` has the texts before and after keys, and before the image in values; then those before, between and after
    /// the members of an image.
    pub fn of(
        columns: Vec<TextColumn>,
        value: Vec<Member>,
        key: Vec<Member>,
        envelope: Vec<Vec<u8>>,
        (binary, numbered): (bool, bool),
    ) -> Option<TextRowDecoder> {
        let [key_head, key_tail, value_head, open, comma, close]: [Vec<u8>; 6] = envelope.try_into().ok()?;
        let image = [open, comma, close];
        Some(TextRowDecoder { columns, value, key, key_head, key_tail, value_head, image, binary, numbered })
    }

    /// Return whether records have keys.
    pub fn has_key(&self) -> bool {
        !self.key.is_empty()
    }

    /// Put the record of a row into the scratch's key and value; `around` are the texts before and after its number.
    pub fn decode(
        &self,
        data: &[u8],
        pos: usize,
        around: (&[u8], &[u8]),
        scratch: &mut Scratch,
        row: i64,
    ) -> Result<(), Declined> {
        self.columns(data, pos, scratch).ok_or(Declined::Value)?;
        let Scratch { value, key, apart, spans, .. } = scratch;
        value.clear();
        value.extend_from_slice(&self.value_head);
        let [open, comma, close] = &self.image;
        value.extend_from_slice(open);
        join(value, comma, &self.value, apart, spans);
        value.extend_from_slice(close);
        value.extend_from_slice(around.0);
        if self.binary {
            avro_binary::long(value, row);
        } else if self.numbered {
            json_text::signed(value, row);
        }
        value.extend_from_slice(around.1);
        key.clear();
        if self.has_key() {
            key.extend_from_slice(&self.key_head);
            join(key, comma, &self.key, apart, spans);
            key.extend_from_slice(&self.key_tail);
        }
        Ok(())
    }

    /// Render all columns of a row into the scratch.
    fn columns(&self, data: &[u8], pos: usize, scratch: &mut Scratch) -> Option<()> {
        let Scratch { apart, spans, .. } = scratch;
        apart.clear();
        spans.clear();
        let mut at = pos;
        for column in &self.columns {
            let (size, begin) = length(data, at)?;
            let start = apart.len();
            match size {
                Some(size) => {
                    let end = begin.checked_add(size)?;
                    column.renderer.write(apart, data.get(begin..end)?)?;
                    at = end;
                }
                None if column.nullable => {
                    apart.extend_from_slice(&column.null);
                    at = begin;
                }
                None => return None,
            }
            spans.push(Span { in_value: false, start, end: apart.len() });
        }
        (at == data.len()).then_some(())
    }
}

fn join(out: &mut Vec<u8>, comma: &[u8], members: &[Member], rendered: &[u8], spans: &[Span]) {
    for (index, member) in members.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(comma);
        }
        out.extend_from_slice(&member.label);
        match member.column {
            Some(column) => out.extend_from_slice(&rendered[spans[column].start..spans[column].end]),
            None => out.extend_from_slice(&member.constant),
        }
    }
}

/// Return a length-encoded size and the offset after it; NULL has none.
fn length(data: &[u8], at: usize) -> Option<(Option<usize>, usize)> {
    let more = match *data.get(at)? {
        251 => return Some((None, at + 1)),
        252 => 2,
        253 => 3,
        254 => 8,
        255 => return None,
        short => return Some((Some(usize::from(short)), at + 1)),
    };
    let bytes = data.get(at + 1..at + 1 + more)?;
    Some((Some(usize::try_from(little_endian(bytes)).ok()?), at + 1 + more))
}
