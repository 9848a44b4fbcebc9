//! What Python sees of the walk.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::around::Around;
use crate::events::{self, Stop};
use crate::kernel::Declined;
use crate::walk::{Part, Place, Segment, Table, Tables, Texts, Walked};
use crate::{guarded, RowKernel, Tally};

/// Texts before and behind the row number, each of pieces with the name of the place behind them, and what stands
/// between flags and rows in an operation's events.
type GivenTexts = (Vec<(Vec<u8>, String)>, Vec<(Vec<u8>, String)>, Vec<u8>);
/// Routes with records of a partition, the GTID and the number of the row event where events are told apart, and the bytes.
type Segments<'py> = Vec<(Py<PyAny>, Bound<'py, PyList>, usize, Option<String>, usize, usize)>;
/// A server's UUID, the first of its transactions, and the number behind the last.
type GivenRun = (String, u64, u64);
/// Server id, GTID, commit time and thread of a transaction.
type GivenPassed = (u32, Option<String>, u64, u32);

/// Why the walk ended: it has all bytes or enough records, its next transaction is cut off, or left to Python, or the walker is defect.
const OVER: i64 = 0;
const CUT: i64 = 1;
const LEFT: i64 = -1;

/// Walks the transactions of a dump.
#[pyclass]
pub struct Walker {
    tables: Tables,
    tally: Py<Tally>,
    by_event: bool,
}

fn texts_of(given: Option<GivenTexts>, binary: bool) -> Option<(Option<Texts>, Vec<u8>)> {
    let Some((before, behind, head)) = given else { return Some((None, Vec::new())) };
    Some((Some((Around::of(before, binary)?, Around::of(behind, binary)?)), head))
}

#[pymethods]
impl Walker {
    #[new]
    fn new(tally: Py<Tally>, by_event: bool) -> Walker {
        Walker { tables: Tables::new(), tally, by_event }
    }

    /// Know what rows behind a TABLE_MAP become; return whether they can be walked.
    ///
    /// `map` is its body behind the table's number; without `rows` they are passed over. The texts are those of inserts,
    /// updates and deletes; none for an operation that is left to Python. The topic has `partitions`.
    fn learn(
        &mut self,
        map: Vec<u8>,
        route: Py<PyAny>,
        rows: Option<Py<RowKernel>>,
        texts: [Option<GivenTexts>; 3],
        partitions: u32,
    ) -> bool {
        let binary = rows.as_ref().is_some_and(|rows| rows.get().kernel.around.binary);
        let made: Option<Vec<_>> = texts.into_iter().map(|given| texts_of(given, binary)).collect();
        let Some(Ok([insert, update, delete])) = made.map(<[_; 3]>::try_from) else { return false };
        let heads = [insert.1, update.1, delete.1];
        let texts = [insert.0, update.0, delete.0];
        self.tables.learn(map, Table { route, rows, texts, heads, partitions });
        true
    }

    /// Know no table any more.
    fn forget(&mut self) {
        self.tables.forget();
    }

    /// Walk transactions from an offset on, until their records have `most` bytes.
    ///
    /// Returns the offset and the position behind them, why it ended, and what it found.
    #[pyo3(signature = (chunk, at, file, pos, limit, tail, most, now_ns, /))]
    #[allow(clippy::too_many_arguments, clippy::type_complexity)]
    fn walk<'py>(
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
    ) -> (usize, u64, i64, Segments<'py>, Vec<GivenRun>, Option<GivenPassed>) {
        let place = Place { file: file.as_bytes(), pos, limit, tail, now_ns };
        let made = guarded(|| {
            let mut walked = Walked { by_event: self.by_event, ..Walked::default() };
            let (to, end, why) = self.tables.walk(py, chunk.as_bytes(), at, &place, most, &mut walked);
            let why = why.map_or(OVER, |stop| if stop == Stop::Cut { CUT } else { LEFT });
            let segments = walked.segments.into_iter().flat_map(|one| self.parts(py, one)).collect();
            let gtids = walked.gtids.iter().map(|(uuid, first, end)| (text_of(uuid), *first, *end)).collect();
            let last = walked.last.map(|one| (one.server, one.gtid.map(gtid_of), one.commit_us, one.thread));
            self.tally.get().count(Ok(walked.rows));
            Ok((to, end, why, segments, gtids, last))
        });
        made.unwrap_or_else(|why| {
            self.tally.get().count(Err(why));
            (at, pos, Declined::Panic as i64, Vec::new(), Vec::new(), None)
        })
    }
}

impl Walker {
    /// Return the records of a segment partition by partition.
    fn parts<'py>(&self, py: Python<'py>, one: Segment<'py>) -> Segments<'py> {
        let (table, gtid, event) = (one.table, one.gtid.map(gtid_of), one.event);
        let found = one.records.into_iter().enumerate();
        let made = |(partition, part): (usize, Option<Part<'py>>)| {
            let (records, size) = part?;
            Some((self.tables.route(table).clone_ref(py), records, partition, gtid.clone(), event, size))
        };
        found.filter_map(made).collect()
    }
}

fn gtid_of((uuid, number): ([u8; 16], u64)) -> String {
    format!("{}:{number}", text_of(&uuid))
}

fn text_of(uuid: &[u8; 16]) -> String {
    let mut text = Vec::with_capacity(36);
    events::uuid_text(&mut text, uuid);
    text.iter().map(|&byte| char::from(byte)).collect()
}
