//! Values of the text protocol as Avro writes them: what `cdc/avro/avro_text_renderers.py` writes.

use crate::avro::{double, single, sized, unscaled, varint, NULL, ZERO};
use crate::number::{self, DecimalMode};
use crate::select::{self, TextOp};
use crate::text;

/// A column's values.
pub struct AvroText {
    /// Whether a value's bytes come from its JSON text, a number or a string without escapes, or else from MySQL's text.
    shown: bool,
    inner: TextOp,
    /// Bits of a whole number.
    bits: u32,
    /// What stands before a value that is not null: the branch of a union, or nothing.
    head: Vec<u8>,
    /// What stands for MySQL's zero dates, and for NULL.
    zero: Vec<u8>,
    null: Vec<u8>,
}

/// Return the operation of a name `avro-stored:` or `avro-shown:` and that of an inner one, whose texts come behind those
/// of `AvroText`; a whole number comes with its bits. None for what is not known here.
pub fn of(name: &str, numbers: &[i64], mut texts: Vec<Vec<u8>>) -> Option<TextOp> {
    let (shown, name) = match name.split_once(':')? {
        ("avro-stored", name) => (false, name),
        ("avro-shown", name) => (true, name),
        _ => return None,
    };
    let rest = texts.split_off(texts.len().min(3));
    let [head, zero, null]: [Vec<u8>; 3] = texts.try_into().ok()?;
    let inner = select::text_op_of(name, numbers, rest)?;
    let whole = matches!(inner, TextOp::Copy | TextOp::Plain);
    let bits = numbers.first().filter(|_| whole).map_or(Some(64), |&bits| u32::try_from(bits).ok())?;
    let op = AvroText { shown, inner, bits, head, zero, null };
    op.knows().then(|| TextOp::Avro(Box::new(op)))
}

/// Return a whole number of digits alone, with or without a minus, that so many bits hold with a sign or without one.
fn integer(data: &[u8], bits: u32) -> Option<i64> {
    let (negative, digits) = select::signed_digits(data)?;
    let value = match digits.len() {
        1..=18 => {
            let size = digits.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
            if negative {
                -size
            } else {
                size
            }
        }
        _ => i64::try_from(select::whole(data)?).ok()?,
    };
    (bits == 64 || (-(1 << (bits - 1))..1 << bits).contains(&value)).then_some(value)
}

fn unsigned(data: &[u8]) -> Option<u64> {
    u64::try_from(select::whole(data)?).ok()
}

fn utf8(out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
    std::str::from_utf8(data).ok()?;
    sized(out, data);
    Some(())
}

impl AvroText {
    /// Return whether `write` has something for the operation.
    fn knows(&self) -> bool {
        match &self.inner {
            TextOp::Geometry | TextOp::Point | TextOp::Vector | TextOp::Passed | TextOp::Avro(_) => false,
            TextOp::Date(_) | TextOp::Time(_) | TextOp::DateTime(_) | TextOp::Timestamp(_) => self.shown,
            TextOp::Decimal { mode: DecimalMode::Text, .. } => self.shown,
            TextOp::Copy | TextOp::Plain => !self.shown && (matches!(self.bits, 1..=32) || self.bits == 64),
            TextOp::Binary(_) => true,
            _ => !self.shown,
        }
    }

    /// Add a value; None for what Avro, or the column, cannot hold.
    pub fn write(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        if self.shown {
            self.by_json(out, data)
        } else {
            self.stored(out, data)
        }
    }

    fn by_json(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        let from = out.len();
        self.inner.write(out, data)?;
        let shown = &out[from..];
        if shown == ZERO || shown == NULL {
            let other = if shown == ZERO { &self.zero } else { &self.null };
            out.truncate(from);
            out.extend_from_slice(other);
            return Some(());
        }
        if shown.first() != Some(&b'"') {
            let value = std::str::from_utf8(shown).ok()?.parse().ok()?;
            out.truncate(from);
            out.extend_from_slice(&self.head);
            varint(out, value);
            return Some(());
        }
        let shown = out.split_off(from);
        let inside = shown.get(1..shown.len() - 1)?;
        out.extend_from_slice(&self.head);
        sized(out, inside);
        text::is_plain_ascii(inside).then_some(())
    }

    fn stored(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        out.extend_from_slice(&self.head);
        match &self.inner {
            TextOp::Copy | TextOp::Plain => varint(out, integer(data, self.bits)?),
            TextOp::Boolean { above } => {
                let value = select::whole(data)?;
                out.push(u8::from(if *above { value > 0 } else { value != 0 }));
            }
            TextOp::UnsignedBase64 => unscaled(out, &u128::from(unsigned(data)?).to_be_bytes()),
            TextOp::Wrapped { .. } => varint(out, unsigned(data)? as i64),
            TextOp::Decimal { scale, mode: DecimalMode::Precise } => {
                let (negative, digits) = select::decimal_parts(data, *scale)?;
                number::complement_of_digits(negative, &digits, |bytes| unscaled(out, bytes));
            }
            TextOp::Decimal { mode: DecimalMode::Double, .. } | TextOp::Double => {
                return double(out, select::double(data)?)
            }
            TextOp::Float => {
                let value = select::double(data)?;
                // A float as a double of all digits; another one is not what the SELECT asks for.
                return (f64::from(value as f32) == value).then(|| single(out, value as f32))?;
            }
            TextOp::DoubleAsFloat => return single(out, select::double(data)? as f32),
            TextOp::Bit => out.push(u8::from(*data.first()? != 0)),
            TextOp::Bits => {
                // MySQL gives big-endian, Debezium writes little-endian.
                varint(out, data.len() as i64);
                out.extend(data.iter().rev());
            }
            TextOp::Text { strip } => return utf8(out, if *strip { select::without_blanks(data) } else { data }),
            TextOp::Binary(_) => sized(out, data),
            TextOp::Json => return utf8(out, &select::compact(data)?),
            _ => return None,
        }
        Some(())
    }
}
