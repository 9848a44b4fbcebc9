//! One transaction in the bytes of a dump: GTID, BEGIN, TABLE_MAPs, rows and XID of tables that are known.
//!
//! It is decoded whole or not at all; one with anything else is left to Python, which reads it event by event.

use pyo3::prelude::*;

use crate::binlog_events::{self as events, Event, GtidEvent, Stop};
use crate::byte_order::little_endian;
use crate::decoded_transactions::{Record, TransactionFacts};
use crate::kafka_partitions::partition_of;
use crate::known_tables::{KnownTable, KnownTables};
use crate::python_records::RecordMaker;
use crate::row_context::{time_ns, EventFacts};
use crate::row_decoder::{NumberTexts, Operation, Rows};
use crate::row_kernel::RowKernel;
use crate::row_record::{RowRecord, TOMBSTONE};
use crate::scratch::Scratch;

const TABLE_ID: usize = 6;
const FLAGS_END: usize = 8;
/// A transaction of more bytes is left to Python, event by event.
const MOST_BYTES: usize = 1 << 16;

/// The position of the bytes of a dump in the binlog.
pub struct DumpPosition<'a> {
    pub file: &'a [u8],
    pub pos: u64,
    /// No event ends after this position.
    pub limit: u64,
    /// Bytes of checksum after each event.
    pub tail: usize,
    /// 0 for the time of the clock.
    pub now_ns: u64,
}

/// Buffers that one transaction after the other uses.
#[derive(Default)]
pub struct Buffers<'py> {
    /// Records of the transaction.
    pub records: Vec<Record<'py>>,
    scratch: Scratch,
    /// Texts before and after row numbers.
    before: Vec<u8>,
    after: Vec<u8>,
    gtid: Vec<u8>,
    /// Tables of the transaction by the numbers that its TABLE_MAPs give them.
    tables: Vec<(u64, usize)>,
}

/// Return where the transaction that begins here ends, in the bytes and in the file, if it is a plain one.
pub fn transaction_end(data: &[u8], begin: usize, pos: u64, dump: &DumpPosition) -> Result<(usize, u64), Stop> {
    let (mut at, mut pos, mut number) = (begin, pos, 0);
    loop {
        let event = match events::event_at(data, at) {
            Err(Stop::Truncated) if data.len() - begin > MOST_BYTES => return Err(Stop::ForPython),
            event => event?,
        };
        let fits = match number {
            0 => matches!(event.kind, events::GTID | events::ANONYMOUS_GTID),
            // After any other statement nothing has to follow that could be waited for.
            1 => event.kind == events::QUERY && events::begin_thread(event.unchecked(dump.tail)?).is_ok(),
            _ => matches!(
                event.kind,
                events::TABLE_MAP | events::ROWS_QUERY | events::XID | events::WRITE_ROWS..=events::DELETE_ROWS
            ),
        };
        pos += event.size as u64;
        let large = event.stop - begin > MOST_BYTES;
        if !fits || large || pos as u32 != event.log_pos || pos > dump.limit {
            return Err(Stop::ForPython);
        }
        at = event.stop;
        number += 1;
        if event.kind == events::XID {
            return Ok((at, pos));
        }
    }
}

/// A transaction that is being decoded.
pub struct Transaction<'a, 'py> {
    py: Python<'py>,
    tables: &'a KnownTables,
    data: &'a [u8],
    dump: &'a DumpPosition<'a>,
    buffers: &'a mut Buffers<'py>,
    facts: TransactionFacts,
    /// Number of row events so far.
    row_events: usize,
    rows: i64,
    bytes: usize,
    /// Row events of tables that are not captured.
    filtered: usize,
}

impl<'a, 'py> Transaction<'a, 'py> {
    /// Return a transaction of which nothing is decoded yet.
    pub fn new(
        py: Python<'py>,
        tables: &'a KnownTables,
        data: &'a [u8],
        dump: &'a DumpPosition<'a>,
        buffers: &'a mut Buffers<'py>,
    ) -> Transaction<'a, 'py> {
        buffers.records.clear();
        buffers.tables.clear();
        let facts = TransactionFacts::default();
        Transaction { py, tables, data, dump, buffers, facts, row_events: 0, rows: 0, bytes: 0, filtered: 0 }
    }

    /// Put its records into the buffers; return what is known of it, its rows, the bytes of its records, and its row
    /// events of tables that are not captured.
    pub fn decode(mut self, at: usize, stop: usize, pos: u64) -> Result<(TransactionFacts, (i64, usize, usize)), Stop> {
        let (mut at, mut pos) = (at, pos);
        while at < stop {
            let event = events::event_at(self.data, at)?;
            let body = event.body(self.dump.tail)?;
            match event.kind {
                events::GTID | events::ANONYMOUS_GTID => self.gtid(&event, body)?,
                events::QUERY => self.facts.thread = events::begin_thread(body)?,
                events::TABLE_MAP => {
                    let map = body.get(TABLE_ID..).ok_or(Stop::ForPython)?;
                    let table = self.tables.find(map).ok_or(Stop::ForPython)?;
                    self.buffers.tables.push((little_endian(&body[..TABLE_ID]), table));
                }
                events::WRITE_ROWS..=events::DELETE_ROWS => self.row_event(&event, body, pos)?,
                _ => (),
            }
            at = event.stop;
            pos += event.size as u64;
        }
        Ok((self.facts, (self.rows, self.bytes, self.filtered)))
    }

    fn gtid(&mut self, event: &Event, body: &[u8]) -> Result<(), Stop> {
        let GtidEvent { gtid, commit_us, number_byte } = events::gtid_event(event.kind, body)?;
        self.buffers.gtid.clear();
        if let Some((uuid, number)) = &gtid {
            events::gtid_text(&mut self.buffers.gtid, uuid, *number);
        }
        self.facts = TransactionFacts { server: event.server, gtid, commit_us, thread: 0, number_byte };
        Ok(())
    }

    fn row_event(&mut self, event: &Event, body: &[u8], pos: u64) -> Result<(), Stop> {
        let id = little_endian(body.get(..TABLE_ID).ok_or(Stop::ForPython)?);
        let known = self.buffers.tables.iter().rev().find(|(number, _)| *number == id);
        let index = known.ok_or(Stop::ForPython)?.1;
        self.row_events += 1;
        let table = self.tables.at(index);
        let kind = usize::from(event.kind - events::WRITE_ROWS);
        let operation = [Operation::Insert, Operation::Update, Operation::Delete][kind];
        let Some(decoder) = &table.decoder else {
            self.filtered += usize::from(table.partitions == 0);
            return if has_row_head(body, operation) { Ok(()) } else { Err(Stop::ForPython) };
        };
        let head = &table.heads[kind];
        let rows_at = FLAGS_END + head.len();
        let there = body.get(FLAGS_END..rows_at).ok_or(Stop::ForPython)?;
        if rows_at >= body.len() || head.is_empty() || there != head.as_slice() {
            return Err(Stop::ForPython);
        }
        let decoder = decoder.get();
        let bitmaps = decoder.bitmaps(operation, body, rows_at).ok_or(Stop::ForPython)?;
        self.rows((index, table), decoder, operation, (bitmaps, &body[rows_at..]), (event, pos))
    }

    /// Put the records of a row event into the buffers.
    fn rows(
        &mut self,
        (index, table): (usize, &KnownTable),
        decoder: &RowKernel,
        operation: Operation,
        (bitmaps, data): (&[u8], &[u8]),
        (event, position): (&Event, u64),
    ) -> Result<(), Stop> {
        let (event_number, transaction) = (self.row_events, &self.facts);
        let Buffers { records, scratch, before, after, gtid, .. } = &mut *self.buffers;
        let facts = EventFacts {
            commit_us: match transaction.commit_us {
                0 => u64::from(event.timestamp) * 1_000_000,
                commit_us => commit_us,
            },
            server: event.server,
            gtid: transaction.gtid.map(|_| gtid.as_slice()),
            file: self.dump.file,
            position,
            thread: transaction.thread,
            number_byte: transaction.number_byte,
            now_ns: time_ns(self.dump.now_ns),
        };
        write_texts(table, operation, &facts, before, after).ok_or(Stop::ForPython)?;
        let (mut size, mut maker, mut partition) = (0, RecordMaker::new(self.py), 0);
        let mut take = |made: &RowRecord| -> Option<()> {
            if !made.follows() {
                partition = made.partition.unwrap_or_else(|| partition_of(made.key, table.partitions));
            }
            let bytes = made.key.map_or(0, <[u8]>::len) + made.value.map_or(0, <[u8]>::len);
            let record = maker.make(made)?;
            records.push(Record { table: index, event: event_number, partition, change: made.change, record, bytes });
            size += bytes;
            Some(())
        };
        let rows = Rows {
            bitmaps,
            data,
            before_number: before,
            after_number: after,
            first: 0,
            texts_of: &|operation| {
                let mut texts = NumberTexts::default();
                write_texts(table, operation, &facts, &mut texts.0, &mut texts.1)?;
                Some(texts)
            },
        };
        let decoded = decoder.decode(operation, &rows, scratch, &mut take);
        self.rows += decoded.map_err(|_| Stop::ForPython)?.1;
        self.bytes += size;
        scratch.shrink();
        Ok(())
    }
}

/// Write the texts around the row numbers of an event.
fn write_texts(
    table: &KnownTable,
    operation: Operation,
    facts: &EventFacts,
    before: &mut Vec<u8>,
    after: &mut Vec<u8>,
) -> Option<()> {
    let texts = table.contexts[operation as usize].as_ref()?;
    texts.0.write(before, facts)?;
    texts.1.write(after, facts)
}

/// Return whether the head of a row event is complete, so that its rows can be skipped.
fn has_row_head(body: &[u8], operation: Operation) -> bool {
    let Some(extra) = body.get(FLAGS_END..FLAGS_END + 2) else { return false };
    let extra = little_endian(extra) as usize;
    let at = FLAGS_END + extra;
    match body.get(at) {
        Some(&width @ 1..=250) => {
            extra >= 2 && at + 1 + operation.images() * usize::from(width).div_ceil(8) <= body.len()
        }
        _ => false,
    }
}
