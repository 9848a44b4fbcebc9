"""Flat rows that are written at once: as by way of JSON, on the partition that the dispatcher gives, once."""

from __future__ import annotations

import struct
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from kit.cases import for_each
from kit.decode_builder import body, column, image, python_decoder, table, table_map
from kit.drain_rig import routes_of
from kit.memory_kafka import MemoryKafka, MemoryWriter
from kit.ticdc_identity import AT, TICDC, FlatSides
from unit.drain.test_table_routes import AS_IT_IS, make

from airflow_provider_mysql_cdc.cdc.avro.avro_columns import FallbackToJson
from airflow_provider_mysql_cdc.cdc.binlog.table_map import wire_types
from airflow_provider_mysql_cdc.cdc.commit.plan import BatchPlan
from airflow_provider_mysql_cdc.cdc.config.connector import ConnectorConfig
from airflow_provider_mysql_cdc.cdc.decode.decoders import choose_decoder as decoder_of
from airflow_provider_mysql_cdc.cdc.decode.tolerant_decoder import TolerantDecoder
from airflow_provider_mysql_cdc.cdc.drain.row_events import RecordOutput
from airflow_provider_mysql_cdc.cdc.drain.writer_meter import WriterCounts
from airflow_provider_mysql_cdc.cdc.formats import ticdc_row_decoder as flat_decoder
from airflow_provider_mysql_cdc.cdc.formats.dead_letter import format_rows
from airflow_provider_mysql_cdc.cdc.formats.record_formats import RecordFormats
from airflow_provider_mysql_cdc.cdc.formats.record_topics import TopicShare
from airflow_provider_mysql_cdc.cdc.formats.ticdc_row_decoder import TicdcRowDecoder
from airflow_provider_mysql_cdc.cdc.formats.ticdc_rows import TicdcRows
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.connection import SchemaId
from airflow_provider_mysql_cdc.cdc.model.offset import BinlogOffset
from airflow_provider_mysql_cdc.cdc.sink.clients import AdaptiveLinger
from airflow_provider_mysql_cdc.cdc.sink.writer import TransactionalWriter
from airflow_provider_mysql_cdc.cdc.ticdc.ticdc_source import TicdcSource, json_context

T = table(column("id", "INT", nullable=False), column("n", "INT", nullable=False), key=("id",))
WIRES = wire_types(table_map((wt.LONG, 0), (wt.LONG, 0)))
KEY = {"partition": "index-value"}
RULES: tuple[dict[str, Any] | None, ...] = (
    None,
    {"partition": "table"},
    KEY,
    {"partition": "columns", "columns": ["n"]},
    {"partition": "ts"},
)


def row(*values: int) -> bytes:
    return image(2, struct.pack("<2i", *values))


def both(count: int = 1, rule: dict[str, Any] | None = None, of: Any = T, wires: Any = WIRES, **more: str) -> Any:
    """Return both ways of a table, and what writes it at once."""
    found = FlatSides(of, wires, count, rule, **more)
    return found, TicdcRowDecoder(found.table, found.wires, found.text)


EVENTS = (
    ("write", row(1, 5), row(2, 6), row(3, 7)),
    ("update", row(1, 5), row(1, 6)),
    ("update", row(1, 5), row(2, 6), row(2, 6), row(2, 7), row(3, 1), row(4, 1)),
    ("delete", row(1, 6), row(2, 6)),
)


def event(kind: str, *rows: bytes) -> tuple[bytes, int, int]:
    return body(*rows, columns=2, images=2 if kind == "update" else 1)


@for_each("extension", ["true", "false"])
@for_each("rule", RULES, ids=str)
def test_rows_are_written_at_once_as_by_way_of_json(rule: dict[str, Any] | None, extension: str) -> None:
    for count in (1, 7):
        sides, decoder = both(count, rule, **{"enable-tidb-extension": extension})
        for kind, *rows in EVENTS:
            outcome, out = sides.event(decoder, kind, *event(kind, *rows)), list[Any]()
            # At once, that is: this says so where it is not.
            assert getattr(decoder, kind)(*event(kind, *rows), sides.context(), out) == out[-1][2] + 1
            assert outcome == ("records", out)


def test_what_is_not_written_at_once_becomes_json_first() -> None:
    sides, decoder = both(**{"enable-tidb-extension": "true"})
    # These bytes would be five rows of two columns as well.
    buf, pos, end = event("delete", *(image(2, bytes(4)) for _ in range(9)))
    alone = buf[: pos - 1] + b"\x01" + buf[pos:], pos, end
    assert sides.event(decoder, "delete", *alone)[0] == "records"
    cut = event("write", row(1, 5), row(2, 5)[:-1])
    assert sides.event(decoder, "write", *cut)[0] == "ValueDecodeError"
    beyond = body(row(1, 5), row(2, 5), columns=2)
    short = beyond[0], beyond[1], beyond[2] - 1
    assert sides.event(decoder, "write", *short)[0] == "ValueDecodeError"
    of = table(column("id", "INT", nullable=False), column("v", "VARCHAR", charset="utf8mb4"), key=("id",))
    texts, text_decoder = both(of=of, wires=wire_types(table_map((wt.LONG, 0), (wt.VARCHAR, 80))))
    broken = event("write", image(2, struct.pack("<iB", 1, 5) + b"abc"))
    assert texts.event(text_decoder, "write", *broken)[0] == "ValueDecodeError"
    with pytest.raises(FallbackToJson):
        text_decoder.write(*broken, texts.context(), [])
    for kind, given in (("delete", alone), ("write", cut), ("write", short)):
        with pytest.raises(FallbackToJson):
            getattr(decoder, kind)(*given, sides.context(), [])


def test_null_where_none_is_allowed_is_named_for_any_type() -> None:
    of = table(column("id", "INT", nullable=False), column("f", "FLOAT", nullable=False), key=("id",))
    sides, decoder = both(of=of, wires=wire_types(table_map((wt.LONG, 0), (wt.FLOAT, 4))))
    found = sides.event(decoder, "write", *event("write", image(2, struct.pack("<i", 1), nulls=2)))
    assert found[0] == "ValueDecodeError" and "column f is NULL" in found[1]


def test_each_transaction_has_its_timestamp() -> None:
    sides, decoder = both(5, {"partition": "ts"}, **{"enable-tidb-extension": "true"})
    seen = set()
    for us in (AT.commit_us, AT.commit_us + 1, AT.commit_us + 5_000, 0):
        for order in ("7", "8", "null", "263"):
            at = SimpleNamespace(gtid=None, commit_us=us, thread=9, query=None)
            given = event("write", row(1, 5))
            ((_, value, *_),) = sides.event(decoder, "write", *given, sides.context(order, at=at))[1]
            seen.add(value)
    # Only without a timestamp of the transaction does the time of its rows count.
    assert len(seen) == 3 + 4


def rows_in_routes(count: int, writer: int, writers: int, rule: dict[str, Any] | None = KEY) -> tuple[Any, Any]:
    """Return a route of a topic with many partitions, and a sink that its records went to."""
    sides, decoder = both(count, rule)
    mine = frozenset(part for part in range(count) if part % writers == writer)
    share = TopicShare("topic", count, mine, len(mine) == count)
    direct = TicdcRows(decoder, lambda: None, sides.form)  # type: ignore[arg-type, return-value]
    route: Any = SimpleNamespace(
        topic="topic", share=share, record_format=sides.form, id_headers=None, path="db.t", decoder=direct
    )
    return route, sides


@pytest.mark.parametrize("identity", [False, True])
def test_a_writer_produces_its_own_partitions(identity: bool) -> None:
    kafka, wanted = MemoryKafka(), []
    for writer in range(2):
        route, sides = rows_in_routes(7, writer, 2)
        sink = MemoryWriter(kafka, f"p.{writer}")
        sink.init()
        place = SimpleNamespace(gtid="g:1", events=1)
        output = RecordOutput(sink, [("h", b"1")], identity, False, place, None, "history", None, WriterCounts())  # type: ignore[arg-type]
        out: list[Any] = []
        route.decoder.write(*event("write", *(row(n, 5) for n in range(20))), sides.context(), out)
        wanted = [(key, value, part) for key, value, *_, part in out]
        assert output.produce_rows(route, out, "b:4", 0) == []
        # One by one, as beside a row that is left out.
        made, _ = format_rows(sides.form, out, route.share, "b:4", tolerant=True)
        assert {partition for *_, partition in made} <= route.share.assigned
        assert output.counts.by_topic == {"topic": len(made)}
        sink.commit()
    written = [(r.key, r.value, r.partition) for r in kafka.committed("topic")]
    assert Counter(written) == Counter(wanted) and len({part for _, _, part in written}) > 2
    names = [[name for name, _ in r.headers] for r in kafka.committed("topic")]
    assert names == [["h", "cdc-id"] if identity else ["h"]] * 20


@pytest.mark.parametrize("writers", [1, 2])
def test_other_rows_than_one_that_cannot_be_decoded_are_written_once_each(writers: int) -> None:
    of = table(column("id", "INT", nullable=False), column("v", "VARCHAR", charset="utf8mb4"), key=("id",))
    sides, decoder = both(7, KEY, of, wire_types(table_map((wt.LONG, 0), (wt.VARCHAR, 80))))

    def text(number: int, value: bytes) -> bytes:
        return image(2, struct.pack("<iB", number, len(value)) + value)

    plain = decoder_of(sides.table, sides.wires, sides.options, sides.envelope)
    kept, changed, bad = text(1, b"a") * 2, text(2, b"b") + text(3, b"b"), text(4, b"\xff") * 2
    given, found = event("update", kept, changed, bad), dict[str, Counter[Any]]()
    for way, rows in (("at once", TicdcRows(decoder, lambda: plain, sides.form)), ("by way of JSON", plain)):
        kafka, failed = MemoryKafka(), list[Any]()
        for writer in range(writers):
            sink, out = MemoryWriter(kafka, f"p.{writer}"), list[Any]()
            sink.init()
            ctx = sides.context() if way == "at once" else json_context(sides.context())
            TolerantDecoder(rows, failed).update(*given, ctx, out)
            assert [partition is not None for *_, partition in out] == [way == "at once"] * 3
            route, _ = rows_in_routes(7, writer, writers)
            route.record_format = sides.form
            output = RecordOutput(sink, [], False, True, SimpleNamespace(), None, "history", None, WriterCounts())  # type: ignore[arg-type]
            assert output.produce_rows(route, out, "b:4", 0) == []
            sink.commit()
        found[way] = Counter((r.key, r.value, r.partition) for r in kafka.committed("topic"))
        assert len(failed) == writers
    assert found["at once"] == found["by way of JSON"] and found["at once"].total() == 3


def test_a_producer_gets_the_partition() -> None:
    told: list[Any] = []
    sink = TransactionalWriter.__new__(TransactionalWriter)
    sink._open, sink._serve_at, sink.bytes_pending, sink.records_pending = True, 1 << 20, 0, 0
    sink._produce, sink._linger = lambda *given: told.append((given[3], given[7])), AdaptiveLinger()
    of_all = [("h", b"1")]
    sink.produce_all(
        "t", [(b"k", b"v", 0, 0, None, 0), (b"k", b"v", 1, 0, None, 4), (b"k", None, 2, 0, None, None)], of_all, 9
    )
    sink.produce_all("t", [(b"k", b"v", 0, 0, ("own", b"2"), None)], of_all, 9)
    assert told == [(0, of_all), (4, of_all), (9, of_all), (9, [("own", b"2"), *of_all])]


def test_rows_of_a_batch_are_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = ConnectorConfig.from_properties(TICDC)
    start = BinlogOffset("b.000001", 4)
    plan = BatchPlan(1, "drain", start, start, 1, partitions={"shop.db.t": 3}, assignment={"shop.db.t": (0,)})
    routes = routes_of(cfg, plan, formats=RecordFormats(cfg, lambda *_: SchemaId(7)))
    route = make(routes, AS_IT_IS, T)
    assert (
        isinstance(route.decoder, TicdcRows)
        and isinstance(route.source, TicdcSource)
        and route.record_format is not None
    )
    assert isinstance(python_decoder(route.decoder.avro_decoder), flat_decoder.TicdcRowDecoder)
