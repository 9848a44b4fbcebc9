//! What whole transactions were decoded into: records by table and partition, and the GTIDs.

use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::binlog_events::Gtid;
use crate::known_tables::KnownTables;
use crate::row_record::Change;

/// A record of a transaction.
pub struct Record<'py> {
    /// The index of its table.
    pub table: usize,
    /// The number of its row event in the transaction, from 1.
    pub event: usize,
    pub partition: u32,
    /// What happened to its row.
    pub change: Change,
    /// What Python gets.
    pub record: Bound<'py, PyAny>,
    /// Bytes of key and value.
    pub bytes: usize,
}

/// Rows created, updated and deleted.
pub type Changes = [usize; 3];

/// Records of one partition, their bytes, and their changes.
pub type PartitionRecords<'py> = (Bound<'py, PyList>, usize, Changes);

/// Records of one table that follow each other; by event, those of one row event, with its GTID and number.
pub struct Segment<'py> {
    pub table: usize,
    /// By partition; within each as in the binlog.
    pub records: Vec<Option<PartitionRecords<'py>>>,
    pub gtid: Option<Gtid>,
    /// 0 unless by event.
    pub event: usize,
}

/// Transactions that follow each other in one server's numbers: its UUID, the first number and the one after the last.
type GtidRun = ([u8; 16], u64, u64);

/// Facts of a transaction other than its rows.
#[derive(Default)]
pub struct TransactionFacts {
    pub server: u32,
    pub gtid: Option<Gtid>,
    pub commit_us: u64,
    pub thread: u32,
    /// As in `GtidEvent`.
    pub number_byte: u8,
}

/// What was decoded.
#[derive(Default)]
pub struct DecodedTransactions<'py> {
    pub segments: Vec<Segment<'py>>,
    /// Whether the records of each row event are segments of their own.
    pub by_event: bool,
    pub gtids: Vec<GtidRun>,
    pub last: Option<TransactionFacts>,
    pub rows: i64,
    pub bytes: usize,
    pub transactions: usize,
    /// Row events of tables that are not captured.
    pub filtered: usize,
}

impl<'py> DecodedTransactions<'py> {
    /// Add a transaction: its records, which are removed from the buffer, and its rows and bytes; None for one without
    /// a GTID when segments are by event.
    pub fn add(
        &mut self,
        py: Python<'py>,
        tables: &KnownTables,
        records: &mut Vec<Record<'py>>,
        facts: TransactionFacts,
        (rows, bytes, filtered): (i64, usize, usize),
    ) -> Option<()> {
        self.add_records(py, tables, records, &facts)?;
        if let Some((uuid, number)) = facts.gtid {
            match self.gtids.last_mut() {
                Some((last, _, end)) if *last == uuid && *end == number => *end += 1,
                _ => self.gtids.push((uuid, number, number + 1)),
            }
        }
        self.last = Some(facts);
        self.rows += rows;
        self.bytes += bytes;
        self.transactions += 1;
        self.filtered += filtered;
        Some(())
    }

    fn add_records(
        &mut self,
        py: Python<'py>,
        tables: &KnownTables,
        records: &mut Vec<Record<'py>>,
        facts: &TransactionFacts,
    ) -> Option<()> {
        // By event, segments are named by GTID.
        if self.by_event && facts.gtid.is_none() && !records.is_empty() {
            return None;
        }
        let mut last_event = 0;
        for Record { table, event, partition, change, record, bytes } in records.drain(..) {
            let same_event = !self.by_event || event == last_event;
            last_event = event;
            if !self.segments.last().is_some_and(|segment| same_event && segment.table == table) {
                let (gtid, event) = if self.by_event { (facts.gtid, event) } else { (None, 0) };
                let partitions = tables.at(table).partitions.max(1) as usize;
                self.segments.push(Segment { table, records: vec![None; partitions], gtid, event });
            }
            let mut changes = [0; 3];
            if change != Change::None {
                changes[change as usize] = 1;
            }
            match self.segments.last_mut()?.records.get_mut(partition as usize)? {
                Some((list, size, sums)) => {
                    list.append(record).ok()?;
                    *size += bytes;
                    sums.iter_mut().zip(changes).for_each(|(sum, more)| *sum += more);
                }
                empty => *empty = Some((PyList::new(py, [record]).ok()?, bytes, changes)),
            }
        }
        Some(())
    }
}
