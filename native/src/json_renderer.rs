//! How the values of row images are written as JSON: what `cdc/decode/codegen/renderers.py` writes.

use crate::binary_json;
use crate::byte_order::{double, float, little_endian, signed_little_endian};
use crate::calendar::fraction_bytes;
use crate::charset::Charset;
use crate::decimal::{self, DecimalMode, PackedDecimal};
use crate::java_floats;
use crate::json_text::{self, quoted};
use crate::spatial;
use crate::temporal_format::{TemporalFormat, TimeOfDay};
use crate::ticdc_renderer::TicdcRenderer;
use crate::value_layout::Layout;

/// The temporal types of the binlog; those of MySQL 5.5 have no fractions.
#[derive(Clone, Copy)]
pub enum TemporalType {
    Date,
    DateTime,
    Timestamp,
    Time,
    OldDateTime,
    OldTimestamp,
    OldTime,
}

/// How the values of a column are written.
pub enum JsonRenderer {
    Signed,
    Unsigned,
    /// True when above zero, else when not zero.
    Boolean {
        signed: bool,
        above_zero: bool,
    },
    UnsignedBase64,
    Decimal(PackedDecimal, DecimalMode),
    Float,
    FloatAsDouble,
    Double,
    DoubleAsFloat,
    Bit,
    Bits,
    /// The text of each number that is stored.
    Enum(Vec<Vec<u8>>),
    /// The text of each bit.
    Set(Vec<Vec<u8>>),
    Binary {
        pad: usize,
        write: fn(&mut Vec<u8>, &[u8]),
    },
    Text(Charset),
    /// CHAR of a character set of two or four bytes a character.
    WideChar(Charset),
    Json,
    Geometry,
    Point,
    Vector,
    Year,
    Temporal(TemporalType, TemporalFormat),
    Ticdc(TicdcRenderer),
}

impl JsonRenderer {
    /// Return how a column lies in row images and is written, from the name of its renderer with numbers and texts; None
    /// for an unknown name.
    pub fn of(name: &str, numbers: &[i64], texts: Vec<Vec<u8>>) -> Option<(Layout, JsonRenderer)> {
        let first = *numbers.first().unwrap_or(&0);
        let second = *numbers.get(1).unwrap_or(&0);
        let fixed = |renderer| Some((Layout::Fixed(size_of(first, 8)?), renderer));
        let prefixed = |renderer| Some((Layout::Prefixed(size_of(first, 4)?), renderer));
        let binary = |write| prefixed(JsonRenderer::Binary { pad: usize::try_from(second).ok()?, write });
        match name {
            "signed" => fixed(JsonRenderer::Signed),
            "unsigned" => fixed(JsonRenderer::Unsigned),
            "boolean" => fixed(JsonRenderer::Boolean { signed: second & 1 != 0, above_zero: second & 2 != 0 }),
            "unsigned_base64" => fixed(JsonRenderer::UnsignedBase64),
            "decimal_precise" => decimal(first, second, DecimalMode::Precise),
            "decimal_string" => decimal(first, second, DecimalMode::Text),
            "decimal_double" => decimal(first, second, DecimalMode::Double),
            "float" => Some((Layout::Fixed(4), JsonRenderer::Float)),
            "float_as_double" => Some((Layout::Fixed(4), JsonRenderer::FloatAsDouble)),
            "double" => Some((Layout::Fixed(8), JsonRenderer::Double)),
            "double_as_float" => Some((Layout::Fixed(8), JsonRenderer::DoubleAsFloat)),
            "bit" => Some((Layout::Fixed(1), JsonRenderer::Bit)),
            "bits" => fixed(JsonRenderer::Bits),
            "enum" => fixed(JsonRenderer::Enum(texts)),
            "set" => fixed(JsonRenderer::Set(texts)),
            "bytes" | "base64" => binary(json_text::base64),
            "base64-url-safe" => binary(json_text::base64_url),
            "hex" => binary(json_text::hex),
            "json" => prefixed(JsonRenderer::Json),
            "geometry" => prefixed(JsonRenderer::Geometry),
            "point" => prefixed(JsonRenderer::Point),
            "vector" => prefixed(JsonRenderer::Vector),
            "year" => Some((Layout::Fixed(1), JsonRenderer::Year)),
            _ => match name.split_once(':')? {
                ("text", charset) => prefixed(JsonRenderer::Text(Charset::new(charset, texts)?)),
                ("char", charset) => prefixed(JsonRenderer::WideChar(Charset::new(charset, texts)?)),
                ("flat", kind) => {
                    TicdcRenderer::of(kind, first, second).map(|(layout, it)| (layout, JsonRenderer::Ticdc(it)))
                }
                ("clock", kind) => temporal(kind, numbers, texts),
                _ => None,
            },
        }
    }

    /// Add the JSON text of a value; None for what has none.
    pub fn write(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        match self {
            JsonRenderer::Signed => json_text::signed(out, signed_little_endian(data)),
            JsonRenderer::Unsigned => json_text::unsigned(out, little_endian(data)),
            JsonRenderer::Boolean { signed, above_zero } => {
                json_text::boolean(out, is_true(data, *signed, *above_zero))
            }
            JsonRenderer::UnsignedBase64 => quoted(out, |out| decimal::base64_unsigned(out, little_endian(data))),
            JsonRenderer::Decimal(packed, DecimalMode::Double) => return packed.write(out, data, DecimalMode::Double),
            JsonRenderer::Decimal(packed, mode) => {
                out.push(b'"');
                packed.write(out, data, *mode)?;
                out.push(b'"');
            }
            JsonRenderer::Float => return java_floats::float(out, float(data)),
            JsonRenderer::FloatAsDouble => return java_floats::double(out, f64::from(float(data))),
            JsonRenderer::Double => return java_floats::double(out, double(data)),
            JsonRenderer::DoubleAsFloat => return java_floats::double_as_float(out, double(data)),
            JsonRenderer::Bit if data[0] > 1 => return None,
            JsonRenderer::Bit => json_text::boolean(out, data[0] == 1),
            JsonRenderer::Bits => {
                // MySQL stores big-endian, Debezium writes little-endian.
                let turned: Vec<u8> = data.iter().rev().copied().collect();
                quoted(out, |out| json_text::base64(out, &turned));
            }
            JsonRenderer::Enum(texts) => out.extend_from_slice(texts.get(little_endian(data) as usize)?),
            JsonRenderer::Set(members) => return set(out, members, little_endian(data)),
            JsonRenderer::Binary { pad, write } if data.len() < *pad => {
                // The server cuts trailing zero bytes of BINARY(n) in row images.
                let mut whole = data.to_vec();
                whole.resize(*pad, 0);
                quoted(out, |out| write(out, &whole));
            }
            JsonRenderer::Binary { write, .. } => quoted(out, |out| write(out, data)),
            JsonRenderer::Text(charset) => {
                out.push(b'"');
                charset.write(out, data)?;
                out.push(b'"');
            }
            JsonRenderer::WideChar(charset) => {
                out.push(b'"');
                charset.write_fixed(out, data)?;
                out.push(b'"');
            }
            JsonRenderer::Json => {
                out.push(b'"');
                binary_json::inside_string(out, data)?;
                out.push(b'"');
            }
            JsonRenderer::Geometry => return spatial::geometry(out, data),
            JsonRenderer::Point => return spatial::point(out, data),
            JsonRenderer::Vector => return spatial::vector(out, data),
            // 0 is the year 0000; other values count from 1900.
            JsonRenderer::Year => json_text::unsigned(out, if data[0] == 0 { 0 } else { 1900 + u64::from(data[0]) }),
            JsonRenderer::Temporal(kind, format) => return write_temporal(*kind, format, out, data),
            JsonRenderer::Ticdc(renderer) => return renderer.write_json(out, data),
        }
        Some(())
    }
}

/// Return whether a number means true: one above zero, or one that is not zero.
pub fn is_true(data: &[u8], signed: bool, above_zero: bool) -> bool {
    let value = if signed { signed_little_endian(data) } else { little_endian(data) as i64 };
    if above_zero {
        value > 0
    } else {
        value != 0
    }
}

fn set(out: &mut Vec<u8>, members: &[Vec<u8>], mask: u64) -> Option<()> {
    if members.len() < 64 && mask >> members.len() != 0 {
        return None;
    }
    out.push(b'"');
    let mut first = true;
    for (index, member) in members.iter().enumerate().take(64) {
        if mask >> index & 1 == 1 {
            if !first {
                out.push(b',');
            }
            first = false;
            out.extend_from_slice(member);
        }
    }
    out.push(b'"');
    Some(())
}

fn write_temporal(kind: TemporalType, format: &TemporalFormat, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
    match kind {
        TemporalType::Date => format.date(out, data),
        TemporalType::DateTime => format.datetime(out, data),
        TemporalType::Timestamp => format.timestamp2(out, data),
        TemporalType::Time => format.time(out, data),
        TemporalType::OldDateTime => format.old_datetime(out, little_endian(data)),
        TemporalType::OldTimestamp => format.timestamp(out, little_endian(data) as i64, &[]),
        TemporalType::OldTime => format.old_time(out, signed_little_endian(data)),
    }
}

fn size_of(number: i64, most: usize) -> Option<usize> {
    usize::try_from(number).ok().filter(|size| (1..=most).contains(size))
}

fn decimal(precision: i64, scale: i64, mode: DecimalMode) -> Option<(Layout, JsonRenderer)> {
    let packed = PackedDecimal::new(precision, scale)?;
    Some((Layout::Fixed(packed.size()), JsonRenderer::Decimal(packed, mode)))
}

/// A date or time of the binlog; numbers and texts are those of `TemporalFormat::new`.
fn temporal(kind: &str, numbers: &[i64], texts: Vec<Vec<u8>>) -> Option<(Layout, JsonRenderer)> {
    let format = TemporalFormat::new(numbers, texts)?;
    let fraction = fraction_bytes(format.digits);
    let (size, kind) = match kind {
        "date" => (3, TemporalType::Date),
        "datetime" => (5 + fraction, TemporalType::DateTime),
        "timestamp" => (4 + fraction, TemporalType::Timestamp),
        "time" => (3 + fraction, TemporalType::Time),
        "old_datetime" => (8, TemporalType::OldDateTime),
        "old_timestamp" => (4, TemporalType::OldTimestamp),
        "old_time" => (3, TemporalType::OldTime),
        _ => return None,
    };
    let is_time = matches!(kind, TemporalType::Time | TemporalType::OldTime);
    if format.time_of_day == TimeOfDay::No && format.unit == 0 && is_time {
        return None;
    }
    Some((Layout::Fixed(size), JsonRenderer::Temporal(kind, format)))
}
