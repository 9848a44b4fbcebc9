"""Groups of tables that a verification compares at one position each, and the ledger's records of what is done.

Groups of tables that a verification compares at one position each: what is compared and what is left.

A retry goes on behind the last group, and a view that is held for a shorter time keeps less of the server's undo
history.

The ledger records of a verification that goes on: the verdict about each table whose group is compared.

They are no result yet, so the report of the last verification stays what it is until the run has compared all tables.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_provider_mysql_cdc.cdc import faults
from airflow_provider_mysql_cdc.cdc.binlog.connect import fetch_all
from airflow_provider_mysql_cdc.cdc.commit.ledger_keys import VERIFY_DONE_PREFIX
from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import encode
from airflow_provider_mysql_cdc.cdc.config import fields as F
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.config.pinned_properties import property_pins
from airflow_provider_mysql_cdc.cdc.drain.drain_driver import BatchContext
from airflow_provider_mysql_cdc.cdc.errors import ConfigError, StateError
from airflow_provider_mysql_cdc.cdc.formats.record_topics import table_topic_name
from airflow_provider_mysql_cdc.cdc.model.connection import MySqlConnection
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.records import SideRecord
from airflow_provider_mysql_cdc.cdc.model.stored_record import Count, Record, record_location
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema.history import load_schema_state
from airflow_provider_mysql_cdc.cdc.schema.table_discovery import captured_tables
from airflow_provider_mysql_cdc.cdc.signals.actions import SignalRefused, match_tables, quote_text
from airflow_provider_mysql_cdc.cdc.sink.record_writer import write_plain
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_records import done_keys, hide_in_verdict
from airflow_provider_mysql_cdc.cdc.verify.report.verdict_totals import left_to_repair
from airflow_provider_mysql_cdc.cdc.verify.report.verify_result import (
    NotCompared,
    RepairMode,
    TableVerdict,
    VerifyRequest,
)


@dataclass(frozen=True, slots=True)
class ComparingRun:
    """Name the run that compares.

    Args:
        run: Its id, which all tries have.
        basis: Digest of everything that a verdict depends on beside tables and topics (``verdict_basis``).
        started_ms: When its first try began, milliseconds since 1970.
    """

    run: str
    basis: str
    started_ms: Count


@dataclass(frozen=True, slots=True)
class DoneTable(Record):
    """Hold a verdict of a run that is not over.

    Args:
        comparing: The run.
        ended_ms: When the table's group was compared, milliseconds since 1970.
        verdict: The verdict, with its position.
    """

    comparing: ComparingRun
    ended_ms: Count
    verdict: TableVerdict


def verdict_basis(cfg: ConnectorConfig, request: VerifyRequest) -> str:
    """Return a digest of what was asked for, and of the properties that decide how records look."""
    text = json.dumps([request.to_json(), property_pins(cfg, snapshot=True)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def write_done(cfg: ConnectorConfig, comparing: ComparingRun, ended_ms: int, verdicts: Iterable[TableVerdict]) -> None:
    """Write the verdicts about a group.

    Raises:
        SinkError: Kafka refuses, or does not answer.
    """
    faults.fault_point("verify.before_done")
    records = [
        SideRecord(
            cfg.ledger_topic,
            (VERIFY_DONE_PREFIX + verdict.table).encode(),
            encode(DoneTable(comparing, ended_ms, verdict).to_json()),
        )
        for verdict in (hide_in_verdict(cfg, each) for each in verdicts)
    ]
    write_plain(cfg.kafka_settings(), records)
    faults.fault_point("verify.after_done")


def read_done(ledger: LedgerState, run: str, basis: str, repair: RepairMode) -> list[DoneTable]:
    """Return the verdicts of earlier tries of a run that still count.

    A table that could not be read is compared again. So is one with differences that a repair is asked for: what it has
    to write is not kept.

    Raises:
        DamagedRecordError: This package has not written a record.
    """
    return [
        done
        for done in _all_done(ledger)
        if (done.comparing.run, done.comparing.basis) == (run, basis)
        and done.verdict.not_compared is not NotCompared.UNREAD
        and (repair is RepairMode.NO or not left_to_repair(done.verdict))
    ]


def _all_done(ledger: LedgerState) -> Iterator[DoneTable]:
    for key in done_keys(ledger):
        with record_location(f"key {key}"):
            yield DoneTable.from_json(ledger.other_records[key])


_MAX_SHOWN_ENTRIES = 5


def choose_tables(entries: Sequence[str], captured: Iterable[TableId]) -> tuple[TableId, ...]:
    """Return the captured tables that are named, in the order of their names; all of them where none is named.

    Raises:
        ConfigError: An entry is invalid or matches no captured table, or no table is captured.
    """
    tables = sorted(captured)
    if not tables:
        raise ConfigError(
            "no table is captured, so there is nothing to verify",
            where="table.include.list, database.include.list",
            why="the account sees no table that these lists and the lists of exclusions let through",
            remedy="correct the lists, or grant the account SELECT on the tables",
        )
    if not entries:
        return tuple(tables)
    chosen, unmatched = _match(entries, tables)
    if unmatched:
        raise ConfigError(
            "a table to verify is not captured",
            where="tables: " + ", ".join(map(quote_text, unmatched[:_MAX_SHOWN_ENTRIES])),
            why=f"it matches none of the {len(tables)} captured tables the account sees; names are case-sensitive",
            remedy="correct the name (database.table), or add the table to table.include.list of the connection",
        )
    return tuple(sorted(chosen))


def check_entries(entries: Sequence[str]) -> None:
    """Check names and regular expressions before a server is asked for its tables.

    Raises:
        ConfigError: An entry is invalid.
    """
    _match(entries, ())


def _match(entries: Sequence[str], tables: Iterable[TableId]) -> tuple[tuple[TableId, ...], tuple[str, ...]]:
    try:
        return match_tables(entries, tables)
    except SignalRefused as refused:
        raise ConfigError(
            "a table entry is invalid",
            where="tables",
            why=refused.reason,
            remedy="write database.table, or a regular expression for it",
        ) from refused


_NAMES_PER_QUERY = 500


@dataclass(frozen=True, slots=True)
class SizedTable:
    """Describe a table to compare.

    Args:
        table: Its name.
        rows: Its rows, as the server estimates them.
    """

    table: TableId
    topic: str
    rows: int


def plan_groups(tables: Iterable[SizedTable], most_rows: int) -> list[tuple[TableId, ...]]:
    """Return the groups, small tables first; a larger table is a group of its own.

    Tables that share a topic are in one group: a tombstone does not name its table, and the topic is read once.
    """
    by_topic: dict[str, list[SizedTable]] = {}
    for sized in tables:
        by_topic.setdefault(sized.topic, []).append(sized)
    groups: list[list[SizedTable]] = []
    rows = 0
    for sharing in sorted(by_topic.values(), key=lambda each: (_rows(each), each[0].table)):
        if not groups or (most_rows and rows + _rows(sharing) > most_rows):
            groups.append([])
            rows = 0
        groups[-1] += sharing
        rows += _rows(sharing)
    return [tuple(sorted(sized.table for sized in group)) for group in groups]


def sized_tables(conn: MySqlConnection, topics: Mapping[TableId, str]) -> list[SizedTable]:
    """Return tables with their sizes; a table that is gone counts as empty."""
    rows, names = dict[TableId, int](), list(topics)
    for start in range(0, len(names), _NAMES_PER_QUERY):
        part = names[start : start + _NAMES_PER_QUERY]
        sql = (
            "SELECT table_schema, table_name, table_rows FROM information_schema.tables "
            f"WHERE (table_schema, table_name) IN ({', '.join(['(%s, %s)'] * len(part))})"
        )
        found = fetch_all(conn, sql, tuple(text for name in part for text in (name.db, name.table)))
        rows |= {TableId(str(db), str(table)): int(number or 0) for db, table, number in found}
    return [SizedTable(name, topic, rows.get(name, 0)) for name, topic in topics.items()]


def _rows(tables: Iterable[SizedTable]) -> int:
    return sum(sized.rows for sized in tables)


_NEVER_READ = (
    "the stream has never read it: it is captured, and the schema history does not have it, because it was created or "
    "restored without the binlog; mysql_cdc_snapshot with snapshot.mode=recovery records its structure, and then one "
    "with again=true reads its rows"
)


@dataclass(slots=True)
class GroupQueue:
    """Hold the groups that are left, and the verdicts that there are.

    Args:
        comparing: The run.
        left: Groups that are not compared yet, in their order.
        verdicts: The verdicts, also those of earlier tries.
        offset: The position at which the last group was compared; None before there is one.
        total: Number of groups of this try.
        unknown: Captured tables of the server that the schema history did not have when the groups were planned.
    """

    comparing: ComparingRun
    left: list[tuple[TableId, ...]]
    verdicts: list[TableVerdict] = field(default_factory=list)
    offset: BinlogOffset | None = None
    total: int = 0
    unknown: tuple[TableId, ...] = ()

    def next_group(self, context: BatchContext) -> tuple[TableId, ...]:
        """Return the next group, which is left until its verdicts are kept; empty where none is left."""
        if not self.left:
            return ()
        group = self.left[0]
        if self.total > 1:
            number = self.total - len(self.left) + 1
            context.log(f"verification: group {number} of {self.total}, {len(group)} table(s)")
        return group

    def keep(
        self,
        context: BatchContext,
        verdicts: Iterable[TableVerdict],
        offset: BinlogOffset,
        left: tuple[TableId, ...] = (),
    ) -> None:
        """Write the verdicts about a group to the ledger, so that no later try of the run compares it again.

        Args:
            context: The drain after whose batch the group was compared.
            verdicts: The verdicts.
            offset: The position at which the group was compared.
            left: Tables of the group that have to be compared once more, before the next group.

        Raises:
            RunInProgressError: A later try of the run is comparing.
            SinkError: Kafka refuses, or does not answer.
        """
        placed = [replace(verdict, offset=offset) for verdict in verdicts]
        context.require_lock()
        if placed or not left:
            write_done(context.cfg, self.comparing, time.time_ns() // 1_000_000, placed)
        self.verdicts += placed
        self.offset = offset
        self.left[:1] = [left] if left else []


def plan_group_queue(context: BatchContext, request: VerifyRequest, run: str) -> GroupQueue:
    """Return the groups of the tables of which no earlier try of the run has a verdict.

    Raises:
        ConfigError: A table that was asked for is not captured.
        StateError: A batch is incomplete.
    """
    cfg, known_tables = context.cfg, known_captured(context)
    names = choose_tables(request.tables, known_tables)
    unknown = unknown_tables(context, request, known_tables)
    basis = verdict_basis(cfg, request)
    known = {str(name) for name in names}
    earlier = read_done(context.job.latest(), run, basis, request.repair) if run else []
    done = [each for each in earlier if each.verdict.table in known]
    if done:
        context.log(f"verification: {len(done):,} of {len(names):,} table(s) were compared by an earlier try")
    compared = {each.verdict.table for each in done}
    topics = {name: table_topic_name(cfg, name) for name in names if str(name) not in compared}
    groups = plan_groups(sized_tables(context.conn, topics), cfg[F.VERIFY_GROUP_ROWS])
    started_ms = min([time.time_ns() // 1_000_000, *(each.comparing.started_ms for each in done)])
    last = max(done, key=lambda each: each.ended_ms, default=None)
    return GroupQueue(
        ComparingRun(run, basis, started_ms),
        groups,
        [each.verdict for each in done],
        None if last is None else last.verdict.offset,
        len(groups),
        unknown,
    )


def known_captured(context: BatchContext) -> list[TableId]:
    """Return the captured tables that the schema history has at the end of the stream.

    Raises:
        StateError: A batch is incomplete.
    """
    ledger, cfg = context.job.latest(), context.cfg
    start = ledger.end()
    if start is None:
        raise StateError("a verification cannot begin while a batch is incomplete", retriable=True)
    epoch = ledger.plan_in_force().epoch + 1
    state = load_schema_state(cfg, until=start, epoch=epoch, cache=context.job.history_cache)
    return [table for table in state.tables if cfg.captures(table)]


def unknown_tables(context: BatchContext, request: VerifyRequest, known: Collection[TableId]) -> tuple[TableId, ...]:
    """Return the captured tables of the server that are asked for and that the schema history does not have."""
    in_history = set(known)
    unknown = [table for table in captured_tables(context.conn, context.cfg) if table not in in_history]
    return match_tables(request.tables, unknown)[0] if request.tables else tuple(unknown)


def unknown_verdicts(context: BatchContext, unknown: Collection[TableId]) -> list[TableVerdict]:
    """Return the verdicts about tables that the schema history still does not have: the stream has read none of them.

    Others were created while the verification went on.
    """
    left = sorted({*unknown}.difference(known_captured(context))) if unknown else []
    return [
        TableVerdict(
            str(table),
            table_topic_name(context.cfg, table),
            unknown=(f"the table was not compared: {_NEVER_READ}",),
            not_compared=NotCompared.UNREAD,
        )
        for table in left
    ]
