//! Whole transactions out of the bytes of a dump: GTID, BEGIN, TABLE_MAPs, rows and XID of tables that are known.
//!
//! A transaction is walked whole or not at all; one that holds anything else is left to Python, which reads it event by event.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::around::{clock_ns, Around, Moment};
use crate::events::{self, Event, Gtid, Stop};
use crate::flat;
use crate::kernel::{Kind, Rows, Scratch};
use crate::partition::partition_of;
use crate::RowKernel;

const TABLE_ID: usize = 6;
const FLAGS_END: usize = 8;
/// A transaction of more bytes is left to Python, event by event.
const LARGEST: usize = 1 << 16;

/// What stands before the row number and behind it.
pub type Texts = (Around, Around);

/// What the rows of a table version become; without a decoder they are passed over.
pub struct Table {
    pub route: Py<PyAny>,
    pub rows: Option<Py<RowKernel>>,
    /// By operation: insert, update, delete; none for one that is left to Python.
    pub texts: [Option<Texts>; 3],
    /// What stands between flags and rows in the events of each operation.
    pub heads: [Vec<u8>; 3],
    /// Partitions of its topic.
    pub partitions: u32,
}

/// Where the bytes of a dump stand in the binlog.
pub struct Place<'a> {
    pub file: &'a [u8],
    pub pos: u64,
    /// No event ends behind this position.
    pub limit: u64,
    /// Bytes of checksum behind each event.
    pub tail: usize,
    /// 0 for the time of the clock.
    pub now_ns: u64,
}

/// A record: the place of its table, the number of its row event in the transaction, its partition, what Python gets of it,
/// and the bytes of its key and value.
type Record<'py> = (usize, usize, u32, Bound<'py, PyAny>, usize);
/// Records of one partition and their bytes.
pub type Part<'py> = (Bound<'py, PyList>, usize);

/// Records of one table that follow each other. Where events are told apart, those of one row event, with its number.
pub struct Segment<'py> {
    pub table: usize,
    /// By partition; within each as in the binlog.
    pub records: Vec<Option<Part<'py>>>,
    pub gtid: Option<([u8; 16], u64)>,
    /// 0 where events are not told apart.
    pub event: usize,
}

/// Transactions that follow each other in one server's numbers: its UUID, the first and the one behind the last.
type Run = ([u8; 16], u64, u64);

/// What a transaction tells beside its rows.
pub struct Passed {
    pub server: u32,
    pub gtid: Option<([u8; 16], u64)>,
    pub commit_us: u64,
    pub thread: u32,
    /// The lowest byte of its number in the file.
    pub order: u8,
}

/// What was walked.
#[derive(Default)]
pub struct Walked<'py> {
    pub segments: Vec<Segment<'py>>,
    /// Whether the records of each row event are told apart.
    pub by_event: bool,
    pub gtids: Vec<Run>,
    pub last: Option<Passed>,
    pub rows: i64,
    pub bytes: usize,
}

/// Buffers for texts around row numbers.
#[derive(Default)]
struct Buffers {
    scratch: Scratch,
    before: Vec<u8>,
    behind: Vec<u8>,
    gtid: Vec<u8>,
    /// Tables of a transaction by the numbers that its TABLE_MAPs give them.
    known: Vec<(u64, usize)>,
}

pub struct Tables {
    by_map: HashMap<Vec<u8>, usize>,
    list: Vec<Table>,
}

impl Tables {
    pub fn new() -> Tables {
        Tables { by_map: HashMap::new(), list: Vec::new() }
    }

    /// Know what rows behind a TABLE_MAP become; `map` is its body behind the table's number.
    pub fn learn(&mut self, map: Vec<u8>, table: Table) {
        self.by_map.insert(map, self.list.len());
        self.list.push(table);
    }

    pub fn forget(&mut self) {
        self.by_map.clear();
        self.list.clear();
    }

    pub fn route(&self, place: usize) -> &Py<PyAny> {
        &self.list[place].route
    }

    /// Walk transactions until something is left to Python, or until their records have this many bytes.
    ///
    /// Returns the offset and the position behind them, and why it ended; none for their bytes.
    pub fn walk<'py>(
        &self,
        py: Python<'py>,
        data: &[u8],
        at: usize,
        place: &Place,
        most: usize,
        walked: &mut Walked<'py>,
    ) -> (usize, u64, Option<Stop>) {
        let (mut at, mut pos) = (at, place.pos);
        let mut buffers = Buffers::default();
        let mut records: Vec<Record<'py>> = Vec::new();
        let mut why = None;
        while pos < place.limit && walked.bytes < most {
            let step = whole(data, at, pos, place).and_then(|(stop, end)| {
                let mut one = Transaction { tables: self, data, place, buffers: &mut buffers, records: &mut records };
                let (passed, rows, bytes) = one.walk(py, at, stop, pos)?;
                Ok((stop, end, passed, rows, bytes))
            });
            match step {
                Ok((stop, end, passed, rows, bytes)) => {
                    if walked.take(py, self, &mut records, &passed).is_none() {
                        why = Some(Stop::Left);
                        break;
                    }
                    walked.pass(passed);
                    walked.rows += rows;
                    walked.bytes += bytes;
                    (at, pos) = (stop, end);
                }
                Err(reason) => {
                    why = Some(reason);
                    break;
                }
            }
        }
        (at, pos, why)
    }
}

impl<'py> Walked<'py> {
    /// Add the records of a transaction.
    fn take(
        &mut self,
        py: Python<'py>,
        tables: &Tables,
        records: &mut Vec<Record<'py>>,
        passed: &Passed,
    ) -> Option<()> {
        // Where events are told apart, they are by GTID.
        if self.by_event && passed.gtid.is_none() && !records.is_empty() {
            return None;
        }
        let mut last = 0;
        for (table, number, partition, record, size) in records.drain(..) {
            let same = if self.by_event { number == last } else { true };
            last = number;
            if !self.segments.last().is_some_and(|segment| same && segment.table == table) {
                let (gtid, event) = if self.by_event { (passed.gtid, number) } else { (None, 0) };
                let partitions = tables.list[table].partitions.max(1) as usize;
                self.segments.push(Segment { table, records: vec![None; partitions], gtid, event });
            }
            match self.segments.last_mut()?.records.get_mut(partition as usize)? {
                Some((found, bytes)) => {
                    found.append(record).ok()?;
                    *bytes += size;
                }
                empty => *empty = Some((PyList::new(py, [record]).ok()?, size)),
            }
        }
        Some(())
    }

    fn pass(&mut self, passed: Passed) {
        if let Some((uuid, number)) = passed.gtid {
            match self.gtids.last_mut() {
                Some((last, _, end)) if *last == uuid && *end == number => *end += 1,
                _ => self.gtids.push((uuid, number, number + 1)),
            }
        }
        self.last = Some(passed);
    }
}

/// Return where the transaction that begins here ends, in the bytes and in the file, if it is a plain one.
fn whole(data: &[u8], at: usize, pos: u64, place: &Place) -> Result<(usize, u64), Stop> {
    let from = at;
    let (mut at, mut pos, mut number) = (at, pos, 0);
    loop {
        let event = match events::event_at(data, at) {
            Err(Stop::Cut) if data.len() - from > LARGEST => return Err(Stop::Left),
            found => found?,
        };
        let fits = match number {
            0 => matches!(event.kind, events::GTID | events::ANONYMOUS_GTID),
            // Behind any other statement nothing has to follow that could be waited for.
            1 => event.kind == events::QUERY && events::begin_thread(event.unchecked(place.tail)?).is_ok(),
            _ => matches!(
                event.kind,
                events::TABLE_MAP | events::ROWS_QUERY | events::XID | events::WRITE_ROWS..=events::DELETE_ROWS
            ),
        };
        pos += event.size as u64;
        let far = event.stop - from > LARGEST;
        if !fits || far || pos as u32 != event.log_pos || pos > place.limit {
            return Err(Stop::Left);
        }
        at = event.stop;
        number += 1;
        if event.kind == events::XID {
            return Ok((at, pos));
        }
    }
}

/// A transaction that is being walked.
struct Transaction<'a, 'py> {
    tables: &'a Tables,
    data: &'a [u8],
    place: &'a Place<'a>,
    buffers: &'a mut Buffers,
    records: &'a mut Vec<Record<'py>>,
}

impl<'py> Transaction<'_, 'py> {
    /// Make its records; return what it tells, its rows and the bytes of its records.
    fn walk(&mut self, py: Python<'py>, at: usize, stop: usize, pos: u64) -> Result<(Passed, i64, usize), Stop> {
        self.records.clear();
        let (mut at, mut pos) = (at, pos);
        self.buffers.known.clear();
        let (mut rows, mut bytes, mut number) = (0, 0, 0);
        let mut passed = Passed { server: 0, gtid: None, commit_us: 0, thread: 0, order: 0 };
        while at < stop {
            let event = events::event_at(self.data, at)?;
            let body = event.body(self.place.tail)?;
            match event.kind {
                events::GTID | events::ANONYMOUS_GTID => {
                    let Gtid { id, commit_us, order } = events::gtid_of(event.kind, body)?;
                    self.buffers.gtid.clear();
                    if let Some((uuid, number)) = &id {
                        events::gtid_text(&mut self.buffers.gtid, uuid, *number);
                    }
                    passed = Passed { server: event.server, gtid: id, commit_us, thread: 0, order };
                }
                events::QUERY => passed.thread = events::begin_thread(body)?,
                events::TABLE_MAP => {
                    let map = body.get(TABLE_ID..).ok_or(Stop::Left)?;
                    let table = *self.tables.by_map.get(map).ok_or(Stop::Left)?;
                    self.buffers.known.push((events::little(&body[..TABLE_ID]), table));
                }
                events::WRITE_ROWS..=events::DELETE_ROWS => {
                    let id = events::little(body.get(..TABLE_ID).ok_or(Stop::Left)?);
                    let known = self.buffers.known.iter().rev().find(|(number, _)| *number == id);
                    let table = known.ok_or(Stop::Left)?.1;
                    number += 1;
                    let (count, size) = self.rows(py, &event, body, (table, number), pos, &passed)?;
                    rows += count;
                    bytes += size;
                }
                _ => (),
            }
            at = event.stop;
            pos += event.size as u64;
        }
        Ok((passed, rows, bytes))
    }

    /// Make the records of a row event.
    fn rows(
        &mut self,
        py: Python<'py>,
        event: &Event,
        body: &[u8],
        (table, number): (usize, usize),
        pos: u64,
        passed: &Passed,
    ) -> Result<(i64, usize), Stop> {
        let found = &self.tables.list[table];
        let which = usize::from(event.kind - events::WRITE_ROWS);
        let kind = [Kind::Insert, Kind::Update, Kind::Delete][which];
        let Some(decoder) = &found.rows else {
            let images = if kind == Kind::Update { 2 } else { 1 };
            return if sound(body, images) { Ok((0, 0)) } else { Err(Stop::Left) };
        };
        let head = &found.heads[which];
        let rows_at = FLAGS_END + head.len();
        let there = body.get(FLAGS_END..rows_at).ok_or(Stop::Left)?;
        if rows_at >= body.len() || head.is_empty() || there != head.as_slice() {
            return Err(Stop::Left);
        }
        let decoder = decoder.get();
        let (before, behind) = found.texts[which].as_ref().ok_or(Stop::Left)?;
        let Buffers { scratch, before: before_text, behind: behind_text, gtid, .. } = &mut *self.buffers;
        let moment = Moment {
            commit_us: if passed.commit_us > 0 { passed.commit_us } else { u64::from(event.timestamp) * 1_000_000 },
            server: event.server,
            gtid: passed.gtid.map(|_| gtid.as_slice()),
            file: self.place.file,
            position: pos,
            thread: passed.thread,
            order: passed.order,
            now_ns: if self.place.now_ns > 0 { self.place.now_ns } else { clock_ns() },
        };
        before.write(before_text, &moment).ok_or(Stop::Left)?;
        behind.write(behind_text, &moment).ok_or(Stop::Left)?;
        let bitmaps = decoder.bitmaps(kind);
        let rows = Rows {
            bitmaps: body.get(rows_at.checked_sub(bitmaps).ok_or(Stop::Left)?..rows_at).ok_or(Stop::Left)?,
            data: &body[rows_at..],
            before_number: before_text,
            behind_number: behind_text,
            first: 0,
        };
        let mut size = 0;
        if let Some(flat) = &decoder.flat {
            let mut take = |key: Option<&[u8]>, value: Option<&[u8]>, row: i64, partition: u32| -> Option<()> {
                let bytes = value.map_or(0, <[u8]>::len) + key.map_or(0, <[u8]>::len);
                // Its place says where it goes, and its segment does not.
                self.records.push((table, number, 0, flat::record(py, (key, value), row, partition)?, bytes));
                size += bytes;
                Some(())
            };
            let count = flat.run(&decoder.kernel, kind, &rows, scratch, &mut take).map_err(|_| Stop::Left)?;
            scratch.shrink();
            return Ok((count, size));
        }
        let (tombstone, partitions) = (decoder.tombstones && kind == Kind::Delete, found.partitions);
        let mut take = |key: Option<&[u8]>, value: &[u8], row: i64| -> Option<()> {
            let key_size = key.map_or(0, <[u8]>::len);
            let partition = partition_of(key, partitions);
            let key = key.map(|key| PyBytes::new(py, key));
            let made = (&key, PyBytes::new(py, value), row, 0, py.None()).into_pyobject(py).ok()?;
            self.records.push((table, number, partition, made.into_any(), key_size + value.len()));
            size += key_size + value.len();
            if tombstone {
                let made = (&key, py.None(), row, 1, py.None()).into_pyobject(py).ok()?;
                self.records.push((table, number, partition, made.into_any(), key_size));
                size += key_size;
            }
            Some(())
        };
        let (_, count) = decoder.kernel.run(kind, &rows, scratch, &mut take).map_err(|_| Stop::Left)?;
        scratch.shrink();
        Ok((count, size))
    }
}

/// Return whether the head of a row event holds, so that its rows can be passed over.
fn sound(body: &[u8], images: usize) -> bool {
    let Some(extra) = body.get(FLAGS_END..FLAGS_END + 2) else { return false };
    let extra = events::little(extra) as usize;
    let at = FLAGS_END + extra;
    match body.get(at) {
        Some(&width @ 1..=250) => extra >= 2 && at + 1 + images * usize::from(width).div_ceil(8) <= body.len(),
        _ => false,
    }
}
