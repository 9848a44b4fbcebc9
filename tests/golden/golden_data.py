"""Readers of the recorded data."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from airflow_provider_mysql_cdc.cdc.ddl.apply import TableChange, apply_ddl
from airflow_provider_mysql_cdc.cdc.ddl.state import DdlContext, SchemaState
from airflow_provider_mysql_cdc.cdc.model.table import Table, TableId

DATA = Path(__file__).parent / "data"


@cache
def rows(name: str) -> list[dict[str, Any]]:
    """Return the lines of a recorded file."""
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@cache
def sample(name: str) -> dict[str, Any]:
    """Return one sample message of the seeds."""
    with open(DATA / "seed_samples.json", encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)[name]
    return found


_SNAPSHOT = {
    "type": "string",
    "optional": True,
    "name": "io.debezium.data.Enum",
    "version": 1,
    "parameters": {"allowed": "true,last,false,incremental"},
    "default": "false",
    "field": "snapshot",
}
_TRANSACTION = {
    "type": "struct",
    "fields": [
        {"type": "string", "optional": False, "field": "id"},
        {"type": "int64", "optional": False, "field": "total_order"},
        {"type": "int64", "optional": False, "field": "data_collection_order"},
    ],
    "optional": True,
    "field": "transaction",
}


def real_payload(payload: dict[str, Any], version: str = "1.9.7.Final") -> dict[str, Any]:
    """Return the payload of a row event of the seeds as Debezium 1.9.7 writes it (docs/debezium-differences.md)."""
    source = {}
    for name, value in payload["source"].items():
        source[name] = {True: "true", False: "false"}.get(value, value) if name == "snapshot" else value
        if name == "ts_ms":
            source[name] = value // 1000 * 1000
        if name == "db":
            source["sequence"] = None
    return {**payload, "source": {**source, "version": version}, "transaction": payload.get("transaction")}


def real_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a key or a value of the seeds as Debezium 1.9.7 writes it."""
    fields = []
    for field in schema["fields"]:
        if field["field"] == "source":
            members = []
            for member in field["fields"]:
                members.append(_SNAPSHOT if member["field"] == "snapshot" else member)
                if member["field"] == "db":
                    members.append({"type": "string", "optional": True, "field": "sequence"})
            fields.append({**field, "fields": members})
        else:
            fields.append(field)
    if any(field["field"] == "source" for field in fields):
        return {**schema, "fields": [*fields, _TRANSACTION]}
    ordered = [{name: field[name] for name in ("type", "optional", "field")} for field in fields]
    return {"type": "struct", "fields": ordered, "optional": False, "name": schema["name"]}


@dataclass
class Step:
    """Hold one statement of a recorded schema change topic and what it did."""

    ddl: str
    db: str
    snapshot: bool
    place: tuple[str, int]
    records: list[dict[str, Any]]
    changes: tuple[TableChange, ...]
    state: SchemaState


def whole_statement(ddls: list[str]) -> str:
    """Return the statement that Debezium split into one record for each table."""
    if len(ddls) == 1:
        return ddls[0]
    for head in ("RENAME TABLE ", "DROP TABLE IF EXISTS ", "DROP TABLE "):
        if all(d.startswith(head) for d in ddls):
            return head + ", ".join(d.removeprefix(head) for d in ddls)
    raise AssertionError(ddls)


@cache
def history(capture: str) -> list[Step]:
    """Apply the statements of a recorded schema change topic, in order."""
    groups: list[list[dict[str, Any]]] = []
    for row in rows("schema_changes"):
        if row["capture"] != capture:
            continue
        payload = json.loads(row["value"])["payload"]
        source = payload["source"]
        record = {**row, "source": source, "payload": payload}
        same = groups and source["snapshot"] == "false" and groups[-1][0]["source"]["pos"] == source["pos"]
        if same:
            groups[-1].append(record)
        else:
            groups.append([record])
    state, steps = SchemaState(), []
    for group in groups:
        ddl = whole_statement([r["payload"]["ddl"] for r in group])
        db = group[0]["payload"]["databaseName"] or ""
        applied = apply_ddl(state, ddl, DdlContext(default_db=db))
        state = applied.state
        source = group[0]["source"]
        place = (source["file"], source["pos"])
        steps.append(Step(ddl, db, source["snapshot"] == "true", place, group, applied.changes, state))
    return steps


def table_at(capture: str, table_id: TableId, place: tuple[str, int], *, snapshot: bool) -> Table:
    """Return a table's structure at a place of a recording."""
    state = SchemaState()
    for step in history(capture):
        if not step.snapshot and (snapshot or step.place > place):
            break
        state = step.state
    return state.tables[table_id]
