"""Records of contract 1.9 are those that Debezium 1.9.7 wrote for the same workload on the same server, MySQL 8.0.15.

The recordings are of ``io.debezium:debezium-connector-mysql:1.9.7.Final`` in Kafka Connect 2.8.2 with JSON and schemas.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.private_mysql import Pool, PrivateServer
from pipelinelib.pipeline import Pipeline
from prooflib import client as prooflib_client
from prooflib.client import Client
from prooflib.scratch import SYSTEM
from prooflib.workload import Workload, read_workload

FOLDER = Path(__file__).parents[1] / "golden" / "peer_1_9"
Records = dict[str, list[dict[str, Any]]]
VOLATILE = {"ts_ms", "pos", "file", "gtid", "thread", "server_id", "id"}
"""Members of payloads that differ in any two runs; ``id`` of a transaction has its position."""


@pytest.fixture(scope="module")
def server(pool: Pool) -> Iterator[PrivateServer]:
    with pool.lent("8.0.15") as made:
        yield made


def masked(value: Any, member: str = "") -> Any:
    """Return a payload without what differs in any two runs, and with JSON documents in one format."""
    if isinstance(value, dict):
        return {name: masked(part, name) for name, part in value.items()}
    if isinstance(value, list):
        return [masked(part) for part in value]
    if member == "j" and value is not None:
        return json.loads(value)
    if member in VOLATILE and not (isinstance(value, str) and value.startswith('"')):  # the id of a table change stays
        return type(value).__name__
    return value


def by_topic(lines: Iterator[dict[str, Any]]) -> Records:
    found: Records = defaultdict(list)
    for line in lines:
        found[line["topic"]].append({part: line[part] for part in ("key", "value")})
    return found


def recorded(mode: str) -> Records:
    with gzip.open(FOLDER / f"{mode}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return by_topic(json.loads(line) for line in lines)


def written(pipeline: Pipeline) -> Records:
    """Return our records with the recording's topic prefix, without those of the sentinel's database."""
    prefix = pipeline.properties["topic.prefix"]

    def lines() -> Iterator[dict[str, Any]]:
        for topic in sorted({*pipeline.topics(), prefix}):
            for record in pipeline.read(topic):
                key, value = (
                    None if data is None else json.loads(data.decode().replace(prefix, "cap"))
                    for data in (record.key, record.value)
                )
                yield {"topic": topic.replace(prefix, "cap"), "key": key, "value": value}

    return by_topic(lines())


def row_columns(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record with masked payloads; keys of rows stay, as their column may be called id."""
    key, value = record["key"], record["value"]
    parts: dict[str, Any] = {"key": key, "value": value}
    if value is not None:
        payload = value["payload"]
        rows = {name: payload[name] for name in ("before", "after") if name in payload}
        rows = {name: row if row is None or row.get("j") is None else row | {"j": json.loads(row["j"])}
                for name, row in rows.items()}  # fmt: skip
        parts["value"] = {"schema": value["schema"], "payload": masked(payload) | rows}
        if payload.get("op") in ("c", "u", "d"):
            # The time of the row event, which has no milliseconds.
            parts["source time"] = payload["source"]["ts_ms"] % 1000
    if key is not None and value is not None and "before" not in value["payload"]:
        parts["key"] = {"schema": key["schema"], "payload": masked(key["payload"])}
    return parts


def prepared(mode: str, properties: dict[str, str], server: PrivateServer) -> tuple[Pipeline, Client, Workload]:
    """Return a pipeline whose snapshot has read what the workload sets up, on a server with nothing else."""
    where = ("-h", "127.0.0.1", "-P", str(server.port), "-u", "root")
    client = Client((*prooflib_client._program(), *where, *prooflib_client._OPTIONS), "")
    databases = [d for d in client.run("SHOW DATABASES", "reset") if d and d not in SYSTEM]
    client.run("".join(f"DROP DATABASE `{d}`;" for d in databases) + "RESET MASTER;", "reset")
    own = FOLDER / f"{mode}.sql"
    workload = read_workload(own if own.exists() else FOLDER / "workload.sql")
    for section in workload.sections_of("setup"):
        client.run(section.text, "setup")
    lines = (FOLDER / f"{mode}.properties").read_text().split()
    extra = dict(line.split("=", 1) for line in lines)
    # Kafka Connect 2.8 always writes the default for a NULL.
    common = {"event.contract": "1.9", "value.converter.replace.null.with.default": "true"}
    pipeline = Pipeline(properties | server.properties() | common | extra)
    pipeline.properties.pop("database.include.list", None)
    pipeline.snapshot()
    return pipeline, client, workload


@pytest.mark.req("EVT-12", "EVT-13", "EVT-14", "EVT-15", "EVT-16", "EVT-17", "EVT-35", "SCH-39", "SCH-40", "SCH-41")
@pytest.mark.req("SCH-10", "TYPE-30")
@pytest.mark.parametrize("mode", ["default", "extras", "filtered"])
@pytest.mark.exhaustive(but="extras")
def test_records_are_those_of_debezium_1_9_7(mode: str, properties: dict[str, str], server: PrivateServer) -> None:
    pipeline, client, workload = prepared(mode, properties, server)
    for section in workload.sections_of("change"):
        client.run(section.text, "change")
    pipeline.drain()
    ours, theirs = written(pipeline), recorded(mode)
    assert set(ours) == set(theirs)
    for topic, records in theirs.items():
        assert len(ours[topic]) == len(records), topic
        pairs = zip(map(row_columns, ours[topic]), map(row_columns, records), strict=True)
        for number, (found, expected) in enumerate(pairs):
            if topic == "cap" and "CREATE TABLE copied LIKE" in expected["value"]["payload"]["ddl"]:
                # Debezium loses the comment that LIKE copies (docs/debezium-differences.md).
                for change in found["value"]["payload"]["tableChanges"]:
                    change["table"]["comment"] = None
            assert json.dumps(found) == json.dumps(expected), f"{topic} {number}"


def without_watermarks(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records without those of watermarks: Debezium has a pair for each chunk, ours one for each window."""
    return [record for record in records if not is_watermark(record)]


def is_watermark(record: dict[str, Any]) -> bool:
    after = (record["value"] or {"payload": {}})["payload"].get("after") or {}
    return str(after.get("type")).startswith("snapshot-window-")


def place_of_read(parts: dict[str, Any]) -> dict[str, Any]:
    """Mask the thread in a row of an incremental snapshot: Debezium's is that of its last watermark."""
    source = (parts["value"] or {"payload": {}})["payload"].get("source") or {}
    if source.get("snapshot") == "incremental":
        source["thread"] = None
    return parts


@pytest.mark.req("EVT-27")
@pytest.mark.exhaustive
def test_incremental_snapshots_are_those_of_debezium_1_9_7(properties: dict[str, str], server: PrivateServer) -> None:
    pipeline, client, workload = prepared("signals", properties, server)
    client.run("GRANT INSERT ON sigdb.dbz_signal TO 'cdc'@'%'", "setup")
    for section in workload.sections_of("change", "wait"):
        client.run(section.text, "change")
        while pipeline.drain() is not None:
            pass
    ours, theirs = written(pipeline), recorded("signals")
    assert set(ours) == set(theirs)
    for topic, records in theirs.items():
        expected = [place_of_read(row_columns(record)) for record in without_watermarks(records)]
        found = [place_of_read(row_columns(record)) for record in without_watermarks(ours[topic])]
        assert len(found) == len(expected), topic
        for number, pair in enumerate(zip(found, expected, strict=True)):
            assert json.dumps(pair[0]) == json.dumps(pair[1]), f"{topic} {number}"

    def watermarks(records: Records) -> set[str]:
        rows = [r["value"]["payload"]["after"] for r in records["cap.sigdb.dbz_signal"] if is_watermark(r)]
        return {json.dumps(row | {"id": row["id"].rpartition("-")[2]}) for row in rows}

    assert watermarks(ours) == watermarks(theirs) and len(watermarks(ours)) == 2
