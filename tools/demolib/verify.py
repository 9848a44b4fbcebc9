"""Compare a database with its topics: reads Kafka and MySQL, and leaves the judging to ``checks``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from avrolib.wire import WireReader
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from pymysql.cursors import SSCursor

from demolib.avro_events import AvroReader
from demolib.checks import TableCheck, TableVerdict, check_alter
from demolib.events import Event, EventReader, Layout, Record, RecordError, Row
from demolib.values import converter_of_column, select_expression

_TIMEOUT_S = 30.0
_FETCH = 2_000


class VerifyError(Exception):
    """Say that the verification could not be carried out."""


@dataclass(frozen=True, slots=True)
class StoredTable:
    """Describe a table in MySQL.

    Args:
        layout: Columns, key and defaults.
        types: ``COLUMN_TYPE`` of each column.
    """

    layout: Layout
    types: tuple[str, ...]


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


def read_topic(bootstrap: str, topic: str) -> Iterator[Record]:
    """Yield a topic's committed records up to its end at the start of reading, each partition's in offset order.

    Args:
        bootstrap: Kafka's addresses.
        topic: Topic name.

    Raises:
        VerifyError: The topic does not exist, or its end is not reached: a transaction is still open.
    """
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "demo-verify",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "fetch.max.bytes": 32 * 2**20,
        # How long the broker may wait at the end of a partition.
        "fetch.wait.max.ms": 20,
        "queued.max.messages.kbytes": 64 * 1024,
    }
    consumer = Consumer(settings)
    try:
        found = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
        if found.error is not None:
            raise VerifyError(f"topic {topic}: {found.error.str()}")
        ends = {}
        for partition in found.partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_S)
            if high > low:
                ends[partition] = (low, high)
        consumer.assign([TopicPartition(topic, p, low) for p, (low, _) in ends.items()])
        yield from _records(consumer, topic, {p: high for p, (_, high) in ends.items()})
    except KafkaException as error:
        raise VerifyError(f"reading {topic}: {error}") from error
    finally:
        consumer.close()


def _records(consumer: Any, topic: str, ends: dict[int, int]) -> Iterator[Record]:
    deadline = time.monotonic() + _TIMEOUT_S
    while ends:
        messages = consumer.consume(_FETCH, timeout=0.1)
        if messages:
            deadline = time.monotonic() + _TIMEOUT_S
        elif time.monotonic() > deadline:
            raise VerifyError(
                f"topic {topic}: the end of partition(s) {sorted(ends)} is not reached; a transaction is open"
            )
        for message in messages:
            error = message.error()
            if error is None:
                if message.offset() < ends.get(message.partition(), 0):
                    yield _record(message)
            elif error.code() != KafkaError._PARTITION_EOF:
                raise VerifyError(f"reading {topic}: {error.str()}")
            elif message.offset() >= ends.get(message.partition(), 0):
                ends.pop(message.partition(), None)


def _record(message: Any) -> Record:
    headers = dict(message.headers() or ())
    return Record(
        message.partition(), message.offset(), message.key(), message.value(), headers, message.timestamp()[1]
    )


def stored_tables(conn: Any, database: str) -> list[StoredTable]:
    """Return the base tables of a database by name.

    Args:
        conn: Open connection.
        database: Database name.
    """
    with conn.cursor() as cursor:
        cursor.execute(
            "SELECT c.TABLE_NAME, c.COLUMN_NAME, c.COLUMN_TYPE FROM information_schema.COLUMNS c "
            "JOIN information_schema.TABLES t USING (TABLE_SCHEMA, TABLE_NAME) "
            "WHERE c.TABLE_SCHEMA = %s AND t.TABLE_TYPE = 'BASE TABLE' ORDER BY c.TABLE_NAME, c.ORDINAL_POSITION",
            (database,),
        )
        columns: dict[str, list[tuple[str, str]]] = {}
        for table, column, kind in cursor.fetchall():
            columns.setdefault(table, []).append((column, kind.decode() if isinstance(kind, bytes) else kind))
        cursor.execute(
            "SELECT TABLE_NAME, COLUMN_NAME FROM information_schema.STATISTICS "
            "WHERE TABLE_SCHEMA = %s AND INDEX_NAME = 'PRIMARY' ORDER BY TABLE_NAME, SEQ_IN_INDEX",
            (database,),
        )
        keys: dict[str, list[str]] = {}
        for table, column in cursor.fetchall():
            keys.setdefault(table, []).append(column)
    return [_stored_table(conn, database, t, cs, tuple(keys.get(t, ()))) for t, cs in columns.items()]


def _stored_table(
    conn: Any, database: str, table: str, columns: list[tuple[str, str]], key: tuple[str, ...]
) -> StoredTable:
    names, types = zip(*columns, strict=True)
    defaults: list[Any] = []
    with conn.cursor() as cursor:
        for name, kind in columns:
            quoted = name.replace("`", "``")
            try:
                cursor.execute(f"SELECT DEFAULT(`{quoted}`) FROM `{database}`.`{table}` LIMIT 1")
                row = cursor.fetchone()
            except conn.Error:
                # The column has no default, so no row can be older than it.
                row = None
            defaults.append(_converted(row[0], converter_of_column(kind)) if row else None)
    return StoredTable(Layout(table, names, key, tuple(defaults)), types)


def _converted(value: Any, convert: Callable[[Any], Any] | None) -> Any:
    return value if value is None or convert is None else convert(value)


def read_rows(conn: Any, database: str, table: StoredTable) -> Iterator[Row]:
    """Yield all rows of a table with the values that events have.

    Args:
        conn: Open connection whose time zone is UTC.
        database: Database name.
        table: The table.
    """
    layout = table.layout
    expressions = [select_expression(n, t) for n, t in zip(layout.columns, table.types, strict=True)]
    converts = [converter_of_column(t) for t in table.types]
    with conn.cursor(SSCursor) as cursor:
        cursor.execute(f"SELECT {', '.join(expressions)} FROM `{database}`.`{layout.name}`")
        for row in cursor:
            yield tuple(_converted(v, c) for v, c in zip(row, converts, strict=True))


def read_events(
    layout: Layout, records: Iterator[Record], wire: WireReader | None = None
) -> Iterator[Event | RecordError]:
    """Return the events of records; see ``events_of``.

    Args:
        layout: The table at the end.
        records: The records.
        wire: Reads them when they are Avro; None for JSON.
    """
    return events_of(EventReader(layout) if wire is None else AvroReader(layout, wire), records)


def events_of(reader: EventReader, records: Iterator[Record]) -> Iterator[Event | RecordError]:
    """Yield the events of records; one that cannot be read comes as its error.

    Args:
        reader: Reads the records of the topic.
        records: The records.
    """
    for record in records:
        try:
            yield reader.event(record)
        except RecordError as error:
            yield error


def schema_changes(bootstrap: str, topic: str, wire: WireReader | None = None) -> Iterator[dict[str, Any]]:
    """Yield the payloads of the schema change topic.

    Args:
        bootstrap: Kafka's addresses.
        topic: The topic.
        wire: Reads its records when they are Avro; None for JSON.
    """
    for record in read_topic(bootstrap, topic):
        if record.value is not None and wire is not None:
            yield wire.split(record.value)[1]
        elif record.value is not None:
            document = json.loads(record.value)
            yield document.get("payload", document)


def check_again(verdict: TableVerdict, rows: int | None) -> None:
    """Report when the rows that were read again are not as many as the snapshot says; each is there once.

    Args:
        verdict: The table's verdict.
        rows: What the snapshot says; None when the table was not to be read again.
    """
    if verdict.again != (rows or 0) or rows == 0:
        verdict.report("again", f"{verdict.again} rows were read again, the ad-hoc snapshot reports {rows or 'none'}")


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
        VerifyError: A topic cannot be read.
    """
    began = time.monotonic()
    identities: set[bytes] = set()
    verdicts = []
    with closing(connect()) as conn:
        for table in stored_tables(conn, database):
            layout = table.layout
            check = TableCheck(layout, identities)
            check.feed(read_events(layout, read_topic(bootstrap, f"{prefix}.{database}.{layout.name}"), wire))
            verdict = check.finish(read_rows(conn, database, table))
            check_again(verdict, (again or {}).get(layout.name))
            word = "ok" if verdict.ok else "FAILED"
            say(f"{layout.name}: {verdict.events:,} events, {verdict.rows_table:,} rows, {word}")
            verdicts.append(verdict)
    schema = check_alter(schema_changes(bootstrap, prefix, wire), *altered) if altered else []
    return Result(tuple(verdicts), tuple(schema), time.monotonic() - began)
