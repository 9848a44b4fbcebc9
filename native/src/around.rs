//! What stands around the row number of a record: texts with places that change from event to event.

use crate::text;

/// One thing that differs between the row events of a table.
#[derive(Clone, Copy)]
enum Place {
    /// When the transaction was committed: seconds, milli- and microseconds.
    Seconds,
    Millis,
    Micros,
    Server,
    Gtid,
    File,
    Position,
    Thread,
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
    pub now_ns: u64,
}

/// A text with places.
pub struct Around {
    pieces: Vec<(Vec<u8>, Option<Place>)>,
}

fn place_of(name: &str) -> Option<Place> {
    Some(match name {
        "seconds" => Place::Seconds,
        "millis" => Place::Millis,
        "micros" => Place::Micros,
        "server" => Place::Server,
        "gtid" => Place::Gtid,
        "file" => Place::File,
        "position" => Place::Position,
        "thread" => Place::Thread,
        "now_millis" => Place::NowMillis,
        "now_micros" => Place::NowMicros,
        "now_nanos" => Place::NowNanos,
        _ => return None,
    })
}

impl Around {
    /// Return a text of its pieces, each with the name of the place behind it or none; None where a name is not known.
    pub fn of(given: Vec<(Vec<u8>, String)>) -> Option<Around> {
        let piece = |(text, name): (Vec<u8>, String)| -> Option<(Vec<u8>, Option<Place>)> {
            Some((text, if name.is_empty() { None } else { Some(place_of(&name)?) }))
        };
        Some(Around { pieces: given.into_iter().map(piece).collect::<Option<_>>()? })
    }

    /// Put the text of an event into a buffer, whatever was in it.
    pub fn write(&self, out: &mut Vec<u8>, at: &Moment) {
        out.clear();
        for (before, place) in &self.pieces {
            out.extend_from_slice(before);
            match place {
                None => (),
                Some(Place::Seconds) => text::unsigned(out, at.commit_us / 1_000_000),
                Some(Place::Millis) => text::unsigned(out, at.commit_us / 1000),
                Some(Place::Micros) => text::unsigned(out, at.commit_us),
                Some(Place::Server) => text::unsigned(out, u64::from(at.server)),
                Some(Place::Gtid) => match at.gtid {
                    None => out.extend_from_slice(b"null"),
                    Some(gtid) => quoted(out, gtid),
                },
                Some(Place::File) => quoted(out, at.file),
                Some(Place::Position) => text::unsigned(out, at.position),
                Some(Place::Thread) if at.thread == 0 => out.extend_from_slice(b"null"),
                Some(Place::Thread) => text::unsigned(out, u64::from(at.thread)),
                Some(Place::NowMillis) => text::unsigned(out, at.now_ns / 1_000_000),
                Some(Place::NowMicros) => text::unsigned(out, at.now_ns / 1000),
                Some(Place::NowNanos) => text::unsigned(out, at.now_ns),
            }
        }
    }
}

fn quoted(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    out.extend_from_slice(text);
    out.push(b'"');
}
