"""The verdict: Kafka read by a consumer of its own, MySQL by SELECT; nothing of the provider is used here."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka.admin import AdminClient
from topiclib.checks import TableCheck, TableVerdict
from topiclib.events import AvroReader, Event, EventReader, Gtid, Layout, position_of
from topiclib.row_check import RowCheck
from topiclib.tables import StoredTable, read_rows, stored_tables
from topiclib.ticdc import CommitTimes, FlatWire, TicdcReader
from topiclib.topics import KafkaRecord, read_topic, schema_changes
from topiclib.wire import RecordError, WireReader, from_registry

from soaklib.binlog_facts import BinlogFacts, GtidSet, read_binlog
from soaklib.ddl import Journal
from soaklib.incremental_requests import ReadAgainCheck
from soaklib.tables import AUDIT, KEYS

FORMATS = ("json", "avro", "ticdc")
_AVRO = "io.confluent.connect.avro.AvroConverter"


def format_properties(name: str, registry_url: str | None, prefix: str) -> dict[str, str]:
    """Return the properties of a format."""
    url = str(registry_url)
    if name == "avro":
        parts = ("key.converter", "value.converter")
        return {p: _AVRO for p in parts} | {f"{p}.schema.registry.url": url for p in parts}
    if name == "ticdc":
        # Topics are named as those of the other formats, and equal keys share a partition.
        rule = {"matcher": ["*.*"], "topic": f"{prefix}.{{schema}}.{{table}}", "partition": "index-value"}
        return {
            "value.format": "ticdc-avro",
            "schema-registry": url,
            "enable-tidb-extension": "true",
            "dispatchers": json.dumps([rule]),
        }
    return {}


def stream_topics(name: str, registry_url: str | None, bootstrap: str, prefix: str, database: str) -> Topics:
    """Return the topics of a stream, with what reads its format."""
    texts = from_registry(str(registry_url))
    return Topics(
        bootstrap,
        prefix,
        database,
        wire=WireReader(texts) if name == "avro" else None,
        flat=FlatWire(texts) if name == "ticdc" else None,
    )


_FIRST = 12
_ADDED = re.compile(r"x\d+")
# The server rewrites these two statements, with quoted names, which other statements may contain too.
_BEGIN = {"create table select": "CREATE", "drop table": "DROP TABLE `"}


@dataclass(slots=True)
class StreamVerdict:
    """What was found.

    Args:
        events: Records read from the tables' topics.
        transactions: Transactions whose changes were counted against their triggers' notes.
        again: Rows that windows of incremental and interrupted snapshots have read.
        differences: Everything that is wrong, in words.
    """

    events: int = 0
    tables: int = 0
    transactions: int = 0
    again: int = 0
    differences: list[str] = field(default_factory=list)

    def add(self, table: TableVerdict) -> None:
        """Take the verdict on a table."""
        self.events += table.events
        self.tables += 1
        self.again += table.again
        self.differences += table.lines()


def final_layout(layout: Layout, table: str, columns: Mapping[tuple[str, str], str]) -> Layout:
    """Return a layout that knows the names its columns had before.

    Args:
        layout: The table as it is at the end.
        table: Its name in the journal.
        columns: New name of each column that was renamed, by table and old name.
    """
    names: dict[str, str | None] = {}
    for (of_table, old), _ in columns.items():
        name: str | None = old
        while name is not None and name not in layout.columns:
            name = columns.get((of_table, name))
        if of_table == table:
            names[old] = name
    return replace(layout, earlier=_EarlierNames(names, layout.columns))


class _EarlierNames(dict[str, str | None]):
    """Earlier names; a column that DDL added and that is not there at the end was dropped."""

    def __init__(self, names: Mapping[str, str | None], columns: tuple[str, ...]) -> None:
        super().__init__(names)
        self._columns = columns

    def get(self, name: str, default: Any = None) -> str | None:
        if name in self:
            return self[name]
        return None if _ADDED.fullmatch(name) and name not in self._columns else name


def gtid_of(event: Event) -> Gtid | None:
    """Return the transaction of a streamed event: the source's id and its number."""
    return None if event.position is None else event.position.gtid


class AuditCheck:
    """Count each transaction's changes of each table against what the triggers noted in the same transaction.

    So the loss of an insert and a delete of one key shows, which no comparison of rows would find.

    Args:
        after: Transactions at the end of the initial snapshot; only later ones are counted.
    """

    def __init__(self, after: GtidSet, left_out: Iterable[str] = ()) -> None:
        self._after = after
        self._left_out = frozenset(left_out)
        self._noted: dict[Gtid, Counter[tuple[str, str]]] = defaultdict(Counter)
        self._found: dict[Gtid, Counter[tuple[str, str]]] = defaultdict(Counter)

    def _counts(self, transaction: Gtid | None) -> bool:
        return transaction is not None and transaction not in self._after

    def note(self, event: Event, row: Mapping[str, Any]) -> None:
        """Take a row of the audit table."""
        transaction = gtid_of(event)
        if transaction is None or not self._counts(transaction) or row["tbl"] in self._left_out:
            return
        for op in "dc" if row["op"] == "k" else row["op"]:
            self._noted[transaction][row["tbl"], op] += 1

    def change(self, table: str, event: Event) -> None:
        """Take a change of a table."""
        transaction = gtid_of(event)
        if transaction is not None and event.op in "cud" and self._counts(transaction) and table not in self._left_out:
            self._found[transaction][table, event.op] += 1

    def finish(self) -> tuple[int, list[str]]:
        """Return how many transactions were counted, and what differs."""
        out = []
        for transaction in sorted(set(self._noted) | set(self._found)):
            noted, found = self._noted[transaction], self._found[transaction]
            for table, op in sorted(set(noted) | set(found)):
                if noted[table, op] != found[table, op]:
                    out.append(
                        f"transaction {transaction[0]}:{transaction[1]}: {found[table, op]} events of op {op} in "
                        f"{table}, "
                        f"its triggers noted {noted[table, op]}"
                    )
        return len(set(self._noted) | set(self._found)), out


def check_schema_changes(statements: Iterable[str], journal: Journal) -> list[str]:
    """Return what is wrong with the schema change topic: it contains each statement once."""
    texts = [text + " " for text in statements]
    out = []
    for done in journal.done:
        if not done.mark:
            continue
        found = sum(done.mark in text and text.lstrip().upper().startswith(_BEGIN.get(done.kind, "")) for text in texts)
        if found > 1:
            out.append(f"schema changes: {done.kind} {done.mark.strip()} stands there {found} times")
        elif not found and done.sure and done.late:
            out.append(f"schema changes: {done.kind} {done.mark.strip()} is missing")
    return out


@dataclass
class Topics:
    """The topics of one prefix.

    Args:
        wire: Reads the records when they are Confluent's Avro.
        flat: Reads the records when they are TiCDC's Avro; without both they are JSON.
        promoted: Whether the stream was read from several servers.
    """

    bootstrap: str
    prefix: str
    database: str
    wire: WireReader | None = None
    flat: FlatWire | None = None
    times: CommitTimes = field(default_factory=CommitTimes)
    promoted: bool = False

    def names(self) -> set[str]:
        """Return the tables that have a topic."""
        start = f"{self.prefix}.{self.database}."
        found = AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=30).topics
        return {name.removeprefix(start) for name in found if name.startswith(start)}

    def read(self, table: str) -> Iterator[KafkaRecord]:
        """Yield the committed records of a table's topic."""
        return read_topic(self.bootstrap, f"{self.prefix}.{self.database}.{table}")

    def events(self, layout: Layout, table: str) -> Iterator[Event | RecordError]:
        """Yield the events of a table's topic."""
        if self.flat is not None:
            reader: EventReader = TicdcReader(layout, self.flat, self.times)
        else:
            reader = EventReader(layout) if self.wire is None else AvroReader(layout, self.wire)
        return reader.events(self.read(table))

    def check(self, layout: Layout, seen: set[bytes], facts: BinlogFacts, *, interrupted: bool) -> TableCheck:
        """Return the check of a table."""
        # The files and positions of one server rise; several servers have only the order of transactions in common.
        ranks = facts.ranks if self.promoted else None
        if self.flat is None:
            return TableCheck(layout, seen, facts.prepared, interrupted=interrupted, ranks=ranks)
        truncations = facts.truncations.get(layout.name, ())
        return RowCheck(layout, seen, facts.prepared, interrupted=interrupted, ranks=ranks, truncations=truncations)

    def statements(self) -> list[str]:
        """Return ``ddl`` of every schema change of the stream; a snapshot that begins again repeats its structures."""
        changes = schema_changes(self.bootstrap, self.prefix, self.wire)
        return [str(p.get("ddl") or "") for p in changes if p["source"].get("snapshot") in (None, "false")]


def verify(
    connect: Callable[[], Any],
    topics: Topics,
    journal: Journal,
    after: GtidSet,
    since: str,
    *,
    interrupted: bool = False,
    read_after: Mapping[str, GtidSet] | None = None,
) -> StreamVerdict:
    """Compare everything that is in Kafka with the database and the journal.

    Args:
        connect: Opens a root connection whose time zone is UTC.
        topics: The topics.
        journal: The DDL that was run.
        after: Executed transactions at the end of the initial snapshot.
        since: The binlog file at the stream's beginning.
        interrupted: Whether the initial snapshot was interrupted.
        read_after: Tables that incremental snapshots have read (``IncrementalRequests.read_after``).

    Raises:
        TopicError: A topic cannot be read to its end.
    """
    verdict, identities, there = StreamVerdict(), set[bytes](), topics.names()
    audit = AuditCheck(after, journal.unaudited)
    with closing(connect()) as conn:
        stored = {t.layout.name: t for t in stored_tables(conn, topics.database)}
        facts = read_binlog(conn, since, topics.database)
        again = ReadAgainCheck(read_after or {}, facts.prepared)
        audit_check = topics.check(stored[AUDIT].layout, identities, facts, interrupted=interrupted)
        _audit(verdict, audit, conn, topics, stored[AUDIT], audit_check)
        topic_tables = {name: [name] for name in stored if name != AUDIT}
        final = next(name for name in reversed(journal.names) if name in stored)
        topic_tables[final] = [name for name in journal.names if name in there or name == final]
        for name, topic_table in topic_tables.items():
            label = "r" if name == final else name
            layout = final_layout(stored[name].layout, label, journal.columns)
            table = replace(stored[name], layout=layout)
            check = topics.check(layout, identities, facts, interrupted=interrupted)
            for topic in topic_table:
                if topic not in there:
                    continue  # a table that never had a row has no topic either; rows of its own would show below
                check.next_topic()
                check.feed(_counted(topics.events(layout, topic), audit, again, label))
            verdict.add(check.finish(read_rows(conn, topics.database, table)))
            verdict.differences += again.differences(label, check)
    for topic in sorted(there - {AUDIT} - {t for life in topic_tables.values() for t in life}):
        verdict.events += _check_dropped_topic(verdict, topics, topic, identities)
    verdict.transactions, wrong = audit.finish()
    verdict.differences += wrong[:_FIRST]
    if topics.flat is None:
        verdict.differences += check_schema_changes(topics.statements(), journal)
    else:
        verdict.differences += topics.times.differences(facts.prepared)[:_FIRST]
    return verdict


def _counted(
    events: Iterable[Event | RecordError], audit: AuditCheck, again: ReadAgainCheck, label: str
) -> Iterator[Any]:
    for event in events:
        if label in KEYS and isinstance(event, Event):
            audit.change(label, event)
            again.note(label, event)
        yield event


def _audit(
    verdict: StreamVerdict,
    audit: AuditCheck,
    conn: Any,
    topics: Topics,
    table: StoredTable,
    check: TableCheck,
) -> None:
    """Check the audit table itself, and take down what the triggers noted in it."""
    layout = table.layout
    events = list(topics.events(layout, AUDIT))
    for event in events:
        if isinstance(event, Event) and (row := dict(zip(layout.columns, event.after or (), strict=False))):
            audit.note(event, row)
    found = check.feed(events).finish(read_rows(conn, topics.database, table))
    verdict.add(found)


def _check_dropped_topic(verdict: StreamVerdict, topics: Topics, topic: str, seen: set[bytes]) -> int:
    """Check the topic of a table that is gone: what is left to ask is that no event came twice."""
    count = 0
    for record in topics.read(topic):
        count += 1
        identity = record.headers.get("cdc-id")
        if identity is None:
            if topics.flat is not None or not _is_truncation(topics, record):
                verdict.differences.append(f"{topic}: {record.where}: the header cdc-id is missing")
            continue
        position_of(identity)
        mark = hashlib.blake2b(identity, digest_size=16).digest()
        if mark in seen:
            verdict.differences.append(f"{topic}: twice: {record.where}: {identity[-80:]!r} occurred before")
        seen.add(mark)
    return count


def _is_truncation(topics: Topics, record: KafkaRecord) -> bool:
    value = record.value if topics.wire is None else topics.wire.as_json(record.value)
    return bool(json.loads(value or b"{}").get("payload", {}).get("op") == "t")
