//! What becomes of a column's value.

use crate::avro::{AvroOp, Way};
use crate::calendar::fraction_bytes;
use crate::charset::Charset;
use crate::events::little;
use crate::flat_op::FlatOp;
use crate::json;
use crate::number::{self, Decimal, DecimalMode};
use crate::spatial;
use crate::temporal::{OfDay, Temporal};
use crate::text;

/// How a value lies in a row image.
#[derive(Clone, Copy)]
pub enum Layout {
    Fixed(usize),
    /// So many bytes of length before the data.
    Prefixed(usize),
}

#[derive(Clone, Copy)]
pub enum Clock {
    Date,
    DateTime,
    Timestamp,
    Time,
    OldDateTime,
    OldTimestamp,
    OldTime,
}

pub enum Op {
    Signed,
    Unsigned,
    /// True when above zero, else when not zero.
    Boolean {
        signed: bool,
        above: bool,
    },
    UnsignedBase64,
    Decimal(Decimal, DecimalMode),
    Float,
    FloatAsDouble,
    Double,
    DoubleAsFloat,
    Bit,
    Bits,
    Enum(Vec<Vec<u8>>),
    Set(Vec<Vec<u8>>),
    Binary {
        pad: usize,
        write: fn(&mut Vec<u8>, &[u8]),
    },
    Text(Charset),
    WideChar(Charset),
    Json,
    Geometry,
    Point,
    Vector,
    Year,
    Clock(Clock, Temporal),
    Flat(FlatOp),
    Avro(Box<AvroOp>),
}

pub fn signed(data: &[u8]) -> i64 {
    let shift = 64 - 8 * data.len() as u32;
    ((little(data) << shift) as i64) >> shift
}

pub fn float(data: &[u8]) -> f32 {
    f32::from_bits(little(data) as u32)
}

fn boolean(out: &mut Vec<u8>, value: bool) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
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

impl Op {
    /// Add the JSON text, or the bytes in Avro, of a value; None for what has none.
    pub fn write(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        match self {
            Op::Signed => text::signed(out, signed(data)),
            Op::Unsigned => text::unsigned(out, little(data)),
            Op::Boolean { signed: with_sign, above } => {
                let value = if *with_sign { signed(data) } else { little(data) as i64 };
                boolean(out, if *above { value > 0 } else { value != 0 });
            }
            Op::UnsignedBase64 => return quoted(out, |out| number::base64_unsigned(out, little(data))),
            Op::Decimal(form, DecimalMode::Double) => return form.write(out, data, DecimalMode::Double),
            Op::Decimal(form, mode) => {
                out.push(b'"');
                form.write(out, data, *mode)?;
                out.push(b'"');
            }
            Op::Float => return number::java_float(out, float(data)),
            Op::FloatAsDouble => return number::java_double(out, f64::from(float(data))),
            Op::Double => return number::java_double(out, f64::from_bits(little(data))),
            Op::DoubleAsFloat => return number::narrowed(out, f64::from_bits(little(data))),
            Op::Bit if data[0] > 1 => return None,
            Op::Bit => boolean(out, data[0] == 1),
            Op::Bits => {
                // MySQL stores big-endian, Debezium writes little-endian.
                let turned: Vec<u8> = data.iter().rev().copied().collect();
                return quoted(out, |out| text::base64(out, &turned));
            }
            Op::Enum(texts) => out.extend_from_slice(texts.get(little(data) as usize)?),
            Op::Set(members) => return set(out, members, little(data)),
            Op::Binary { pad, write } if data.len() < *pad => {
                // The server cuts trailing zero bytes of BINARY(n) in row images.
                let mut whole = data.to_vec();
                whole.resize(*pad, 0);
                return quoted(out, |out| write(out, &whole));
            }
            Op::Binary { write, .. } => return quoted(out, |out| write(out, data)),
            Op::Text(charset) => {
                out.push(b'"');
                charset.write(out, data)?;
                out.push(b'"');
            }
            Op::WideChar(charset) => {
                out.push(b'"');
                charset.write_fixed(out, data)?;
                out.push(b'"');
            }
            Op::Json => {
                out.push(b'"');
                json::inside_string(out, data)?;
                out.push(b'"');
            }
            Op::Geometry => return spatial::geometry(out, data),
            Op::Point => return spatial::point(out, data),
            Op::Vector => return spatial::vector(out, data),
            // 0 is the year 0000; other values count from 1900.
            Op::Year => text::unsigned(out, if data[0] == 0 { 0 } else { 1900 + u64::from(data[0]) }),
            Op::Clock(kind, form) => return clock(*kind, form, out, data),
            Op::Flat(form) => return form.write(out, data),
            Op::Avro(op) => return op.write(out, data),
        }
        Some(())
    }
}

fn quoted(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> Option<()> {
    out.push(b'"');
    write(out);
    out.push(b'"');
    Some(())
}

fn clock(kind: Clock, form: &Temporal, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
    match kind {
        Clock::Date => form.date(out, data),
        Clock::DateTime => form.datetime(out, data),
        Clock::Timestamp => form.timestamp2(out, data),
        Clock::Time => form.time(out, data),
        Clock::OldDateTime => form.old_datetime(out, little(data)),
        Clock::OldTimestamp => form.timestamp(out, little(data) as i64, &[]),
        Clock::OldTime => form.old_time(out, signed(data)),
    }
}

/// What a column's value is made of, from its name, numbers and texts; None for what is not known here.
pub fn op_of(name: &str, numbers: &[i64], texts: Vec<Vec<u8>>) -> Option<(Layout, Op)> {
    let first = *numbers.first().unwrap_or(&0);
    let second = *numbers.get(1).unwrap_or(&0);
    let fixed = |op| Some((Layout::Fixed(usize::try_from(first).ok().filter(|n| (1..=8).contains(n))?), op));
    let prefixed = |op| Some((Layout::Prefixed(usize::try_from(first).ok().filter(|n| (1..=4).contains(n))?), op));
    match name {
        "signed" => fixed(Op::Signed),
        "unsigned" => fixed(Op::Unsigned),
        "boolean" => fixed(Op::Boolean { signed: second & 1 != 0, above: second & 2 != 0 }),
        "unsigned_base64" => fixed(Op::UnsignedBase64),
        "decimal_precise" => decimal(first, second, DecimalMode::Precise),
        "decimal_string" => decimal(first, second, DecimalMode::Text),
        "decimal_double" => decimal(first, second, DecimalMode::Double),
        "float" => Some((Layout::Fixed(4), Op::Float)),
        "float_as_double" => Some((Layout::Fixed(4), Op::FloatAsDouble)),
        "double" => Some((Layout::Fixed(8), Op::Double)),
        "double_as_float" => Some((Layout::Fixed(8), Op::DoubleAsFloat)),
        "bit" => Some((Layout::Fixed(1), Op::Bit)),
        "bits" => fixed(Op::Bits),
        "enum" => fixed(Op::Enum(texts)),
        "set" => fixed(Op::Set(texts)),
        "bytes" | "base64" => prefixed(Op::Binary { pad: usize::try_from(second).ok()?, write: text::base64 }),
        "base64-url-safe" => prefixed(Op::Binary { pad: usize::try_from(second).ok()?, write: text::base64_url }),
        "hex" => prefixed(Op::Binary { pad: usize::try_from(second).ok()?, write: text::hex }),
        "json" => prefixed(Op::Json),
        "geometry" => prefixed(Op::Geometry),
        "point" => prefixed(Op::Point),
        "vector" => prefixed(Op::Vector),
        "year" => Some((Layout::Fixed(1), Op::Year)),
        _ => match name.split_once(':')? {
            ("text", charset) => prefixed(Op::Text(Charset::new(charset, texts)?)),
            ("char", charset) => prefixed(Op::WideChar(Charset::new(charset, texts)?)),
            ("flat", kind) => FlatOp::of(kind, first, second).map(|(layout, form)| (layout, Op::Flat(form))),
            ("clock", kind) => temporal(kind, numbers, texts),
            ("avro-stored", inner) => avro(Way::Stored, inner, numbers, texts),
            ("avro-shown", inner) => avro(Way::Shown, inner, numbers, texts),
            ("avro-double", inner) => avro(Way::Double, inner, numbers, texts),
            _ => None,
        },
    }
}

/// A value in Avro, made of an operation whose texts come behind those of `AvroOp`.
fn avro(way: Way, inner: &str, numbers: &[i64], mut texts: Vec<Vec<u8>>) -> Option<(Layout, Op)> {
    let rest = texts.split_off(texts.len().min(3));
    let [head, zero, null]: [Vec<u8>; 3] = texts.try_into().ok()?;
    let (layout, inner) = op_of(inner, numbers, rest)?;
    let op = AvroOp { way, inner, head, zero, null };
    op.knows().then(|| (layout, Op::Avro(Box::new(op))))
}

fn decimal(precision: i64, scale: i64, mode: DecimalMode) -> Option<(Layout, Op)> {
    let form = Decimal::new(precision, scale)?;
    Some((Layout::Fixed(form.size()), Op::Decimal(form, mode)))
}

/// A date or time of the binlog; numbers and texts are those of `Temporal::new`.
fn temporal(kind: &str, numbers: &[i64], texts: Vec<Vec<u8>>) -> Option<(Layout, Op)> {
    let form = Temporal::new(numbers, texts)?;
    let more = fraction_bytes(form.digits);
    let (size, clock) = match kind {
        "date" => (3, Clock::Date),
        "datetime" => (5 + more, Clock::DateTime),
        "timestamp" => (4 + more, Clock::Timestamp),
        "time" => (3 + more, Clock::Time),
        "old_datetime" => (8, Clock::OldDateTime),
        "old_timestamp" => (4, Clock::OldTimestamp),
        "old_time" => (3, Clock::OldTime),
        _ => return None,
    };
    if form.of_day == OfDay::No && form.unit == 0 && matches!(clock, Clock::Time | Clock::OldTime) {
        return None;
    }
    Some((Layout::Fixed(size), Op::Clock(clock, form)))
}
