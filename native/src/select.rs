//! Rows of MySQL's text protocol: what `cdc/decode/text_decoder.py` writes of the rows of a snapshot.

use crate::avro;
use crate::avro_text::{self, AvroText};
use crate::kernel::{Declined, Scratch};
use crate::number::{self, DecimalMode};
use crate::spatial;
use crate::temporal::Temporal;
use crate::text;

/// What becomes of a value's text.
pub enum TextOp {
    /// As it is.
    Copy,
    /// A number without zeros before it.
    Plain,
    /// True when above zero, else when not zero.
    Boolean {
        above: bool,
    },
    UnsignedBase64,
    /// An unsigned number as the signed one of the same 64 bits; those of fewer than 19 characters are `short`.
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
    Date(Temporal),
    Time(Temporal),
    DateTime(Temporal),
    Timestamp(Temporal),
    /// A value that is in no record.
    Passed,
    Avro(Box<AvroText>),
}

/// A column of the SELECT.
pub struct TextColumn {
    pub nullable: bool,
    pub null: Vec<u8>,
    pub op: TextOp,
}

/// A member of a value or a key: its label, and a column or a text that stands for it.
pub struct Member {
    pub label: Vec<u8>,
    pub column: Option<usize>,
    pub constant: Vec<u8>,
}

pub struct TextKernel {
    pub columns: Vec<TextColumn>,
    pub value: Vec<Member>,
    pub key: Vec<Member>,
    key_head: Vec<u8>,
    key_tail: Vec<u8>,
    value_head: Vec<u8>,
    /// What stands before, between and behind the members of an image; between those of a key as well.
    image: [Vec<u8>; 3],
    /// Whether row numbers, and times behind rows, are written as Avro writes them.
    pub binary: bool,
}

/// Return a length-encoded size and the offset behind it; NULL has none.
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
    let size = bytes.iter().rev().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte));
    Some((Some(usize::try_from(size).ok()?), at + 1 + more))
}

impl TextKernel {
    /// Return the decoder of a table's rows.
    ///
    /// `around` has what stands before and behind keys, and before the image in values; of Avro then what stands before,
    /// between and behind the members of an image.
    pub fn of(
        columns: Vec<TextColumn>,
        value: Vec<Member>,
        key: Vec<Member>,
        mut around: Vec<Vec<u8>>,
    ) -> Option<TextKernel> {
        let image = around.split_off(around.len().min(3));
        let [key_head, key_tail, value_head]: [Vec<u8>; 3] = around.try_into().ok()?;
        let binary = !image.is_empty();
        let json = || [b"{", b",", b"}"].map(|text| text.to_vec());
        let image = if binary { image.try_into().ok()? } else { json() };
        Some(TextKernel { columns, value, key, key_head, key_tail, value_head, image, binary })
    }

    /// Put the record of a row into the scratch's key and value.
    pub fn run(
        &self,
        data: &[u8],
        pos: usize,
        around: (&[u8], &[u8]),
        scratch: &mut Scratch,
        row: i64,
    ) -> Result<(), Declined> {
        self.image(data, pos, scratch).ok_or(Declined::Data)?;
        let Scratch { value, key, side, spans, .. } = scratch;
        value.clear();
        value.extend_from_slice(&self.value_head);
        let [open, comma, close] = &self.image;
        value.extend_from_slice(open);
        join(value, comma, &self.value, side, spans);
        value.extend_from_slice(close);
        value.extend_from_slice(around.0);
        if self.binary {
            avro::varint(value, row);
        } else {
            text::signed(value, row);
        }
        value.extend_from_slice(around.1);
        key.clear();
        if !self.key.is_empty() {
            key.extend_from_slice(&self.key_head);
            join(key, comma, &self.key, side, spans);
            key.extend_from_slice(&self.key_tail);
        }
        Ok(())
    }

    fn image(&self, data: &[u8], pos: usize, scratch: &mut Scratch) -> Option<()> {
        let Scratch { side, spans, .. } = scratch;
        side.clear();
        spans.clear();
        let mut at = pos;
        for column in &self.columns {
            let (size, start) = length(data, at)?;
            let from = side.len();
            match size {
                Some(size) => {
                    let end = start.checked_add(size)?;
                    column.op.write(side, data.get(start..end)?)?;
                    at = end;
                }
                None if column.nullable => {
                    side.extend_from_slice(&column.null);
                    at = start;
                }
                None => return None,
            }
            spans.push((true, from, side.len()));
        }
        (at == data.len()).then_some(())
    }
}

const HEADER: usize = 4;
const EOF: u8 = 0xFE;
const ERROR: u8 = 0xFF;
/// A packet that ends the rows is shorter; a row that begins with the same byte is longer.
const EOF_BYTES: usize = 9;

/// Return the payload of the packet at an offset, and the offset behind it; None where it is not there as a whole.
pub fn packet(data: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let start = at.checked_add(HEADER)?;
    let header = data.get(at..start)?;
    let size = header[..3].iter().rev().fold(0, |sum, &byte| sum << 8 | usize::from(byte));
    Some((data.get(start..start + size)?, start + size))
}

/// Return how many rows of one packet stand here as a whole, the offset behind them and the next packet's number.
pub fn frames(data: &[u8], pos: usize, number: u8, largest: usize) -> (u64, usize, u8) {
    let (mut at, mut number, mut rows) = (pos, number, 0);
    while let Some((payload, stop)) = packet(data, at) {
        let Some(&first) = payload.first() else { break };
        let ends = first == ERROR || first == EOF && payload.len() < EOF_BYTES;
        if ends || data[at + 3] != number || payload.len() >= largest {
            break;
        }
        (at, number, rows) = (stop, number.wrapping_add(1), rows + 1);
    }
    (rows, at, number)
}

fn join(out: &mut Vec<u8>, comma: &[u8], members: &[Member], side: &[u8], spans: &[(bool, usize, usize)]) {
    for (index, member) in members.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(comma);
        }
        out.extend_from_slice(&member.label);
        match member.column {
            Some(column) => out.extend_from_slice(&side[spans[column].1..spans[column].2]),
            None => out.extend_from_slice(&member.constant),
        }
    }
}

/// Return a whole number of digits alone, with or without a minus.
pub fn whole(data: &[u8]) -> Option<i128> {
    let (negative, digits) = signed_digits(data)?;
    if digits.is_empty() || digits.len() > 30 {
        return None;
    }
    let size = digits.iter().fold(0i128, |sum, digit| sum * 10 + i128::from(digit - b'0'));
    Some(if negative { -size } else { size })
}

/// Return whether there is a minus, and what stands behind it; None for anything but digits there.
pub fn signed_digits(data: &[u8]) -> Option<(bool, &[u8])> {
    let (negative, digits) = match data.split_first() {
        Some((b'-', rest)) => (true, rest),
        _ => (false, data),
    };
    digits.iter().all(u8::is_ascii_digit).then_some((negative, digits))
}

/// Return a number with or without point and exponent.
pub fn double(data: &[u8]) -> Option<f64> {
    let known = |byte: &u8| byte.is_ascii_digit() || b"+-.e".contains(byte);
    if !data.iter().all(known) {
        return None;
    }
    std::str::from_utf8(data).ok()?.parse().ok()
}

fn quoted(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'"');
    write(out);
    out.push(b'"');
}

fn decimal(out: &mut Vec<u8>, data: &[u8], scale: usize, mode: DecimalMode) -> Option<()> {
    if let DecimalMode::Double = mode {
        return number::java_double(out, double(data)?);
    }
    let (negative, digits) = decimal_parts(data, scale)?;
    quoted(out, |out| number::decimal_digits(out, negative, &digits, scale, mode));
    Some(())
}

/// Return whether a DECIMAL has a minus, and its digits; None for one that has not as many behind the point as it should.
pub fn decimal_parts(data: &[u8], scale: usize) -> Option<(bool, Vec<u8>)> {
    let (negative, rest) = match data.split_first() {
        Some((b'-', rest)) => (true, rest),
        _ => (false, data),
    };
    let point = rest.len().checked_sub(if scale > 0 { scale + 1 } else { 0 })?;
    let mut digits = rest[..point].to_vec();
    if scale > 0 {
        if rest[point] != b'.' {
            return None;
        }
        digits.extend_from_slice(&rest[point + 1..]);
    }
    let good = !digits.is_empty() && point > 0 && digits.len() <= 70 && digits.iter().all(u8::is_ascii_digit);
    good.then_some((negative, digits))
}

/// Return a text without blanks at its end.
pub fn without_blanks(data: &[u8]) -> &[u8] {
    let end = data.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
    &data[..end]
}

/// Return JSON text without the blanks between its tokens.
pub fn compact(data: &[u8]) -> Option<Vec<u8>> {
    let mut compact = Vec::with_capacity(data.len());
    let (mut inside, mut escaped) = (false, false);
    for &byte in data {
        if inside {
            compact.push(byte);
            inside = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
        } else if byte != b' ' {
            // The server writes no other blanks between tokens.
            if matches!(byte, b'\t' | b'\r' | b'\n') {
                return None;
            }
            compact.push(byte);
            inside = byte == b'"';
        }
    }
    (!inside).then_some(compact)
}

impl TextOp {
    /// Add the JSON text, or the bytes in Avro, of a value; None for what has none, or is not as the server writes it.
    pub fn write(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        match self {
            TextOp::Copy => out.extend_from_slice(data),
            TextOp::Plain => text::signed_wide(out, whole(data)?),
            TextOp::Boolean { above } => {
                let value = whole(data)?;
                let is = if *above { value > 0 } else { value != 0 };
                out.extend_from_slice(if is { b"true" } else { b"false" });
            }
            TextOp::UnsignedBase64 => {
                let value = u64::try_from(whole(data)?).ok()?;
                quoted(out, |out| number::base64_unsigned(out, value));
            }
            TextOp::Wrapped { plain: false } if data.len() < 19 => out.extend_from_slice(data),
            TextOp::Wrapped { .. } => text::signed(out, u64::try_from(whole(data)?).ok()? as i64),
            TextOp::Decimal { scale, mode } => return decimal(out, data, *scale, *mode),
            TextOp::Float => {
                let value = double(data)?;
                // A float as a double of all digits; another one is not what the SELECT asks for.
                return (f64::from(value as f32) == value).then(|| number::java_float(out, value as f32))?;
            }
            TextOp::Double => return number::java_double(out, double(data)?),
            TextOp::DoubleAsFloat => return number::narrowed(out, double(data)?),
            TextOp::Bit => out.extend_from_slice(if *data.first()? == 0 { b"false" } else { b"true" }),
            TextOp::Bits => {
                let turned: Vec<u8> = data.iter().rev().copied().collect();
                quoted(out, |out| text::base64(out, &turned));
            }
            TextOp::Text { strip } => {
                out.push(b'"');
                text::escaped_utf8(out, if *strip { without_blanks(data) } else { data })?;
                out.push(b'"');
            }
            TextOp::Binary(write) => quoted(out, |out| write(out, data)),
            TextOp::Json => {
                out.push(b'"');
                text::escaped_utf8(out, &compact(data)?)?;
                out.push(b'"');
            }
            TextOp::Geometry => return spatial::geometry(out, data),
            TextOp::Point => return spatial::point(out, data),
            TextOp::Vector => return spatial::vector(out, data),
            TextOp::Date(form) => return form.date_of_text(out, data),
            TextOp::Time(form) => return form.time_of_text(out, data),
            TextOp::DateTime(form) => return form.datetime_of_text(out, data),
            TextOp::Timestamp(form) => return form.timestamp_of_text(out, data),
            TextOp::Passed => {}
            TextOp::Avro(op) => return op.write(out, data),
        }
        Some(())
    }
}

/// What a column's text becomes, from its name, numbers and texts; None for what is not known here.
pub fn text_op_of(name: &str, numbers: &[i64], texts: Vec<Vec<u8>>) -> Option<TextOp> {
    let first = *numbers.first().unwrap_or(&0);
    let decimal = |mode| Some(TextOp::Decimal { scale: usize::try_from(first).ok().filter(|n| *n <= 65)?, mode });
    let clock = |of: fn(Temporal) -> TextOp, texts| Temporal::new(numbers, texts).map(of);
    Some(match name {
        "copy" => TextOp::Copy,
        "plain" => TextOp::Plain,
        "boolean" => TextOp::Boolean { above: first != 0 },
        "unsigned_base64" => TextOp::UnsignedBase64,
        "wrapped" => TextOp::Wrapped { plain: first != 0 },
        "decimal_precise" => return decimal(DecimalMode::Precise),
        "decimal_string" => return decimal(DecimalMode::Text),
        "decimal_double" => return decimal(DecimalMode::Double),
        "float" => TextOp::Float,
        "double" => TextOp::Double,
        "double_as_float" => TextOp::DoubleAsFloat,
        "bit" => TextOp::Bit,
        "bits" => TextOp::Bits,
        "text" => TextOp::Text { strip: first != 0 },
        "bytes" | "base64" => TextOp::Binary(text::base64),
        "base64-url-safe" => TextOp::Binary(text::base64_url),
        "hex" => TextOp::Binary(text::hex),
        "json" => TextOp::Json,
        "geometry" => TextOp::Geometry,
        "point" => TextOp::Point,
        "vector" => TextOp::Vector,
        "date" => return clock(TextOp::Date, texts),
        "time" => return clock(TextOp::Time, texts),
        "datetime" => return clock(TextOp::DateTime, texts),
        "timestamp" => return clock(TextOp::Timestamp, texts),
        "passed" => TextOp::Passed,
        _ => return avro_text::of(name, numbers, texts),
    })
}
