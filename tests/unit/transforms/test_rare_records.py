"""Records on which Debezium's transforms do what one does not expect; each was run through those of 3.6.1."""

from __future__ import annotations

from typing import Any

import pytest
from kit.cases import for_each
from kit.chain_records import event, made, record

from airflow_provider_mysql_cdc.cdc.transforms.known_transforms import DEBEZIUM
from airflow_provider_mysql_cdc.cdc.transforms.record_schema import (
    OPTIONAL_INT32,
    OPTIONAL_STRING,
    STRING,
    RecordSchema,
    TransformFault,
    struct_of,
)
from airflow_provider_mysql_cdc.cdc.transforms.transform import ChainHeader, ChainRecord
from airflow_provider_mysql_cdc.cdc.transforms.value_text import value_text

pytestmark = pytest.mark.quick
DEFAULTED = RecordSchema("string", True, "dflt")
BITS = RecordSchema("bytes", True, name="io.debezium.data.Bits", version=1)
ROW = struct_of(("id", OPTIONAL_INT32), ("k", DEFAULTED), ("b", BITS), optional=True, name="x.Value")
KEY = struct_of(("id", OPTIONAL_INT32), ("k", DEFAULTED))
UNWRAP, OUTBOX = f"{DEBEZIUM}ExtractNewRecordState", f"{DEBEZIUM}outbox.EventRouter"
PLAIN = {"id": 1, "k": None, "b": b"\x01"}


@for_each(
    ("images", "told"),
    [(("before",), "Unknown field: after"), ((), "Unknown field: after"), (("after",), "field: before")],
)
def test_an_event_that_has_lost_its_images_stops_the_stream(images: tuple[str, ...], told: str) -> None:
    schema = struct_of(*((image, ROW) for image in images), name="x.Envelope")
    given = ChainRecord("t", None, None, None, schema, dict.fromkeys(images))
    with pytest.raises(TransformFault, match=told):
        made(UNWRAP).apply(given)


@for_each(
    ("op", "mode", "more", "topic"),
    [
        ("c", "tombstone", {}, "t"),
        ("d", "tombstone", {}, "t"),
        ("c", "rewrite", {}, "dflt"),
        ("d", "rewrite", {}, "t"),
        ("c", "rewrite", {"replace__null__with__default": "false"}, "t"),
    ],
    ids=str,
)
def test_a_topic_by_a_column_is_that_of_the_row_that_is_written(
    op: str, mode: str, more: dict[str, str], topic: str
) -> None:
    unwrap = made(UNWRAP, route__by__field="k", delete__tombstone__handling__mode=mode, **more)
    out = unwrap.apply(event(ROW, op, **{"after" if op == "c" else "before": PLAIN}))
    assert out is not None and out.topic == topic


def test_structs_of_an_event_can_be_headers_but_no_fields() -> None:
    out = made(UNWRAP, add__headers="source,before,after,op:,source.table:t").apply(event(ROW, after=PLAIN))
    assert out is not None
    texts = {header.name: value_text(header.schema, header.value) for header in out.headers}
    after = '{"id":1,"k":"dflt","b":"AQ=="}'
    assert texts == {"__source": '{"table":"t"}', "__before": "null", "__after": after, "__op": "c", "__t": "t"}
    for option, told in (("add__fields", "do not match"), ("add__headers", "not a struct")):
        entries = "source" if option == "add__fields" else "op.x"
        with pytest.raises(TransformFault, match=told):
            made(UNWRAP, **{option: entries}).apply(event(ROW, after=PLAIN))
    out = made(UNWRAP, add__fields="before").apply(event(ROW, after=PLAIN))
    assert out is not None and out.value_schema is not None
    added = out.value_schema.by_name["__before"].schema
    assert (added.name, added.fields, out.value["__before"]) == ("x.Value", (), None)


@for_each(
    ("op", "mode", "compatible", "dropped", "key", "value"),
    [
        ("d", "delete-to-tombstone", "false", ["k"], {"id": 1}, None),
        ("d", "delete-to-tombstone", "true", ["k"], None, None),
        ("d", "tombstone", "true", ["k"], {"id": 1}, None),
        ("c", "tombstone", "false", ["id"], {"k": "kk"}, {"k": "dflt", "b": b"\x01"}),
        ("c", "tombstone", "false", ["nothing"], {"id": 1, "k": "kk"}, {"id": 1, "k": "dflt", "b": b"\x01"}),
        ("c", "tombstone", "true", ["nothing"], {"id": 1, "k": "kk"}, PLAIN),
        ("c", "tombstone", "true", "", None, None),
    ],
    ids=str,
)
def test_fields_that_a_header_lists_are_left_out(
    op: str, mode: str, compatible: str, dropped: Any, key: Any, value: Any
) -> None:
    options = {"drop__fields__keep__schema__compatible": compatible, "drop__fields__from__key": "true"}
    unwrap = made(UNWRAP, delete__tombstone__handling__mode=mode, drop__fields__header__name="no", **options)
    given = event(ROW, op, **{"after" if op == "c" else "before": PLAIN})
    given.set_key(KEY, {"id": 1, "k": "kk"}).headers.append(ChainHeader("no", None, dropped))
    if key is None:
        with pytest.raises(TransformFault, match="header no"):
            unwrap.apply(given)
        return
    out = unwrap.apply(given)
    assert out is not None and (out.key, out.value) == (key, value)


def test_bits_count_as_changed_because_java_compares_no_arrays() -> None:
    names = {"header__changed__name": "C", "header__unchanged__name": "U"}
    for old, listed in (({**PLAIN}, (["b"], ["id", "k"])), ({**PLAIN, "b": None}, (["b"], ["id", "k"]))):
        out = made(f"{DEBEZIUM}ExtractChangedRecordState", **names).apply(event(ROW, "u", before=old, after=PLAIN))
        assert out is not None and tuple(header.value for header in out.headers) == listed
    nothing = {**PLAIN, "b": None}
    out = made(f"{DEBEZIUM}ExtractChangedRecordState", **names).apply(event(ROW, "u", before=nothing, after=nothing))
    assert out is not None and out.headers[0].value == []


OUTBOX_ROW = struct_of(
    ("id", STRING), ("aggregateid", DEFAULTED), ("aggregatetype", DEFAULTED), ("payload", OPTIONAL_STRING),
    ("at", RecordSchema("int64", True, 123, "io.debezium.time.Timestamp")), ("p", RecordSchema("int32", True, 3)),
    optional=True,
)  # fmt: skip


def outbox(payload: str, routed: str | None = "T", **options: str) -> ChainRecord | None:
    """Return what the outbox router makes of a row whose other columns are NULL."""
    row = {"id": "i", "aggregateid": None, "aggregatetype": routed, "payload": payload, "at": None, "p": None}
    return made(OUTBOX, **options).apply(event(OUTBOX_ROW, after=row))


def test_null_of_a_column_that_routes_is_no_default() -> None:
    placed = {"table__fields__additional__placement": "p:partition,p:header:ph"}
    out = outbox("x", table__field__event__timestamp="at", **placed)
    assert out is not None
    assert (out.topic, out.partition, out.timestamp, out.key) == ("outbox.event.T", None, None, "dflt")
    assert [(header.name, header.value) for header in out.headers] == [("id", "i"), ("ph", 3)]
    with pytest.raises(TransformFault, match="aggregatetype is NULL"):
        outbox("x", None)


@for_each(("payload", "value"), [("", None), (" \x01", None), ("\xa0", "\xa0"), ("\u2003", "\u2003")], ids=ascii)
def test_payloads_are_empty_as_java_trims_them(payload: str, value: str | None) -> None:
    out = outbox(payload, route__tombstone__on__empty__payload="true")
    assert out is not None and out.value == value


@for_each(
    ("payload", "kind", "value"),
    [
        ('{"x":[{"a":1},{"a":5000000000}]}', "struct", None),
        ('{"x":[{"a":1},{"a":1.5}]}', "struct", None),
        ('{"x":[{"a":1},{"a":"s"}]}', "struct", None),
        ('{"x":[{"a":[]},{"a":1}]}', "struct", None),
        ('{"x":[{"a":1},{"b":2},null]}', "struct", None),
        ('{"x":[[1],["a"]]}', "struct", None),
        ('{"":1}', "string", None),
        ('{"x":[{"a":1},null]}', "struct", {"x": [{"a": 1}, None]}),
        ('{"x":[[1],[]]}', "struct", {"x": [[1], []]}),
        ('{"x":[{"a":null},{"a":1}]}', "struct", {"x": [{"a": None}, {"a": 1}]}),
        ('{"":null,"x":1,"x":"s"}{', "struct", {"x": "s"}),
    ],
    ids=str,
)
def test_json_becomes_a_struct_only_where_each_member_fits(payload: str, kind: str, value: Any) -> None:
    out = outbox(payload, table__expand__json__payload="true", table__json__payload__null__behavior="ignore")
    assert out is not None and out.value_schema is not None
    assert (out.value_schema.type, out.value) == (kind, payload if value is None else value)


@for_each(
    ("text", "shifted"),
    [
        ("2024-02-29T12:34:56.120+02:00", "2024-02-29T11:34:56.12+01:00"),
        ("2024-02-29T12:34:00.000Z", "2024-02-29T13:34:00+01:00"),
        ("2024-03-31T02:30:00.000001Z", "2024-03-31T03:30:00.000001+01:00"),
    ],
)
def test_times_of_any_zone_are_shifted(text: str, shifted: str) -> None:
    row = struct_of(("z", OPTIONAL_STRING.renamed("io.debezium.time.ZonedTimestamp", 1)), optional=True)
    lists = {"include__list": "topic:t, source"}
    for more in ({}, lists):
        out = made(f"{DEBEZIUM}TimezoneConverter", converted__timezone="Europe/Berlin", **more).apply(
            event(row, after={"z": text})
        )
        assert out is not None and out.value["after"]["z"] == shifted


@for_each("zone", ["+08:75", "-01:00:60", "+1:00", "PST"])
def test_zones_that_java_does_not_know_are_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="must be a zone"):
        made(f"{DEBEZIUM}TimezoneConverter", converted__timezone=zone)


def test_a_header_replaces_a_field_only_of_its_type() -> None:
    given = event(ROW, after=PLAIN)
    given.headers = [ChainHeader("n", OPTIONAL_INT32, 5)]
    with pytest.raises(TransformFault, match="op"):
        made(f"{DEBEZIUM}HeaderToValue", headers="n", fields="op", operation="copy").apply(given)


def test_a_key_that_is_null_has_no_schema_in_a_logical_topic() -> None:
    router = made(f"{DEBEZIUM}ByLogicalTableRouter", topic__regex="t", topic__replacement="all")
    out = router.apply(record(STRING, "x").set_key(STRING, None))
    assert out is not None and (out.topic, out.key_schema, out.key) == ("all", None, None)
