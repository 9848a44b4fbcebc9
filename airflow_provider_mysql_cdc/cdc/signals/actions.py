"""The actions that signals request, the tables that they name, and conditions.

The actions that signals request.

They are read by ``signals.signal.read_action``, and carried out by ``incremental.signal_processor``.

Match the tables of a signal: names, or regular expressions for them (INC-06, INC-08).

Source: Debezium 3.6.1 (``AbstractIncrementalSnapshotChangeEventSource.expandAndDedupeDataCollectionIds``): an
expression must match the whole name ``database.table``, with regard to case. An entry with parts in double quotes is a
name, never an expression.

Conditions of signals: SQL that runs with the account's rights, and must stay within its parentheses.

A key range is read with ``key > low AND key <= high AND (condition)``. A condition that closes the parenthesis and
continues with OR disables the bounds: each key range then reads the whole table, and the scan never ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.parse_value import pattern
from airflow_provider_mysql_cdc.cdc.ddl.lexer import ANSI_QUOTES, NO_BACKSLASH_ESCAPES, TokenKind, tokenize
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, DamagedRecordError, DdlParseError
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.stored_record import Members
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.table_changes import SignalTableChange, read_table_change

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_NAME_PART = r'(?:"((?:[^"]|"")+)"|([^".]+))'
_QUOTED_NAME = re.compile(rf"{_NAME_PART}\.{_NAME_PART}")
_MAX_SHOWN_CHARS = 100


class SignalRefused(Exception):
    """A signal cannot be carried out; the drain continues.

    Args:
        reason: What is wrong with it, as one sentence.
        unknown_tables: Its tables, if the only fault is that none of them is captured.
    """

    def __init__(self, reason: str, unknown_tables: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.unknown_tables = unknown_tables


def quoted_name(entry: str) -> TableId | None:
    """Return the table of an entry with parts in double quotes; None when it has no such part (INC-08).

    Args:
        entry: The entry as written in the signal.

    Raises:
        SignalRefused: The entry has double quotes, but is not of the form ``"database"."table"``.
    """
    if '"' not in entry:
        return None
    match = _QUOTED_NAME.fullmatch(entry)
    if match is None:
        raise SignalRefused(f'{quote_text(entry)} is not of the form "database"."table"')
    db, table = (m[0].replace('""', '"') if m[0] else m[1] for m in (match.groups()[:2], match.groups()[2:]))
    return TableId(db, table)


def entry_name(entry: str) -> str:
    """Return what notifications call an entry that matches no table: its table, or the expression.

    Args:
        entry: The entry as written in the signal.
    """
    table = quoted_name(entry)
    return entry if table is None else str(table)


def entry_for(table: TableId) -> str:
    """Return the entry that matches this table and no other.

    Args:
        table: The table.
    """
    if _PLAIN_NAME.fullmatch(name := str(table)):
        return name
    return ".".join('"' + part.replace('"', '""') + '"' for part in (table.db, table.table))


def table_matcher(entry: str, *, ignore_case: bool = False) -> Callable[[TableId], bool]:
    """Return a function that decides whether an entry matches a table.

    Args:
        entry: A name with parts in double quotes, or a regular expression for ``database.table``.
        ignore_case: Whether ASCII letters of an expression match without case.

    Returns:
        A function of the table; it raises ``SignalRefused`` when the expression takes too long.

    Raises:
        SignalRefused: The entry is neither a quoted name nor a valid expression.
    """
    if (quoted_table := quoted_name(entry)) is not None:
        return lambda table: table == quoted_table
    try:
        expression = pattern(entry, ignore_case=ignore_case)
    except ValueError as error:
        raise SignalRefused(str(error)) from None

    def matches(table: TableId) -> bool:
        # A name can have another meaning as an expression (``shop.a$b``); it still names its table.
        try:
            return str(table) == entry or expression.fullmatch(str(table)) is not None
        except ConfigError as error:
            raise SignalRefused(
                f"a regular expression takes too long to match: {error.where}; {error.remedy}"
            ) from None

    return matches


def match_tables(
    collections: Iterable[str], captured: Iterable[TableId]
) -> tuple[tuple[TableId, ...], tuple[str, ...]]:
    """Return the captured tables that a signal matches, and its entries that match none.

    Args:
        collections: The signal's entries.
        captured: The captured tables.

    Returns:
        The tables in the order of the entries and, within one entry, of their names; and the entries without a table.

    Raises:
        SignalRefused: An entry is invalid, or takes too long to match.
    """
    tables = {str(table): table for table in sorted(captured)}
    matched: dict[TableId, None] = {}
    unmatched: list[str] = []
    for entry in dict.fromkeys(collections):
        # As an expression, a plain name could match another name only by its dot.
        if _PLAIN_NAME.fullmatch(entry):
            entry_tables = [tables[entry]] if entry in tables else []
        else:
            matches = table_matcher(entry)
            entry_tables = [table for table in tables.values() if matches(table)]
        matched |= dict.fromkeys(entry_tables)
        if not entry_tables:
            unmatched.append(entry)
    return tuple(matched), tuple(unmatched)


def quote_text(text: str) -> str:
    """Return a text in quotes for a message, cut when it is long."""
    return repr(text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "...")


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


_EXECUTABLE_COMMENT = re.compile(r"/\*!")
_QUOTING_MODE_BITS = {"ANSI_QUOTES": ANSI_QUOTES, "NO_BACKSLASH_ESCAPES": NO_BACKSLASH_ESCAPES}


def quoting_mode(conn: MySqlConnection) -> int:
    """Return the bits of the session's sql_mode that decide where a string ends.

    Args:
        conn: An open connection to the source.

    Raises:
        SourceError: The query fails.
    """
    modes = str(fetch_all(conn, "SELECT @@SESSION.sql_mode")[0][0]).split(",")
    return sum(bit for name, bit in _QUOTING_MODE_BITS.items() if name in modes)


def require_contained(sql: str, sql_mode: int) -> None:
    """Check that a condition is one expression that stays within the parentheses around it.

    Args:
        sql: The condition.
        sql_mode: Bits of ``quoting_mode``.

    Raises:
        SignalRefused: The condition is not such an expression.
    """
    try:
        tokens = tokenize(sql, sql_mode)
    except DdlParseError as error:
        raise _refusal(sql, error.what) from None
    quoted_spans = [
        range(token.start, token.end) for token in tokens if token.kind in (TokenKind.STRING, TokenKind.NAME)
    ]
    if any(not any(match.start() in text for text in quoted_spans) for match in _EXECUTABLE_COMMENT.finditer(sql)):
        raise _refusal(sql, "it has an executable comment, whose effect depends on the server's version")
    depth = 0
    for token in tokens:
        if token.kind is TokenKind.OP:
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            if token.text == ";":
                raise _refusal(sql, "it contains a semicolon")
        if depth < 0:
            raise _refusal(sql, "it closes a parenthesis that it did not open")
    if depth:
        raise _refusal(sql, "it does not close all its parentheses")


def _refusal(sql: str, reason: str) -> SignalRefused:
    return SignalRefused(f"the condition {quote_text(sql)} is not a complete expression: {reason}")
