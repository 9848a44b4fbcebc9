"""Write repairs to Kafka, in transactions with the ledger record that counts them.

A missing or differing row is written as a row of an incremental snapshot, a ghost as a delete event with its tombstone
(``ghost_delete``); each with a header that names the run. The writer has joined the plan of a batch that ends at the
position of the view in which the rows were read. Only its attempt can write until the next batch begins, so no later
change is overtaken.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.nulled_values import NulledValue, nulled_warning
from airflow_provider_mysql_cdc.cdc.errors import RecordTooLargeError
from airflow_provider_mysql_cdc.cdc.job.batch_size_retry import reduce_and_rejoin
from airflow_provider_mysql_cdc.cdc.job.job_ledger import ledger_record
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.records import Header
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId
from airflow_provider_mysql_cdc.cdc.sink.topic_reader import TopicRecord
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter
from airflow_provider_mysql_cdc.cdc.snapshot.range_writer import ViewPosition, create_emitter
from airflow_provider_mysql_cdc.cdc.snapshot.row_emitter import EmitTarget, RowEmitter, SnapshotRoute, out_of_time
from airflow_provider_mysql_cdc.cdc.verify.avro_events import LookupSchema
from airflow_provider_mysql_cdc.cdc.verify.event_record import UnreadableRecord
from airflow_provider_mysql_cdc.cdc.verify.ghost_delete import MARKER, GhostDeletes, GhostRecord
from airflow_provider_mysql_cdc.cdc.verify.repair_marks import settled_header
from airflow_provider_mysql_cdc.cdc.verify.repair_records import RepairRecord
from airflow_provider_mysql_cdc.cdc.verify.verify_result import DifferenceKind

_Key = TypeVar("_Key")
Kinds = Mapping[DifferenceKind, int]
"""Number of differences, by kind."""
MAX_TRANSACTION_REPAIRS = 1000
"""Repairs in one Kafka transaction; ``commit.bytes`` and ``commit.interval.ms`` limit it too."""


@dataclass(frozen=True, slots=True)
class RowRepair:
    """Hold a row to be written.

    Args:
        kinds: The differences that it repairs.
        packet: The row in MySQL's text protocol.
        forgotten: Records whose keys get a tombstone in their partitions before.
        settled: Partitions and offsets of records without keys, which the row's record names.
    """

    kinds: Kinds
    packet: bytes
    forgotten: Sequence[TopicRecord] = ()
    settled: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class DeleteRepair:
    """Hold a row to be deleted, or only keys to be forgotten.

    Args:
        kinds: The differences that it repairs.
        last: The topic's last event of the row; None where there is none.
        forgotten: Records whose keys get a tombstone in their partitions before.
        settled: As for ``RowRepair``.
    """

    kinds: Kinds
    last: TopicRecord | None
    forgotten: Sequence[TopicRecord] = ()
    settled: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class TableRepair:
    """Hold what is to be repaired in one table.

    Args:
        table: The table.
        route: How its rows become records.
        deletes: The rows to be deleted.
        rows: The rows to be written.
    """

    table: Table
    route: SnapshotRoute
    deletes: Sequence[DeleteRepair] = ()
    rows: Sequence[RowRepair] = ()

    @property
    def size(self) -> int:
        """Return the number of keys."""
        return len(self.deletes) + len(self.rows)

    def kinds(self) -> dict[DifferenceKind, int]:
        """Return the number of differences, by kind."""
        repairs: list[DeleteRepair | RowRepair] = [*self.deletes, *self.rows]
        total: dict[DifferenceKind, int] = {}
        for repair in repairs:
            total = _added(total, repair.kinds)
        return total


@dataclass(frozen=True, slots=True)
class RepairIdentity:
    """Say who repairs.

    Args:
        run: Id of the run.
        owner: ``dag_id/run_id/task_id/map_index``.
        earlier: What earlier attempts of the run have repaired, by table.
    """

    run: str
    owner: str
    earlier: Mapping[str, RepairRecord] = field(default_factory=dict)


@dataclass(slots=True)
class RepairWriter:
    """Write the repairs of tables.

    Args:
        cfg: The connector's configuration.
        plan: The plan that the writer has joined.
        index: The writer's index.
        sink: The transactional producer.
        position: What source blocks say.
        headers: Headers of every record.
        identity: Who repairs.
        lookup_schema: Returns the text of an Avro schema.
        report_line: Called with lines of text.
        counts: Records by topic, of committed transactions.
    """

    cfg: ConnectorConfig
    plan: BatchPlan
    index: int
    sink: TransactionalWriter
    position: ViewPosition
    headers: list[Header]
    identity: RepairIdentity
    lookup_schema: LookupSchema
    report_line: Log
    counts: dict[str, int] = field(default_factory=dict)
    _nulled_columns: set[tuple[TableId, str]] = field(default_factory=set)

    def write(self, repair: TableRepair) -> dict[DifferenceKind, int]:
        """Write the repairs of a table; return how many differences are repaired, by kind.

        Ghosts are deleted first: with ``message.key.columns`` a row that is written may have the key of a ghost.

        Args:
            repair: What is to be repaired.

        Raises:
            CdcError: A record cannot be written; what is committed before is counted in the ledger.
        """
        faults.fault_point("repair.rows_read", self.index)
        repaired: dict[DifferenceKind, int] = {}
        done = 0
        while done < repair.size:
            counts: dict[str, int] = {}
            try:
                written, end = self._produce(repair, done, counts)
                self._commit(repair, _added(repaired, written))
            except RecordTooLargeError as error:
                self.report_line(reduce_and_rejoin(self.cfg, self.plan, self.sink, self.index, error))
                continue
            repaired, done = _added(repaired, written), end
            self.counts = _added(self.counts, counts)
        return repaired

    def _produce(
        self, repair: TableRepair, start: int, counts: dict[str, int]
    ) -> tuple[dict[DifferenceKind, int], int]:
        """Produce repairs until a transaction is large or old enough; return their number, and the next one."""
        written: dict[DifferenceKind, int] = {}
        ghosts, headers = self._ghost_deletes(), list[Header]()
        emitter = self._emitter(repair, counts, start, headers)
        deletes = len(repair.deletes)
        end = min(start + MAX_TRANSACTION_REPAIRS, repair.size)
        for number in range(start, end):
            if number < deletes:
                each: DeleteRepair | RowRepair = repair.deletes[number]
                records = self._delete(repair, repair.deletes[number], ghosts)
            else:
                each = repair.rows[number - deletes]
                records = self._write(repair, repair.rows[number - deletes], ghosts, emitter, headers)
            if records:
                written = _added(written, each.kinds)
                counts[repair.route.topic] = counts.get(repair.route.topic, 0) + records
            if self.sink.should_commit or out_of_time(self.cfg, self.sink):
                end = number + 1
                break
        self._report_nulled(repair.table.id, emitter.nulled)
        return written, end

    def _report_nulled(self, table: TableId, values: Sequence[NulledValue]) -> None:
        """Report the first value of each column that is null in its record although the row has another one."""
        for value in values:
            if (table, value.column) not in self._nulled_columns:
                self._nulled_columns.add((table, value.column))
                self.report_line(nulled_warning(table, value, f"repair of {table}"))

    def _write(
        self, repair: TableRepair, row: RowRepair, deletes: GhostDeletes, emitter: RowEmitter, headers: list[Header]
    ) -> int:
        """Produce a row; return the number of records, 0 where it is left out."""
        left_out, forgotten = emitter.left_out, self._forget(repair, row.forgotten, deletes)
        headers[:] = [*self.headers, *settled_header(row.settled)]
        emitter.emit_row(row.packet, MARKER)
        return 0 if emitter.left_out > left_out else forgotten + 1

    def _delete(self, repair: TableRepair, delete: DeleteRepair, deletes: GhostDeletes) -> int:
        """Produce the records that delete a row; return their number, 0 where it cannot be deleted."""
        topic, last = repair.route.topic, delete.last
        try:
            records = [] if last is None else list(deletes.records(topic, last))
        except UnreadableRecord as error:
            place = "" if last is None else f"{topic}[{last.partition}]@{last.offset}"
            self.report_line(f"the row of {repair.table.id} at {place} cannot be deleted: {error}")
            return 0
        forgotten = self._forget(repair, delete.forgotten, deletes)
        more = settled_header(delete.settled)
        for record in records:
            self._produce_record(topic, record._replace(headers=[*record.headers, *more]))
        return forgotten + len(records)

    def _forget(self, repair: TableRepair, forgotten: Sequence[TopicRecord], deletes: GhostDeletes) -> int:
        """Produce tombstones with the keys of records, in their partitions; return their number."""
        for record in forgotten:
            self._produce_record(repair.route.topic, deletes.tombstone(repair.route.topic, record))
        return len(forgotten)

    def _produce_record(self, topic: str, record: GhostRecord) -> None:
        self.sink.produce(topic, record.key, record.value, record.partition, record.headers)

    def _ghost_deletes(self) -> GhostDeletes:
        id_prefix = self._id_prefix if self.cfg[F.CDC_ID_HEADER] else None
        return GhostDeletes(self.cfg, self.position, self.headers, self.lookup_schema, id_prefix)

    @property
    def _id_prefix(self) -> str:
        return f"repair/{self.plan.epoch}/{self.identity.run}"

    def _emitter(self, repair: TableRepair, counts: dict[str, int], start: int, headers: list[Header]) -> RowEmitter:
        route, where = repair.route, f"repair of {repair.table.id}"
        rows = route.text_rows
        target = EmitTarget(
            self.sink,
            route.topic,
            route.partitions,
            headers,
            self.index,
            rows.record_format,
            rows.id_headers,
        )
        return create_emitter(
            self.cfg,
            repair.table,
            route,
            self.position,
            target,
            counts,
            where=where,
            id_prefix=self._id_prefix,
            row_id_prefix=f"{where}, {start}",
            marker=MARKER,
        )

    def _commit(self, repair: TableRepair, repaired: Mapping[DifferenceKind, int]) -> None:
        table = str(repair.table.id)
        earlier = self.identity.earlier.get(table)
        record = RepairRecord(
            self.identity.run,
            table,
            repair.route.topic,
            self.identity.owner,
            self.position.offset,
            time.time_ns() // 1_000_000,
            _added({} if earlier is None else earlier.repaired, repaired),
        )
        side = ledger_record(self.cfg, record.key, record.to_json())
        self.sink.produce(side.topic, side.key, side.value, 0)
        faults.fault_point("repair.before_commit", self.index)
        self.sink.commit()
        faults.fault_point("repair.after_commit", self.index)


def _added(left: Mapping[_Key, int], right: Mapping[_Key, int]) -> dict[_Key, int]:
    return {key: left.get(key, 0) + right.get(key, 0) for key in (*left, *(k for k in right if k not in left))}
