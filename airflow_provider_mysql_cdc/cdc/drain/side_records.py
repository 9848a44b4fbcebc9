"""Records that come from no row event: truncate events, heartbeats and transaction metadata."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.event import Event
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import EventContext
from airflow_provider_mysql_cdc.cdc.decode.codegen.dialect import after_row_of
from airflow_provider_mysql_cdc.cdc.emit import source_block
from airflow_provider_mysql_cdc.cdc.emit.heartbeat import heartbeat_record, transaction_record
from airflow_provider_mysql_cdc.cdc.emit.topic_names import heartbeat_topic, transaction_topic
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, SourceConnectionError, SourceError
from airflow_provider_mysql_cdc.cdc.formats import record_topics, table_options
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.stage_runner import named_errors
from airflow_provider_mysql_cdc.cdc.model.records import RowRecord, SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId


def truncate_value(cfg: ConnectorConfig, table: Table, event: Event, writer_position: Any) -> bytes:
    """Return the value of a truncate event (op ``t``, no key, neither image).

    Args:
        cfg: The connector's configuration.
        table: The table.
        event: The TRUNCATE statement's QUERY event.
        writer_position: The writer's position; Debezium gives the time in whole milliseconds here and no thread.
    """
    ctx = EventContext()
    truncate_position = replace(
        writer_position, commit_us=writer_position.commit_us // 1000 * 1000, thread=0, query=None
    )
    source_block.fill(ctx, table_options.table_source_block(cfg, table.id), event, truncate_position)
    options = table_options.table_options(cfg, table)
    payload = f'{{"before":null,"after":null,"source":{ctx.src_head}0{after_row_of(options)(ctx, "t")}'
    schema = table_options.schema_text(cfg, table, options).value_schema
    return (payload if schema is None else f'{{"schema":{schema},"payload":{payload}}}').encode()


def heartbeat(cfg: ConnectorConfig) -> SideRecord:
    """Return a heartbeat record (STRM-27 to STRM-29)."""
    key, value = heartbeat_record(
        cfg[F.TOPIC_PREFIX],
        time.time_ns() // 1_000_000,
        recent=str(cfg[F.EVENT_CONTRACT]) != "1.9",
        key_schema=cfg[F.KEY_SCHEMAS_ENABLE],
        value_schema=cfg[F.VALUE_SCHEMAS_ENABLE],
    )
    topic = heartbeat_topic(cfg[F.TOPIC_PREFIX], cfg[F.TOPIC_HEARTBEAT_PREFIX])
    return record_topics.routed_record(cfg, topic, key, value)


@dataclass(slots=True)
class HeartbeatTimer:
    """Say when the next heartbeat of a job is due; the first one is due at once.

    Args:
        interval_s: Seconds between two heartbeats; 0 for none.
        clock: Seconds of a clock that is never set back.
    """

    interval_s: float
    clock: Callable[[], float] = time.monotonic
    _due: float = -math.inf

    def seconds_left(self) -> float:
        """Return the seconds until the next heartbeat is due."""
        return max(0.0, self._due - self.clock())

    def take(self) -> bool:
        """Return whether a heartbeat is due; the next one is due an interval later."""
        if not self.interval_s or self.seconds_left() > 0:
            return False
        self.restart()
        return True

    def restart(self) -> None:
        """Let the next heartbeat be due an interval from now."""
        self._due = self.clock() + self.interval_s


class Heartbeats:
    """Write a job's heartbeats between its batches, and run ``heartbeat.action.query``.

    Args:
        cfg: The connector's configuration.
        connection: Returns an open connection.
        job: The ledger; its producer writes the records.
        require_lock: Raises an error when the run has lost its lock.
    """

    def __init__(
        self, cfg: ConnectorConfig, connection: Callable[[], Any], job: JobLedger, require_lock: Callable[[], None]
    ) -> None:
        self._cfg, self._connection, self._job, self._require_lock = cfg, connection, job, require_lock
        interval_s = cfg[F.HEARTBEAT_INTERVAL_MS] / 1000
        self.timer = HeartbeatTimer(interval_s)
        self._action_timer = HeartbeatTimer(interval_s if cfg[F.HEARTBEAT_ACTION_QUERY] else 0)

    def while_waiting(self) -> None:
        """Write a heartbeat and run the statement, if they are due (STRM-27).

        Raises:
            RunInProgressError: The lock is lost, which also happens when a person ends this run.
            ConfigError: The statement cannot be run.
        """
        self._require_lock()
        if self.timer.take():
            self._job.commit([heartbeat(self._cfg)])
        self.run_action()

    def run_action(self) -> None:
        """Run heartbeat.action.query on the source if it is due (STRM-30); its change is part of a later batch.

        Raises:
            ConfigError: The statement cannot be run.
        """
        if not self._action_timer.take():
            return
        try:
            with named_errors(self._cfg), self._connection().cursor() as cursor:
                cursor.execute(self._cfg[F.HEARTBEAT_ACTION_QUERY])
        except SourceConnectionError:
            raise
        except SourceError as error:
            raise ConfigError(
                f"{F.HEARTBEAT_ACTION_QUERY.name} cannot be run",
                where=error.where,
                why=error.why,
                remedy="name tables with their database, and grant the account the privilege that the statement needs; "
                "the batch before it is complete",
            ) from error


PLACEHOLDER = "\0"
"""Placeholder of the transaction block in a decoded value; JSON text never contains this byte, it would be escaped."""
_PLACEHOLDER_BYTES = PLACEHOLDER.encode()


class TransactionMetadata:
    """Number the events of the transaction being read.

    Every writer numbers all captured events, those of other writers' partitions included, so that all writers agree.

    Args:
        cfg: The connector's configuration.
    """

    def __init__(self, cfg: ConnectorConfig) -> None:
        self._cfg = cfg
        self._topic = transaction_topic(cfg[F.TOPIC_PREFIX], cfg[F.TOPIC_TRANSACTION])
        self.open = False
        self._id = ""
        self._counts: dict[str, int] = {}
        self._total = 0

    def begin(self, gtid: str | None, file: str, pos: int) -> None:
        """Begin a transaction.

        Args:
            gtid: Its GTID, or None.
            file: Binlog file.
            pos: Position of its BEGIN, the second half of the id where GTIDs are off (TXN-07).
        """
        self.open = True
        self._id = gtid or f"file={file},pos={pos}"
        self._counts, self._total = {}, 0

    def begin_record(self) -> SideRecord:
        """Return the BEGIN record."""
        return self._record(None)

    def end_record(self) -> SideRecord:
        """Return the END record with the exact counts."""
        return self._record(_java_order(self._counts))

    def end(self) -> None:
        """End the transaction."""
        self.open = False

    def number_records(self, table: TableId, rows: list[RowRecord]) -> list[RowRecord]:
        """Return the records of an event with their transaction blocks; tombstones have none.

        Args:
            table: The event's table.
            rows: What the decoder produced with ``PLACEHOLDER`` as the transaction block.
        """
        name = str(table)
        numbered: list[RowRecord] = []
        order = self._counts.get(name, 0)
        prefix = f'{{"id":"{self._id}","total_order":'
        for key, value, row, record_number, header, partition in rows:
            if value is None:
                numbered.append((key, value, row, record_number, header, partition))
                continue
            order += 1
            self._total += 1
            block = f'{prefix}{self._total},"data_collection_order":{order}}}' if self.open else "null"
            numbered_value = value.replace(_PLACEHOLDER_BYTES, block.encode(), 1)
            numbered.append((key, numbered_value, row, record_number, header, partition))
        if rows:
            self._counts[name] = order
        return numbered

    def _record(self, counts: dict[str, int] | None) -> SideRecord:
        key, value = transaction_record(
            self._id,
            time.time_ns() // 1_000_000,
            counts,
            recent=str(self._cfg[F.EVENT_CONTRACT]) != "1.9",
            key_schema=self._cfg[F.KEY_SCHEMAS_ENABLE],
            value_schema=self._cfg[F.VALUE_SCHEMAS_ENABLE],
        )
        return record_topics.routed_record(self._cfg, self._topic, key, value)


def _java_order(counts: dict[str, int]) -> dict[str, int]:
    """Return the counts in the order of a java.util.HashMap with these keys, in which Debezium lists them."""
    size = 16
    while len(counts) > size * 3 // 4:
        size *= 2

    def bucket(name: str) -> int:
        code = 0
        units = name.encode("utf-16-be")
        for i in range(0, len(units), 2):
            code = (31 * code + int.from_bytes(units[i : i + 2], "big")) & 0xFFFFFFFF
        return (code ^ code >> 16) & size - 1

    return {name: counts[name] for name in sorted(counts, key=bucket)}
