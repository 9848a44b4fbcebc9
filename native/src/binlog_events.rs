//! Binlog events in the packets of a dump, as far as a plain transaction has them.

use crate::byte_order::little_endian;
use crate::json_text;

/// Event types: MySQL source, `binlog_event.h`.
pub const QUERY: u8 = 2;
pub const XID: u8 = 16;
pub const TABLE_MAP: u8 = 19;
pub const ROWS_QUERY: u8 = 29;
pub const WRITE_ROWS: u8 = 30;
pub const DELETE_ROWS: u8 = 32;
pub const GTID: u8 = 33;
pub const ANONYMOUS_GTID: u8 = 34;

const PACKET_HEAD: usize = 4;
const BEFORE_EVENT: usize = 5;
const HEADER: usize = 19;
const BEFORE_BODY: usize = BEFORE_EVENT + HEADER;
/// CRC-32 of any bytes followed by their own CRC-32.
const RESIDUE: u32 = 0x2144_DF1C;
const BEGIN: &[u8] = b"BEGIN";
const QUERY_HEAD: usize = 13;
const GTID_HEAD: usize = 50;
const LOGICAL_CLOCK: u8 = 2;
const HAS_ORIGINAL: u64 = 1 << 55;

/// Why a transaction is not decoded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stop {
    /// It does not end in the bytes that are there.
    Truncated,
    /// Something in it is left to Python.
    ForPython,
}

/// One event in its packet.
pub struct Event<'a> {
    pub kind: u8,
    pub timestamp: u32,
    pub server: u32,
    /// Low 32 bits of the position after it.
    pub log_pos: u32,
    pub size: usize,
    /// Offset after the packet.
    pub stop: usize,
    /// With header and checksum.
    whole: &'a [u8],
}

/// A server's UUID, and the number of a transaction there.
pub type Gtid = ([u8; 16], u64);

/// The contents of a GTID event.
pub struct GtidEvent {
    /// None for an anonymous transaction.
    pub gtid: Option<Gtid>,
    pub commit_us: u64,
    /// The lowest byte of the GTID's number; of the sequence number in its file for an anonymous transaction.
    pub number_byte: u8,
}

fn part(data: &[u8], from: usize, size: usize) -> Result<&[u8], Stop> {
    data.get(from..from + size).ok_or(Stop::ForPython)
}

/// Return the event that begins at an offset.
pub fn event_at(data: &[u8], at: usize) -> Result<Event<'_>, Stop> {
    let rest = data.get(at..).ok_or(Stop::ForPython)?;
    if rest.len() < PACKET_HEAD {
        return Err(Stop::Truncated);
    }
    let length = little_endian(&rest[..3]) as usize;
    // An error, the end of the dump, or what cannot be an event.
    if rest.get(PACKET_HEAD).is_some_and(|&status| status != 0) || length < BEFORE_BODY - PACKET_HEAD {
        return Err(Stop::ForPython);
    }
    let stop = PACKET_HEAD + length;
    let packet = rest.get(..stop).ok_or(Stop::Truncated)?;
    let size = little_endian(&packet[14..18]) as usize;
    if size != stop - BEFORE_EVENT {
        return Err(Stop::ForPython);
    }
    Ok(Event {
        kind: packet[9],
        timestamp: little_endian(&packet[5..9]) as u32,
        server: little_endian(&packet[10..14]) as u32,
        log_pos: little_endian(&packet[18..22]) as u32,
        size,
        stop: at + stop,
        whole: &packet[BEFORE_EVENT..],
    })
}

impl<'a> Event<'a> {
    /// Return the body, after a check of its checksum if it has one.
    pub fn body(&self, tail: usize) -> Result<&'a [u8], Stop> {
        if tail > 0 && crc32fast::hash(self.whole) != RESIDUE {
            return Err(Stop::ForPython);
        }
        self.unchecked(tail)
    }

    /// Return the body without a check of its checksum.
    pub fn unchecked(&self, tail: usize) -> Result<&'a [u8], Stop> {
        let end = self.whole.len().checked_sub(tail).ok_or(Stop::ForPython)?;
        self.whole.get(HEADER..end).ok_or(Stop::ForPython)
    }
}

/// Return the contents of a GTID event of a server since MySQL 8.0.
pub fn gtid_event(kind: u8, body: &[u8]) -> Result<GtidEvent, Stop> {
    // Flags, uuid, number, kind of the logical clock, last committed, sequence number, seven bytes of time.
    if body.len() < GTID_HEAD || body[25] != LOGICAL_CLOCK {
        return Err(Stop::ForPython);
    }
    let number = i64::try_from(little_endian(&body[17..25])).map_err(|_| Stop::ForPython)?;
    let mut commit_us = little_endian(&body[42..49]);
    let mut length_at = 49;
    if commit_us & HAS_ORIGINAL != 0 {
        commit_us = little_endian(part(body, 49, 7)?);
        length_at += 7;
    }
    // The transaction's length is not needed, but Python refuses what is no number.
    if matches!(body.get(length_at), None | Some(251) | Some(255)) {
        return Err(Stop::ForPython);
    }
    if kind == ANONYMOUS_GTID {
        return Ok(GtidEvent { gtid: None, commit_us, number_byte: body[34] });
    }
    let uuid: [u8; 16] = body[1..17].try_into().map_err(|_| Stop::ForPython)?;
    if number < 1 {
        return Err(Stop::ForPython);
    }
    Ok(GtidEvent { gtid: Some((uuid, number as u64)), commit_us, number_byte: body[17] })
}

/// Return the thread of a session whose transaction begins with this statement.
pub fn begin_thread(body: &[u8]) -> Result<u32, Stop> {
    let text = body.len().checked_sub(BEGIN.len()).filter(|&at| at >= QUERY_HEAD).ok_or(Stop::ForPython)?;
    let (database, status) = (usize::from(body[8]), little_endian(&body[11..13]) as usize);
    if &body[text..] != BEGIN || QUERY_HEAD + status + database + 1 != text {
        return Err(Stop::ForPython);
    }
    Ok(little_endian(&body[..4]) as u32)
}

/// Add a GTID as text.
pub fn gtid_text(out: &mut Vec<u8>, uuid: &[u8; 16], number: u64) {
    uuid_text(out, uuid);
    out.push(b':');
    json_text::unsigned(out, number);
}

/// Add a UUID as text.
pub fn uuid_text(out: &mut Vec<u8>, uuid: &[u8; 16]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (place, byte) in uuid.iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}
