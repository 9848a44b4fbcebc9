"""Debezium's own recorded events, read as a verification reads them: JSON, and Avro that fastavro has encoded."""

from __future__ import annotations

import gzip
import io
import json
from base64 import b64decode
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import fastavro
import pytest
from kit.avro_rig import avro, stripped
from kit.cases import for_each
from kit.table_records import config

from airflow_provider_mysql_cdc.cdc.verify.read.event_readers import event_reader
from airflow_provider_mysql_cdc.cdc.verify.read.event_record import UnreadableRecord

pytestmark = pytest.mark.quick
HERE = Path(__file__).parent
SCHEMAS = {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"}
PLAIN = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
WITHOUT_ROWS = ("zerofill_decimal",)


def recordings() -> list[Path]:
    # The transform of that one makes rows of events.
    found = [*HERE.glob("peer/captured/*/*.jsonl.gz"), *HERE.glob("peer_1_9/*.jsonl.gz")]
    return sorted(path for path in found if path.name != "unwrap.jsonl.gz")


@lru_cache(maxsize=1)
def lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [line for line in map(json.loads, file) if is_of_table(line)]


def is_of_table(line: dict[str, Any]) -> bool:
    payload = None if line["value"] is None else line["value"].get("payload")
    return line["value"] is None or (isinstance(payload, dict) and {"op", "source"} <= payload.keys())


def compact(document: Any) -> bytes | None:
    return None if document is None else json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def payload_of(document: Any) -> Any:
    return None if document is None else document["payload"]


@for_each("path", recordings(), ids=lambda path: f"{path.parent.name}-{path.name.partition('.')[0]}")
@for_each("schemas", [True, False])
def test_debeziums_events_are_read(path: Path, schemas: bool) -> None:
    reader, ops = event_reader(config(SCHEMAS if schemas else PLAIN), "cap", lambda part, schema_id: None), Counter()
    for line in lines(path):
        part = (lambda document: document) if schemas else payload_of
        found = reader.read(compact(part(line["key"])), compact(part(line["value"])))
        key, event = payload_of(line["key"]), payload_of(line["value"]) or {}
        assert (found.key, found.op) == (key, event.get("op", ""))
        assert (found.before, found.after) == (event.get("before"), event.get("after"))
        assert found.source == event.get("source", {})
        if schemas and found.after is not None:
            assert found.forms is not None and found.forms.keys() >= found.after.keys()
        if schemas and key is not None:
            assert found.key_forms is not None and found.key_forms.keys() == key.keys()
        ops[found.op] += 1
    assert ops or path.parent.name in WITHOUT_ROWS


def test_rows_of_another_transform_are_no_events() -> None:
    reader = event_reader(config(SCHEMAS), "cap", lambda part, schema_id: None)
    with gzip.open(HERE / "peer/captured/dml/unwrap.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [line for line in map(json.loads, file) if line["topic"].count(".") == 2 and line["value"] is not None]
    assert rows
    for line in rows:
        with pytest.raises(UnreadableRecord, match="it has no op"):
            reader.read(compact(line["key"]), compact(line["value"]))


def avro_value(schema: Any, value: Any, named: dict[str, Any]) -> Any:
    """Return what fastavro encodes, given a value as JsonConverter writes it."""
    if isinstance(schema, list):
        return None if value is None else avro_value(next(s for s in schema if s != "null"), value, named)
    if isinstance(schema, str):
        schema = next((found for name, found in named.items() if name.endswith(schema)), schema)
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        named[schema["name"]] = schema
        return {f["name"]: avro_value(f["type"], value.get(f["name"]), named) for f in schema["fields"]}
    if kind == "array":
        return [avro_value(schema["items"], item, named) for item in value]
    return b64decode(value) if kind == "bytes" else value


def plain(value: Any) -> Any:
    """Return a value as JSON compares it: 4-byte numbers have six digits in common."""
    if isinstance(value, dict):
        return {name: plain(member) for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return list(map(plain, value))
    return float(f"{value:.6g}") if isinstance(value, float) else value


@for_each("name", ["dml/avro_extras", "types/avro", "ddl/avro", "adhoc/avro_incremental"])
def test_debeziums_events_in_avro_are_read(name: str) -> None:
    with gzip.open(HERE / f"peer/captured/{name}.schemas.json.gz", "rt", encoding="utf-8") as file:
        versions: dict[str, list[str]] = json.load(file)
    texts: dict[str, str] = {}
    reader = event_reader(config(avro("http://registry:1")), "cap", lambda part, schema_id: texts.get(schema_id))
    read = 0
    for line in lines(HERE / f"peer/captured/{name}.jsonl.gz"):
        key, event = payload_of(line["key"]), payload_of(line["value"])
        record = [
            None if payload is None else encoded(versions.get(f"{line['topic']}-{part}", []), part, payload, texts)
            for part, payload in (("key", key), ("value", event))
        ]
        if (key is None) != (record[0] is None) or (event is None) != (record[1] is None):
            continue  # its schema is not in the recording
        found = reader.read(*record)
        assert plain(found.key) == plain(key)
        event = event or {"op": ""}
        assert found.op == event["op"]
        assert plain(found.before) == plain(event.get("before")) and plain(found.after) == plain(event.get("after"))
        assert plain(found.source) == plain(event.get("source", {}))
        if found.after is not None:
            assert found.forms is not None and found.forms.keys() == found.after.keys()
        read += 1
    assert read > 20


def schema_columns(schema: Any) -> set[str]:
    row = next(s for s in schema["fields"][0]["type"] if s != "null")
    return {field["name"] for field in row["fields"]}


def encoded(versions: list[str], part: str, payload: dict[str, Any], texts: dict[str, str]) -> bytes | None:
    """Return a payload in the wire format with the version that has its fields; None if none of them has."""
    row = payload if part == "key" else payload["after"] or payload["before"]
    for text in versions:
        schema, stream = json.loads(text), io.BytesIO()
        fields = {field["name"] for field in schema["fields"]} if part == "key" else schema_columns(schema)
        if row is not None and fields != set(row):
            continue
        parsed = fastavro.parse_schema(stripped(schema))
        try:
            fastavro.schemaless_writer(stream, parsed, avro_value(schema, payload, {}), strict=True)
        except (ValueError, TypeError, AttributeError):
            continue  # a column had another type
        schema_id = next((number for number, known in texts.items() if known == text), str(len(texts) + 1))
        texts[schema_id] = text
        return b"\0" + int(schema_id).to_bytes(4, "big") + stream.getvalue()
    return None
