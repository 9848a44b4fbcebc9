"""Every metric of Debezium's MySQL connector, once, and the numbers that sensors and triggers send while they wait.

Every metric of Debezium's MySQL connector, once: what it means here, or why it is absent.

Names, types and meanings are those of Debezium's manual, "Monitoring"; docs/metrics.md is generated from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class MetricFamily(StrEnum):
    """Debezium's families of metrics: the ``context`` in the names of its MBeans (MET-57 to MET-59)."""

    SNAPSHOT = "snapshot"
    STREAMING = "streaming"
    HISTORY = "schema-history"


class ValueType(StrEnum):
    """The types of metrics."""

    NUMBER = "number"
    COUNTER = "counter"
    FLAG = "true or false"
    TEXT = "text"
    NAMES = "list of texts"
    NUMBERS = "numbers by name"
    TEXTS = "texts by name"


@dataclass(frozen=True, slots=True)
class Metric:
    """Describe a metric.

    Args:
        name: Debezium's name.
        family: Its family.
        type: What its value is; a counter only grows.
        meaning: What it says, and how it differs from Debezium's, if it does.
        unit: ``ms``, ``s``, ``bytes``, ``rows`` and the like; empty for a value without one.
        absent: Why there is no such metric here; empty where there is one.
    """

    name: str
    family: MetricFamily
    type: ValueType
    meaning: str
    unit: str = ""
    absent: str = ""


_NO_SNAPSHOT_QUEUE = (
    "a snapshot has no queue between reading and writing: a task reads its chunk into a file, and then writes it"
)
_CHUNK_TYPE = ValueType.TEXT


def _snapshot() -> tuple[Metric, ...]:
    family, kind = MetricFamily.SNAPSHOT, ValueType
    return (
        Metric("LastEvent", family, kind.TEXT, "The chunk that was read last, and its row; without values of the row."),
        Metric(
            "MilliSecondsSinceLastEvent",
            family,
            kind.NUMBER,
            "Time since a task last reported rows: every 10,000 rows and at the end of a chunk.",
            "ms",
        ),
        Metric("TotalNumberOfEventsSeen", family, kind.COUNTER, "Rows read, of all tables.", "rows"),
        Metric(
            "NumberOfEventsFiltered",
            family,
            kind.COUNTER,
            "Always 0: tables that the lists leave out are not read.",
            "events",
        ),
        Metric("CapturedTables", family, kind.NAMES, "Tables of the snapshot, up to 1,000 of them."),
        Metric("QueueTotalCapacity", family, kind.NUMBER, "Length of the queue.", "records", _NO_SNAPSHOT_QUEUE),
        Metric("QueueRemainingCapacity", family, kind.NUMBER, "Free places.", "records", _NO_SNAPSHOT_QUEUE),
        Metric("TotalTableCount", family, kind.NUMBER, "Tables of the snapshot.", "tables"),
        Metric("RemainingTableCount", family, kind.NUMBER, "Tables of which chunks are not committed yet.", "tables"),
        Metric("SnapshotRunning", family, kind.FLAG, "Whether it runs."),
        Metric(
            "SnapshotAborted",
            family,
            kind.FLAG,
            "Whether its last try ended with an error, or was killed. What it has read is kept.",
        ),
        Metric("SnapshotCompleted", family, kind.FLAG, "Whether every chunk is committed."),
        Metric("SnapshotDurationInSeconds", family, kind.NUMBER, "How long it took so far, or in the end.", "s"),
        Metric(
            "RowsScanned",
            family,
            kind.NUMBERS,
            "Rows read of each table, up to 1,000 tables: updated every 10,000 rows and at the end of each chunk.",
            "rows",
        ),
        Metric("MaxQueueSizeInBytes", family, kind.NUMBER, "Limit of the queue.", "bytes", _NO_SNAPSHOT_QUEUE),
        Metric("CurrentQueueSizeInBytes", family, kind.NUMBER, "Bytes in the queue.", "bytes", _NO_SNAPSHOT_QUEUE),
        Metric(
            "HoldingGlobalLock",
            family,
            kind.FLAG,
            "Whether the global read lock, or the table locks in its place, are held: some milliseconds, or until the "
            "last row is read with `snapshot.locking.mode=extended`.",
        ),
    )


def _incremental() -> tuple[Metric, ...]:
    family = MetricFamily.STREAMING
    return (
        Metric(
            "ChunkId",
            family,
            _CHUNK_TYPE,
            "The key range of an ad-hoc snapshot that was assigned to a task last: number of the scan, and of the "
            "range in it. Tasks read several at a time. A range has 16 chunks of incremental.snapshot.chunk.size.",
        ),
        Metric("ChunkFrom", family, _CHUNK_TYPE, "Its lower bound, excluded: the key as a JSON list; empty for none."),
        Metric("ChunkTo", family, _CHUNK_TYPE, "Its upper bound, included; empty for a table without a key."),
        Metric("TableFrom", family, _CHUNK_TYPE, "The first key of the table when its scan was assigned first."),
        Metric("TableTo", family, _CHUNK_TYPE, "The last key of the table when its scan began; rows after it are new."),
    )


def _streaming() -> tuple[Metric, ...]:
    family, kind = MetricFamily.STREAMING, ValueType
    return (
        Metric("LastEvent", family, kind.TEXT, "The last row event with records: table, operation, file, position."),
        Metric("MilliSecondsSinceLastEvent", family, kind.NUMBER, "Time since a writer has handled it.", "ms"),
        Metric(
            "TotalNumberOfEventsSeen",
            family,
            kind.COUNTER,
            "Rows with records, and events that were filtered, since the stream began.",
            "events",
        ),
        Metric("TotalNumberOfCreateEventsSeen", family, kind.COUNTER, "Create events of them.", "events"),
        Metric("TotalNumberOfUpdateEventsSeen", family, kind.COUNTER, "Update events of them.", "events"),
        Metric("TotalNumberOfDeleteEventsSeen", family, kind.COUNTER, "Delete events of them.", "events"),
        Metric(
            "NumberOfEventsFiltered",
            family,
            kind.COUNTER,
            "Row events (each of one or more rows) of tables that the lists leave out.",
            "events",
        ),
        Metric("CapturedTables", family, kind.NAMES, "Tables that are captured, up to 1,000 of them."),
        Metric(
            "QueueTotalCapacity", family, kind.NUMBER, "Records that a writer's Kafka client queues at most.", "records"
        ),
        Metric("QueueRemainingCapacity", family, kind.NUMBER, "Free places in the fullest of these queues.", "records"),
        Metric("Connected", family, kind.FLAG, "Whether all writers are connected to the source; false between runs."),
        Metric(
            "MilliSecondsBehindSource",
            family,
            kind.NUMBER,
            "While a run drains: how long after its commit the last event was handled, clock differences included. "
            "Between runs: the age of the first change that is not in Kafka, 0 when there is none.",
            "ms",
        ),
        Metric(
            "NumberOfCommittedTransactions",
            family,
            kind.COUNTER,
            "Transactions with rows that were read to their COMMIT, of all tables.",
            "transactions",
        ),
        Metric("SourceEventPosition", family, kind.TEXTS, "File, position, server id and GTID of the last event."),
        Metric("LastTransactionId", family, kind.TEXT, "GTID of the last transaction, or where it ends."),
        Metric(
            "MaxQueueSizeInBytes",
            family,
            kind.NUMBER,
            "Bytes of records after which a writer commits (`commit.bytes`).",
            "bytes",
        ),
        Metric("CurrentQueueSizeInBytes", family, kind.NUMBER, "Bytes of records that are not committed.", "bytes"),
        Metric("BinlogFilename", family, kind.TEXT, "Binlog file that the slowest writer reads."),
        Metric("BinlogPosition", family, kind.NUMBER, "Its position in that file.", "bytes"),
        Metric("IsGtidModeEnabled", family, kind.FLAG, "Whether the stream follows GTIDs."),
        Metric("GtidSet", family, kind.TEXT, "GTIDs up to that position."),
        Metric(
            "NumberOfSkippedEvents",
            family,
            kind.COUNTER,
            "Rows that could not be decoded or written, and statements that were not understood, which a property "
            "allows to skip; without it they stop the run.",
            "events",
        ),
        Metric(
            "NumberOfDisconnects",
            family,
            kind.COUNTER,
            "Connections of writers to the source that broke inside of a batch.",
            "connections",
        ),
        Metric(
            "NumberOfRolledBackTransactions",
            family,
            kind.COUNTER,
            "Transactions in the binlog that end with ROLLBACK, and XA transactions that were rolled back.",
            "transactions",
        ),
        Metric(
            "NumberOfNotWellFormedTransactions",
            family,
            kind.COUNTER,
            "Transactions with rows that the next transaction or file followed without COMMIT; normally 0.",
            "transactions",
        ),
        Metric(
            "NumberOfLargeTransactions",
            family,
            kind.COUNTER,
            "Transactions larger than the buffer.",
            "transactions",
            "there is no buffer (`binlog.buffer.size` is refused): MySQL logs a transaction when it commits, and each "
            "is written row by row, whatever its size",
        ),
    )


def _history() -> tuple[Metric, ...]:
    family, kind = MetricFamily.HISTORY, ValueType
    return (
        Metric("Status", family, kind.TEXT, "`RECOVERING` while the driver reads the history, `RUNNING`, `STOPPED`."),
        Metric("RecoveryStartTime", family, kind.NUMBER, "When the recovery began, since 1970.", "s"),
        Metric("ChangesRecovered", family, kind.NUMBER, "Records read during the recovery.", "changes"),
        Metric("ChangesApplied", family, kind.NUMBER, "These, and changes in the binlog during the run.", "changes"),
        Metric(
            "MilliSecondsSinceLastRecoveredChange", family, kind.NUMBER, "Time since the last one was recovered.", "ms"
        ),
        Metric("MilliSecondsSinceLastAppliedChange", family, kind.NUMBER, "Time since the last was applied.", "ms"),
        Metric("LastRecoveredChange", family, kind.TEXT, "Text of its statement, up to 1,000 characters."),
        Metric("LastAppliedChange", family, kind.TEXT, "Text of its statement, up to 1,000 characters."),
    )


METRICS: tuple[Metric, ...] = (*_snapshot(), *_incremental(), *_streaming(), *_history())
"""All of them, in the order of Debezium's manual."""
INCREMENTAL_NAMES = frozenset(metric.name for metric in _incremental())
"""Names of those that exist only once an ad-hoc snapshot was read."""


def metric(family: str, name: str) -> Metric:
    """Return the description of a metric.

    Args:
        family: Debezium's name of the family.
        name: Debezium's name of the metric.

    Raises:
        KeyError: There is none.
    """
    return _BY_NAME[family, name]


_BY_NAME = {(str(each.family), each.name): each for each in METRICS}


LAG_BYTES = "lag.bytes"
LAG_TRANSACTIONS = "lag.transactions"
LAG_BATCH_AGE = "lag.batch_age_seconds"
SIGNALS_WAITING = "signals.waiting"
ADHOC_TABLES_LEFT = "adhoc.tables_left"
ADHOC_ROWS = "adhoc.rows"
WATCH_REQUESTS = "watch.requests"
POLL_FAILURES = "watch.poll_failures"

_LAGGING = "`MySqlBinlogSensor`, its trigger, and `MySqlBinlogWatchTrigger`"
_ADHOC = "`MySqlIncrementalSnapshotSensor` and its trigger"
_WATCH = "`MySqlBinlogWatchTrigger`"

WAIT_METRICS: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        LAG_BYTES: ("gauge", _LAGGING, "Bytes of binlog, of all tables, that are not drained; also sent by tasks."),
        LAG_TRANSACTIONS: ("gauge", _LAGGING, "Transactions that are not drained, counted by GTIDs."),
        LAG_BATCH_AGE: ("gauge", _LAGGING, "Seconds since the last batch was stored, where anything is new; else 0."),
        SIGNALS_WAITING: ("gauge", _WATCH, "Signals that no drain has read yet (channels `airflow` and `kafka`)."),
        WATCH_REQUESTS: ("counter", _WATCH, "Drains that were asked for."),
        POLL_FAILURES: ("counter", _WATCH, "Polls that could not read the server or Kafka."),
        ADHOC_TABLES_LEFT: ("gauge", _ADHOC, "Tables of the ad-hoc snapshot that are not read yet."),
        ADHOC_ROWS: ("gauge", _ADHOC, "Rows of it that are written."),
    }
)
"""By name below ``mysql_cdc``: the type, who sends it, and what it is."""
