//! How the values of the text protocol are written as Avro: what `cdc/avro/avro_text_renderers.py` writes.

use crate::avro_binary;
use crate::avro_union::AvroUnion;
use crate::decimal::{self, DecimalMode};
use crate::json_text;
use crate::mysql_text;
use crate::text_json_renderer::TextJsonRenderer;

/// How the values of a column are written.
pub struct TextAvroRenderer {
    /// Whether a value's Avro is made of its JSON text, a whole number or a string without escapes, or else of MySQL's text.
    from_json: bool,
    /// How they are written as JSON.
    json: TextJsonRenderer,
    /// Bits of a whole number.
    bits: u32,
    union: AvroUnion,
}

impl TextAvroRenderer {
    /// Return how a column's values are written, from a name `avro-stored:` or `avro-shown:` with that of their JSON
    /// renderer, whose texts follow those of `AvroUnion`; a whole number comes with its bits. None for what is not
    /// supported.
    pub fn of(name: &str, numbers: &[i64], texts: Vec<Vec<u8>>) -> Option<TextAvroRenderer> {
        let (from_json, json) = match name.split_once(':')? {
            ("avro-stored", json) => (false, json),
            ("avro-shown", json) => (true, json),
            _ => return None,
        };
        let (union, texts) = AvroUnion::split(texts)?;
        let json = TextJsonRenderer::of(json, numbers, texts)?;
        let is_integer = matches!(json, TextJsonRenderer::Copy | TextJsonRenderer::Plain);
        let bits = numbers.first().filter(|_| is_integer).map_or(Some(64), |&bits| u32::try_from(bits).ok())?;
        let renderer = TextAvroRenderer { from_json, json, bits, union };
        renderer.is_known().then_some(renderer)
    }

    /// Return whether `write` has something for the values.
    fn is_known(&self) -> bool {
        match &self.json {
            TextJsonRenderer::Geometry
            | TextJsonRenderer::Point
            | TextJsonRenderer::Vector
            | TextJsonRenderer::Unused => false,
            TextJsonRenderer::Date(_)
            | TextJsonRenderer::Time(_)
            | TextJsonRenderer::DateTime(_)
            | TextJsonRenderer::Timestamp(_)
            | TextJsonRenderer::Decimal { mode: DecimalMode::Text, .. } => self.from_json,
            TextJsonRenderer::Copy | TextJsonRenderer::Plain => {
                !self.from_json && (matches!(self.bits, 1..=32) || self.bits == 64)
            }
            TextJsonRenderer::Binary(_) => true,
            _ => !self.from_json,
        }
    }

    /// Add a value; None for what Avro, or the column, cannot hold.
    #[inline(never)]
    pub fn write(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        if self.from_json {
            self.json_text(out, data)
        } else {
            self.mysql_text(out, data)
        }
    }

    fn json_text(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        let from = out.len();
        self.json.write(out, data)?;
        let text = &out[from..];
        if let Some(substitute) = self.union.substitute(text) {
            out.truncate(from);
            out.extend_from_slice(substitute);
            return Some(());
        }
        if text.first() != Some(&b'"') {
            let value = std::str::from_utf8(text).ok()?.parse().ok()?;
            out.truncate(from);
            out.extend_from_slice(&self.union.branch);
            avro_binary::long(out, value);
            return Some(());
        }
        let text = out.split_off(from);
        let inside = text.get(1..text.len() - 1)?;
        out.extend_from_slice(&self.union.branch);
        avro_binary::bytes(out, inside);
        json_text::is_plain_ascii(inside).then_some(())
    }

    fn mysql_text(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        out.extend_from_slice(&self.union.branch);
        match &self.json {
            TextJsonRenderer::Copy | TextJsonRenderer::Plain => {
                avro_binary::long(out, mysql_text::integer_of_bits(data, self.bits)?)
            }
            TextJsonRenderer::Boolean { above_zero } => {
                avro_binary::boolean(out, mysql_text::is_true(data, *above_zero)?)
            }
            TextJsonRenderer::UnsignedBase64 => {
                avro_binary::decimal(out, &u128::from(mysql_text::unsigned(data)?).to_be_bytes())
            }
            TextJsonRenderer::Wrapped { .. } => avro_binary::long(out, mysql_text::unsigned(data)? as i64),
            TextJsonRenderer::Decimal { scale, mode: DecimalMode::Precise } => {
                let (negative, digits) = mysql_text::decimal_digits(data, *scale)?;
                decimal::complement_of_digits(negative, &digits, |bytes| avro_binary::decimal(out, bytes));
            }
            TextJsonRenderer::Decimal { mode: DecimalMode::Double, .. } | TextJsonRenderer::Double => {
                return avro_binary::double(out, mysql_text::double(data)?)
            }
            TextJsonRenderer::Float => return avro_binary::float(out, mysql_text::float(data)?),
            TextJsonRenderer::DoubleAsFloat => return avro_binary::float(out, mysql_text::double(data)? as f32),
            TextJsonRenderer::Bit => avro_binary::boolean(out, *data.first()? != 0),
            TextJsonRenderer::Bits => avro_binary::bits(out, data),
            TextJsonRenderer::Text { strip } => {
                return avro_binary::string(out, if *strip { mysql_text::without_blanks(data) } else { data })
            }
            TextJsonRenderer::Binary(_) => avro_binary::bytes(out, data),
            TextJsonRenderer::Json => return avro_binary::string(out, &mysql_text::compact_json(data)?),
            _ => return None,
        }
        Some(())
    }
}
