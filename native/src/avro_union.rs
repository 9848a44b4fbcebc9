//! What Avro has before a value of a column that may be NULL, and in place of some values.

/// Texts that the renderers of dates write for zero dates and for NULL instead of JSON.
pub const ZERO: &[u8] = b"Z";
pub const NULL: &[u8] = b"N";

/// Bytes of a column other than those of its values.
pub struct AvroUnion {
    /// Bytes before a value that is not null: the branch of a union, or nothing.
    pub branch: Vec<u8>,
    /// Bytes in place of MySQL's zero dates, and of NULL.
    pub zero: Vec<u8>,
    pub null: Vec<u8>,
}

impl AvroUnion {
    /// Take them from the first three of a column's texts: branch, zero and null; return them and the other texts.
    pub fn split(mut texts: Vec<Vec<u8>>) -> Option<(AvroUnion, Vec<Vec<u8>>)> {
        let rest = texts.split_off(texts.len().min(3));
        let [branch, zero, null]: [Vec<u8>; 3] = texts.try_into().ok()?;
        Some((AvroUnion { branch, zero, null }, rest))
    }

    /// Return the bytes in place of a value with this JSON text; None for a value that is written itself.
    pub fn substitute(&self, json: &[u8]) -> Option<&[u8]> {
        match json {
            ZERO => Some(&self.zero),
            NULL => Some(&self.null),
            _ => None,
        }
    }
}
