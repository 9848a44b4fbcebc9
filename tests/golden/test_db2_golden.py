"""The Db2 contract comes out of the decoders and schemas that MySQL's rows pass, and equals the seed's samples.

There is no connector for Db2 here: rows and places are written down below as a reader of Db2's log would hand them on.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import replace
from typing import Any

import pytest
from golden.contract_rig import parsed, read, streamed
from golden.golden_data import sample
from kit.decode_builder import one_text, one_value

from airflow_provider_mysql_cdc.cdc.convert.json_text import dumps
from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions, EventContext, UnnumberedRow
from airflow_provider_mysql_cdc.cdc.emit.envelope import envelope_text
from airflow_provider_mysql_cdc.cdc.emit.source_block import LsnPosition, fill_lsn, source_block
from airflow_provider_mysql_cdc.cdc.emit.topic_names import topic_name
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.records import RowRecord
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId, UniqueIndex

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
            unique.append(UniqueIndex(column, (column,)))
    return Table(TableId("MYSCHEMA", name.upper()), tuple(columns), tuple(primary), tuple(unique))


JOHN = {"ID": 1005, "FIRST_NAME": "john", "LAST_NAME": "doe", "EMAIL": "john.doe@example.org"}
MOVED = JOHN | {"EMAIL": "noreply@example.org"}
Row = dict[str, Any] | None
# Row before, row after, place in the log, and the time of handling in milliseconds.
CHANGES: dict[str, tuple[Row, Row, LsnPosition, int]] = {
    "EX-21": (
        None,
        JOHN,
        LsnPosition(1559729468470_000, "00000027:00000758:0003", "00000027:00000758:0005"),
        1559729471739,
    ),
    "EX-22": (
        JOHN,
        MOVED,
        LsnPosition(1559729995937_000, "00000027:00000ac0:0002", "00000027:00000ac0:0007"),
        1559729998706,
    ),
    "EX-23": (
        MOVED,
        None,
        LsnPosition(1559730445243_000, "00000027:00000db0:0005", "00000027:00000db0:0007"),
        1559730450205,
    ),
}
PLACE = CHANGES["EX-21"][2]


def context_at(table: Table, place: LsnPosition, ms: int = 0, marker: str = "false") -> EventContext:
    """Return what the records of a row at a place have in common.

    ``source.name`` and the names of the schemas differ in the seed; both are taken as given (DB2-14).
    """
    block = source_block(table.id, prefix="myconnector", version="1.9", connector="db2", database="mydatabase")
    ctx = EventContext()
    fill_lsn(ctx, block, place, marker)
    ctx.tail = block.op_tail(ms * 1_000_000)
    return ctx


def records(
    before: Row,
    after: Row,
    place: LsnPosition = PLACE,
    ms: int = 0,
    *,
    table: Table | None = None,
    options: DecoderOptions = OPTIONS,
) -> list[RowRecord]:
    """Return the records of one streamed change."""
    table = table or sample_table()
    texts = envelope_text(table, options, connector="db2")
    return streamed(table, options, context_at(table, place, ms), before, after, texts)


def snapshot_record(row: dict[str, Any], place: LsnPosition, marker: str = "true") -> RowRecord:
    """Return the record of a row that a snapshot read."""
    table = sample_table()
    texts = envelope_text(table, OPTIONS, connector="db2")
    return read(table, OPTIONS, context_at(table, place, marker=marker), [str(v).encode() for v in row.values()], texts)


@pytest.mark.req("EX-20", "EX-21", "EX-51", "DB2-01", "DB2-02", "DB2-03", "DB2-04", "DB2-07", "DB2-08", "DB2-15")
@pytest.mark.req("DB2-09", "DB2-17")
def test_schemas_of_the_sample_table_equal_the_samples() -> None:
    text = envelope_text(sample_table(), OPTIONS, connector="db2")
    assert text.key_schema == dumps(sample("EX-20")["schema"])
    assert text.value_schema == dumps(sample("EX-21")["schema"])


@pytest.mark.req("EX-20", "EX-21", "EX-22", "EX-23", "DB2-05", "DB2-07", "DB2-13", "DB2-14", "DB2-16", "DIS-31")
@pytest.mark.parametrize("name", sorted(CHANGES))
def test_whole_events_equal_the_samples(name: str) -> None:
    (key, value, *_), *rest = records(*CHANGES[name])
    assert value == dumps({"schema": sample("EX-21")["schema"], "payload": sample(name)["payload"]}).encode()
    assert key == dumps({"schema": sample("EX-20")["schema"], "payload": {"ID": 1005}}).encode()
    # A sentence of the seed has it that a tombstone's value is not null; it is.
    assert [record[:2] for record in rest] == ([(key, None)] if name == "EX-23" else [])


@pytest.mark.req("DB2-06", "DB2-13", "EVT-27")
def test_a_snapshot_event_has_no_commit_lsn() -> None:
    key, value, *_ = snapshot_record(JOHN, LsnPosition(PLACE.commit_us, PLACE.change_lsn, None))
    mine = parsed(value)["payload"]
    assert (mine["op"], mine["before"], mine["after"]) == ("r", None, JOHN)
    assert mine["source"] == sample("EX-21")["payload"]["source"] | {"snapshot": True, "commit_lsn": None}
    fields = {f["field"]: f for f in parsed(value)["schema"]["fields"][2]["fields"]}
    assert fields["commit_lsn"]["optional"] and fields["change_lsn"]["optional"]
    assert parsed(key)["payload"] == {"ID": 1005}


@pytest.mark.req("DB2-13", "EVT-22")
@pytest.mark.parametrize(("op", "before", "after"), [("c", None, JOHN), ("u", JOHN, MOVED), ("d", JOHN, None)])
def test_operations_have_the_images_they_should(op: str, before: Row, after: Row) -> None:
    mine = parsed(records(before, after)[0][1])["payload"]
    assert (mine["op"], mine["before"], mine["after"]) == (op, before, after)


@pytest.mark.req("DB2-12", "EVT-28", "EVT-31")
def test_a_key_change_is_a_delete_a_tombstone_and_a_create() -> None:
    after = JOHN | {"ID": 2000}
    found = records(JOHN, after)
    assert [parsed(record[0])["payload"]["ID"] for record in found] == [1005, 1005, 2000]
    gone, tombstone, created = (record[1] for record in found)
    assert (parsed(gone)["payload"]["op"], parsed(gone)["payload"]["before"]) == ("d", JOHN)
    assert tombstone is None
    assert (parsed(created)["payload"]["op"], parsed(created)["payload"]["after"]) == ("c", after)
    assert parsed(gone)["payload"]["source"] == parsed(created)["payload"]["source"]
    without = records(JOHN, after, options=replace(OPTIONS, tombstones=False))
    assert [record[1] for record in without] == [gone, created]


@pytest.mark.req("DB2-11", "EVT-08", "EVT-09")
def test_the_key_is_the_primary_key_else_the_unique_key_and_can_be_chosen() -> None:
    table = sample_table()

    def key(table: Table, options: DecoderOptions = OPTIONS) -> Any:
        found = records(None, JOHN, table=table, options=options)[0][0]
        return found and parsed(found)["payload"]

    assert key(table) == {"ID": 1005}
    unique = Table(table.id, table.columns, (), table.unique_keys)
    assert key(unique) == {"EMAIL": "john.doe@example.org"}
    assert key(Table(table.id, table.columns)) is None, "without any key the event has none"
    assert key(table, replace(OPTIONS, key_columns=("LAST_NAME", "FIRST_NAME"))) == {
        "LAST_NAME": "doe",
        "FIRST_NAME": "john",
    }


@pytest.mark.req("DB2-10")
def test_events_of_tables_with_one_topic_name_their_table() -> None:
    """Db2's quoted names may hold what topics cannot, so that two tables come to one topic; case alone divides."""
    names = ("MY TABLE", "MY_TABLE", "my_table")
    tables = [replace(sample_table(), id=TableId("MYSCHEMA", name)) for name in names]
    first, second, other = (topic_name("mydatabase", table.id) for table in tables)
    assert first == second == "mydatabase.MYSCHEMA.MY_TABLE" != other
    told = [parsed(records(None, JOHN, table=table)[0][1])["payload"]["source"]["table"] for table in tables]
    assert told == list(names)


@pytest.mark.req("DB2-09")
def test_every_path_reads_the_types_of_the_samples_in_the_same_way() -> None:
    number, name = sample_table().columns[:2]
    assert (
        one_value(number, (wt.LONG, 0), struct.pack("<i", 1005), OPTIONS)
        == one_text(number, b"1005", OPTIONS)
        == "1005"
    )
    assert one_value(name, (wt.VARCHAR, 1020), b"\x04\0john", OPTIONS) == one_text(name, b"john", OPTIONS) == '"john"'


@pytest.mark.req("DB2-16")
@pytest.mark.parametrize("name", sorted(CHANGES))
def test_what_is_written_is_json_without_the_misprints(name: str) -> None:
    """The seed has commas before closing braces, and a brace too many."""
    for key, value, *_ in records(*CHANGES[name]):
        for text in (key, value):
            assert text is None or (json.loads(text) and not re.search(rb",\s*[}\]]", text))


@pytest.mark.req("DB2-17")
def test_rows_that_are_not_numbered_are_counted() -> None:
    row = UnnumberedRow(3)
    assert (f"{row}", f"{row + 1}", row + 1 - row) == ("", "", 1)
