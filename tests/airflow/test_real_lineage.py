"""Lineage of a snapshot and a drain with everything real: MySQL, Kafka, Spark, and the client of OpenLineage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lineage_events import by_name, events_of, lineage_events
from real_servers import define_connections, execute, trigger

pytestmark = [
    pytest.mark.stack,
    pytest.mark.spark,
    pytest.mark.exhaustive,
    pytest.mark.usefixtures("metadata_db"),
]


def test_rows_are_followed_from_columns_to_fields(
    root: Any,
    database: str,
    properties: dict[str, str],
    stack: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    hiding = {"column.mask.with.4.chars": rf"{database}\.orders\.card"}
    define_connections(monkeypatch, properties | hiding, stack)
    execute(
        root,
        f"CREATE TABLE {database}.orders (id INT PRIMARY KEY AUTO_INCREMENT, card VARCHAR(20), amount DECIMAL(9,2))",
        f"INSERT INTO {database}.orders (card, amount) VALUES ('1234-5678', 1.5), ('9', 2)",
    )
    with lineage_events(monkeypatch, tmp_path) as file:
        trigger("mysql_cdc_pipeline")
        execute(root, f"INSERT INTO {database}.orders (card, amount) VALUES ('7', 3)")
        trigger("mysql_cdc_pipeline")
        read = next(event for event in events_of(file, "snapshot") if event["eventType"] == "COMPLETE")
        drained = [event for event in events_of(file, "drain") if event["eventType"] == "COMPLETE"][-1]
        text = file.read_text()
    source = (f"mysql://{stack.mysql_host}:{stack.mysql_port}", f"{database}.orders")
    target = (f"kafka://{stack.kafka}", f"{properties['topic.prefix']}.{database}.orders")
    for event, rows in ((read, 2), (drained, 1)):
        table, topic = by_name(event["inputs"])[source], by_name(event["outputs"])[target]
        columns = {column["name"]: column["type"] for column in table["facets"]["schema"]["fields"]}
        assert columns == {"id": "INT", "card": "VARCHAR(20)", "amount": "DECIMAL(9,2)"}
        assert table["inputFacets"]["inputStatistics"]["rowCount"] == rows
        assert topic["outputFacets"]["outputStatistics"]["rowCount"] == rows
        images = {field["name"]: field for field in topic["facets"]["schema"]["fields"]}
        assert [field["name"] for field in images["after"]["fields"]] == ["id", "card", "amount"]
        lineage = topic["facets"]["columnLineage"]["fields"]
        assert set(lineage) == {f"{image}.{column}" for image in ("before", "after") for column in columns}
        (card,) = lineage["after.card"]["inputFields"]
        assert (card["namespace"], card["name"], card["field"]) == (*source, "card")
        (step,) = card["transformations"]
        assert (step["type"], step["subtype"], step["masking"]) == ("DIRECT", "TRANSFORMATION", True)
        (step,) = lineage["after.amount"]["inputFields"][0]["transformations"]
        assert (step["subtype"], step["masking"]) == ("IDENTITY", False)
    assert drained["run"]["facets"]["mysqlCdc_batches"]["batches"] == 1
    assert stack.cdc_password not in text and "1234-5678" not in text
