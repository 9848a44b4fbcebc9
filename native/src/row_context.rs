//! The texts before and after the row number of a record, such as the source block: templates with placeholders for what
//! differs from event to event.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::avro_binary;
use crate::json_text;

/// One thing that differs between the row events of a table.
#[derive(Clone, Copy)]
enum Placeholder {
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
pub struct EventFacts<'a> {
    pub commit_us: u64,
    pub server: u32,
    /// Without quotes; none for a transaction without a GTID.
    pub gtid: Option<&'a [u8]>,
    pub file: &'a [u8],
    pub position: u64,
    /// 0 when it is not known.
    pub thread: u32,
    /// As in `GtidEvent`.
    pub number_byte: u8,
    pub now_ns: u64,
}

impl EventFacts<'_> {
    /// Return those of a row that no event brought: a time, that of the clock for 0.
    pub fn now(now_ns: u64) -> EventFacts<'static> {
        let now_ns = time_ns(now_ns);
        EventFacts { commit_us: 0, server: 0, gtid: None, file: b"", position: 0, thread: 0, number_byte: 0, now_ns }
    }
}

/// Return a time in nanoseconds, that of the clock for 0.
pub fn time_ns(now_ns: u64) -> u64 {
    if now_ns > 0 {
        return now_ns;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_nanos() as u64)
}

/// A text with placeholders.
pub struct ContextTemplate {
    pieces: Vec<(Vec<u8>, Option<Placeholder>)>,
    /// Whether the values of placeholders are written as Avro; a value that may be null is then a union with null first.
    binary: bool,
}

fn placeholder(name: &str) -> Option<Placeholder> {
    Some(match name {
        "seconds" => Placeholder::Seconds,
        "millis" => Placeholder::Millis,
        "micros" => Placeholder::Micros,
        "nanos" => Placeholder::Nanos,
        "server" => Placeholder::Server,
        "gtid" => Placeholder::Gtid,
        "file" => Placeholder::File,
        "position" => Placeholder::Position,
        "thread" => Placeholder::Thread,
        "commit_ts" => Placeholder::CommitTs,
        "now_millis" => Placeholder::NowMillis,
        "now_micros" => Placeholder::NowMicros,
        "now_nanos" => Placeholder::NowNanos,
        _ => return None,
    })
}

impl ContextTemplate {
    /// Return a template of its pieces, each with the name of the placeholder after it or an empty one; None for an
    /// unknown name.
    pub fn of(pieces: Vec<(Vec<u8>, String)>, binary: bool) -> Option<ContextTemplate> {
        let piece = |(text, name): (Vec<u8>, String)| -> Option<(Vec<u8>, Option<Placeholder>)> {
            Some((text, if name.is_empty() { None } else { Some(placeholder(&name)?) }))
        };
        Some(ContextTemplate { pieces: pieces.into_iter().map(piece).collect::<Option<_>>()?, binary })
    }

    /// Put the text for an event into a buffer, whatever was in it; None for a number that Avro cannot hold.
    pub fn write(&self, out: &mut Vec<u8>, event: &EventFacts) -> Option<()> {
        out.clear();
        for (before, placeholder) in &self.pieces {
            out.extend_from_slice(before);
            match placeholder {
                None => (),
                Some(Placeholder::Seconds) => self.number(out, event.commit_us / 1_000_000)?,
                Some(Placeholder::Millis) => self.number(out, event.commit_us / 1000)?,
                Some(Placeholder::Micros) => self.number(out, event.commit_us)?,
                Some(Placeholder::Nanos) => self.number(out, event.commit_us.checked_mul(1000)?)?,
                Some(Placeholder::Server) => self.number(out, u64::from(event.server))?,
                Some(Placeholder::Gtid) => self.or_null(out, event.gtid, ContextTemplate::text)?,
                Some(Placeholder::File) => self.text(out, event.file)?,
                Some(Placeholder::Position) => self.number(out, event.position)?,
                Some(Placeholder::Thread) => {
                    self.or_null(out, (event.thread > 0).then_some(u64::from(event.thread)), ContextTemplate::number)?
                }
                Some(Placeholder::CommitTs) => {
                    let millis = (event.commit_us / 1000).checked_mul(1 << 18)?;
                    self.number(out, millis | (event.commit_us % 1000) << 8 | u64::from(event.number_byte))?
                }
                Some(Placeholder::NowMillis) => self.number(out, event.now_ns / 1_000_000)?,
                Some(Placeholder::NowMicros) => self.number(out, event.now_ns / 1000)?,
                Some(Placeholder::NowNanos) => self.number(out, event.now_ns)?,
            }
        }
        Some(())
    }

    fn number(&self, out: &mut Vec<u8>, number: u64) -> Option<()> {
        if self.binary {
            avro_binary::long(out, i64::try_from(number).ok()?);
        } else {
            json_text::unsigned(out, number);
        }
        Some(())
    }

    fn text(&self, out: &mut Vec<u8>, text: &[u8]) -> Option<()> {
        if self.binary {
            avro_binary::bytes(out, text);
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
        write: fn(&ContextTemplate, &mut Vec<u8>, T) -> Option<()>,
    ) -> Option<()> {
        let Some(value) = value else {
            out.extend_from_slice(if self.binary { &[0] } else { b"null" });
            return Some(());
        };
        if self.binary {
            avro_binary::long(out, 1);
        }
        write(self, out, value)
    }
}
