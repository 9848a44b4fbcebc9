"""Which events of others let the offset wait, and for how long.

When a drain writes a full description into the schema history, and when it does not.
"""

from __future__ import annotations

from typing import Any

import pytest
from kit.cases import for_each
from kit.memory_job import config, memory_job
from kit.memory_kafka import MemoryKafka

from airflow_provider_mysql_cdc.cdc.commit.ledger_state import LedgerState
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.commit.unread_tables import UncheckedTable
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain import between_batches
from airflow_provider_mysql_cdc.cdc.drain.between_batches import MAX_EVENTS, MAX_WAIT_S, ForeignTraffic, describe_if_due
from airflow_provider_mysql_cdc.cdc.errors import RecordTooLargeError, SourceConnectionError, SourceError
from airflow_provider_mysql_cdc.cdc.job.job_metrics import JobLog
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.schema.full_description import describe_all

START = BinlogOffset("binlog.000007", 100, None, "uuid")
CFG = {"table.include.list": r"d\.ours,d\.a\.b", "signal.data.collection": "ops.signals"}
Named = tuple[str, str]
FOREIGN: tuple[Named, ...] = (
    ("Gtid", "SET @@SESSION.GTID_NEXT= 'u:1'"),
    ("Query", "BEGIN"),
    ("Rows_query", "# INSERT INTO d.ours VALUES (1)"),
    ("Table_map", "table_id: 91 (d.theirs)"),
    ("Write_rows", "table_id: 91 flags: STMT_END_F"),
    ("Xid", "COMMIT /* xid=7 */"),
)


class Server:
    """A server whose binlog has some events behind the start; each takes ten bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **properties: str) -> None:
        self.events: list[Named] = []
        self.looks: list[int] = []
        self.now = 50.0
        self.error: SourceError | None = None
        monkeypatch.setattr(between_batches, "fetch_dicts", self.show)
        more = {name.replace("_", "."): value for name, value in properties.items()}
        self.traffic = ForeignTraffic(config(**{**CFG, **more}), START, lambda: self.now)

    def show(self, _: Any, query: str, args: tuple[str]) -> list[dict[str, Any]]:
        if self.error is not None:
            raise self.error
        at = int(query.split(" FROM ")[1].split(maxsplit=1)[0])
        assert args == (START.file,) and (at - START.pos) % 10 == 0
        self.looks.append(at)
        found = list(enumerate(self.events, 1))[(at - START.pos) // 10 :][:MAX_EVENTS]
        return [{"Event_type": k, "Info": i, "End_log_pos": START.pos + 10 * n} for n, (k, i) in found]

    def may_wait(self, *events: Named, **end: Any) -> bool:
        self.events += events
        reached = BinlogOffset(START.file, START.pos + 10 * len(self.events), None, "uuid")
        return self.traffic.may_wait(None, end.get("end", reached))


def table(name: str) -> Named:
    return "Table_map", f"table_id: 5 ({name})"


@pytest.mark.req("STRM-33")
@for_each(
    ("events", "waits"),
    [
        (FOREIGN, True),
        ((*FOREIGN, *FOREIGN[:3]), True),
        ((("Anonymous_Gtid", ""), ("Query", "BEGIN"), table("x.y"), ("Update_rows_v1", ""), ("Query", "COMMIT")), True),
        ((*FOREIGN, table("d.ours")), False),
        ((table("D.OURS"),), False),
        ((table("ops.signals"),), False),
        ((table("d.a.b"),), False),
        ((table("d.a.c"),), True),
        ((table("no_dot"),), False),
        ((("Table_map", "table_id: 5 (d." + "x" * 240),), False),
        ((("Query", "use `d`; DROP TABLE theirs"),), False),
        ((("Query", "XA START X'01',X'',1"),), False),
        ((("Transaction_payload", "compression='ZSTD'"),), False),
        ((("XA_prepare", ""),), False),
        ((("Rotate", "binlog.000008;pos=4"),), False),
        ((("Incident", ""),), False),
        (FOREIGN * MAX_EVENTS, False),
    ],
)
def test_only_what_is_known_to_be_harmless_waits(
    monkeypatch: pytest.MonkeyPatch, events: tuple[Named, ...], waits: bool
) -> None:
    server = Server(monkeypatch)
    assert server.may_wait(*events) is waits is server.traffic.waits
    assert server.may_wait(*FOREIGN) is waits, "what concerns the stream goes on to"


@pytest.mark.req("STRM-33")
def test_the_offset_waits_some_seconds_and_each_event_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    assert server.may_wait(*FOREIGN) and server.may_wait() and server.may_wait(*FOREIGN)
    assert server.looks == [100, 160]
    server.now += MAX_WAIT_S - 0.1
    assert server.may_wait(*FOREIGN)
    server.now += 0.2
    assert not server.may_wait(*FOREIGN) and server.traffic.waits


@pytest.mark.req("STRM-33")
def test_what_cannot_be_looked_at_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """With transaction metadata others have records, too."""
    assert not Server(monkeypatch, provide_transaction_metadata="true").may_wait(*FOREIGN)
    for end in (START.with_position("binlog.000008", 160), BinlogOffset(START.file, 160, None, "another")):
        assert not Server(monkeypatch).may_wait(*FOREIGN, end=end)
    beyond = Server(monkeypatch)
    assert not beyond.may_wait(*FOREIGN, end=START.with_position(START.file, 900)), "not all is shown"
    refusing = Server(monkeypatch)
    refusing.error = SourceError("error 1227", why="needs REPLICATION SLAVE")
    assert not refusing.may_wait(*FOREIGN)
    broken = Server(monkeypatch)
    broken.error = SourceConnectionError("gone")
    with pytest.raises(SourceConnectionError):
        broken.may_wait(*FOREIGN)


END = BinlogOffset("binlog.000001", 900, None, "s1")
PLAN = BatchPlan(7, "drain", END, END, writers=0, owner="o", created_ms=0)
CHANGES = {"p": 1}


def tables(count: int) -> SchemaState:
    found = (Table(TableId("d", f"t{n}"), (Column("id", 1, "INT"),)) for n in range(count))
    return SchemaState({table.id: table for table in found})


class Rig:
    """One complete batch after which a description may be due."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, statements: int, state: SchemaState, skipped: bool = False
    ) -> None:
        self.lines: list[str] = []
        self.cfg: ConnectorConfig = config(schema__history__description__statements="20")
        self.kafka = MemoryKafka()
        self.job = memory_job(monkeypatch, self.cfg, self.kafka)
        unchecked = UncheckedTable(TableId("d", "t"), "binlog.000001:4", skipped=skipped)
        ledger = LedgerState(plan=PLAN, other_records={unchecked.ledger_key(): unchecked.to_json()})
        monkeypatch.setattr(self.job, "latest", lambda: ledger)
        self.loads = 0

        def load(*_: Any, until: BinlogOffset, epoch: int, cache: Any) -> SchemaState:
            assert (until, epoch) == (END, 8)
            self.loads += 1
            cache.statements = statements
            return state

        monkeypatch.setattr(between_batches, "load_schema_state", load)

    def run(self, counts: dict[str, int] = CHANGES) -> int:
        describe_if_due(self.cfg, self.job, PLAN, counts, JobLog(self.lines.append))
        return len(self.kafka.logs.get((self.cfg.history_topic, 0), []))


def test_it_is_due_after_that_many_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Rig(monkeypatch, 19, tables(3)).run() == 0
    rig = Rig(monkeypatch, 20, tables(3))
    assert rig.run() == 4
    assert "3 tables" in rig.lines[-1]
    rig.cfg = config(schema__history__description__statements="0")
    assert (rig.run(), rig.loads) == (4, 1)


def test_it_is_not_due_before_there_are_a_tenth_as_many_statements_as_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Rig(monkeypatch, 29, tables(300)).run() == 0
    assert Rig(monkeypatch, 30, tables(300)).run() == 301


def test_a_batch_without_schema_changes_does_not_read_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, 20, tables(3))
    assert (rig.run({"p.d.t": 5}), rig.loads) == (0, 0)
    rig.job.history_cache.statements = 20  # what the batch began with
    assert (rig.run({"p.d.t": 5}), rig.loads) == (4, 1)
    hidden = Rig(monkeypatch, 20, tables(3))
    hidden.cfg = config(schema__history__description__statements="20", include__schema__changes="false")
    assert hidden.run({}) == 4


def test_a_structure_after_a_skipped_statement_is_compared_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Rig(monkeypatch, 20, tables(3), skipped=True).run() == 0


def test_structures_that_do_not_read_back_are_not_described(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, 20, tables(3))
    monkeypatch.setattr(between_batches, "describe_all", lambda *_: describe_all(rig.cfg, tables(2), END, 7))
    assert rig.run() == 0
    assert "cannot be described without a difference" in rig.lines[-1]


def test_a_table_whose_record_is_too_large_leaves_the_history_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(monkeypatch, 20, tables(3))

    def refuse(*_: Any, **__: Any) -> None:
        raise RecordTooLargeError("a record is larger than Kafka accepts", where="topic h")

    monkeypatch.setattr(rig.job, "commit", refuse)
    assert rig.run() == 0
    assert "WARNING: the schema history gets no full description" in rig.lines[-1]
    assert "larger than Kafka accepts" in rig.lines[-1]
