"""Row images that leave columns out, and partial JSON updates."""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import replace
from typing import Any

import pytest
from kit.cases import for_each
from kit.decode_builder import DEFAULT, column, context, table, table_map
from kit.json_builder import change, document

from airflow_provider_mysql_cdc.cdc.decode.codegen.decoder_options import DecoderOptions
from airflow_provider_mysql_cdc.cdc.decode.codegen.emitter import MAX_BITMAPS
from airflow_provider_mysql_cdc.cdc.decode.decoders import compile_decoder
from airflow_provider_mysql_cdc.cdc.decode.row_decoder import RowDecoder
from airflow_provider_mysql_cdc.cdc.decode.values.json_diff import REMOVE, REPLACE
from airflow_provider_mysql_cdc.cdc.emit.envelope import envelope_text
from airflow_provider_mysql_cdc.cdc.errors import ValueDecodeError
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.column_rule import ColumnTreatment, ValueChange, ValueChangeKind

PLACEHOLDER = "__debezium_unavailable_value"
T = table(
    column("id", "INT", nullable=False),
    column("n", "INT"),
    column("name", "VARCHAR", length=20, charset="utf8mb4"),
    column("body", "BLOB", nullable=False),
    column("doc", "JSON"),
    key=("id",),
)
MAP = table_map((wt.LONG, 0), (wt.LONG, 0), (wt.VARCHAR, 80), (wt.BLOB, 2), (wt.JSON, 4))
FULL = (0, 1, 2, 3, 4)


def decoder(options: DecoderOptions = DEFAULT, made: Any = T, wires: Any = MAP) -> RowDecoder:
    return compile_decoder(made, wires, options, envelope_text(made, options, key=False, value=False))


def encode(index: int, value: Any) -> bytes:
    if index < 2:
        return struct.pack("<i", value)
    data = value if isinstance(value, bytes) else value.encode()
    return len(data).to_bytes((1, 2, 4)[index - 2], "little") + data


def bitmap(indexes: tuple[int, ...], width: int = 5) -> bytes:
    return sum(1 << i for i in indexes).to_bytes((width + 7) // 8, "little")


def image(values: dict[int, Any]) -> bytes:
    """Return an image of these columns; None is NULL."""
    nulls = sum(1 << n for n, value in enumerate(values.values()) if value is None)
    head = nulls.to_bytes((len(values) + 7) // 8, "little")
    return head + b"".join(encode(i, v) for i, v in values.items() if v is not None)


def run(made: RowDecoder, kind: str, rows: list[Any], present: list[tuple[int, ...]]) -> list[Any]:
    head = b"".join(map(bitmap, present))
    buf = b"head" + head + b"".join(rows) + b"tail"
    out: list[Any] = []
    count = getattr(made, kind)(buf, 4 + len(head), len(buf) - 4, context(), out)
    assert count <= len(rows)
    return out


def update(before: dict[int, Any], after: dict[int, Any], options: DecoderOptions = DEFAULT, **more: Any) -> list[Any]:
    rows = [image(before) + image(after)]
    return run(decoder(options, **more), "update", rows, [tuple(before), tuple(after)])


def payload(record: Any) -> Any:
    return json.loads(record[1])


def images(record: Any) -> tuple[Any, Any]:
    value = payload(record)
    return value["before"], value["after"]


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# -- what stands for an absent column -------------------------------------------------------------------------------


@pytest.mark.req("SETUP-17")
def test_the_after_image_takes_unchanged_columns_from_the_before_image() -> None:
    before = {0: 1, 1: 5, 2: "x", 4: document({"a": 1})}
    (record,) = update(before, {1: 6, 3: b"new"})
    assert record[0] == b'{"id":1}'
    assert payload(record)["op"] == "u"
    assert images(record) == (
        {"id": 1, "n": 5, "name": "x", "body": b64(PLACEHOLDER), "doc": '{"a":1}'},
        {"id": 1, "n": 6, "name": "x", "body": b64("new"), "doc": '{"a":1}'},
    )


def test_null_is_taken_over_as_null_and_not_as_absent() -> None:
    (record,) = update({0: 1, 1: None, 2: None, 3: b"", 4: None}, {2: "y"})
    assert images(record)[1] == {"id": 1, "n": None, "name": "y", "body": "", "doc": None}


@pytest.mark.req("SETUP-17")
def test_text_binary_and_json_columns_hold_the_placeholder() -> None:
    (record,) = update({0: 1}, {1: 6})
    held = {"name": PLACEHOLDER, "body": b64(PLACEHOLDER), "doc": PLACEHOLDER}
    assert images(record) == ({"id": 1, "n": None, **held}, {"id": 1, "n": 6, **held})


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("base64", b64(PLACEHOLDER)),
        ("base64-url-safe", b64(PLACEHOLDER)),
        ("hex", PLACEHOLDER.encode().hex()),
    ],
)
def test_the_placeholder_of_binary_columns_is_written_as_their_values_are(mode: str, text: str) -> None:
    (record,) = update({0: 1}, {1: 6}, replace(DEFAULT, binary_mode=mode))
    assert images(record)[1]["body"] == text


def test_the_placeholder_can_be_chosen_also_as_bytes() -> None:
    (record,) = update({0: 1}, {1: 6}, replace(DEFAULT, unavailable='n"a'))
    assert images(record)[1]["name"] == 'n"a'
    (record,) = update({0: 1}, {1: 6}, replace(DEFAULT, unavailable="hex:4142ff"))
    assert images(record)[1]["body"] == base64.b64encode(b"AB\xff").decode()


def test_an_unknown_number_in_an_after_image_stops_with_place_table_column_and_row() -> None:
    rows = [image({0: 1}) + image({1: 5, 2: "a"}), image({0: 7}) + image({1: 5, 2: "b"})]
    assert len(run(decoder(), "update", rows, [(0,), (1, 2)])) == 2
    rows = [image({0: 1}) + image({2: "a"})]
    with pytest.raises(ValueDecodeError, match=r"column n of table db\.t") as caught:
        run(decoder(), "update", rows, [(0,), (2,)])
    assert caught.value.where == "binlog.000001:4, table db.t, row 0, key id=1"
    assert "leaves the column out" in caught.value.why and "binlog_row_image" in caught.value.remedy


def test_null_stands_for_an_unknown_number_when_asked_for_and_allowed() -> None:
    options = replace(DEFAULT, unavailable_as_null=True)
    (record,) = update({0: 1}, {2: "a"}, options)
    assert images(record)[1]["n"] is None
    made = table(*(replace(c, nullable=False) for c in T.columns), key=("id",))
    with pytest.raises(ValueDecodeError, match="column n "):
        update({0: 1}, {2: "a"}, options, made=made)


def test_a_before_image_with_an_untellable_column_is_null_as_a_whole() -> None:
    made = table(*(replace(c, nullable=False) for c in T.columns), key=("id",))
    (record,) = update({0: 1}, {1: 6}, made=made)
    assert images(record)[0] is None and images(record)[1]["n"] == 6
    deleted, tombstone = run(decoder(made=made), "delete", [image({0: 1})], [(0,)])
    assert payload(deleted)["before"] is None and deleted[0] == tombstone[0] == b'{"id":1}'


@pytest.mark.req("EVT-24", "EVT-31")
def test_a_delete_has_its_key_and_a_tombstone() -> None:
    records = run(decoder(), "delete", [image({0: 1}), image({0: 2})], [(0,)])
    assert [(r[0], r[2], r[3]) for r in records] == [
        (b'{"id":1}', 0, 0), (b'{"id":1}', 0, 1), (b'{"id":2}', 1, 0), (b'{"id":2}', 1, 1)
    ]  # fmt: skip
    assert payload(records[0])["before"]["name"] == PLACEHOLDER and payload(records[0])["after"] is None
    quiet = run(decoder(replace(DEFAULT, tombstones=False)), "delete", [image({0: 1})], [(0,)])
    assert len(quiet) == 1


@pytest.mark.req("EVT-28", "EVT-29")
def test_a_changed_key_gives_delete_tombstone_and_create_with_complete_keys() -> None:
    records = update({0: 1}, {0: 11, 1: 2})
    assert [(r[0], r[3]) for r in records] == [(b'{"id":1}', 0), (b'{"id":1}', 1), (b'{"id":11}', 2)]
    assert payload(records[2])["after"]["id"] == 11


def test_a_key_column_that_is_absent_stops() -> None:
    options = replace(DEFAULT, key_columns=("n",))
    with pytest.raises(ValueDecodeError, match="column n "):
        update({0: 1}, {2: "a"}, options)


# -- inserts --------------------------------------------------------------------------------------------------------


def test_an_insert_holds_the_defaults_that_the_server_stored() -> None:
    made = table(
        column("id", "INT", nullable=False),
        column("n", "INT", has_default=True, default="6.9", stored_default="7"),
        column("name", "VARCHAR", length=20, charset="utf8mb4", nullable=False, default="ü", stored_default="ü"),
        column("body", "BLOB"),
        column("doc", "JSON"),
        key=("id",),
    )
    (record,) = run(decoder(made=made), "write", [image({0: 1})], [(0,)])
    assert payload(record)["after"] == {"id": 1, "n": 7, "name": "ü", "body": None, "doc": None}
    assert payload(record)["before"] is None and payload(record)["op"] == "c"


@pytest.mark.parametrize(
    "more",
    [
        {"nullable": False},
        {"has_default": True, "default": "(rand())", "default_is_expression": True},
        {"generated": True},
        {"has_default": True, "default": "7"},
    ],
)
def test_what_an_insert_stored_is_not_guessed(more: dict[str, Any]) -> None:
    made = table(T.columns[0], replace(column("n", "INT"), **more), *T.columns[2:], key=("id",))
    with pytest.raises(ValueDecodeError, match="column n "):
        run(decoder(made=made), "write", [image({0: 1, 2: "a", 3: b"", 4: None})], [(0, 2, 3, 4)])


# -- together with other settings -----------------------------------------------------------------------------------


def treated(name: str, rule: ValueChange) -> DecoderOptions:
    return replace(DEFAULT, treatments=((name, ColumnTreatment(change=rule)),))


def test_masks_and_cuts_apply_to_values_taken_over_but_not_to_the_placeholder() -> None:
    masked = treated("name", ValueChange(ValueChangeKind.CONSTANT, text="***"))
    (record,) = update({0: 1, 2: "secret"}, {1: 6}, masked)
    assert images(record)[0]["name"] == images(record)[1]["name"] == "***"
    cut = treated("name", ValueChange(ValueChangeKind.TRUNCATE_TEXT, length=3))
    (record,) = update({0: 1, 2: "secret"}, {1: 6}, cut)
    assert images(record)[1]["name"] == "sec"
    (record,) = update({0: 1}, {1: 6}, cut)
    assert images(record)[1]["name"] == PLACEHOLDER


def test_a_column_left_out_of_events_need_not_be_known() -> None:
    options = replace(DEFAULT, included=("id", "name"))
    (record,) = update({0: 1}, {2: "a"}, options)
    assert images(record)[1] == {"id": 1, "name": "a"}


def test_skipped_operations_are_skipped() -> None:
    assert update({0: 1}, {2: "a"}, replace(DEFAULT, skipped_ops=frozenset({"u"}))) == []


def test_more_combinations_of_nulls_than_have_code_of_their_own() -> None:
    columns = [column("id", "INT", nullable=False), *(column(f"c{i}", "INT") for i in range(1, 10))]
    made = table(*columns, key=("id",))
    wires = table_map(*[(wt.LONG, 0)] * 10)
    rows, expected = [], []
    present = tuple(range(9))
    for mask in range(MAX_BITMAPS * 4):
        values: dict[int, Any] = {0: mask} | {i: None if mask >> i - 1 & 1 else i for i in range(1, 9)}
        nulls = sum(1 << n for n, v in enumerate(values.values()) if v is None)
        data = b"".join(struct.pack("<i", v) for v in values.values() if v is not None)
        rows.append(nulls.to_bytes(2, "little") + data + b"\0" + struct.pack("<i", -mask))
        expected.append({"id": mask, **{f"c{i}": values[i] for i in range(1, 9)}, "c9": -mask})
    head = bitmap(present, 10) + bitmap((9,), 10)
    buf = head + b"".join(rows)
    out: list[Any] = []
    decoder(made=made, wires=wires).update(buf, len(head), len(buf), context(), out)
    assert [payload(r)["after"] for r in out] == expected


def test_a_value_that_cannot_be_decoded_is_named_with_its_row() -> None:
    rows = [image({0: 1}) + image({1: 1}), image({0: 2}) + image({1: 1})]
    assert len(run(decoder(), "update", rows, [(0,), (1,)])) == 2
    rows = [image({0: 1, 2: "ok"}), image({0: 2, 2: b"\xff\xfe"})]
    with pytest.raises(ValueDecodeError, match="column name") as caught:
        run(decoder(), "delete", rows, [(0, 2)])
    assert caught.value.where == "binlog.000001:4, table db.t, row 1, key id=2"
    assert "UnicodeDecodeError" in caught.value.why


@for_each("cut", range(1, 9))
def test_a_row_that_ends_too_early_is_never_taken_for_a_row(cut: int) -> None:
    rows = [(image({0: 1, 2: "abc"}) + image({1: 5, 2: "x"}))[:-cut]]
    with pytest.raises(ValueDecodeError, match="row 0"):
        run(decoder(), "update", rows, [(0, 2), (1, 2)])


# -- partial JSON ---------------------------------------------------------------------------------------------------


def partial(before: dict[int, Any], options: bytes, after: dict[int, Any], made: RowDecoder | None = None) -> list[Any]:
    rows = [image(before) + options + image(after)]
    return run(made or decoder(), "partial_update", rows, [tuple(before), tuple(after)])


def full(doc: Any, n: int = 1) -> dict[int, Any]:
    return {0: 1, 1: n, 2: "x", 3: b"", 4: doc}


def test_the_change_is_applied_to_the_document_of_the_before_image() -> None:
    diff = change(REPLACE, "$.a", [1.5 and 2, 'q"ü']) + change(REMOVE, "$.b")
    (record,) = partial(full(document({"a": 1, "b": 2})), b"\x01\x01", full(diff, 9))
    assert images(record)[0]["doc"] == '{"a":1,"b":2}'
    assert images(record)[1] == {"id": 1, "n": 9, "name": "x", "body": "", "doc": '{"a":[2,"q\\"ü"]}'}


def test_a_document_logged_whole_in_a_partial_update() -> None:
    for options in (b"\x00", b"\x01\x00"):
        (record,) = partial(full(document({"a": 1})), options, full(document([7])))
        assert images(record)[1]["doc"] == "[7]"
    (record,) = partial(full(document({"a": 1})), b"\x01\x00", full(None))
    assert images(record)[1]["doc"] is None


def test_an_empty_change_leaves_the_document_as_it_was() -> None:
    (record,) = partial(full(document({"a": 1})), b"\x01\x01", full(b""))
    assert images(record)[1]["doc"] == '{"a":1}'


def test_bits_stand_for_json_columns_only_and_for_absent_ones_too() -> None:
    columns = [T.columns[0], *(column(f"j{i}", "JSON") for i in range(1, 10))]
    made = decoder(made=table(*columns, key=("id",)), wires=table_map((wt.LONG, 0), *[(wt.JSON, 4)] * 9))
    before = {0: 1} | {i: document([i]) for i in range(1, 10)}
    diff = change(REPLACE, "$[0]", "new")

    def json_image(values: dict[int, Any]) -> bytes:
        data = b"".join(struct.pack("<i", v) if i == 0 else len(v).to_bytes(4, "little") + v for i, v in values.items())
        return bytes((len(values) + 7) // 8) + data

    row = json_image(before) + b"\x01" + (0b1_0000_0001).to_bytes(2, "little") + json_image({9: diff})
    head = bitmap(tuple(range(10)), 10) + bitmap((9,), 10)
    out: list[Any] = []
    made.partial_update(head + row, len(head), len(head + row), context(), out)
    assert images(out[0])[1] == {"id": 1, **{f"j{i}": f"[{i}]" for i in range(1, 9)}, "j9": '["new"]'}


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ({0: 1}, "before image does not contain"),
        (full(None), "before image does not contain"),
        (full(document({"b": 1})), "does not have"),
    ],
)
def test_a_change_without_its_document_stops_and_names_the_column(before: dict[int, Any], why: str) -> None:
    with pytest.raises(ValueDecodeError, match=r"column doc of table db\.t") as caught:
        partial(before, b"\x01\x01", full(change(REPLACE, "$.a", 1)))
    assert why in caught.value.why and caught.value.where.endswith("row 0, key id=1")


def test_an_unknown_value_option_stops() -> None:
    with pytest.raises(ValueDecodeError, match="value options 0x2"):
        partial(full(document({"a": 1})), b"\x02", full(document({"a": 1})))


def test_documents_that_events_do_not_show_are_not_computed() -> None:
    made = decoder(replace(DEFAULT, included=("id", "n")))
    (record,) = partial(full(None), b"\x01\x01", full(b"\x09broken", 3), made)
    assert images(record)[1] == {"id": 1, "n": 3}


@pytest.mark.req("EVT-28")
def test_a_key_change_in_a_partial_update() -> None:
    after = full(change(REPLACE, "$.a", 2)) | {0: 11}
    records = partial(full(document({"a": 1})), b"\x01\x01", after)
    assert [r[0] for r in records] == [b'{"id":1}', b'{"id":1}', b'{"id":11}']
    assert payload(records[2])["after"]["doc"] == '{"a":2}'
