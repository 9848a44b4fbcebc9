"""What thousands of tables of one shape cost: operations are counted, as times mean nothing on a shared machine."""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.ddl.apply import TableChange, apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.emit import schema_change
from airflow_provider_mysql_cdc.cdc.formats import table_options
from airflow_provider_mysql_cdc.cdc.model.expression import Expression
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.model.stored_record import parse_json
from airflow_provider_mysql_cdc.cdc.model.table import TableId
from airflow_provider_mysql_cdc.cdc.schema import history_record
from airflow_provider_mysql_cdc.cdc.schema.history_record import HistoryRecord

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
PROPERTIES = {
    "topic.prefix": "shop",
    "database.hostname": "mysql",
    "database.user": "cdc",
    "database.password": "secret",
    "database.include.list": "inventory",
    "kafka.bootstrap.servers": "kafka:9092",
}
COLUMNS = "id INT PRIMARY KEY, state ENUM('new','paid') NOT NULL, note VARCHAR(80), made DATETIME(3)"


class Query:
    def __init__(self, sql: str) -> None:
        self.db, self.sql = "inventory", sql
        self.sql_mode, self.client_charset, self.collation_server = 0, 255, 255


def created(count: int) -> tuple[SchemaState, list[TableChange]]:
    state, changes = SchemaState(), []
    for n in range(count):
        query = Query(f"CREATE TABLE inventory.orders_{n:05d} ({COLUMNS})")
        done = apply_ddl(state, query.sql, DdlContext.from_query(query))
        state, changes = done.state, [*changes, *done.changes]
    return state, changes


def record(n: int, change: TableChange) -> HistoryRecord:
    return HistoryRecord.of_statement(
        BinlogOffset("binlog.000001", 200 + n, f"{UUID}:{n + 1}", UUID),
        1,
        7,
        Query(change.ddl),
        [change],
        prefix="shop",
    )


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Counter[str]:
    calls: Counter[str] = Counter()
    real = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)
    return calls


def test_tables_of_one_structure_are_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, changes = created(40)
    schema_change._table_description.cache_clear()
    columns = counted(monkeypatch, schema_change, "column_dict")
    form = schema_change.SchemaChangeFormat("shop", key_schema=False, value_schema=False, clock_ns=lambda: 7_000_000)
    told = [json.loads(form.record("inventory", c.ddl, (c,), {}).value)["tableChanges"][0] for c in changes]
    kept = [record(n, change).table_changes[0] for n, change in enumerate(changes)]
    assert columns["column_dict"] == 4
    assert told == kept
    assert [entry["id"] for entry in told] == [f'"inventory"."orders_{n:05d}"' for n in range(40)]
    assert [c["name"] for c in told[39]["table"]["columns"]] == ["id", "state", "note", "made"]


def test_another_structure_is_described_for_itself() -> None:
    state, _ = created(1)
    other = apply_ddl(state, "ALTER TABLE inventory.orders_00000 ADD total INT COMMENT 'net'", DdlContext()).state
    before, after = (s.tables[TableId("inventory", "orders_00000")] for s in (state, other))
    assert len(schema_change.table_dict(before)["columns"]) == 4
    assert len(schema_change.table_dict(after)["columns"]) == 5
    comments = [schema_change.table_dict(after, comments=on)["columns"][4]["comment"] for on in (True, False)]
    assert comments == ["net", None]


def test_tables_of_a_database_ask_once_whether_it_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = ConnectorConfig.from_properties(PROPERTIES)
    matches = counted(monkeypatch, Expression, "fullmatch")
    assert all(cfg.captures(TableId("inventory", f"orders_{n}")) for n in range(50))
    assert not cfg.captures(TableId("elsewhere", "orders_1"))
    assert matches["fullmatch"] == 2


def test_a_list_forgets_names_before_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_mysql_cdc.cdc.config.parse_value._MATCH_CACHE_SIZE", 10)
    cfg = ConnectorConfig.from_properties(PROPERTIES | {"table.include.list": r"inventory\.orders_.*1"})
    found = [cfg.captures(TableId("inventory", f"orders_{n}")) for n in range(100)]
    assert found == [n % 10 == 1 for n in range(100)]
    from airflow_provider_mysql_cdc.cdc.config import fields as F

    assert len(cfg[F.TABLE_INCLUDE_LIST]._match_cache) <= 10


def test_columns_ask_no_rules_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    table = created(1)[0].tables[TableId("inventory", "orders_00000")]
    types = counted(monkeypatch, table_options, "type_expression")
    assert table_options.table_options(ConnectorConfig.from_properties(PROPERTIES), table).treatments == ()
    assert types["type_expression"] == 0
    narrowed = PROPERTIES | {"column.exclude.list": r"inventory\..*\.note"}
    assert table_options.table_options(ConnectorConfig.from_properties(narrowed), table).included == (
        "id",
        "state",
        "made",
    )
    assert types["type_expression"] == 0
    hidden = PROPERTIES | {"column.mask.with.3.chars": r"inventory\.orders_.*\.note"}
    found = table_options.table_options(ConnectorConfig.from_properties(hidden), table).treatments
    assert [name for name, _ in found] == ["note"]


def test_a_history_record_is_written_as_json_writes_it() -> None:
    _, changes = created(1)
    one = record(0, changes[0])
    plain = json.loads(one.to_bytes())
    assert one.to_bytes() == json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()
    assert plain["context"] == {"default_db": "inventory", "client_collation": 255, "server_collation": 255}
    strange = HistoryRecord(
        "shop", BinlogOffset("binlog.000001", 4), 1, 7, "", 'ALTER TABLE t COMMENT "\x01\x7f\u2028é\ud800"'
    )
    assert HistoryRecord.from_bytes(strange.to_bytes()) == strange
    whole = HistoryRecord(
        "shop", BinlogOffset("binlog.000001", 4), 1, 7, "", 'ALTER TABLE t COMMENT "\x01\x1f\x7f\u2028é\\"'
    )
    assert (
        whole.to_bytes() == json.dumps(json.loads(whole.to_bytes()), ensure_ascii=False, separators=(",", ":")).encode()
    )


def test_equal_sessions_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, changes = created(20)
    written = [record(n, change).to_bytes() for n, change in enumerate(changes)]
    history_record._cached_context.cache_clear()
    read = counted(monkeypatch, history_record, "_read_context")
    found = [HistoryRecord.from_bytes(data) for data in written]
    assert read["_read_context"] == 1
    assert found == [record(n, change) for n, change in enumerate(changes)]


def test_json_that_the_fast_reader_refuses_is_still_read() -> None:
    assert parse_json('{"a": "\\ud800", "b": 1}') == {"a": "\ud800", "b": 1}
    assert parse_json(b'{"a": [1, 2.5, null, "\xc3\xa9"]}') == {"a": [1, 2.5, None, "é"]}
    assert str(parse_json('{"a": NaN}')["a"]) == "nan"


def test_a_statement_about_very_many_tables_fits_into_a_history_record() -> None:
    """A broker takes a megabyte; what the statement changes is told by the statement."""
    ddl = "DROP TABLE " + ", ".join(f"orders_of_customers_in_region_{n:06d}" for n in range(10_000))
    gone = [apply_ddl(SchemaState(), "DROP TABLE orders", DdlContext(default_db="inventory")).changes[0]] * 10_000
    position = BinlogOffset("binlog.000001", 500, None, UUID)
    wide = HistoryRecord.of_statement(position, 1, 7, Query(ddl), gone, prefix="shop")
    assert len(wide.to_bytes()) < 500_000
    read = HistoryRecord.from_bytes(wide.to_bytes())
    assert (read.ddl, read.table_changes, read.identity()) == (ddl, (), wide.identity())
    few = HistoryRecord.of_statement(position, 1, 7, Query(ddl), gone[:2], prefix="shop")
    assert len(HistoryRecord.from_bytes(few.to_bytes()).table_changes) == 2
    told = HistoryRecord("shop", position, 1, 7, "inventory", "", table_changes=wide.table_changes)
    assert HistoryRecord.from_bytes(told.to_bytes()) == told


def test_records_of_one_statement_are_made_as_they_are_written() -> None:
    """Each names all tables: those of DROP TABLE of 5,000 tables take 760 MB."""
    made: list[int] = []

    def clock() -> int:
        made.append(1)
        return 7_000_000

    event: Any = SimpleNamespace(timestamp=7, file="binlog.000001", start_pos=4, server_id=1)
    at: Any = SimpleNamespace(commit_us=0, gtid=None, thread=0, query=None)
    ddl = "DROP TABLE " + ", ".join(f"t{n}" for n in range(50))
    gone = apply_ddl(SchemaState(), ddl, DdlContext(default_db="inventory")).changes
    records = schema_change.SchemaChangeFormat("shop", clock_ns=clock).stream_records(gone, event, at)
    assert next(records).value and len(made) == 1
    assert len(list(records)) == 49 and len(made) == 50
