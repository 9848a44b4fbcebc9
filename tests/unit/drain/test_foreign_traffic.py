"""Which events of others let the offset wait, and for how long."""

from __future__ import annotations

from typing import Any

import pytest
from kit.cases import for_each
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.drain import foreign_traffic
from airflow_provider_mysql_cdc.cdc.drain.foreign_traffic import MAX_EVENTS, MAX_WAIT_S, ForeignTraffic
from airflow_provider_mysql_cdc.cdc.errors import SourceConnectionError, SourceError
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset

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
        monkeypatch.setattr(foreign_traffic, "fetch_dicts", self.show)
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
