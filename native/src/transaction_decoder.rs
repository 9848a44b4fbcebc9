//! The decoder of whole transactions, as Python uses it.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::binlog_events::{self, Gtid, Stop};
use crate::declined::Declined;
use crate::decoded_transactions::{DecodedTransactions, PartitionRecords, Segment, TransactionFacts};
use crate::known_tables::{KnownTable, KnownTables, RowContext};
use crate::python_calls::guarded;
use crate::row_context::ContextTemplate;
use crate::row_kernel::RowKernel;
use crate::tally::Tally;
use crate::transaction::{transaction_end, Buffers, DumpPosition, Transaction};

/// A template: pieces with the name of the placeholder after each.
type TemplatePlan = Vec<(Vec<u8>, String)>;
/// Templates of the texts before and after the row number, and the bytes between flags and rows in an operation's events.
type ContextPlan = (TemplatePlan, TemplatePlan, Vec<u8>);
/// Routes with records of a partition, the GTID and the number of the row event when by event, and the bytes.
type Segments<'py> = Vec<(Py<PyAny>, Bound<'py, PyList>, usize, Option<String>, usize, usize)>;
/// Rows created, updated and deleted, of each of these.
type SegmentChanges = Vec<(usize, usize, usize)>;
/// A server's UUID, the first of its transactions, and the number after the last.
type GtidRun = (String, u64, u64);
/// Server id, GTID, commit time and thread of a transaction.
type LastTransaction = (u32, Option<String>, u64, u32);

/// One of each.
type PartitionOf<'py> = ((Py<PyAny>, Bound<'py, PyList>, usize, Option<String>, usize, usize), (usize, usize, usize));

/// Why a call ended: it has all bytes or enough records, or its next transaction does not end in the bytes, or is left to
/// Python; `Declined::Defect` after a panic.
const OVER: i64 = 0;
const TRUNCATED: i64 = 1;
const FOR_PYTHON: i64 = -1;

/// Decodes the transactions of a dump.
#[pyclass]
pub struct TransactionDecoder {
    tables: KnownTables,
    tally: Py<Tally>,
    by_event: bool,
    /// TiCDC's timestamp of the last transaction; `UNORDERED` where records have none.
    commit_ts: AtomicU64,
    /// Server ids with the UUID of the last GTID of each.
    signers: Vec<(u32, Vec<u8>)>,
}

/// Timestamps of transactions are not compared.
const UNORDERED: u64 = u64::MAX;

fn context_of(plan: Option<ContextPlan>, binary: bool) -> Option<(Option<RowContext>, Vec<u8>)> {
    let Some((before, after, head)) = plan else { return Some((None, Vec::new())) };
    Some((Some((ContextTemplate::of(before, binary)?, ContextTemplate::of(after, binary)?)), head))
}

#[pymethods]
impl TransactionDecoder {
    #[new]
    fn new(tally: Py<Tally>, by_event: bool) -> TransactionDecoder {
        let commit_ts = AtomicU64::new(UNORDERED);
        TransactionDecoder { tables: KnownTables::default(), tally, by_event, commit_ts, signers: Vec::new() }
    }

    /// TiCDC's timestamp of the last transaction; those that would not be above it are left to Python.
    #[getter]
    fn commit_ts(&self) -> u64 {
        self.commit_ts.load(Ordering::Relaxed)
    }

    #[setter]
    fn set_commit_ts(&self, commit_ts: u64) {
        self.commit_ts.store(commit_ts, Ordering::Relaxed);
    }

    /// Add a table version by its TABLE_MAP; return whether its rows can be decoded.
    ///
    /// `map` is its body after the table's number; without `rows` they are skipped. The texts are those of inserts,
    /// updates and deletes; none for an operation that is left to Python. The topic has `partitions`.
    fn learn(
        &mut self,
        map: Vec<u8>,
        route: Py<PyAny>,
        rows: Option<Py<RowKernel>>,
        texts: [Option<ContextPlan>; 3],
        partitions: u32,
    ) -> bool {
        let binary = rows.as_ref().is_some_and(|rows| rows.get().decoder.envelope.binary);
        let contexts: Option<Vec<_>> = texts.into_iter().map(|plan| context_of(plan, binary)).collect();
        let Some(Ok([insert, update, delete])) = contexts.map(<[_; 3]>::try_from) else { return false };
        let heads = [insert.1, update.1, delete.1];
        let contexts = [insert.0, update.0, delete.0];
        self.tables.add(map, KnownTable { route, decoder: rows, contexts, heads, partitions });
        true
    }

    /// Leave transactions to Python in whose GTIDs a server id has another UUID than here, or is not here.
    fn sign(&mut self, signers: Vec<(u32, Vec<u8>)>) {
        self.signers = signers;
    }

    /// Forget all tables.
    fn forget(&mut self) {
        self.tables.clear();
    }

    /// Decode transactions from an offset on, until their records have `most` bytes.
    ///
    /// Returns the offset and the position after them, why it ended, and what it decoded: records, GTIDs, the last
    /// transaction, what happened to the rows of the records, transactions and row events that are not captured.
    #[pyo3(signature = (chunk, at, file, pos, limit, tail, most, now_ns, /))]
    #[allow(clippy::too_many_arguments, clippy::type_complexity)]
    fn decode_transactions<'py>(
        &self,
        py: Python<'py>,
        chunk: &Bound<'py, PyBytes>,
        at: usize,
        file: &str,
        pos: u64,
        limit: u64,
        tail: usize,
        most: usize,
        now_ns: u64,
    ) -> (usize, u64, i64, Segments<'py>, Vec<GtidRun>, Option<LastTransaction>, SegmentChanges, (usize, usize)) {
        let dump = DumpPosition { file: file.as_bytes(), pos, limit, tail, now_ns };
        let result = guarded(|| {
            let mut decoded = DecodedTransactions { by_event: self.by_event, ..DecodedTransactions::default() };
            let (to, end, why) = self.decode(py, chunk.as_bytes(), at, &dump, most, &mut decoded);
            let why = why.map_or(OVER, |stop| if stop == Stop::Truncated { TRUNCATED } else { FOR_PYTHON });
            let totals = (decoded.transactions, decoded.filtered);
            let parts = decoded.segments.into_iter().flat_map(|segment| self.partitions(py, segment));
            let (segments, changes): (Segments, SegmentChanges) = parts.unzip();
            let gtids = decoded.gtids.iter().map(|(uuid, first, end)| (uuid_text(uuid), *first, *end)).collect();
            let last = decoded.last.map(|last| (last.server, last.gtid.map(gtid_text), last.commit_us, last.thread));
            self.tally.get().count(Ok(decoded.rows));
            Ok((to, end, why, segments, gtids, last, changes, totals))
        });
        result.unwrap_or_else(|why| {
            self.tally.get().count(Err(why));
            (at, pos, Declined::Defect as i64, Vec::new(), Vec::new(), None, Vec::new(), (0, 0))
        })
    }
}

impl TransactionDecoder {
    /// Decode transactions until something is left to Python, or until their records have this many bytes.
    ///
    /// Returns the offset and the position after them, and why it ended; None when the bytes or `most` ended it.
    fn decode<'py>(
        &self,
        py: Python<'py>,
        data: &[u8],
        at: usize,
        dump: &DumpPosition,
        most: usize,
        decoded: &mut DecodedTransactions<'py>,
    ) -> (usize, u64, Option<Stop>) {
        let (mut at, mut pos) = (at, dump.pos);
        let mut buffers = Buffers::default();
        while pos < dump.limit && decoded.bytes < most {
            let step = transaction_end(data, at, pos, dump).and_then(|(stop, end)| {
                let transaction = Transaction::new(py, &self.tables, data, dump, &mut buffers);
                let (facts, sums) = transaction.decode(at, stop, pos)?;
                self.require_signer(&facts)?;
                let commit_ts = self.next_commit_ts(&facts)?;
                let added = decoded.add(py, &self.tables, &mut buffers.records, facts, sums);
                added.ok_or(Stop::ForPython)?;
                self.set_commit_ts(commit_ts);
                Ok((stop, end))
            });
            match step {
                Ok(next) => (at, pos) = next,
                Err(why) => return (at, pos, Some(why)),
            }
        }
        (at, pos, None)
    }

    /// Stop at a GTID of another server than the last one with its server id, and at a server id that is not known.
    fn require_signer(&self, facts: &TransactionFacts) -> Result<(), Stop> {
        let Some((uuid, _)) = facts.gtid else { return Ok(()) };
        let is_same = |(server, known): &(u32, Vec<u8>)| *server == facts.server && known[..] == uuid[..];
        if self.signers.is_empty() || self.signers.iter().any(is_same) {
            Ok(())
        } else {
            Err(Stop::ForPython)
        }
    }

    /// Return the timestamp of a transaction, if it is above the one of the last transaction.
    fn next_commit_ts(&self, facts: &TransactionFacts) -> Result<u64, Stop> {
        let last = self.commit_ts();
        if last == UNORDERED {
            return Ok(UNORDERED);
        }
        let millis = (facts.commit_us / 1000).checked_mul(1 << 18).ok_or(Stop::ForPython)?;
        let commit_ts = millis | (facts.commit_us % 1000) << 8 | u64::from(facts.number_byte);
        if facts.commit_us == 0 || commit_ts <= last {
            Err(Stop::ForPython)
        } else {
            Ok(commit_ts)
        }
    }

    /// Return the records of a segment partition by partition, with their changes.
    fn partitions<'py>(&self, py: Python<'py>, segment: Segment<'py>) -> Vec<PartitionOf<'py>> {
        let (table, gtid, event) = (segment.table, segment.gtid.map(gtid_text), segment.event);
        let one = |(partition, records): (usize, Option<PartitionRecords<'py>>)| {
            let (records, bytes, [created, updated, deleted]) = records?;
            let route = self.tables.at(table).route.clone_ref(py);
            Some(((route, records, partition, gtid.clone(), event, bytes), (created, updated, deleted)))
        };
        segment.records.into_iter().enumerate().filter_map(one).collect()
    }
}

fn gtid_text((uuid, number): Gtid) -> String {
    format!("{}:{number}", uuid_text(&uuid))
}

fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = Vec::with_capacity(36);
    binlog_events::uuid_text(&mut text, uuid);
    text.iter().map(|&byte| char::from(byte)).collect()
}
