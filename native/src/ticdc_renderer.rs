//! Values that rows in TiCDC's protocol write otherwise than Debezium: dates and times as MySQL prints them, BIT and VECTOR.

use crate::avro_binary;
use crate::byte_order::{big_endian, little_endian, signed_little_endian};
use crate::calendar::{self, civil, fraction_bytes};
use crate::java_floats;
use crate::json_text;
use crate::value_layout::Layout;

/// How the values of a column are written; the number is that of fraction digits.
pub enum TicdcRenderer {
    Date,
    DateTime(usize),
    Timestamp(usize),
    Time(usize),
    OldDateTime,
    OldTimestamp,
    OldTime,
    /// An unsigned number as text.
    Unsigned,
    Vector,
    /// Big-endian without zero bytes before; whether there is one bit only.
    Bits(bool),
}

impl TicdcRenderer {
    /// Return how a kind of column lies in row images and is written, from its numbers: digits, or bytes before or of
    /// the value; None for an unknown kind.
    pub fn of(kind: &str, first: i64, second: i64) -> Option<(Layout, TicdcRenderer)> {
        let digits = usize::try_from(first).ok()?;
        if digits > 8 {
            return None;
        }
        let more = fraction_bytes(digits);
        let (size, renderer) = match kind {
            "date" => (3, TicdcRenderer::Date),
            "datetime" => (5 + more, TicdcRenderer::DateTime(digits)),
            "timestamp" => (4 + more, TicdcRenderer::Timestamp(digits)),
            "time" => (3 + more, TicdcRenderer::Time(digits)),
            "old_datetime" => (8, TicdcRenderer::OldDateTime),
            "old_timestamp" => (4, TicdcRenderer::OldTimestamp),
            "old_time" => (3, TicdcRenderer::OldTime),
            "unsigned" => (8, TicdcRenderer::Unsigned),
            "bits" if digits > 0 => (digits, TicdcRenderer::Bits(second != 0)),
            "vector" if (1..=4).contains(&digits) => return Some((Layout::Prefixed(digits), TicdcRenderer::Vector)),
            _ => return None,
        };
        if digits > 6 && !matches!(renderer, TicdcRenderer::Bits(_)) {
            return None;
        }
        Some((Layout::Fixed(size), renderer))
    }

    /// Add the bytes in Avro of a value that is no text.
    pub fn write_avro(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        let TicdcRenderer::Bits(single) = self else { return None };
        if *single && data[0] > 1 {
            return None;
        }
        let leading = data.iter().take(data.len() - 1).take_while(|&&byte| byte == 0).count();
        avro_binary::bytes(out, &data[leading..]);
        Some(())
    }

    /// Return whether values are texts.
    pub fn is_text(&self) -> bool {
        !matches!(self, TicdcRenderer::Bits(_))
    }

    /// Add the JSON string of a value.
    pub fn write_json(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        out.push(b'"');
        match self {
            TicdcRenderer::Date => {
                let packed = little_endian(data) as i64;
                calendar::date(out, (packed >> 9, packed >> 5 & 15, packed & 31));
            }
            TicdcRenderer::DateTime(digits) => {
                let packed = big_endian(&data[..5]);
                let months = packed >> 22 & 0x1FFFF;
                calendar::date(out, (months / 13, months % 13, packed >> 17 & 31));
                out.push(b' ');
                calendar::clock(out, packed >> 12 & 31, packed >> 6 & 63, packed & 63);
                calendar::dot_fraction(out, *digits, big_endian(&data[5..]))?;
            }
            TicdcRenderer::Timestamp(digits) => {
                timestamp(out, big_endian(&data[..4]), *digits, big_endian(&data[4..]))?
            }
            TicdcRenderer::OldTimestamp => timestamp(out, little_endian(data) as i64, 0, 0)?,
            TicdcRenderer::Time(digits) => time(out, calendar::packed_micros(data, *digits), *digits),
            TicdcRenderer::OldTime => time(out, calendar::old_seconds(signed_little_endian(data)) * 1_000_000, 0),
            TicdcRenderer::OldDateTime => {
                let (day, clock) = ((little_endian(data) / 1_000_000) as i64, (little_endian(data) % 1_000_000) as i64);
                calendar::date(out, (day / 10_000, day / 100 % 100, day % 100));
                out.push(b' ');
                calendar::clock(out, clock / 10_000, clock / 100 % 100, clock % 100);
            }
            TicdcRenderer::Unsigned => json_text::unsigned(out, little_endian(data)),
            TicdcRenderer::Vector => vector(out, data)?,
            TicdcRenderer::Bits(_) => return None,
        }
        out.push(b'"');
        Some(())
    }
}

/// Add a moment in UTC; second 0 without a fraction is the zero date.
fn timestamp(out: &mut Vec<u8>, seconds: i64, digits: usize, stored: i64) -> Option<()> {
    if seconds == 0 && stored == 0 {
        out.extend_from_slice(b"0000-00-00 00:00:00");
    } else {
        calendar::date(out, civil(seconds / 86_400));
        out.push(b' ');
        calendar::clock(out, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    }
    calendar::dot_fraction(out, digits, stored)
}

fn time(out: &mut Vec<u8>, micros: i64, digits: usize) {
    if micros < 0 {
        out.push(b'-');
    }
    let (seconds, rest) = (micros.abs() / 1_000_000, micros.abs() % 1_000_000);
    calendar::clock(out, seconds / 3600, seconds / 60 % 60, seconds % 60);
    if digits > 0 {
        out.push(b'.');
        let from = out.len();
        json_text::padded(out, rest as u64, 6);
        out.truncate(from + digits);
    }
}

/// Add a VECTOR as TiDB prints it: nine digits at most of the shortest decimal of each float.
fn vector(out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
    let floats = data.chunks_exact(4);
    if !floats.remainder().is_empty() {
        return None;
    }
    let mut shown = Vec::with_capacity(24);
    out.push(b'[');
    for (index, float) in floats.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        shown.clear();
        java_floats::float(&mut shown, f32::from_le_bytes(float.try_into().ok()?))?;
        nine_digits(out, std::str::from_utf8(&shown).ok()?.parse().ok()?);
    }
    out.push(b']');
    Some(())
}

/// Add a number as C's `%.9g` prints it.
fn nine_digits(out: &mut Vec<u8>, value: f64) {
    if value.is_sign_negative() {
        out.push(b'-');
    }
    if value == 0.0 {
        out.push(b'0');
        return;
    }
    let (digits, exponent) = java_floats::significant_digits(&format!("{:.8e}", value.abs()));
    if !(-4..9).contains(&exponent) {
        out.push(digits[0]);
        if digits.len() > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        json_text::padded(out, u64::from(exponent.unsigned_abs()), 2);
        return;
    }
    if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + (-exponent - 1) as usize, b'0');
        out.extend_from_slice(&digits);
        return;
    }
    let whole = exponent as usize + 1;
    out.extend_from_slice(&digits[..whole.min(digits.len())]);
    out.resize(out.len() + whole.saturating_sub(digits.len()), b'0');
    if digits.len() > whole {
        out.push(b'.');
        out.extend_from_slice(&digits[whole..]);
    }
}
