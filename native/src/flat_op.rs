//! Values of TiCDC's flat rows that Confluent's Avro writes otherwise: dates and times as MySQL prints them, BIT and VECTOR.

use crate::avro;
use crate::calendar::{self, big, civil, fraction_bytes};
use crate::events::little;
use crate::number;
use crate::op::{signed, Layout};
use crate::text;

/// What becomes of a value; the number is that of fraction digits.
pub enum FlatOp {
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

impl FlatOp {
    /// Return what a kind of value is, from its numbers: digits, or bytes before or of the value; None for what is not known.
    pub fn of(kind: &str, first: i64, second: i64) -> Option<(Layout, FlatOp)> {
        let digits = usize::try_from(first).ok()?;
        if digits > 8 {
            return None;
        }
        let more = fraction_bytes(digits);
        let (size, op) = match kind {
            "date" => (3, FlatOp::Date),
            "datetime" => (5 + more, FlatOp::DateTime(digits)),
            "timestamp" => (4 + more, FlatOp::Timestamp(digits)),
            "time" => (3 + more, FlatOp::Time(digits)),
            "old_datetime" => (8, FlatOp::OldDateTime),
            "old_timestamp" => (4, FlatOp::OldTimestamp),
            "old_time" => (3, FlatOp::OldTime),
            "unsigned" => (8, FlatOp::Unsigned),
            "bits" if digits > 0 => (digits, FlatOp::Bits(second != 0)),
            "vector" if (1..=4).contains(&digits) => return Some((Layout::Prefixed(digits), FlatOp::Vector)),
            _ => return None,
        };
        if digits > 6 && !matches!(op, FlatOp::Bits(_)) {
            return None;
        }
        Some((Layout::Fixed(size), op))
    }

    /// Add the bytes of a value that is no text.
    pub fn stored(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        let FlatOp::Bits(one) = self else { return None };
        if *one && data[0] > 1 {
            return None;
        }
        let zeros = data.iter().take(data.len() - 1).take_while(|&&byte| byte == 0).count();
        avro::sized(out, &data[zeros..]);
        Some(())
    }

    /// Return whether values are texts.
    pub fn is_text(&self) -> bool {
        !matches!(self, FlatOp::Bits(_))
    }

    /// Add the JSON string of a value.
    pub fn write(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        out.push(b'"');
        match self {
            FlatOp::Date => {
                let packed = little(data) as i64;
                calendar::date(out, (packed >> 9, packed >> 5 & 15, packed & 31));
            }
            FlatOp::DateTime(digits) => {
                let packed = big(&data[..5]);
                let months = packed >> 22 & 0x1FFFF;
                calendar::date(out, (months / 13, months % 13, packed >> 17 & 31));
                out.push(b' ');
                calendar::clock(out, packed >> 12 & 31, packed >> 6 & 63, packed & 63);
                calendar::dot_fraction(out, *digits, big(&data[5..]))?;
            }
            FlatOp::Timestamp(digits) => timestamp(out, big(&data[..4]), *digits, big(&data[4..]))?,
            FlatOp::OldTimestamp => timestamp(out, little(data) as i64, 0, 0)?,
            FlatOp::Time(digits) => time(out, calendar::packed_micros(data, *digits), *digits),
            FlatOp::OldTime => time(out, calendar::old_seconds(signed(data)) * 1_000_000, 0),
            FlatOp::OldDateTime => {
                let (day, clock) = ((little(data) / 1_000_000) as i64, (little(data) % 1_000_000) as i64);
                calendar::date(out, (day / 10_000, day / 100 % 100, day % 100));
                out.push(b' ');
                calendar::clock(out, clock / 10_000, clock / 100 % 100, clock % 100);
            }
            FlatOp::Unsigned => text::unsigned(out, little(data)),
            FlatOp::Vector => vector(out, data)?,
            FlatOp::Bits(_) => return None,
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
        text::padded(out, rest as u64, 6);
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
        number::java_float(&mut shown, f32::from_le_bytes(float.try_into().ok()?))?;
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
    let (digits, exponent) = number::parts(&format!("{:.8e}", value.abs()));
    if !(-4..9).contains(&exponent) {
        out.push(digits[0]);
        if digits.len() > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        text::padded(out, u64::from(exponent.unsigned_abs()), 2);
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
