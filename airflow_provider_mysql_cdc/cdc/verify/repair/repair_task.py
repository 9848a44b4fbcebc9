"""The task of a repair, one of a window whose stretches are lists of keys, and the ledger's records of repairs.

The ledger records of repairs: who has repaired which table in which run, at which position, and how much.

A record is written in the Kafka transactions of the repair itself, and counts what all of them have written. So an
attempt that ends in between leaves no doubt about what is repaired.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import REPAIR_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.drain.batch_run import WriterInputs
from airflow_provider_mysql_cdc.cdc.formats import record_topics, table_options
from airflow_provider_mysql_cdc.cdc.incremental.key_range_reader import CompiledTable, KeyRangeReader, RangeUnreadable
from airflow_provider_mysql_cdc.cdc.incremental.window_task import open_window_task
from airflow_provider_mysql_cdc.cdc.job.schema_ids import ask_driver_for_texts
from airflow_provider_mysql_cdc.cdc.job.stage_runner import StageArguments
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record, record_location
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.snapshot.chunk import rows_sql
from airflow_provider_mysql_cdc.cdc.snapshot.range_writer import RowCounts, RowRange, TableSelect
from airflow_provider_mysql_cdc.cdc.verify.compare.suspects import TableSuspects
from airflow_provider_mysql_cdc.cdc.verify.read.avro_events import LookupSchema
from airflow_provider_mysql_cdc.cdc.verify.read.event_readers import event_reader
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import EventReader, row_bytes
from airflow_provider_mysql_cdc.cdc.verify.read.row_records import REPAIR_HEADER, RowRecords, settled_header
from airflow_provider_mysql_cdc.cdc.verify.repair.listed_keys import KeyLister, ListedKey, rows_condition
from airflow_provider_mysql_cdc.cdc.verify.repair.listed_stretch import MARKER, GhostDeletes, ListedStretch
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import DifferenceKind, TableVerdict
from airflow_provider_mysql_cdc.cdc.verify.structures.compared_table import (
    ComparedTable,
    compared_table,
    shared_topics,
    tables_by_topic,
)
from airflow_provider_mysql_cdc.cdc.verify.views.view_batch import time_limit, written_before_error


@dataclass(frozen=True, slots=True)
class RepairRecord(Record):
    """Say what a run has repaired in a table.

    Args:
        table: ``database.table``.
        owner: Who repaired: ``dag_id/run_id/task_id/map_index``.
        offset: The position at which the table was read last.
        ts_ms: When the last transaction of the repair was written, milliseconds since 1970.
        repaired: Number of differences that are repaired, by kind, of all attempts of the run.
    """

    run: str
    table: str
    topic: str
    owner: str
    offset: BinlogOffset
    ts_ms: Count
    repaired: Mapping[DifferenceKind, Count] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Return its key in the ledger."""
        return repair_key(self.run, self.table)


def repair_key(run: str, table: str) -> str:
    """Return the key of a record in the ledger.

    Args:
        run: Id of the run.
        table: ``database.table``.
    """
    return f"{REPAIR_PREFIX}{run}/{table}"


def with_earlier_repairs(verdicts: Iterable[TableVerdict], repairs: Iterable[RepairRecord]) -> list[TableVerdict]:
    """Return verdicts with what earlier tries of the run have found and repaired, which a comparison no longer finds.

    Args:
        verdicts: The verdicts of a comparison before which the repairs were made.
        repairs: The repairs of the run.
    """
    repaired = {repair.table: repair.repaired for repair in repairs}
    return [
        replace(
            verdict,
            findings=dict(Counter(verdict.findings) + Counter(repaired[verdict.table])),
            repaired=repaired[verdict.table],
        )
        if verdict.table in repaired
        else verdict
        for verdict in verdicts
    ]


def repairs_by_topic(ledger: LedgerState) -> dict[str, dict[bytes | None, int]]:
    """Return the runs that have repaired something in each topic, as headers name them, with the time of the last."""
    found: dict[str, dict[bytes | None, int]] = {}
    for repair in read_repairs(ledger):  # in the order of time
        found.setdefault(repair.topic, {})[repair.run.encode()] = repair.ts_ms
    return found


def read_repairs(ledger: LedgerState, run: str = "") -> list[RepairRecord]:
    """Return what was repaired, in the order of time.

    Args:
        ledger: The ledger.
        run: Id of a run; empty for all.

    Raises:
        DamagedRecordError: This package has not written a record.
    """
    repairs = []
    for key, value in ledger.other_records.items():
        if key.startswith(REPAIR_PREFIX):
            with record_location(f"key {key}"):
                repairs.append(RepairRecord.from_json(value))
    return sorted((repair for repair in repairs if run in ("", repair.run)), key=lambda repair: repair.ts_ms)


MAX_KEYS = 200
"""Keys of one stretch: one SELECT and one Kafka transaction."""


@dataclass(frozen=True, slots=True)
class RepairInputs:
    """Hold what the task of a repair needs.

    Args:
        writer: What it needs as the writer of the window's batch.
        run: Id of the run, under which the ledger counts repairs.
        owner: Who repairs: ``dag_id/run_id/task_id/map_index``.
        earlier: What earlier attempts of the run had repaired before the comparison, by table.
        counted: What the ledger counts for the run, by table: also what an attempt has repaired that broke since then,
            and which is repaired once more.
    """

    writer: WriterInputs
    suspects: tuple[TableSuspects, ...]
    run: str
    owner: str
    earlier: Mapping[str, Mapping[DifferenceKind, int]] = field(default_factory=dict)
    counted: Mapping[str, Mapping[DifferenceKind, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """Hold what was done about one table.

    Args:
        repaired: Number of differences that are repaired, by kind.
        reasons: What could not be repaired, and why.
    """

    repaired: Mapping[DifferenceKind, int] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RepairReport:
    """Hold what a repair has done.

    Args:
        tables: By table.
        counts: Records by topic that were written.
    """

    tables: Mapping[TableId, TableOutcome] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)


class _TakesTooLong(Exception):
    """Raised where a stretch does not fit into one Kafka transaction."""


def run_repair_task(index: int, arguments: StageArguments[RepairInputs]) -> RepairReport:
    """Run the task of a repair; called in a Spark task of a barrier stage.

    Args:
        index: The task's index, which is its writer's index.
        arguments: What the task was started with.
    """
    with open_window_task(index, arguments, arguments.inputs.writer) as reader:
        if reader is None:
            raise written_before_error("the repair")
        with time_limit(reader.cfg, reader.conn):
            return RepairTask(reader, arguments.inputs).run()


class RepairTask:
    """Write the listed keys of all tables.

    Args:
        reader: What reads in the window's view, which is at the end of the batch.
        inputs: What is to be repaired.
    """

    def __init__(self, reader: KeyRangeReader, inputs: RepairInputs) -> None:
        self._reader, self._inputs, self._cfg = reader, inputs, reader.cfg
        self._lookup = ask_driver_for_texts(reader.channel)

    def run(self) -> RepairReport:
        """Return what was done."""
        topics = {suspects.topic for suspects in self._inputs.suspects}
        versions = {suspects.table: suspects.versions for suspects in self._inputs.suspects}
        cfg, state = self._cfg, self._reader.state.tables
        shared, names = shared_topics(cfg, state), (n for n in sorted(state) if cfg.captures(n))
        tables = {
            name: compared_table(cfg, number, state[name], versions=versions.get(name), shared=shared)
            for number, name in enumerate(n for n in names if record_topics.table_topic_name(cfg, n) in topics)
        }
        outcomes = dict[TableId, TableOutcome]()
        for suspects in self._inputs.suspects:
            try:
                compiled = self._reader.compiled_table(suspects.table)
                if compiled.table != suspects.structure:
                    # Keys of another structure have other forms, by which no row would be found.
                    raise RangeUnreadable("its structure has changed since it was compared; verify again")
                outcomes[suspects.table] = self._repair(suspects, compiled, tables)
            except RangeUnreadable as error:
                outcomes[suspects.table] = TableOutcome(reasons=(str(error),))
        return RepairReport(outcomes, self._reader.writer.counts)

    def _repair(
        self, suspects: TableSuspects, compiled: CompiledTable, tables: Mapping[TableId, ComparedTable]
    ) -> TableOutcome:
        compared, events = tables[suspects.table], event_reader(self._cfg, suspects.topic, self._lookup)
        of_topic, partitions = tables_by_topic(tables.values())[suspects.topic], compiled.route.partitions
        lister = KeyLister(self._cfg, compared, of_topic, events, partitions)
        writer = _ListedTable(self._reader, self._inputs, compiled, compared, events, self._lookup)
        return writer.write(lister.list_keys(suspects.suspects), lister.reasons)


class _ListedTable:
    """Write the listed keys of one table, some in each stretch."""

    def __init__(
        self,
        reader: KeyRangeReader,
        inputs: RepairInputs,
        compiled: CompiledTable,
        compared: ComparedTable,
        events: EventReader,
        lookup: LookupSchema,
    ) -> None:
        cfg, partitions = reader.cfg, compiled.route.partitions
        self._reader, self._inputs, self._cfg, self._compiled = reader, inputs, cfg, compiled
        self._compared, self._events = compared, events
        self._options = table_options.table_options(cfg, compared.table)
        self._header = (REPAIR_HEADER, inputs.run.encode())
        self._id_prefix = f"repair/{reader.plan.epoch}/{inputs.run}"
        self._deletes = GhostDeletes(
            cfg,
            reader.position(),
            [*table_options.headers(cfg, inputs.writer.run_id), self._header],
            lookup,
            self._id_prefix if cfg[F.CDC_ID_HEADER] else None,
        )
        self._records = RowRecords(cfg, compared.table, partitions, reader.avro_formats, reader.plan.end)
        self._repaired: Counter[DifferenceKind] = Counter()
        self._stretches = 0

    def write(self, keys: Sequence[ListedKey], reasons: Sequence[str]) -> TableOutcome:
        """Write keys; return what was done."""
        left, said = self._cut(keys), list(reasons)
        while left:
            listed = left.pop(0)
            stretch = ListedStretch(self._cfg, self._compared, listed, self._events, self._records, self._deletes)
            try:
                self._reader.writer.write(self._row_range(stretch))
            except _TakesTooLong as error:
                half = len(listed) // 2
                left[:0] = [listed[:half], listed[half:]] if half and self._compared.own_key else []
                said += [] if half and self._compared.own_key else [str(error)]
            except RangeUnreadable as error:
                said.append(str(error))
            else:
                self._repaired += stretch.repaired
                said += stretch.reasons
                left += [[key] for key in stretch.left]
        return TableOutcome(dict(self._repaired), tuple(said))

    def _cut(self, keys: Sequence[ListedKey]) -> list[Sequence[ListedKey]]:
        """Return the keys of each stretch: of all keys one where the whole table is read, or keys name no rows."""
        size = MAX_KEYS if self._compared.own_key and "TRUE" not in map(self._condition, keys) else max(1, len(keys))
        return [keys[start : start + size] for start in range(0, len(keys), size)]

    def _condition(self, key: ListedKey) -> str:
        if key.row is None:
            return "FALSE"
        if self._compared.keyless:
            return "TRUE"
        return rows_condition(self._compared.table, self._options, key.row)

    def _row_range(self, stretch: ListedStretch) -> RowRange:
        table = self._compared.table
        of_keys = [rows_condition(table, self._options, row_bytes(key)) for key in stretch.record_keys().values()]
        conditions = list(dict.fromkeys([*map(self._condition, stretch.keys), *of_keys]))
        condition = "TRUE" if "TRUE" in conditions else " OR ".join(f"({each})" for each in conditions)
        compiled, where = self._compiled, f"repair of {self._compared.table.id}"
        self._stretches += 1
        settled = settled_header(stretch.keys[0].settled) if len(stretch.keys) == 1 else []
        return RowRange(
            where=where,
            select=TableSelect(
                compiled.table,
                rows_sql(compiled.table.id, compiled.columns, condition, ()),
                lambda: compiled.route,
                stretch.chosen_rows,
                stretch.listed_rows,
            ),
            key_kinds=(),
            position=self._reader.position,
            id_prefix=self._id_prefix,
            row_id_prefix=f"{where}, {self._stretches}",
            ledger_record=lambda written: self._ledger_record(stretch, written),
            timeout_error=lambda produced, rows: _TakesTooLong(
                f"{produced:,} of {rows:,} rows took as long as one Kafka transaction may last: raise "
                f"{F.TRANSACTION_TIMEOUT_MS.name}"
            ),
            report_progress=lambda _: None,
            marker=MARKER,
            headers=[self._header, *settled],
            first_records=stretch.first_records,
        )

    def _ledger_record(self, stretch: ListedStretch, written: RowCounts) -> tuple[str, dict[str, Any]] | None:
        """Return the record that counts what the run has repaired in the table; None where that is no more than before.

        Raises:
            RangeUnreadable: A row cannot be written.
        """
        if written.unreadable:
            self._reader.sink.abort()
            raise RangeUnreadable(f"{written.unreadable:,} of {written.read:,} rows cannot be written")
        if not stretch.repaired:
            return None
        table, inputs = str(self._compared.table.id), self._inputs
        repaired = Counter(inputs.earlier.get(table, {})) + self._repaired + stretch.repaired
        record = RepairRecord(
            inputs.run,
            table,
            self._compared.topic,
            inputs.owner,
            self._reader.plan.end,
            time.time_ns() // 1_000_000,
            dict(repaired | Counter(inputs.counted.get(table, {}))),
        )
        return record.key, record.to_json()
