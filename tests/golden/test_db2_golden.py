"""The Db2 contract comes from the same layer, by its own source block and names, and equals the seed's samples."""

from __future__ import annotations

import json
import re
import struct
from typing import Any

import pytest
from golden.contract_rig import context_of, parsed, streamed
from golden.golden_data import sample
from unit.decode_builder import one_text, one_value

from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.decode import wire_types as wt
from airflow_provider_mysql_cdc.cdc.decode.options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.emit.contracts import DB2_1_9, contract
from airflow_provider_mysql_cdc.cdc.emit.envelope import envelope_text
from airflow_provider_mysql_cdc.cdc.emit.plain_rows import EventFormat, RowChange
from airflow_provider_mysql_cdc.cdc.emit.source import source_block
from airflow_provider_mysql_cdc.cdc.emit.topic_names import topic_name
from airflow_provider_mysql_cdc.cdc.model.table import Column, Index, Table, TableId

# The statement is Db2's (IDENTITY); Db2's schema stands where MySQL has its database (DB2-01).
_TYPES = {"INTEGER": ("INT", None), "VARCHAR(255)": ("VARCHAR", 255)}
OPTIONS = DecoderOptions(contract="1.9", prefix="mydatabase")


def sample_table() -> Table:
    """Return the table of the seed's statement (EX-51)."""
    text: Any = sample("EX-51")
    name, body = re.fullmatch(r"CREATE TABLE (\w+) \((.*)\);", text).groups()  # type: ignore[union-attr]
    columns, primary, unique = [], [], []
    for position, definition in enumerate(re.split(r",\s+(?![^(]*\))", body), 1):
        column, declared, rest = definition.split(" ", 2)
        type_name, length = _TYPES[declared]
        charset = "utf8mb4" if type_name == "VARCHAR" else None
        nullable = "NOT NULL" not in rest
        columns.append(Column(column, position, type_name, length=length, nullable=nullable, charset=charset))
        if "PRIMARY KEY" in rest:
            primary.append(column)
        if "UNIQUE" in rest:
            unique.append(Index(column, (column,)))
    return Table(TableId("MYSCHEMA", name.upper()), tuple(columns), tuple(primary), tuple(unique))


def event_format(table: Table, options: DecoderOptions = OPTIONS, **more: Any) -> EventFormat:
    keys = table.key_columns() if options.key_columns is None else options.key_columns
    return EventFormat(DB2_1_9, envelope_text(table, options, connector="db2"), keys, **more)


def change_of(payload: dict[str, Any], **more: Any) -> RowChange:
    source = {k: v for k, v in payload["source"].items() if k not in ("version", "connector")}
    members = {**payload, "source": source, **more}
    return RowChange(members["op"], members["before"], members["after"], source, members["ts_ms"] * 1_000_000)


@pytest.mark.req("EX-20", "EX-21", "EX-51", "DB2-01", "DB2-02", "DB2-03", "DB2-04", "DB2-07", "DB2-08", "DB2-15")
@pytest.mark.req("DB2-09", "DB2-17")
def test_schemas_of_the_sample_table_equal_the_samples() -> None:
    text = event_format(sample_table()).text
    assert text.key_schema == dumps(sample("EX-20")["schema"])
    assert text.value_schema == dumps(sample("EX-21")["schema"])


@pytest.mark.req("EX-20", "EX-21", "EX-22", "EX-23", "DB2-05", "DB2-07", "DB2-13", "DB2-14", "DB2-16", "DIS-31")
@pytest.mark.parametrize("name", ["EX-21", "EX-22", "EX-23"])
def test_whole_events_equal_the_samples(name: str) -> None:
    """``source.name`` and the names of the schemas differ in the seed; both are taken as given."""
    theirs = sample(name)["payload"]
    records = event_format(sample_table()).records(change_of(theirs))
    key, value = records[0]
    assert dumps(parsed(value)["payload"]) == dumps(theirs)
    assert parsed(value)["schema"] == sample("EX-21")["schema"]
    assert parsed(key) == {"schema": sample("EX-20")["schema"], "payload": {"ID": 1005}}
    # A sentence of the seed has it that a tombstone's value is not null; it is.
    assert records[1:] == ([(key, None)] if name == "EX-23" else [])


@pytest.mark.req("DB2-06", "DB2-13", "EVT-27")
def test_a_snapshot_event_has_no_commit_lsn() -> None:
    theirs = sample("EX-21")["payload"]
    source = {**theirs["source"], "snapshot": True}
    del source["commit_lsn"]
    ((key, value),) = event_format(sample_table()).records(change_of(theirs | {"source": source, "op": "r"}))
    mine = parsed(value)["payload"]
    assert (mine["op"], mine["before"], mine["after"]) == ("r", None, theirs["after"])
    assert (mine["source"]["snapshot"], mine["source"]["commit_lsn"]) == (True, None)
    assert re.fullmatch(r"[0-9a-f]{8}:[0-9a-f]{8}:[0-9a-f]{4}", mine["source"]["change_lsn"])
    fields = {f["field"]: f for f in parsed(value)["schema"]["fields"][2]["fields"]}
    assert fields["commit_lsn"]["optional"] and fields["change_lsn"]["optional"] and key is not None


@pytest.mark.req("DB2-13", "EVT-22")
@pytest.mark.parametrize(("op", "members"), [("c", (0, 1)), ("u", (1, 1)), ("d", (1, 0)), ("r", (0, 1))])
def test_operations_have_the_images_they_should(op: str, members: tuple[int, int]) -> None:
    row = sample("EX-21")["payload"]["after"]
    before, after = (row if wanted else None for wanted in members)
    change = change_of(sample("EX-21")["payload"], op=op, before=before, after=after)
    mine = parsed(event_format(sample_table()).records(change)[0][1])["payload"]
    assert (mine["op"], mine["before"], mine["after"]) == (op, before, after)


@pytest.mark.req("DB2-12", "EVT-28", "EVT-31")
def test_a_key_change_is_a_delete_a_tombstone_and_a_create() -> None:
    theirs = sample("EX-22")["payload"]
    after = {**theirs["after"], "ID": 2000}
    made = event_format(sample_table())
    found = made.records(change_of(theirs, after=after))
    assert [parsed(key)["payload"]["ID"] for key, _ in found] == [1005, 1005, 2000]
    (gone, tombstone, created) = (value for _, value in found)
    assert (parsed(gone)["payload"]["op"], parsed(gone)["payload"]["before"]) == ("d", theirs["before"])
    assert tombstone is None
    assert (parsed(created)["payload"]["op"], parsed(created)["payload"]["after"]) == ("c", after)
    without = event_format(sample_table(), tombstones=False).records(change_of(theirs, after=after))
    assert [v for _, v in without] == [gone, created]


@pytest.mark.req("DB2-11", "EVT-08", "EVT-09")
def test_the_key_is_the_primary_key_else_the_unique_key_and_can_be_chosen() -> None:
    table, payload = sample_table(), sample("EX-21")["payload"]

    def key(table: Table, options: DecoderOptions = OPTIONS) -> Any:
        found = event_format(table, options).records(change_of(payload))[0][0]
        return found and parsed(found)["payload"]

    assert key(table) == {"ID": 1005}
    unique = Table(table.id, table.columns, (), table.unique_keys)
    assert key(unique) == {"EMAIL": "john.doe@example.org"}
    assert key(Table(table.id, table.columns)) is None, "without any key the event has none"
    chosen = DecoderOptions(contract="1.9", prefix="mydatabase", key_columns=("LAST_NAME", "FIRST_NAME"))
    assert key(table, chosen) == {"LAST_NAME": "doe", "FIRST_NAME": "john"}


@pytest.mark.req("DB2-10")
def test_names_keep_their_case() -> None:
    """Tables whose names differ in case only have topics, and schema names, of their own here."""
    lower, upper = TableId("MYSCHEMA", "customers"), TableId("MYSCHEMA", "CUSTOMERS")
    assert topic_name("mydatabase", upper) == "mydatabase.MYSCHEMA.CUSTOMERS"
    assert topic_name("mydatabase", lower) != topic_name("mydatabase", upper)
    table = sample_table()
    text = event_format(Table(lower, table.columns, table.primary_key)).text
    assert json.loads(text.key_schema or "")["name"] == "mydatabase.MYSCHEMA.customers.Key"


@pytest.mark.req("DB2-09")
def test_the_types_of_the_samples_are_read_alike_by_every_path() -> None:
    number, name = sample_table().columns[:2]
    assert (
        one_value(number, (wt.LONG, 0), struct.pack("<i", 1005), OPTIONS)
        == one_text(number, b"1005", OPTIONS)
        == "1005"
    )
    assert one_value(name, (wt.VARCHAR, 1020), b"\x04\0john", OPTIONS) == one_text(name, b"john", OPTIONS) == '"john"'


@pytest.mark.req("DB2-16")
@pytest.mark.parametrize("name", ["EX-21", "EX-22", "EX-23"])
def test_what_is_written_is_json_without_the_misprints(name: str) -> None:
    """The seed has commas before closing braces, and a brace too many."""
    for data in event_format(sample_table()).records(change_of(sample(name)["payload"])):
        for text in data:
            assert text is None or (json.loads(text) and not re.search(rb",\s*[}\]]", text))


@pytest.mark.req("DB2-17")
@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 1), (1, 0), (1, 2)])
@pytest.mark.parametrize("version", ["3.x", "1.9"])
def test_mysql_events_of_the_slow_path_equal_those_of_the_compiled_decoder(
    before: int, after: int, version: str
) -> None:
    table, options = sample_table(), DecoderOptions(contract=version, prefix="p")
    rows = [
        {"ID": n, "FIRST_NAME": "jöhn", "LAST_NAME": 'd"o', "EMAIL": f"{n}"} if n else None for n in (before, after)
    ]
    theirs = {"ts_ms": 1559729468470, "server_id": 1, "file": "b.000001", "pos": 4, "thread": 7, "query": None}
    block = source_block(table.id, prefix="p", version=version)
    fast = streamed_bytes(table, options, context_of(block, theirs | {"gtid": "u:1"}, 1559729471739), rows)
    us = theirs["ts_ms"] * 1000
    source = theirs | {
        "name": "p", "gtid": "u:1", "ts_us": us, "ts_ns": us * 1000, "db": table.id.db, "table": table.id.table,
        "row": 0, "snapshot": block.layout.snapshot_value("false"),
    }  # fmt: skip
    op = "u" if before and after else "c" if after else "d"
    slow = EventFormat(contract(version), envelope_text(table, options), table.key_columns())
    assert fast == slow.records(RowChange(op, *rows, source, 1559729471739_000_000))


def streamed_bytes(table: Table, options: DecoderOptions, ctx: Any, rows: list[Any]) -> list[Any]:
    return [(key, value) for key, value, *_ in streamed(table, options, ctx, *rows)]
