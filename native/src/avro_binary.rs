//! Avro's binary encoding of its primitive types, and of its logical type decimal.

use crate::decimal::shortest_complement;

/// Add an int or long: zigzag, then seven bits a byte, the lowest first.
pub fn long(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest > 0x7F {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Add bytes or a string: their number, then themselves.
pub fn bytes(out: &mut Vec<u8>, data: &[u8]) {
    long(out, data.len() as i64);
    out.extend_from_slice(data);
}

/// Add UTF-8 as a string; None when it is not UTF-8.
pub fn string(out: &mut Vec<u8>, data: &[u8]) -> Option<()> {
    std::str::from_utf8(data).ok()?;
    bytes(out, data);
    Some(())
}

/// Add a boolean.
pub fn boolean(out: &mut Vec<u8>, value: bool) {
    out.push(u8::from(value));
}

/// Add a decimal's unscaled number, from its two's complement form with the highest byte first, in its fewest bytes.
pub fn decimal(out: &mut Vec<u8>, unscaled: &[u8]) {
    bytes(out, shortest_complement(unscaled));
}

/// Add a double; None for what MySQL does not store.
pub fn double(out: &mut Vec<u8>, value: f64) -> Option<()> {
    out.extend_from_slice(&value.to_le_bytes());
    value.is_finite().then_some(())
}

/// Add a float; None for what MySQL does not store.
pub fn float(out: &mut Vec<u8>, value: f32) -> Option<()> {
    out.extend_from_slice(&value.to_le_bytes());
    value.is_finite().then_some(())
}

/// Add the bytes of a BIT, of which MySQL gives the highest first and Debezium writes the lowest first.
pub fn bits(out: &mut Vec<u8>, data: &[u8]) {
    long(out, data.len() as i64);
    out.extend(data.iter().rev());
}
