"""The actions that signals request.

They are read by ``signals.signal.read_action``, and carried out by ``incremental.signal_processor``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.errors import DamagedRecordError
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.table_changes import SignalTableChange, read_table_change
from airflow_provider_mysql_cdc.cdc.signals.table_names import SignalRefused, table_matcher

SignalChannel = Literal["source", "kafka", "airflow"]
SnapshotKind = Literal["incremental", "blocking"]


@dataclass(frozen=True, slots=True)
class SignalAction:
    """Base of the actions that a signal can request.

    Args:
        signal_id: Id of the signal.
        channel: Channel that it came from.
    """

    signal_id: str
    channel: SignalChannel


@dataclass(frozen=True, slots=True)
class ExecuteSnapshot(SignalAction):
    """Read tables again.

    Args:
        kind: ``incremental``, concurrent with the stream, or ``blocking``, while the stream waits.
        collections: Table names, or regular expressions for them; an empty list does nothing (INC-07).
        conditions: Pairs of a name or expression and SQL: a condition, or for a blocking snapshot a SELECT statement.
        surrogate_key: Column to order the rows by instead of the key.
    """

    kind: SnapshotKind
    collections: tuple[str, ...]
    conditions: tuple[tuple[str, str], ...] = ()
    surrogate_key: str | None = None

    def condition(self, table: TableId) -> str | None:
        """Return the SQL of the first condition that matches a table, or None; this match ignores case.

        Args:
            table: The table.

        Raises:
            SignalRefused: A regular expression takes too long.
        """
        return next((sql for name, sql in self.conditions if table_matcher(name, ignore_case=True)(table)), None)


@dataclass(frozen=True, slots=True)
class StopSnapshot(SignalAction):
    """Stop incremental snapshots.

    Args:
        collections: Table names, or regular expressions for them; an empty list means all.
    """

    collections: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PauseSnapshot(SignalAction):
    """Pause incremental snapshots."""


@dataclass(frozen=True, slots=True)
class ResumeSnapshot(SignalAction):
    """Resume incremental snapshots."""


@dataclass(frozen=True, slots=True)
class LogMessage(SignalAction):
    """Write a line to the log.

    Args:
        message: The line; the first ``{}`` in it is replaced by the offset.
    """

    message: str

    def render(self, offset: object) -> str:
        """Return the line.

        Args:
            offset: The stream's current offset.
        """
        return self.message.replace("{}", str(offset), 1)


@dataclass(frozen=True, slots=True)
class SchemaChanges(SignalAction):
    """Apply the table structures that the signal describes.

    Args:
        database: Name of the database.
        schema: Debezium's member of this name; MySQL has no schemas within a database.
        changes: Table changes, in the format of the schema history.
    """

    database: str
    schema: str | None
    changes: tuple[Mapping[str, Any], ...]

    def parse_changes(self, cfg: ConnectorConfig) -> tuple[SignalTableChange, ...]:
        """Return the changes as table structures.

        Args:
            cfg: The connector's configuration.

        Raises:
            SignalRefused: A change is malformed, or its table is not captured and no history is kept for it.
        """
        parsed_changes = []
        for number, change in enumerate(self.changes):
            try:
                parsed = read_table_change(Members(change), self.database)
            except DamagedRecordError as error:
                raise SignalRefused(f"changes[{number}] of its data cannot be read: {error.why}") from None
            if cfg[F.STORE_ONLY_CAPTURED_TABLES_DDL] and not cfg.needs_schema(parsed.id):
                raise SignalRefused(f"changes[{number}] of its data describes table {parsed.id}, which is not captured")
            parsed_changes.append(parsed)
        return tuple(parsed_changes)


@dataclass(frozen=True, slots=True)
class SetBinlogPosition(SignalAction):
    """Continue the stream elsewhere in the binlog: at a file and position, or after a set of GTIDs.

    Args:
        file: Binlog file, or None.
        pos: Position in it, at least 4, or None.
        gtids: GTID set in MySQL's notation, or None.
    """

    file: str | None = None
    pos: int | None = None
    gtids: str | None = None
