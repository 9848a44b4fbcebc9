"""From TABLE_MAP events to routes: tables that are not known, or not as they were."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kit.decode_builder import column, table
from kit.drain_rig import routes_of
from kit.memory_job import config
from kit.store_contract import plan

from airflow_provider_mysql_cdc.cdc.decode.table_correction import TableCorrection
from airflow_provider_mysql_cdc.cdc.drain import table_routes as routes
from airflow_provider_mysql_cdc.cdc.drain.table_routes import TableRoutes
from airflow_provider_mysql_cdc.cdc.drain.window_keys import WindowKeys
from airflow_provider_mysql_cdc.cdc.errors import SchemaError, SchemaMismatchError
from airflow_provider_mysql_cdc.cdc.model import wire_codes as wt
from airflow_provider_mysql_cdc.cdc.model.table import TableId

T = table(column("id", "INT", nullable=False), column("n", "INT"), key=("id",))
TOPIC = "p.db.t"
EVENT: Any = SimpleNamespace(file="binlog.000001", start_pos=4, where=lambda: "binlog.000001:4")
BATCH = plan(writers=1, partitions={TOPIC: 1}, assignment={TOPIC: (0,)})


def announced(*wires: tuple[int, int]) -> Any:
    return SimpleNamespace(
        db="db",
        table="t",
        column_types=bytes(code for code, _ in wires),
        column_meta=tuple(meta for _, meta in wires),
        null_bits=b"\xff",
        layout=repr(wires).encode(),
        nullable=lambda _: True,
        **dict.fromkeys(("names", "unsigned", "charsets", "enum_members", "set_members"), None),
    )


AS_IT_IS = announced((wt.LONG, 0), (wt.LONG, 0))


def make(made: TableRoutes, table_map: Any, *tables: Any) -> Any:
    state: Any = SimpleNamespace(tables={t.id: t for t in tables})
    return made._table_route(table_map, state, EVENT)


def no_correction(correction: TableCorrection, event: Any) -> Any:
    pytest.fail(correction.differences())


def of(**more: str) -> TableRoutes:
    return routes_of(config(**more), BATCH)


@pytest.mark.req("STRM-24", "FAULT-14", "CFG-29")
@pytest.mark.parametrize(("mode", "stops"), [("fail", True), ("warn", False), ("skip", False)])
def test_rows_of_a_table_that_the_history_does_not_know_stop_by_default(
    mode: str, stops: bool, caplog: pytest.LogCaptureFixture
) -> None:
    made = of(inconsistent__schema__handling__mode=mode)
    if stops:
        with pytest.raises(SchemaError, match="does not know"):
            make(made, AS_IT_IS)
        return
    assert make(made, AS_IT_IS).decoder is None
    assert caplog.text.count("rows of db.t are skipped from binlog.000001:4 on") == (mode == "warn")


@pytest.mark.parametrize(
    "table_map",
    [announced((wt.LONG, 0)), announced((wt.LONG, 0), (wt.VARCHAR, 80)), announced(*((wt.LONG, 0),) * 3)],
    ids=["fewer", "another type", "more"],
)
def test_rows_of_another_structure_are_not_decoded_with_the_historys(table_map: Any) -> None:
    with pytest.raises(SchemaMismatchError):
        of()._find_correction(table_map, SimpleNamespace(tables={T.id: T}))  # type: ignore[arg-type]


def event(db: str, name: str) -> Any:
    names = b"".join(bytes([len(part)]) + part.encode() + b"\x00" for part in (db, name))
    buf = b"\x01\x00\x00\x00\x00\x00" + b"\x01\x00" + names + b"\x02\x03\x03" + b"\x00" + b"\x02"
    return SimpleNamespace(
        buf=buf, body=0, end=len(buf), file="binlog.000001", start_pos=4, where=lambda: "binlog.000001:4"
    )


@pytest.mark.req("AVRO-54")
def test_a_route_stays_as_long_as_its_table_has_the_structure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements about other tables cost nothing; the same bytes announce rows of another structure after ALTER."""
    made = of()
    new: Any = replace(T, columns=(T.columns[0], replace(T.columns[1], name="m")))
    state: Any = SimpleNamespace(tables={T.id: T})
    first = made.of_table_map(event("db", "t"), state, no_correction)
    for _ in range(2):
        made.on_schema_change()
        assert made.of_table_map(event("db", "t"), state, no_correction) is first
    changed: Any = SimpleNamespace(tables={T.id: new})
    made.on_schema_change()
    second = made.of_table_map(event("db", "t"), changed, no_correction)
    assert second.decoder is not None and second.decoder.table is new
    made.on_schema_change()
    with pytest.raises(SchemaError, match="does not know"):
        made.of_table_map(event("db", "t"), SimpleNamespace(tables={}), no_correction)  # type: ignore[arg-type]


def test_rows_are_unused_of_tables_of_which_nothing_is_read() -> None:
    """Neither the stream's records, nor signals, nor the keys of a window come from them."""
    state: Any = SimpleNamespace(tables={T.id: T})
    for named, unused in (("t", False), ("foreign", True)):
        made = of(table__include__list=r"db\.t")
        assert not made.is_unused(1), "no TABLE_MAP event announced it"
        made.of_table_map(event("db", named), state, no_correction)
        assert made.is_unused(1) is unused
        made.by_id[1] = replace(made.by_id[1], signals=SimpleNamespace())  # type: ignore[arg-type]
        assert not made.is_unused(1)
        made.by_id[1] = replace(made.by_id[1], signals=None)
        made._window_keys = WindowKeys({TableId("db", "foreign")})
        assert not made.is_unused(1)
        made._window_keys = WindowKeys({TableId("db", "other")})
        assert made.is_unused(1) is unused


def test_routes_of_tables_that_are_gone_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MAX_UNCHECKED_ROUTES", 4)
    made = of(table__exclude__list=r"db\.x.*")
    for n in range(40):
        state: Any = SimpleNamespace(tables={TableId("db", f"x{n}"): T})
        made.on_schema_change()
        made.of_table_map(event("db", f"x{n}"), state, no_correction)
    assert len(made._cache) <= 5
