"""Compare the shop's database with its topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from topiclib.checks import TableCheck, TableVerdict
from topiclib.events import AvroReader, EventReader
from topiclib.tables import read_rows, stored_tables
from topiclib.topics import read_topic, schema_changes
from topiclib.wire import WireReader


@dataclass(frozen=True, slots=True)
class Result:
    """Hold the whole verification.

    Args:
        tables: Verdict of each table.
        schema: What is wrong with the schema change topic.
        seconds: How long it took.
    """

    tables: tuple[TableVerdict, ...]
    schema: tuple[str, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Return whether everything holds."""
        return bool(self.tables) and not self.schema and all(v.ok for v in self.tables)

    def lines(self) -> list[str]:
        """Return everything that is wrong, as text."""
        return [line for verdict in self.tables for line in verdict.lines()] + list(self.schema)


def check_again(verdict: TableVerdict, rows: int | None) -> None:
    """Report when the rows that were read again are not as many as the snapshot says; each is there once.

    Args:
        verdict: The table's verdict.
        rows: What the snapshot says; None when the table was not to be read again.
    """
    if verdict.again != (rows or 0) or rows == 0:
        verdict.report("again", f"{verdict.again} rows were read again, the ad-hoc snapshot reports {rows or 'none'}")


def check_alter(changes: Iterable[dict[str, object]], table: str, column: str) -> list[str]:
    """Return what is wrong with the schema change topic: it must hold the one ALTER that added the column."""
    mentions = 0
    for change in changes:
        ddl = str(change.get("ddl") or "")
        parts = change.get("tableChanges")
        if not ddl.upper().startswith("ALTER TABLE") or not isinstance(parts, list):
            continue
        for part in parts:
            names = [c["name"] for c in (part.get("table") or {}).get("columns", ())]
            if part.get("type") == "ALTER" and str(part.get("id", "")).endswith(f'"{table}"') and column in names:
                mentions += 1
    return [] if mentions == 1 else [f"the schema change topic holds the ALTER of {table} {mentions} times"]


def verify(
    connect: Callable[[], Any],
    database: str,
    bootstrap: str,
    prefix: str,
    *,
    altered: tuple[str, str] | None,
    again: Mapping[str, int] | None = None,
    wire: WireReader | None = None,
    say: Callable[[str], None],
) -> Result:
    """Verify every table of a database against its topic, and the schema change topic.

    Args:
        connect: Opens a connection whose time zone is UTC.
        database: The database.
        bootstrap: Kafka's addresses.
        prefix: ``topic.prefix``.
        altered: Table and the column that an ALTER TABLE gave it, None when there was none.
        again: Rows that ad-hoc snapshots say they have read, by table; None when there were none.
        wire: Reads the records when they are Avro; None for JSON.
        say: Takes a line for every table.

    Raises:
        TopicError: A topic cannot be read.
    """
    began = time.monotonic()
    identities: set[bytes] = set()
    verdicts = []
    with closing(connect()) as conn:
        for table in stored_tables(conn, database):
            layout = table.layout
            check = TableCheck(layout, identities)
            reader = EventReader(layout) if wire is None else AvroReader(layout, wire)
            check.feed(reader.events(read_topic(bootstrap, f"{prefix}.{database}.{layout.name}")))
            verdict = check.finish(read_rows(conn, database, table))
            check_again(verdict, (again or {}).get(layout.name))
            word = "ok" if verdict.ok else "FAILED"
            say(f"{layout.name}: {verdict.events:,} events, {verdict.rows_table:,} rows, {word}")
            verdicts.append(verdict)
    schema = check_alter(schema_changes(bootstrap, prefix, wire), *altered) if altered else []
    return Result(tuple(verdicts), tuple(schema), time.monotonic() - began)
