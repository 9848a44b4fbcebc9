//! Where the values of a row image lie.

use crate::byte_order::little_endian;

/// How a column's value lies in a row image.
#[derive(Clone, Copy)]
pub enum Layout {
    /// So many bytes.
    Fixed(usize),
    /// So many bytes of length before the data.
    Prefixed(usize),
}

/// Return whether a row image's bitmap of NULLs, or of present columns, has a column's bit.
pub fn has_bit(bitmap: &[u8], column: usize) -> bool {
    bitmap[column >> 3] >> (column & 7) & 1 == 1
}

/// Return a value's bytes and move after them; None when the event ends before.
pub fn take_value<'a>(data: &'a [u8], at: &mut usize, layout: Layout) -> Option<&'a [u8]> {
    let size = match layout {
        Layout::Fixed(size) => size,
        Layout::Prefixed(bytes) => {
            let length = data.get(*at..*at + bytes)?;
            *at += bytes;
            little_endian(length) as usize
        }
    };
    let value = data.get(*at..*at + size)?;
    *at += size;
    Some(value)
}
