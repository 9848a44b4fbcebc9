"""Schema changes of some 1,300 statements equal those that Debezium's own classes make of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit.memory_job import config

from airflow_provider_mysql_cdc.cdc.ddl.state import SchemaState
from airflow_provider_mysql_cdc.cdc.drain.ddl_events import DdlEventHandler
from airflow_provider_mysql_cdc.cdc.errors import CdcError

RECORDING = Path(__file__).parent / "peer_ddl" / "statements.jsonl.gz"
EVENT: Any = SimpleNamespace(file="f.1", start_pos=4, end_pos=5, timestamp=1, server_id=1)
AT: Any = SimpleNamespace(commit_us=0, gtid=None, thread=None, begun=False)
SERVER = {"lower_case_table_names": 0, "explicit_defaults_for_timestamp": 1}


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None and k != "typeExpression"}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def shown(value: bytes) -> dict[str, Any]:
    payload = json.loads(value)
    source, names = payload["source"], ("databaseName", "ddl", "tableChanges")
    members = without_nulls({name: payload[name] for name in names} | {"source.db": source["db"]})
    return {**members, "source.table": source["table"]}


@pytest.mark.req("SCH-36", "SCH-37", "SCH-39", "SCH-40", "SCH-41", "SCH-42")
def test_schema_changes_are_those_of_debezium() -> None:
    cfg = config(**{"include.schema.comments": "true", "value.converter.schemas.enable": "false"})
    handler, state, compared = DdlEventHandler(cfg, 1, SERVER), SchemaState(), 0
    for line in gzip.decompress(RECORDING.read_bytes()).decode().splitlines():
        case = json.loads(line)
        if "begin" in case:
            state = SchemaState()
            continue
        query: Any = SimpleNamespace(db=case["db"], sql=case["sql"], sql_mode=0, temporary=False, updated_dbs=())
        try:
            applied = handler.apply(state, query, "f.1:4")
        except CdcError:
            assert case["recorded"] is None, case["sql"]
            continue
        if case["recorded"] is not None:
            records = (
                handler.non_structural_records(EVENT, query, AT)
                if applied.kind == "ignored"
                else handler.schema_changes(applied.changes, EVENT, AT, query.db)
            )
            assert [shown(r.value or b"") for r in records] == case["recorded"], case["sql"]
            compared += 1
        state = applied.state
    assert compared > 1000
