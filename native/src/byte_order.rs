//! Numbers of up to eight bytes, as MySQL stores them.

/// Return a number without a sign whose lowest byte comes first, from the first eight bytes at most.
pub fn little_endian(data: &[u8]) -> u64 {
    // The sizes of most numbers are read at once.
    match (data.first_chunk::<8>(), data.first_chunk::<4>(), data.len()) {
        (Some(eight), ..) => u64::from_le_bytes(*eight),
        (_, Some(four), 4) => u64::from(u32::from_le_bytes(*four)),
        _ => data.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)),
    }
}

/// Return a number in two's complement whose lowest byte comes first, of one to eight bytes.
pub fn signed_little_endian(data: &[u8]) -> i64 {
    let shift = 64 - 8 * data.len() as u32;
    ((little_endian(data) << shift) as i64) >> shift
}

/// Return a FLOAT.
pub fn float(data: &[u8]) -> f32 {
    f32::from_bits(little_endian(data) as u32)
}

/// Return a DOUBLE.
pub fn double(data: &[u8]) -> f64 {
    f64::from_bits(little_endian(data))
}

/// Return a number without a sign whose highest byte comes first, of less than eight bytes.
pub fn big_endian(data: &[u8]) -> i64 {
    data.iter().fold(0, |sum, &byte| sum << 8 | i64::from(byte))
}
