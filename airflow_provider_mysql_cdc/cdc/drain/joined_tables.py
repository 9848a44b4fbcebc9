"""Rows of which the stream has no record: earlier ones of tables that join it, and changed ones that a window leaves
out.

Changed rows of which the stream has no record: writers of a window report them, and its driver adds them up.

Only the writer that leaves a row out knows of it, but each task of the window reads rows of all keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from airflow_provider_mysql_cdc.cdc.binlog.broken_connections import read_with_retries
from airflow_provider_mysql_cdc.cdc.binlog.connect import connect
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import CAPTURED_LISTS_KEY
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan, encode
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import (
    JOINED,
    UNREAD_SUFFIX,
    NeverReadTable,
    earlier_lists,
    is_to_be_read,
    lists_record,
    unread_key,
    unread_tables,
)
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.apply import DdlResult
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.job.job_ledger import JobLedger
from airflow_provider_mysql_cdc.cdc.job.job_metrics import JobLog
from airflow_provider_mysql_cdc.cdc.model.log import Log
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import base_tables
from airflow_provider_mysql_cdc.cdc.snapshot.unlogged_changes import UnloggedChange, former_names, removed_tables

MAX_LINES = 20
"""Tables that have a line of their own; a list may get thousands at once."""
_IF_NOT_EXISTS = re.compile(r"\bIF\b.*\bEXISTS\b", re.IGNORECASE | re.DOTALL)


def note_joined_tables(
    cfg: ConnectorConfig, job: JobLedger, plan: BatchPlan, ledger: LedgerState, state: SchemaState, log: Log
) -> None:
    """Record the tables that a batch captures and the one before did not, before a writer starts.

    A table that is created inside the batch, or after it, has no rows without an event: its CREATE TABLE removes the
    record again (``UnreadTables``).

    Args:
        cfg: The connector's configuration.
        job: The ledger; the batch is in force.
        plan: The batch.
        ledger: The ledger's content.
        state: Table structures as of the batch's start.
        log: Takes one line of text.
    """
    before = earlier_lists(cfg, ledger)
    if before is not None:
        # The history lacks tables that the account did not see, or that were not stored while nothing captured them.
        existing = read_with_retries(cfg, log, partial(_server_tables, cfg))
        where = f"{plan.start.file}:{plan.start.pos}"
        joined = joined_tables(cfg, before, {*state.tables, *state.unparsed, *existing}, where)
        job.put_all((each.ledger_key(), each.to_json()) for each in joined)
        job.put_all((unread_key(table), None) for table in unread_tables(ledger) if not cfg.captures(table))
    if before is not None or CAPTURED_LISTS_KEY not in ledger.other_records:
        job.put(CAPTURED_LISTS_KEY, lists_record(cfg))


def joined_tables(
    cfg: ConnectorConfig, before: ConnectorConfig, tables: Iterable[TableId], where: str
) -> list[NeverReadTable]:
    """Return the tables that are captured now and were not before, in order.

    Args:
        cfg: The connector's configuration.
        before: The same with the lists of the last batch.
        tables: The tables that there are.
        where: ``file:position`` from which on the lists are in force.
    """
    joined = (table for table in tables if is_to_be_read(cfg, table) and not before.captures(table))
    return [NeverReadTable(table, where, JOINED) for table in sorted(joined)]


def _server_tables(cfg: ConnectorConfig) -> list[TableId]:
    with connect(cfg.connection_settings()) as conn:
        return base_tables(conn)


def unread_lines(cfg: ConnectorConfig, unread: Sequence[NeverReadTable]) -> list[str]:
    """Return the lines of the log about tables that were never read.

    Args:
        cfg: The connector's configuration.
        unread: The tables.
    """
    more = len(unread) - MAX_LINES
    lines = [each.line(cfg[F.SNAPSHOT_NEW_TABLES]) for each in unread[:MAX_LINES]]
    return lines + ([f"WARNING: {more} more tables are captured and were never read: mysql-cdc unread"] * (more > 0))


def report_unread(cfg: ConnectorConfig, ledger: LedgerState, log: JobLog) -> dict[str, int]:
    """Log the tables that were never read, once in a job; return the counts of those that were not reported before.

    Args:
        cfg: The connector's configuration.
        ledger: The ledger after a batch.
        log: The job's log.
    """
    unread = [each for each in unread_tables(ledger).values() if log.is_new(each.ledger_key())]
    for line in unread_lines(cfg, unread):
        log(line)
    return {f"{each.table}{UNREAD_SUFFIX}": 1 for each in unread}


class UnreadTables:
    """Follow the unread tables through the statements of a batch; the ledger gets them with a commit of writer 0.

    Args:
        cfg: The connector's configuration.
        unread: The tables as of the batch's start.
        side_records: Gets the records.
    """

    def __init__(
        self, cfg: ConnectorConfig, unread: Mapping[TableId, NeverReadTable], side_records: list[SideRecord]
    ) -> None:
        self._cfg, self._unread, self._side_records = cfg, dict(unread), side_records

    def on_statement(
        self, before: SchemaState, applied: DdlResult, changes: Iterable[UnloggedChange], where: str, *, atomic: bool
    ) -> None:
        """Note a statement.

        Args:
            before: Structures before it.
            applied: What it did.
            changes: Rows that it changed without row events.
            where: ``file:position`` of the statement.
            atomic: Whether the server logged it as an atomic change of its dictionary.
        """
        renames = ((c.previous_id, c.id) for c in applied.changes if c.id is not None and c.previous_id is not None)
        were_unread = {table for table, former in former_names(renames).items() if former in self._unread}
        emptied = {
            each.table for each in removed_tables(applied, before, self._cfg.captures, publishes_truncates=False)
        }
        # CREATE TABLE IF NOT EXISTS may have found a table that the history lacks; an atomic one has not.
        emptied |= {
            change.id
            for change in applied.changes
            if change.id is not None
            if change.kind == "DROP"
            or (change.kind == "CREATE" and (atomic or _IF_NOT_EXISTS.search(change.ddl) is None))
        }
        for table in emptied & self._unread.keys():
            del self._unread[table]
            self._put(unread_key(table), None)
        for change in changes:
            # A table that takes the place of a captured one, as after an online schema change, was read under its name.
            is_new = not before.has_table(change.table) or change.table in were_unread
            if change.adds_rows and is_new and is_to_be_read(self._cfg, change.table):
                unread = self._unread[change.table] = NeverReadTable(change.table, where, change.what)
                self._put(unread.ledger_key(), encode(unread.to_json()))

    def _put(self, key: str, value: bytes | None) -> None:
        self._side_records.append(SideRecord(self._cfg.ledger_topic, key.encode(), value))


MAX_BYTES = 1 << 20
"""Bytes of keys that are reported; JSON makes up to six bytes of each, and a message has at most 16 MB. A table with
more is read in a later window."""


@dataclass(slots=True)
class UnwrittenRows:
    """Collect changes of rows that the stream has no record of.

    Args:
        keys: Number of such changes by table and key, the keys as ``WindowKeys`` has them.
        tables: Tables of which it is not known which rows these are, or whose rows changed their key by it.
    """

    keys: dict[TableId, dict[bytes, int]] = field(default_factory=dict)
    tables: set[TableId] = field(default_factory=set)
    _bytes: int = field(default=0, compare=False)

    def __bool__(self) -> bool:
        return bool(self.keys or self.tables)

    def add(self, table: TableId, key: bytes, changes: int = 1) -> None:
        """Add changes of one row.

        Args:
            table: Its table.
            key: Its key.
            changes: Their number.
        """
        if table in self.tables:
            return
        counts = self.keys.setdefault(table, {})
        if key not in counts:
            self._bytes += len(key)
        if self._bytes > MAX_BYTES:
            self.add_table(table)
            return
        counts[key] = counts.get(key, 0) + changes

    def add_table(self, table: TableId) -> None:
        """Add a table that cannot be read in this window.

        Args:
            table: The table.
        """
        self.tables.add(table)
        self._bytes -= sum(map(len, self.keys.pop(table, ())))

    def merge(self, other: UnwrittenRows) -> None:
        """Add what another writer has reported.

        Args:
            other: Its rows.
        """
        for table in other.tables:
            self.add_table(table)
        for table, counts in other.keys.items():
            for key, changes in counts.items():
                self.add(table, key, changes)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        keys = [
            [table.db, table.table, {key.decode("latin-1"): n for key, n in counts.items()}]
            for table, counts in self.keys.items()
        ]
        return {"keys": keys, "tables": [[table.db, table.table] for table in sorted(self.tables, key=str)]}

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> UnwrittenRows:
        """Read what ``to_json`` wrote."""
        keys = {
            TableId(db, name): {key.encode("latin-1"): int(n) for key, n in counts.items()}
            for db, name, counts in members["keys"]
        }
        size = sum(len(key) for counts in keys.values() for key in counts)
        return cls(keys, {TableId(db, name) for db, name in members["tables"]}, size)
