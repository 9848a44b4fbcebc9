//! Packets of a dump, and the events around rows, as far as a plain transaction has them.

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

/// Why a transaction is not walked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stop {
    /// It goes on behind the bytes that are there.
    Cut,
    /// Something in it is left to Python.
    Left,
}

/// One event in its packet.
pub struct Event<'a> {
    pub kind: u8,
    pub timestamp: u32,
    pub server: u32,
    /// Low 32 bits of the position behind it.
    pub log_pos: u32,
    pub size: usize,
    /// Offset behind the packet.
    pub stop: usize,
    /// With header and checksum.
    whole: &'a [u8],
}

/// What a GTID event tells.
pub struct Gtid {
    /// None for an anonymous transaction.
    pub id: Option<([u8; 16], u64)>,
    pub commit_us: u64,
    /// The lowest byte of the transaction's number in its file.
    pub order: u8,
}

/// Return the number of the first bytes, at most eight.
pub fn little(data: &[u8]) -> u64 {
    // The sizes of most numbers are read at once.
    match (data.first_chunk::<8>(), data.first_chunk::<4>(), data.len()) {
        (Some(eight), ..) => u64::from_le_bytes(*eight),
        (_, Some(four), 4) => u64::from(u32::from_le_bytes(*four)),
        _ => data.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)),
    }
}

fn part(data: &[u8], from: usize, size: usize) -> Result<&[u8], Stop> {
    data.get(from..from + size).ok_or(Stop::Left)
}

/// Return the event that begins at an offset.
pub fn event_at(data: &[u8], at: usize) -> Result<Event<'_>, Stop> {
    let rest = data.get(at..).ok_or(Stop::Left)?;
    if rest.len() < PACKET_HEAD {
        return Err(Stop::Cut);
    }
    let length = little(&rest[..3]) as usize;
    // An error, the end of the dump, or what cannot be an event.
    if rest.get(PACKET_HEAD).is_some_and(|&status| status != 0) || length < BEFORE_BODY - PACKET_HEAD {
        return Err(Stop::Left);
    }
    let stop = PACKET_HEAD + length;
    let packet = rest.get(..stop).ok_or(Stop::Cut)?;
    let size = little(&packet[14..18]) as usize;
    if size != stop - BEFORE_EVENT {
        return Err(Stop::Left);
    }
    Ok(Event {
        kind: packet[9],
        timestamp: little(&packet[5..9]) as u32,
        server: little(&packet[10..14]) as u32,
        log_pos: little(&packet[18..22]) as u32,
        size,
        stop: at + stop,
        whole: &packet[BEFORE_EVENT..],
    })
}

impl<'a> Event<'a> {
    /// Return the body, whose checksum holds where there is one.
    pub fn body(&self, tail: usize) -> Result<&'a [u8], Stop> {
        if tail > 0 && crc32fast::hash(self.whole) != RESIDUE {
            return Err(Stop::Left);
        }
        self.unchecked(tail)
    }

    /// Return the body, whatever its checksum says.
    pub fn unchecked(&self, tail: usize) -> Result<&'a [u8], Stop> {
        let end = self.whole.len().checked_sub(tail).ok_or(Stop::Left)?;
        self.whole.get(HEADER..end).ok_or(Stop::Left)
    }
}

/// Return what a GTID event of a server since MySQL 8.0 tells.
pub fn gtid_of(kind: u8, body: &[u8]) -> Result<Gtid, Stop> {
    // Flags, uuid, number, kind of the logical clock, last committed, sequence number, seven bytes of time.
    if body.len() < GTID_HEAD || body[25] != LOGICAL_CLOCK {
        return Err(Stop::Left);
    }
    let number = i64::try_from(little(&body[17..25])).map_err(|_| Stop::Left)?;
    let mut time = little(&body[42..49]);
    let mut length = 49;
    if time & HAS_ORIGINAL != 0 {
        time = little(part(body, 49, 7)?);
        length += 7;
    }
    // The transaction's length is not needed, but Python refuses what is no number.
    if matches!(body.get(length), None | Some(251) | Some(255)) {
        return Err(Stop::Left);
    }
    if kind == ANONYMOUS_GTID {
        return Ok(Gtid { id: None, commit_us: time, order: body[34] });
    }
    let uuid: [u8; 16] = body[1..17].try_into().map_err(|_| Stop::Left)?;
    if number < 1 {
        return Err(Stop::Left);
    }
    Ok(Gtid { id: Some((uuid, number as u64)), commit_us: time, order: body[34] })
}

/// Return the thread of a session whose transaction begins with this statement.
pub fn begin_thread(body: &[u8]) -> Result<u32, Stop> {
    let text = body.len().checked_sub(BEGIN.len()).filter(|&at| at >= QUERY_HEAD).ok_or(Stop::Left)?;
    let (database, status) = (usize::from(body[8]), little(&body[11..13]) as usize);
    if &body[text..] != BEGIN || QUERY_HEAD + status + database + 1 != text {
        return Err(Stop::Left);
    }
    Ok(little(&body[..4]) as u32)
}

/// Add a GTID as text.
pub fn gtid_text(out: &mut Vec<u8>, uuid: &[u8; 16], number: u64) {
    uuid_text(out, uuid);
    out.push(b':');
    crate::text::unsigned(out, number);
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
