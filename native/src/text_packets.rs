//! The packets of MySQL's text protocol, in which the rows of a SELECT come.

use crate::byte_order::little_endian;

const HEADER: usize = 4;
const EOF: u8 = 0xFE;
const ERROR: u8 = 0xFF;
/// A packet that ends the rows is shorter; a row that begins with the same byte is longer.
const EOF_BYTES: usize = 9;

/// Return the payload of the packet at an offset, and the offset after it; None where it is not there as a whole.
pub fn packet(data: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let start = at.checked_add(HEADER)?;
    let header = data.get(at..start)?;
    let size = little_endian(&header[..3]) as usize;
    Some((data.get(start..start + size)?, start + size))
}

/// Return how many rows of one packet are here as a whole, the offset after them and the next packet's number.
///
/// `number` is what the first packet's has to be; a payload of `largest` bytes goes on in the next packet.
pub fn whole_rows(data: &[u8], pos: usize, number: u8, largest: usize) -> (u64, usize, u8) {
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
