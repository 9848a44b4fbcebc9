//! The partition that a row in TiCDC's protocol goes to: by its table, or by the values of some columns.

use crc32fast::Hasher;

use crate::binary_json;
use crate::byte_order::little_endian;
use crate::json_renderer::JsonRenderer;
use crate::json_text;
use crate::row_decoder::RowDecoder;
use crate::value_layout::{has_bit, take_value};

/// A column that decides where rows go: its index, the checksum of its name, and its renderer: name, numbers, texts.
pub type DispatchColumnPlan = (usize, u32, String, Vec<i64>, Vec<Vec<u8>>);
/// Partitions, what the checksums of values are joined with, and the columns that they are of.
pub type DispatcherPlan = (u32, u32, Vec<DispatchColumnPlan>);

struct DispatchColumn {
    index: usize,
    name_checksum: u32,
    renderer: JsonRenderer,
}

/// How the rows of a table are distributed over the partitions of their topic.
pub struct Dispatcher {
    partitions: u32,
    /// What the checksums of values are joined with; without columns it decides alone.
    seed: u32,
    columns: Vec<DispatchColumn>,
}

impl Dispatcher {
    /// Return the dispatcher of a table with so many columns; None for one with something that is not supported.
    pub fn of((partitions, seed, columns): DispatcherPlan, width: usize) -> Option<Dispatcher> {
        let column = |(index, name_checksum, name, numbers, texts): DispatchColumnPlan| {
            let (_, renderer) = JsonRenderer::of(&name, &numbers, texts)?;
            let known = index < width && has_dispatch_text(&renderer);
            known.then_some(DispatchColumn { index, name_checksum, renderer })
        };
        let columns = columns.into_iter().map(column).collect::<Option<_>>()?;
        (partitions > 0).then_some(Dispatcher { partitions, seed, columns })
    }

    /// Return the partition of the row with the image that begins at an offset.
    pub fn partition(&self, decoder: &RowDecoder, data: &[u8], at: usize, text: &mut Vec<u8>) -> Option<u32> {
        let mut sum = self.seed;
        if self.columns.is_empty() {
            return Some(sum % self.partitions);
        }
        let mut at = at;
        let nulls = data.get(at..at + decoder.bitmap_bytes())?;
        at += decoder.bitmap_bytes();
        for (index, column) in decoder.columns.iter().enumerate() {
            let null = has_bit(nulls, index);
            let raw = if null { &[] } else { take_value(data, &mut at, column.layout)? };
            for column in self.columns.iter().filter(|column| column.index == index) {
                text.clear();
                if null {
                    text.extend_from_slice(b"null");
                } else {
                    dispatch_text(&column.renderer, text, raw)?;
                }
                let mut hasher = Hasher::new_with_initial(column.name_checksum);
                hasher.update(text);
                sum ^= hasher.finalize();
            }
        }
        Some(sum % self.partitions)
    }
}

/// Return whether the text of which checksums are made is supported for the values of a column.
fn has_dispatch_text(renderer: &JsonRenderer) -> bool {
    !matches!(
        renderer,
        JsonRenderer::Boolean { .. }
            | JsonRenderer::Float
            | JsonRenderer::FloatAsDouble
            | JsonRenderer::Double
            | JsonRenderer::DoubleAsFloat
            | JsonRenderer::Geometry
            | JsonRenderer::Point
            | JsonRenderer::Vector
            | JsonRenderer::Temporal(..)
    )
}

/// Add the text of a value of which checksums are made: what JSON shows of it, without quotes and escapes.
fn dispatch_text(renderer: &JsonRenderer, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
    match renderer {
        JsonRenderer::Text(charset) => return charset.write_plain(out, data),
        JsonRenderer::WideChar(charset) => return charset.write_plain_fixed(out, data),
        JsonRenderer::Json => return binary_json::document(out, data),
        JsonRenderer::Bit => json_text::unsigned(out, u64::from(data[0])),
        JsonRenderer::Enum(texts) => out.extend_from_slice(texts.get(little_endian(data) as usize)?),
        _ => {
            renderer.write(out, data)?;
            if out.first() == Some(&b'"') {
                out.pop();
                out.remove(0);
            }
        }
    }
    Some(())
}
