"""What a fleet tells Airflow of its streams: lineage, and asset events through the alias of each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeOutcome
from lineage_events import by_name, events_of, lineage_events
from test_fleet_operator import drain, fakes  # noqa: F401
from test_openlineage import KAFKA, MYSQL, TALLY, validate

from airflow_provider_mysql_cdc.cdc.errors import SourcePrivilegeError
from airflow_provider_mysql_cdc.cdc.model.table import Column, Table, TableId
from airflow_provider_mysql_cdc.cdc.operate import data_flow

pytestmark = pytest.mark.usefixtures("metadata_db")


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    tables = {TableId("north", "orders"), TableId("south", "orders")}
    made = {table: Table(table, (Column("id", 1, "INT", "INT"),), ("id",)) for table in tables}
    monkeypatch.setattr(
        data_flow, "read_structures", lambda cfg, wanted, log: {t: made[t] for t in wanted if t in made}
    )
    with lineage_events(monkeypatch, tmp_path) as events:
        yield events


def wrote(streams: Any, name: str, **counts: int) -> None:
    tally = replace(TALLY, counts=dict(counts), tables={f"{name}.orders": sum(counts.values())})
    streams.outcomes[name] = FakeOutcome(tally=tally, counts=dict(counts))


SHARED = {
    "transforms": "route",
    "transforms.route.type": "io.debezium.transforms.ByLogicalTableRouter",
    "transforms.route.topic.regex": r"\w+\.\w+\.orders",
    "transforms.route.topic.replacement": "all_orders",
}


def test_a_fleet_names_the_tables_of_all_its_streams_and_a_shared_topic_once(fakes: Any, file: Path) -> None:  # noqa: F811
    _, streams = fakes
    wrote(streams, "north", all_orders=30)
    wrote(streams, "south", all_orders=12)
    streams.idle.add("east")
    own = {f"mysql_{n}": {"properties": {"table.include.list": f"{n}.orders"}} for n in ("north", "south")}
    assert drain("lineage_of_a_fleet", properties=SHARED, stream_arguments=own).state == "success"
    start, complete = events_of(file, "drain")
    tables = {(MYSQL, "north.orders"), (MYSQL, "south.orders")}
    assert set(by_name(start["inputs"])) == tables == set(by_name(complete["inputs"]))
    output = by_name(complete["outputs"])[KAFKA, "all_orders"]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 42
    sources = output["facets"]["columnLineage"]["fields"]["after.id"]["inputFields"]
    assert {source["name"] for source in sources} == {"north.orders", "south.orders"}
    said = {stream["stream"]: stream for stream in validate(complete, "mysqlCdc_fleet")["streams"]}
    assert {name: stream["state"] for name, stream in said.items()} == {
        "north": "drained",
        "south": "drained",
        "east": "nothing new",
    }
    assert said["north"]["file"] == "binlog.000002" and said["north"]["batches"] == 2


def test_a_fleet_that_has_failed_names_what_the_others_have_written(fakes: Any, file: Path) -> None:  # noqa: F811
    _, streams = fakes
    wrote(streams, "north", **{"north.north.orders": 30})
    streams.idle.add("east")
    streams.refused["south"] = SourcePrivilegeError("a grant is missing")
    assert drain("lineage_of_a_failed_fleet").state == "failed"
    failed = events_of(file, "drain")[-1]
    assert failed["eventType"] == "FAIL" and (KAFKA, "north.north.orders") in by_name(failed["outputs"])
    said = {stream["stream"]: stream for stream in validate(failed, "mysqlCdc_fleet")["streams"]}
    assert said["south"]["error"] == "SourcePrivilegeError" and "error" not in said["north"]
    assert validate(failed, "mysqlCdc_error")["name"] == "StreamsFailedError"
    assert "private" not in json.dumps(failed)


def test_the_events_of_a_stream_come_through_its_own_alias(fakes: Any) -> None:  # noqa: F811
    from airflow.models.asset import AssetAliasModel
    from airflow.utils.session import create_session

    _, streams = fakes
    for name in ("north", "south", "east"):
        wrote(streams, name, **{f"{name}.orders": 3})
    own = {
        f"mysql_{name}": {"offset_asset": f"kept_{name}", "asset_alias": f"of_{name}"} for name in ("north", "south")
    }
    assert drain("events_of_a_fleet", stream_arguments=own).state == "success"
    with create_session() as session:
        aliases = session.query(AssetAliasModel).all()
        said = {alias.name: {asset.name for asset in alias.assets} for alias in aliases}
    for name in ("north", "south"):
        assert f"kept_{name}" in said[f"of_{name}"]
        assert {asset.rsplit("/", 1)[-1] for asset in said[f"of_{name}"]} >= {name, f"{name}.orders"}
    assert not [asset for asset in said["of_north"] if "south" in asset or "east" in asset]
