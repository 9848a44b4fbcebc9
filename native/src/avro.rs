//! Values as Avro writes them: what `cdc/avro/avro_renderers.py` and `cdc/avro/avro_binary.py` write.

use crate::charset::Charset;
use crate::events::little;
use crate::json;
use crate::number::DecimalMode;
use crate::op::{float, signed, Op};

/// How a value's bytes come about.
pub enum Way {
    /// From the stored bytes.
    Stored,
    /// From its JSON text: a number, or a string without escapes.
    Shown,
    /// From its JSON text, which is a double.
    Double,
}

/// A column's values.
pub struct AvroOp {
    pub way: Way,
    pub inner: Op,
    /// What stands before a value that is not null: the branch of a union, or nothing.
    pub head: Vec<u8>,
    /// What stands for MySQL's zero dates, and for NULL.
    pub zero: Vec<u8>,
    pub null: Vec<u8>,
}

/// JSON texts that the inner operation of a date has for `zero` and `null`.
pub const ZERO: &[u8] = b"Z";
pub const NULL: &[u8] = b"N";

/// Add an int or long: zigzag, then seven bits a byte, the lowest first.
pub fn varint(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest > 0x7F {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Add bytes or a string: their number, then themselves.
pub fn sized(out: &mut Vec<u8>, data: &[u8]) {
    varint(out, data.len() as i64);
    out.extend_from_slice(data);
}

/// Add an integer's bytes in their shortest two's complement.
pub fn unscaled(out: &mut Vec<u8>, bytes: &[u8]) {
    sized(out, crate::number::shortest_complement(bytes));
}

/// Add a double; None for what MySQL does not store.
pub fn double(out: &mut Vec<u8>, value: f64) -> Option<()> {
    out.extend_from_slice(&value.to_le_bytes());
    value.is_finite().then_some(())
}

/// Add a float; None for what MySQL does not store.
pub fn single(out: &mut Vec<u8>, value: f32) -> Option<()> {
    out.extend_from_slice(&value.to_le_bytes());
    value.is_finite().then_some(())
}

impl AvroOp {
    /// Return an operation that writes from stored bytes, if there is one.
    pub fn knows(&self) -> bool {
        match self.way {
            Way::Stored => {
                !matches!(&self.inner, Op::Flat(form) if form.is_text())
                    && !matches!(
                        self.inner,
                        Op::Geometry | Op::Point | Op::Vector | Op::Year | Op::Clock(..) | Op::Avro(_)
                    )
            }
            Way::Shown | Way::Double => !matches!(self.inner, Op::Avro(_)),
        }
    }

    /// Add a value; None for what Avro, or the column, cannot hold.
    pub fn write(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        match self.way {
            Way::Stored => self.stored(out, data),
            Way::Shown => self.shown(out, data),
            Way::Double => {
                let mut text = Vec::with_capacity(32);
                self.inner.write(&mut text, data)?;
                out.extend_from_slice(&self.head);
                double(out, std::str::from_utf8(&text).ok()?.parse().ok()?)
            }
        }
    }

    fn shown(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        let mut text = Vec::with_capacity(64);
        self.inner.write(&mut text, data)?;
        if text == ZERO {
            out.extend_from_slice(&self.zero);
            return Some(());
        }
        if text == NULL {
            out.extend_from_slice(&self.null);
            return Some(());
        }
        out.extend_from_slice(&self.head);
        if text.first() == Some(&b'"') {
            let inside = text.get(1..text.len() - 1)?;
            sized(out, inside);
            return (!inside.contains(&b'\\')).then_some(());
        }
        varint(out, std::str::from_utf8(&text).ok()?.parse().ok()?);
        Some(())
    }

    fn stored(&self, out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
        if let Op::Enum(texts) = &self.inner {
            // With what stands before them.
            out.extend_from_slice(texts.get(little(data) as usize)?);
            return Some(());
        }
        out.extend_from_slice(&self.head);
        match &self.inner {
            Op::Signed => varint(out, signed(data)),
            Op::Unsigned => varint(out, i64::try_from(little(data)).ok()?),
            Op::Boolean { signed: with_sign, above } => {
                let value = if *with_sign { signed(data) } else { little(data) as i64 };
                out.push(u8::from(if *above { value > 0 } else { value != 0 }));
            }
            Op::UnsignedBase64 => unscaled(out, &u128::from(little(data)).to_be_bytes()),
            Op::Decimal(form, DecimalMode::Precise) => form.with_complement(data, |bytes| unscaled(out, bytes)),
            Op::Float => return single(out, float(data)),
            Op::FloatAsDouble => return double(out, f64::from(float(data))),
            Op::Double => return double(out, f64::from_bits(little(data))),
            Op::DoubleAsFloat => return single(out, f64::from_bits(little(data)) as f32),
            Op::Bit => {
                out.push(data[0]);
                return (data[0] < 2).then_some(());
            }
            Op::Bits => {
                // MySQL stores big-endian, Debezium writes little-endian.
                varint(out, data.len() as i64);
                out.extend(data.iter().rev());
            }
            Op::Flat(form) => return form.stored(out, data),
            Op::Set(members) => return set(out, members, little(data)),
            Op::Binary { pad, .. } => {
                // The server cuts trailing zero bytes of BINARY(n) in row images.
                let size = data.len().max(*pad);
                varint(out, size as i64);
                out.extend_from_slice(data);
                out.resize(out.len() + size - data.len(), 0);
            }
            Op::Text(Charset::Utf8) => {
                std::str::from_utf8(data).ok()?;
                sized(out, data);
            }
            Op::Text(charset) => {
                let mut text = Vec::with_capacity(data.len());
                charset.write_plain(&mut text, data)?;
                sized(out, &text);
            }
            Op::WideChar(charset) => {
                let mut text = Vec::with_capacity(data.len());
                charset.write_plain_fixed(&mut text, data)?;
                sized(out, &text);
            }
            Op::Json => {
                let mut document = Vec::with_capacity(2 * data.len());
                json::document(&mut document, data)?;
                sized(out, &document);
            }
            _ => return None,
        }
        Some(())
    }
}

fn set(out: &mut Vec<u8>, members: &[Vec<u8>], mask: u64) -> Option<()> {
    if members.len() < 64 && mask >> members.len() != 0 {
        return None;
    }
    let chosen = || members.iter().take(64).enumerate().filter(|(index, _)| mask >> index & 1 == 1);
    let size: usize = chosen().map(|(_, member)| member.len() + 1).sum();
    varint(out, size.saturating_sub(1) as i64);
    for (place, (_, member)) in chosen().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        out.extend_from_slice(member);
    }
    Some(())
}
