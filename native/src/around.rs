//! What stands around the row number of a record: texts with places that change from event to event.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::avro;
use crate::text;

/// One thing that differs between the row events of a table.
#[derive(Clone, Copy)]
enum Place {
    /// When the transaction was committed: seconds, milli-, micro- and nanoseconds.
    Seconds,
    Millis,
    Micros,
    Nanos,
    Server,
    Gtid,
    File,
    Position,
    Thread,
    /// TiCDC's timestamp of the transaction (`cdc/ticdc/commit_ts.py`).
    CommitTs,
    /// The current time.
    NowMillis,
    NowMicros,
    NowNanos,
}

/// What is known of a row event and of its transaction.
pub struct Moment<'a> {
    pub commit_us: u64,
    pub server: u32,
    /// Without quotes; none for a transaction without a GTID.
    pub gtid: Option<&'a [u8]>,
    pub file: &'a [u8],
    pub position: u64,
    /// 0 when it is not known.
    pub thread: u32,
    /// The lowest byte of the transaction's number in its file.
    pub order: u8,
    pub now_ns: u64,
}

impl Moment<'_> {
    /// Return one that has no more than a time, that of the clock where none is given.
    pub fn now(now_ns: u64) -> Moment<'static> {
        let now_ns = if now_ns > 0 { now_ns } else { clock_ns() };
        Moment { commit_us: 0, server: 0, gtid: None, file: b"", position: 0, thread: 0, order: 0, now_ns }
    }
}

/// Return the current time in nanoseconds.
pub fn clock_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_nanos() as u64)
}

/// A text with places.
pub struct Around {
    pieces: Vec<(Vec<u8>, Option<Place>)>,
    /// Whether places are written as Avro; those that may be null are then unions with null first.
    binary: bool,
}

fn place_of(name: &str) -> Option<Place> {
    Some(match name {
        "seconds" => Place::Seconds,
        "millis" => Place::Millis,
        "micros" => Place::Micros,
        "nanos" => Place::Nanos,
        "server" => Place::Server,
        "gtid" => Place::Gtid,
        "file" => Place::File,
        "position" => Place::Position,
        "thread" => Place::Thread,
        "commit_ts" => Place::CommitTs,
        "now_millis" => Place::NowMillis,
        "now_micros" => Place::NowMicros,
        "now_nanos" => Place::NowNanos,
        _ => return None,
    })
}

impl Around {
    /// Return a text of its pieces, each with the name of the place behind it or none; None where a name is not known.
    pub fn of(given: Vec<(Vec<u8>, String)>, binary: bool) -> Option<Around> {
        let piece = |(text, name): (Vec<u8>, String)| -> Option<(Vec<u8>, Option<Place>)> {
            Some((text, if name.is_empty() { None } else { Some(place_of(&name)?) }))
        };
        Some(Around { pieces: given.into_iter().map(piece).collect::<Option<_>>()?, binary })
    }

    /// Put the text of an event into a buffer, whatever was in it; None for a number that Avro cannot hold.
    pub fn write(&self, out: &mut Vec<u8>, at: &Moment) -> Option<()> {
        out.clear();
        for (before, place) in &self.pieces {
            out.extend_from_slice(before);
            match place {
                None => (),
                Some(Place::Seconds) => self.number(out, at.commit_us / 1_000_000)?,
                Some(Place::Millis) => self.number(out, at.commit_us / 1000)?,
                Some(Place::Micros) => self.number(out, at.commit_us)?,
                Some(Place::Nanos) => self.number(out, at.commit_us.checked_mul(1000)?)?,
                Some(Place::Server) => self.number(out, u64::from(at.server))?,
                Some(Place::Gtid) => self.or_null(out, at.gtid, Around::text)?,
                Some(Place::File) => self.text(out, at.file)?,
                Some(Place::Position) => self.number(out, at.position)?,
                Some(Place::Thread) => {
                    self.or_null(out, (at.thread > 0).then_some(u64::from(at.thread)), Around::number)?
                }
                Some(Place::CommitTs) => {
                    let millis = (at.commit_us / 1000).checked_mul(1 << 18)?;
                    self.number(out, millis | (at.commit_us % 1000) << 8 | u64::from(at.order))?
                }
                Some(Place::NowMillis) => self.number(out, at.now_ns / 1_000_000)?,
                Some(Place::NowMicros) => self.number(out, at.now_ns / 1000)?,
                Some(Place::NowNanos) => self.number(out, at.now_ns)?,
            }
        }
        Some(())
    }

    fn number(&self, out: &mut Vec<u8>, number: u64) -> Option<()> {
        if self.binary {
            avro::varint(out, i64::try_from(number).ok()?);
        } else {
            text::unsigned(out, number);
        }
        Some(())
    }

    fn text(&self, out: &mut Vec<u8>, text: &[u8]) -> Option<()> {
        if self.binary {
            avro::sized(out, text);
        } else {
            out.push(b'"');
            out.extend_from_slice(text);
            out.push(b'"');
        }
        Some(())
    }

    fn or_null<T>(
        &self,
        out: &mut Vec<u8>,
        value: Option<T>,
        put: fn(&Around, &mut Vec<u8>, T) -> Option<()>,
    ) -> Option<()> {
        let Some(value) = value else {
            out.extend_from_slice(if self.binary { &[0] } else { b"null" });
            return Some(());
        };
        if self.binary {
            avro::varint(out, 1);
        }
        put(self, out, value)
    }
}
