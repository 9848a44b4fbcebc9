//! MySQL's binary JSON as text: what `cdc/decode/values/binary_json.py` writes.

use crate::byte_order::little_endian;
use crate::decimal::{DecimalMode, PackedDecimal};
use crate::java_floats::significant_digits;
use crate::json_text;

const LARGE_ARRAY: u8 = 3;
const LITERAL: u8 = 4;
const INT16: u8 = 5;
const UINT16: u8 = 6;
const INT32: u8 = 7;
const UINT32: u8 = 8;
const INT64: u8 = 9;
const UINT64: u8 = 10;
const DOUBLE: u8 = 11;
const STRING: u8 = 12;
const OPAQUE: u8 = 15;
/// MySQL's own limit.
const MOST_DEPTH: usize = 100;
const LONGEST_NAME: usize = 128;
/// Bytes of a line of Base64.
const LINE_BYTES: usize = 57;
const LITERALS: [&[u8]; 3] = [b"null", b"true", b"false"];
// MySQL's column type numbers.
const TIMESTAMP: u8 = 7;
const DATE: u8 = 10;
const TIME: u8 = 11;
const DATETIME: u8 = 12;
const NEWDECIMAL: u8 = 246;

/// Add a document as JSON text; None when it is not well formed.
pub fn document(out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
    read(out, data, b"\"")
}

/// Add a document as the inside of a JSON string.
pub fn inside_string(out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
    read(out, data, b"\\\"")
}

fn read(out: &mut Vec<u8>, data: &[u8], quote: &'static [u8]) -> Option<()> {
    let Some(&kind) = data.first() else {
        // The server reads no bytes at all as the JSON value null.
        out.extend_from_slice(b"null");
        return Some(());
    };
    Reader { data, left: data.len() as i64, quote }.value(out, kind, 1, 0)
}

/// Reads a document. What its values take together is bounded by its size: in a damaged one many entries can point to
/// one value, each level doubling what is read.
struct Reader<'a> {
    data: &'a [u8],
    left: i64,
    /// The quote around strings.
    quote: &'static [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, size: usize) -> Option<()> {
        self.left -= size as i64;
        (self.left >= 0).then_some(())
    }

    fn bytes(&self, at: usize, size: usize) -> Option<&'a [u8]> {
        self.data.get(at..at.checked_add(size)?)
    }

    fn number(&self, at: usize, size: usize) -> Option<u64> {
        Some(little_endian(self.bytes(at, size)?))
    }

    /// Return a variable-length number (7 bits a byte, lowest first) and the offset after it.
    fn length(&self, mut at: usize) -> Option<(usize, usize)> {
        let mut size = 0;
        for shift in [0, 7, 14, 21, 28] {
            let byte = *self.data.get(at)?;
            at += 1;
            size |= usize::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Some((size, at));
            }
        }
        None
    }

    fn plain(&self, out: &mut Vec<u8>, text: &[u8]) {
        out.extend_from_slice(self.quote);
        out.extend_from_slice(text);
        out.extend_from_slice(self.quote);
    }

    fn string(&self, out: &mut Vec<u8>, text: &[u8]) -> Option<()> {
        if json_text::is_plain_ascii(text) {
            self.plain(out, text);
            return Some(());
        }
        let mut escaped = Vec::with_capacity(2 * text.len());
        json_text::escaped_by_mysql(&mut escaped, text)?;
        out.extend_from_slice(self.quote);
        if self.quote.len() > 1 {
            json_text::escaped_utf8(out, &escaped)?;
        } else {
            out.extend_from_slice(&escaped);
        }
        out.extend_from_slice(self.quote);
        Some(())
    }

    fn value(&mut self, out: &mut Vec<u8>, kind: u8, at: usize, depth: usize) -> Option<()> {
        match kind {
            0..=LARGE_ARRAY => {
                if depth > MOST_DEPTH {
                    return None;
                }
                return self.container(out, kind, at, depth);
            }
            LITERAL => out.extend_from_slice(LITERALS.get(usize::from(*self.data.get(at)?))?),
            INT16 => json_text::signed(out, i64::from(self.number(at, 2)? as u16 as i16)),
            UINT16 => json_text::unsigned(out, self.number(at, 2)?),
            INT32 => json_text::signed(out, i64::from(self.number(at, 4)? as u32 as i32)),
            UINT32 => json_text::unsigned(out, self.number(at, 4)?),
            INT64 => json_text::signed(out, self.number(at, 8)? as i64),
            UINT64 => json_text::unsigned(out, self.number(at, 8)?),
            DOUBLE => double(out, f64::from_bits(self.number(at, 8)?))?,
            STRING => {
                let (size, at) = self.length(at)?;
                self.take(size)?;
                self.string(out, self.bytes(at, size)?)?;
            }
            OPAQUE => {
                let kind = *self.data.get(at)?;
                let (size, at) = self.length(at + 1)?;
                self.take(size)?;
                opaque(out, kind, self.bytes(at, size)?, self.quote)?;
            }
            _ => return None,
        }
        Some(())
    }

    fn container(&mut self, out: &mut Vec<u8>, kind: u8, base: usize, depth: usize) -> Option<()> {
        let width = if kind & 1 == 0 { 2 } else { 4 };
        let is_object = kind <= 1;
        let count = self.number(base, width)? as usize;
        let keys = base + 2 * width;
        let first = if is_object { keys.checked_add(count.checked_mul(width + 2)?)? } else { keys };
        let end = first.checked_add(count.checked_mul(width + 1)?)?;
        self.take(end - base)?;
        if end > self.data.len() {
            return None;
        }
        out.push(if is_object { b'{' } else { b'[' });
        for index in 0..count {
            if index > 0 {
                out.push(b',');
            }
            if is_object {
                self.name(out, base, keys + index * (width + 2), width)?;
            }
            let entry = first + index * (width + 1);
            let word = self.number(entry + 1, width)?;
            self.entry(out, self.data[entry], base, word, width, depth)?;
        }
        out.push(if is_object { b'}' } else { b']' });
        Some(())
    }

    fn name(&mut self, out: &mut Vec<u8>, base: usize, at: usize, width: usize) -> Option<()> {
        let start = base + self.number(at, width)? as usize;
        let size = self.number(at + width, 2)? as usize;
        if size > LONGEST_NAME {
            self.take(size)?;
        }
        let name = if size == 0 { &[] } else { self.bytes(start, size)? };
        self.string(out, name)?;
        out.push(b':');
        Some(())
    }

    fn entry(&mut self, out: &mut Vec<u8>, kind: u8, base: usize, word: u64, width: usize, depth: usize) -> Option<()> {
        match kind {
            LITERAL => out.extend_from_slice(LITERALS.get(word as usize & 0xFF)?),
            INT16 => json_text::signed(out, i64::from(word as u16 as i16)),
            UINT16 => json_text::unsigned(out, word & 0xFFFF),
            INT32 if width == 4 => json_text::signed(out, i64::from(word as u32 as i32)),
            UINT32 if width == 4 => json_text::unsigned(out, word),
            _ => {
                let at = base + word as usize;
                // Short strings without escapes are not counted; they take little more than their entries.
                if kind == STRING {
                    let size = usize::from(*self.data.get(at)?);
                    if let Some(plain) = self.bytes(at + 1, size).filter(|s| size < 128 && json_text::is_plain_ascii(s))
                    {
                        self.plain(out, plain);
                        return Some(());
                    }
                }
                return self.value(out, kind, at, depth + 1);
            }
        }
        Some(())
    }
}

/// Add a double as MySQL prints it in JSON: shortest digits, plain from 1e-15 to below 1e15.
fn double(out: &mut Vec<u8>, value: f64) -> Option<()> {
    if !value.is_finite() {
        return None;
    }
    let size = value.abs();
    if (1e-4..1e15).contains(&size) {
        out.extend_from_slice(ryu::Buffer::new().format_finite(value).as_bytes());
        return Some(());
    }
    if value.is_sign_negative() {
        out.push(b'-');
    }
    if size == 0.0 {
        out.extend_from_slice(b"0.0");
        return Some(());
    }
    let (digits, exponent) = significant_digits(ryu::Buffer::new().format_finite(size));
    let (point, count) = (exponent + 1, digits.len() as i32);
    if (-14..=15).contains(&point) || (point > 0 && count > point) {
        if point <= 0 {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + (-point) as usize, b'0');
            out.extend_from_slice(&digits);
            return Some(());
        }
        let whole = point as usize;
        out.extend_from_slice(&digits[..whole.min(digits.len())]);
        out.resize(out.len() + whole.saturating_sub(digits.len()), b'0');
        out.push(b'.');
        out.extend_from_slice(digits.get(whole..).filter(|rest| !rest.is_empty()).unwrap_or(b"0"));
        return Some(());
    }
    out.push(digits[0]);
    if count > 1 {
        out.push(b'.');
        out.extend_from_slice(&digits[1..]);
    }
    out.push(b'e');
    json_text::signed(out, i64::from(point - 1));
    Some(())
}

/// Add a value of a type that JSON itself does not have.
fn opaque(out: &mut Vec<u8>, kind: u8, data: &[u8], quote: &[u8]) -> Option<()> {
    match kind {
        NEWDECIMAL => {
            let (&precision, &scale) = (data.first()?, data.get(1)?);
            let decimal = PackedDecimal::new(i64::from(precision), i64::from(scale))?;
            if data.len() != 2 + decimal.size() {
                return None;
            }
            return decimal.write(out, &data[2..], DecimalMode::Text);
        }
        DATE => {
            out.extend_from_slice(quote);
            date(out, packed(data)?.1);
        }
        DATETIME | TIMESTAMP => {
            let (negative, whole, micros) = packed(data)?;
            out.extend_from_slice(quote);
            out.extend_from_slice(if negative { b"-" } else { b"" });
            date(out, whole);
            out.push(b' ');
            clock(out, whole >> 12 & 31, whole, micros);
        }
        TIME => {
            let (negative, whole, micros) = packed(data)?;
            out.extend_from_slice(quote);
            out.extend_from_slice(if negative { b"-" } else { b"" });
            clock(out, whole >> 12 & 0x3FF, whole, micros);
        }
        _ => {
            out.extend_from_slice(quote);
            out.extend_from_slice(b"base64:type");
            json_text::unsigned(out, u64::from(kind));
            out.push(b':');
            base64_lines(out, data, if quote.len() > 1 { b"\\\\n" } else { b"\\n" });
        }
    }
    out.extend_from_slice(quote);
    Some(())
}

/// Add bytes as Base64 with a line end after each 76 characters but the last, as the server writes them.
fn base64_lines(out: &mut Vec<u8>, data: &[u8], line_end: &[u8]) {
    for (index, line) in data.chunks(LINE_BYTES).enumerate() {
        if index > 0 {
            out.extend_from_slice(line_end);
        }
        json_text::base64(out, line);
    }
}

/// Return sign, whole part and microseconds of a packed temporal value (40 + 24 bits).
fn packed(data: &[u8]) -> Option<(bool, u64, u64)> {
    let value = i64::from_le_bytes(data.try_into().ok()?);
    let size = value.unsigned_abs();
    Some((value < 0, size >> 24, size & 0xFF_FFFF))
}

fn date(out: &mut Vec<u8>, whole: u64) {
    let months = whole >> 22;
    json_text::padded(out, months / 13, 4);
    out.push(b'-');
    json_text::padded(out, months % 13, 2);
    out.push(b'-');
    json_text::padded(out, whole >> 17 & 31, 2);
}

fn clock(out: &mut Vec<u8>, hours: u64, whole: u64, micros: u64) {
    json_text::padded(out, hours, 2);
    out.push(b':');
    json_text::padded(out, whole >> 6 & 63, 2);
    out.push(b':');
    json_text::padded(out, whole & 63, 2);
    out.push(b'.');
    json_text::padded(out, micros, 6);
}
