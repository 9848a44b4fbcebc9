//! How the values of the text protocol are written as JSON: what `cdc/decode/text_decoder.py` writes of a snapshot's rows.

use crate::decimal::{self, DecimalMode};
use crate::java_floats;
use crate::json_text::{self, quoted};
use crate::mysql_text;
use crate::spatial;
use crate::temporal_format::TemporalFormat;

/// How the values of a column are written.
pub enum TextJsonRenderer {
    /// As they are.
    Copy,
    /// A number without zeros before it.
    Plain,
    /// True when above zero, else when not zero.
    Boolean {
        above_zero: bool,
    },
    UnsignedBase64,
    /// An unsigned number as the signed one of the same 64 bits; one of fewer than 19 characters is copied, unless `plain`.
    Wrapped {
        plain: bool,
    },
    Decimal {
        scale: usize,
        mode: DecimalMode,
    },
    Float,
    Double,
    DoubleAsFloat,
    Bit,
    Bits,
    /// UTF-8; of CHAR without blanks at the end.
    Text {
        strip: bool,
    },
    Binary(fn(&mut Vec<u8>, &[u8])),
    Json,
    Geometry,
    Point,
    Vector,
    Date(TemporalFormat),
    Time(TemporalFormat),
    DateTime(TemporalFormat),
    Timestamp(TemporalFormat),
    /// A value that is in no record.
    Unused,
}

impl TextJsonRenderer {
    /// Return how a column's values are written, from the name of their renderer with numbers and texts; None for what is
    /// not supported.
    pub fn of(name: &str, numbers: &[i64], texts: Vec<Vec<u8>>) -> Option<TextJsonRenderer> {
        let first = *numbers.first().unwrap_or(&0);
        let scale = usize::try_from(first).ok().filter(|scale| *scale <= 65);
        let decimal = |mode| Some(TextJsonRenderer::Decimal { scale: scale?, mode });
        let temporal = |of: fn(TemporalFormat) -> TextJsonRenderer| TemporalFormat::new(numbers, texts).map(of);
        Some(match name {
            "copy" => TextJsonRenderer::Copy,
            "plain" => TextJsonRenderer::Plain,
            "boolean" => TextJsonRenderer::Boolean { above_zero: first != 0 },
            "unsigned_base64" => TextJsonRenderer::UnsignedBase64,
            "wrapped" => TextJsonRenderer::Wrapped { plain: first != 0 },
            "decimal_precise" => return decimal(DecimalMode::Precise),
            "decimal_string" => return decimal(DecimalMode::Text),
            "decimal_double" => return decimal(DecimalMode::Double),
            "float" => TextJsonRenderer::Float,
            "double" => TextJsonRenderer::Double,
            "double_as_float" => TextJsonRenderer::DoubleAsFloat,
            "bit" => TextJsonRenderer::Bit,
            "bits" => TextJsonRenderer::Bits,
            "text" => TextJsonRenderer::Text { strip: first != 0 },
            "bytes" | "base64" => TextJsonRenderer::Binary(json_text::base64),
            "base64-url-safe" => TextJsonRenderer::Binary(json_text::base64_url),
            "hex" => TextJsonRenderer::Binary(json_text::hex),
            "json" => TextJsonRenderer::Json,
            "geometry" => TextJsonRenderer::Geometry,
            "point" => TextJsonRenderer::Point,
            "vector" => TextJsonRenderer::Vector,
            "date" => return temporal(TextJsonRenderer::Date),
            "time" => return temporal(TextJsonRenderer::Time),
            "datetime" => return temporal(TextJsonRenderer::DateTime),
            "timestamp" => return temporal(TextJsonRenderer::Timestamp),
            "passed" => TextJsonRenderer::Unused,
            _ => return None,
        })
    }

    /// Add the JSON text of a value; None for what has none, or is not as the server writes it.
    pub fn write(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        match self {
            TextJsonRenderer::Copy => out.extend_from_slice(data),
            TextJsonRenderer::Plain => json_text::signed_wide(out, mysql_text::integer(data)?),
            TextJsonRenderer::Boolean { above_zero } => {
                json_text::boolean(out, mysql_text::is_true(data, *above_zero)?)
            }
            TextJsonRenderer::UnsignedBase64 => {
                let value = mysql_text::unsigned(data)?;
                quoted(out, |out| decimal::base64_unsigned(out, value));
            }
            TextJsonRenderer::Wrapped { plain: false } if data.len() < 19 => out.extend_from_slice(data),
            TextJsonRenderer::Wrapped { .. } => json_text::signed(out, mysql_text::unsigned(data)? as i64),
            TextJsonRenderer::Decimal { scale, mode } => return write_decimal(out, data, *scale, *mode),
            TextJsonRenderer::Float => return java_floats::float(out, mysql_text::float(data)?),
            TextJsonRenderer::Double => return java_floats::double(out, mysql_text::double(data)?),
            TextJsonRenderer::DoubleAsFloat => return java_floats::double_as_float(out, mysql_text::double(data)?),
            TextJsonRenderer::Bit => json_text::boolean(out, *data.first()? != 0),
            TextJsonRenderer::Bits => {
                // MySQL gives big-endian, Debezium writes little-endian.
                let turned: Vec<u8> = data.iter().rev().copied().collect();
                quoted(out, |out| json_text::base64(out, &turned));
            }
            TextJsonRenderer::Text { strip } => {
                out.push(b'"');
                json_text::escaped_utf8(out, if *strip { mysql_text::without_blanks(data) } else { data })?;
                out.push(b'"');
            }
            TextJsonRenderer::Binary(write) => quoted(out, |out| write(out, data)),
            TextJsonRenderer::Json => {
                out.push(b'"');
                json_text::escaped_utf8(out, &mysql_text::compact_json(data)?)?;
                out.push(b'"');
            }
            TextJsonRenderer::Geometry => return spatial::geometry(out, data),
            TextJsonRenderer::Point => return spatial::point(out, data),
            TextJsonRenderer::Vector => return spatial::vector(out, data),
            TextJsonRenderer::Date(format) => return format.date_of_text(out, data),
            TextJsonRenderer::Time(format) => return format.time_of_text(out, data),
            TextJsonRenderer::DateTime(format) => return format.datetime_of_text(out, data),
            TextJsonRenderer::Timestamp(format) => return format.timestamp_of_text(out, data),
            TextJsonRenderer::Unused => {}
        }
        Some(())
    }
}

fn write_decimal(out: &mut Vec<u8>, data: &[u8], scale: usize, mode: DecimalMode) -> Option<()> {
    if let DecimalMode::Double = mode {
        return java_floats::double(out, mysql_text::double(data)?);
    }
    let (negative, digits) = mysql_text::decimal_digits(data, scale)?;
    quoted(out, |out| decimal::decimal_digits(out, negative, &digits, scale, mode));
    Some(())
}
